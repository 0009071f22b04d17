/**
 * Status, headers with names in lower case, and body.
 * @typedef {{status: number, headers: Record<string, string>, body: string}} HttpReply
 */
/**
 * How requests go out; rejects with Unavailable.
 * @callback Send
 * @param {"GET" | "POST"} method
 * @param {string} path
 * @param {Record<string, string>} headers
 * @param {string | null} body
 * @returns {Promise<HttpReply>}
 */
/**
 * Requests to one server with one token.
 * @param {string} url
 * @param {string | null} token
 * @param {number} timeout seconds until the whole answer is there
 * @returns {Send}
 * @throws {UsageError} for an address that is none
 */
export function connect(url: string, token: string | null, timeout: number): Send;
/**
 * The value of a text of JSON; undefined where it is none.
 * @param {string} text
 * @returns {unknown}
 */
export function parseJson(text: string): unknown;
/**
 * Whether a value is an object with keys.
 * @param {unknown} value
 * @returns {value is Record<string, unknown>}
 */
export function isObject(value: unknown): value is Record<string, unknown>;
/**
 * The reason that the server gives for its answer, in one line.
 * @param {HttpReply} answer
 */
export function reasonOf(answer: HttpReply): string;
/**
 * The answer, unless the server is overloaded or broken.
 * @param {HttpReply} answer
 * @param {string} url
 * @throws {Unavailable} for 408, 425, 429 and 5xx
 */
export function throwIfUnavailable(answer: HttpReply, url: string): HttpReply;
/** Bytes of one answer. */
export const LARGEST_ANSWER: number;
/**
 * Status, headers with names in lower case, and body.
 */
export type HttpReply = {
    status: number;
    headers: Record<string, string>;
    body: string;
};
/**
 * How requests go out; rejects with Unavailable.
 */
export type Send = (method: "GET" | "POST", path: string, headers: Record<string, string>, body: string | null) => Promise<HttpReply>;
