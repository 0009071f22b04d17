/**
 * Which version a unit sees: a pure function of the experiment's salt and the unit's id, the same as that of the Python client.
 *
 * Each arm draws an exponential waiting time with its weight as the rate, from a hash of salt, unit and version; the first one wins.
 */

import { blake2b64 } from "./blake2b.js";
import { UsageError, showValue } from "./errors.js";

/** What may be assigned: everything that one user, one session or one episode sees comes from one arm. */
export const UNITS = /** @type {const} */ (["user", "session", "episode"]);

/**
 * @typedef {[version: number, weight: number]} Arm
 */

/**
 * An exponential waiting time with rate 1 for one unit and one version: > 0, the same everywhere.
 * @param {string} salt
 * @param {string} unit
 * @param {number} version
 */
export function waiting(salt, unit, version) {
  const [high, low] = blake2b64(utf8(`${[...salt].length}:${salt}${version}:${unit}`));
  const drawn = high * 2 ** 21 + (low >>> 11);
  return -Math.log((drawn + 0.5) / 2 ** 53);
}

/**
 * The version of one unit. Weights are not negative and need not add up to 1; an arm with weight 0 gets nobody.
 * @param {string} salt
 * @param {string} unit
 * @param {readonly Arm[]} arms
 * @throws {UsageError} for an empty unit, no positive weight, or a weight that is negative or not finite
 */
export function assign(salt, unit, arms) {
  if (!unit) throw new UsageError("The unit of an experiment is empty; give the id of the user, session or episode.");
  /** @type {number | null} */
  let best = null;
  let first = Infinity;
  for (const [version, weight] of arms) {
    if (!(weight >= 0 && weight < Infinity)) {
      throw new UsageError(`The weight of version ${version} is ${showValue(weight)}; it must be a number from 0 up.`);
    }
    if (weight === 0) continue;
    const arrival = waiting(salt, unit, version) / weight;
    if (best === null || arrival < first) [best, first] = [version, arrival];
  }
  if (best === null) throw new UsageError("No version of the experiment has a positive weight.");
  return best;
}

const ENCODER = new TextEncoder();

/**
 * UTF-8, with half a surrogate pair as its three bytes, as Python's `surrogatepass` writes it.
 * @param {string} text
 */
function utf8(text) {
  if (!/\p{Surrogate}/u.test(text)) return ENCODER.encode(text);
  /** @type {number[]} */
  const bytes = [];
  for (const letter of text) {
    const point = letter.codePointAt(0) ?? 0;
    if (point >= 0xd800 && point <= 0xdfff) bytes.push(0xe0 | (point >> 12), 0x80 | ((point >> 6) & 63), 0x80 | (point & 63));
    else bytes.push(...ENCODER.encode(letter));
  }
  return Uint8Array.from(bytes);
}
