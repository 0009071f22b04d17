/** The time in microseconds since 1970-01-01 UTC. */
export function now(): number;
/**
 * A UUIDv7 (RFC 9562, section 5.7) as 36 characters; those of one process sort in the order they were made.
 *
 * The millisecond is followed by a counter of 12 bits (method 1 of section 6.2) and 62 random bits; a counter that is full goes on
 * in the next millisecond.
 */
export function newId(): string;
/**
 * Microseconds since 1970-01-01 UTC as text.
 * @param {number} moment
 */
export function iso(moment: number): string;
