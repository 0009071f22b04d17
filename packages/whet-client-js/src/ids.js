/** Ids and times that the app makes itself, so that feedback may be sent before the inference has arrived. */

import { randomBytes } from "#runtime";

let lastMoment = 0;
let count = 0;

/** The time in microseconds since 1970-01-01 UTC. */
export function now() {
  return Date.now() * 1000;
}

/**
 * A UUIDv7 (RFC 9562, section 5.7) as 36 characters; those of one process sort in the order they were made.
 *
 * The millisecond is followed by a counter of 12 bits (method 1 of section 6.2) and 62 random bits; a counter that is full goes on
 * in the next millisecond.
 */
export function newId() {
  const moment = Date.now();
  if (moment > lastMoment) [lastMoment, count] = [moment, 0];
  else if (count < 0xfff) count += 1;
  else [lastMoment, count] = [lastMoment + 1, 0];
  const bytes = randomBytes(8);
  bytes[0] = 0x80 | (/** @type {number} */ (bytes[0]) & 0x3f);
  const random = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  const time = lastMoment.toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7${count.toString(16).padStart(3, "0")}-${random.slice(0, 4)}-${random.slice(4)}`;
}

/**
 * Microseconds since 1970-01-01 UTC as text.
 * @param {number} moment
 */
export function iso(moment) {
  const whole = Math.floor(moment / 1000);
  const rest = String(moment - whole * 1000).padStart(3, "0");
  return `${new Date(whole).toISOString().slice(0, -1)}${rest}Z`;
}
