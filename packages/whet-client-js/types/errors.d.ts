/**
 * The words of an error, whatever was thrown.
 * @param {unknown} error
 */
export function wordsOf(error: unknown): string;
/**
 * ' Did you mean "x"?' for the nearest known word, or the list of known words.
 * @param {string} word
 * @param {Iterable<string>} known
 */
export function didYouMean(word: string, known: Iterable<string>): string;
/**
 * A value as a message quotes it.
 * @param {unknown} value
 */
export function showValue(value: unknown): string;
/** Errors that an app can meet. A message says what happened, which value, and what to do. */
/** Root of every error that whet raises on purpose. */
export class WhetError extends Error {
    /** @param {string} message @param {ErrorOptions} [options] */
    constructor(message: string, options?: ErrorOptions);
}
/** Input that cannot be used. Thrown before anything is sent or written. */
export class UsageError extends WhetError {
}
/** The server answers that it has no such thing. */
export class NotFound extends UsageError {
}
/** The server cannot be reached, or cannot serve now; the same request may succeed later. */
export class Unavailable extends WhetError {
    /**
     * @param {string} message
     * @param {number | null} [status] its answer if there was one (429 or 5xx)
     * @param {number | null} [retryAfter] the delay that it asks for, in seconds
     */
    constructor(message: string, status?: number | null, retryAfter?: number | null);
    status: number | null;
    retryAfter: number | null;
}
