/**
 * A text as UTF-8 and a database can hold it: without NUL, half a surrogate pair as U+FFFD.
 * @param {string} text
 */
export function cleanText(text: string): string;
/**
 * A value as JSON and every reader of it hold it. What JSON has no form for is a text: a whole number beyond 64 bits, NaN, a
 * function; and a value inside of itself `…`.
 * @param {unknown} value
 * @param {readonly unknown[]} [around]
 * @returns {unknown}
 */
export function jsonValue(value: unknown, around?: readonly unknown[]): unknown;
/**
 * Whether a value says as JSON what `jsonValue` made of it, so that nothing of it is lost.
 * @param {unknown} value
 * @param {unknown} written
 */
export function isJson(value: unknown, written: unknown): boolean;
/**
 * The characters of a value as JSON, as the server counts them: with a blank behind each comma and colon.
 * @param {unknown} value
 * @returns {number}
 */
export function lengthOf(value: unknown): number;
/**
 * A JSON object with its longest texts cut, so that it has at most `most` characters as JSON; where not its texts are what is long,
 * the beginning of it as one text, under the key `json`.
 * @param {Record<string, unknown>} value
 * @param {number} most
 * @returns {Record<string, unknown>}
 */
export function cutTexts(value: Record<string, unknown>, most: number): Record<string, unknown>;
/**
 * The first characters of a text; two halves of a pair are one.
 * @param {string} text
 * @param {number} most
 */
export function cutText(text: string, most: number): string;
/**
 * A value as JSON, with the same characters as the Python client writes; null for what JSON has no form for.
 * @param {unknown} value
 * @param {number} [depth]
 * @returns {string | null}
 */
export function jsonText(value: unknown, depth?: number): string | null;
