/** Values of an app as JSON: what a database keeps of whatever a program has at hand. */

import { showValue } from "./errors.js";
import { isObject } from "./http.js";

const DEEPEST = 100;

/**
 * A text as UTF-8 and a database can hold it: without NUL, half a surrogate pair as U+FFFD.
 * @param {string} text
 */
export function cleanText(text) {
  return text.replaceAll("\0", "").replace(/\p{Surrogate}/gu, "\ufffd");
}

/**
 * A value as JSON and every reader of it hold it. What JSON has no form for is a text: a whole number beyond 64 bits, NaN, a
 * function; and a value inside of itself `…`.
 * @param {unknown} value
 * @param {readonly unknown[]} [around]
 * @returns {unknown}
 */
export function jsonValue(value, around = []) {
  if (typeof value === "string") return cleanText(value);
  if (value === null || value === undefined) return null;
  if (typeof value === "boolean") return value;
  if (typeof value === "number") return plainNumber(value);
  if (typeof value === "bigint") return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
  if (typeof value !== "object") return showValue(value);
  if (around.includes(value) || around.length > DEEPEST) return "…";
  const inner = [...around, value];
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? String(value) : value.toISOString();
  if (value instanceof Error) return `${value.name}: ${cleanText(value.message)}`;
  if ("toJSON" in value && typeof value.toJSON === "function") return jsonValue(value.toJSON(), inner);
  if (Array.isArray(value) || value instanceof Set || ArrayBuffer.isView(value)) {
    const items = /** @type {Iterable<unknown>} */ (value instanceof DataView ? [] : value);
    return Array.from(items, (one) => jsonValue(one, inner));
  }
  const entries = value instanceof Map ? [...value] : Object.entries(value);
  const kept = entries.filter(([, one]) => one !== undefined);
  return Object.fromEntries(kept.map(([key, one]) => [cleanText(String(key)), jsonValue(one, inner)]));
}

/** @param {object} value */
function isPlain(value) {
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

/** @param {number} value */
function plainNumber(value) {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  const asWhole = Number.isInteger(value) && Math.abs(value) >= 2 ** 63 && Math.abs(value) < 1e21; // written with digits only
  return asWhole ? String(value) : value;
}

/**
 * Whether a value says as JSON what `jsonValue` made of it, so that nothing of it is lost.
 * @param {unknown} value
 * @param {unknown} written
 */
export function isJson(value, written) {
  try {
    return holds(value, written);
  } catch {
    return false; // an object of somebody who throws when it is read
  }
}

/** @param {unknown} value @param {unknown} written @returns {boolean} */
function holds(value, written) {
  if (Array.isArray(value) && Array.isArray(written)) {
    return value.length === written.length && value.every((one, place) => holds(one, written[place] ?? null));
  }
  if (isObject(value) && isObject(written) && isPlain(value)) {
    const keys = Object.keys(value).filter((key) => value[key] !== undefined);
    return keys.every((key) => key in written && holds(value[key], written[key] ?? null));
  }
  return value === written;
}

/**
 * The characters of a value as JSON, as the server counts them: with a blank behind each comma and colon.
 * @param {unknown} value
 * @returns {number}
 */
export function lengthOf(value) {
  if (typeof value === "number") return String(value).length + (/e-\d$/.test(String(value)) ? 1 : 0);
  if (Array.isArray(value)) return 2 + Math.max(value.length - 1, 0) * 2 + sum(value.map(lengthOf));
  if (isObject(value)) {
    const entries = Object.entries(value);
    return 2 + Math.max(entries.length - 1, 0) * 2 + sum(entries.map(([key, one]) => lengthOf(key) + 2 + lengthOf(one)));
  }
  return countOf(JSON.stringify(value));
}

/** @param {readonly number[]} numbers */
function sum(numbers) {
  return numbers.reduce((total, one) => total + one, 0);
}

/**
 * A JSON object with its longest texts cut, so that it has at most `most` characters as JSON; where not its texts are what is long,
 * the beginning of it as one text, under the key `json`.
 * @param {Record<string, unknown>} value
 * @param {number} most
 * @returns {Record<string, unknown>}
 */
export function cutTexts(value, most) {
  let excess = lengthOf(value) - most;
  if (excess <= 0) return value;
  const lengths = textsOf(value).map(countOf).sort((a, b) => b - a);
  if (sum(lengths) < excess) return { json: cutText(JSON.stringify(value), Math.floor(most / 4)) };
  for (const [place, length] of lengths.entries()) {
    const count = place + 1;
    const shorter = lengths[count] ?? 0;
    if (count * (length - shorter) >= excess) {
      return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, withShortTexts(one, length - Math.ceil(excess / count))]));
    }
    excess -= count * (length - shorter);
  }
  return {};
}

/**
 * The first characters of a text; two halves of a pair are one.
 * @param {string} text
 * @param {number} most
 */
export function cutText(text, most) {
  return text.length <= most ? text : [...text].slice(0, most).join("");
}

/** The characters of a text; two halves of a pair are one. @param {string} text */
function countOf(text) {
  return [...text].length;
}

/** @param {unknown} value @returns {string[]} */
function textsOf(value) {
  if (typeof value === "string") return [value];
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(textsOf) : [];
}

/** @param {unknown} value @param {number} most @returns {unknown} */
function withShortTexts(value, most) {
  if (typeof value === "string") return cutText(value, most);
  if (Array.isArray(value)) return value.map((one) => withShortTexts(one, most));
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, withShortTexts(one, most)]));
}

/**
 * A value as JSON, with the same characters as the Python client writes; null for what JSON has no form for.
 * @param {unknown} value
 * @param {number} [depth]
 * @returns {string | null}
 */
export function jsonText(value, depth = 0) {
  if (value === null || typeof value === "boolean" || typeof value === "bigint") return String(value);
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "number") return Number.isFinite(value) ? numberText(value) : null;
  if (typeof value !== "object" || depth > DEEPEST) return null;
  if (Array.isArray(value)) return joined(value.map((one) => jsonText(one, depth + 1)), "[", "]");
  const kind = Object.getPrototypeOf(value);
  if (kind !== null && Object.getPrototypeOf(kind) !== null) return null; // a Date, a Map, an object of a class
  const kept = Object.entries(value).filter(([, one]) => one !== undefined);
  return joined(kept.map(([key, one]) => {
    const text = jsonText(one, depth + 1);
    return text === null ? null : `${JSON.stringify(key)}: ${text}`;
  }), "{", "}");
}

/** @param {readonly (string | null)[]} parts @param {string} open @param {string} close */
function joined(parts, open, close) {
  return parts.includes(null) ? null : `${open}${parts.join(", ")}${close}`;
}

/** A number as Python writes it: small ones with an exponent of two digits. @param {number} value */
function numberText(value) {
  if (Number.isInteger(value) || Math.abs(value) >= 1e-4) return String(value);
  return value.toExponential().replace(/e-(\d)$/, "e-0$1");
}
