/** Errors that an app can meet. A message says what happened, which value, and what to do. */

/** Root of every error that whet raises on purpose. */
export class WhetError extends Error {
  /** @param {string} message @param {ErrorOptions} [options] */
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** Input that cannot be used. Thrown before anything is sent or written. */
export class UsageError extends WhetError {}

/** The server answers that it has no such thing. */
export class NotFound extends UsageError {}

/** The server cannot be reached, or cannot serve now; the same request may succeed later. */
export class Unavailable extends WhetError {
  /**
   * @param {string} message
   * @param {number | null} [status] its answer if there was one (429 or 5xx)
   * @param {number | null} [retryAfter] the delay that it asks for, in seconds
   */
  constructor(message, status = null, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/**
 * The words of an error, whatever was thrown.
 * @param {unknown} error
 */
export function wordsOf(error) {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause instanceof Error ? error.cause.message || error.cause.name : "";
  return cause || error.message || error.name;
}

/**
 * ' Did you mean "x"?' for the nearest known word, or the list of known words.
 * @param {string} word
 * @param {Iterable<string>} known
 */
export function didYouMean(word, known) {
  const words = [...known].sort();
  const lower = word.toLowerCase().slice(0, 60);
  let best = "";
  let least = Math.max(1, Math.floor(lower.length * 0.4)) + 1;
  for (const one of words) {
    const distance = editDistance(lower, one.toLowerCase());
    if (distance < least) [best, least] = [one, distance];
  }
  return best ? ` Did you mean "${best}"?` : ` Known: ${words.join(", ")}.`;
}

/**
 * Letters to insert, delete or replace.
 * @param {string} a
 * @param {string} b
 */
function editDistance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, place) => place);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      next.push(Math.min(at(row, j) + 1, at(next, j - 1) + 1, at(row, j - 1) + same));
    }
    row = next;
  }
  return at(row, b.length);
}

/** @param {number[]} row @param {number} place */
function at(row, place) {
  return row[place] ?? 0;
}

/**
 * A value as a message quotes it.
 * @param {unknown} value
 */
export function showValue(value) {
  let text;
  try {
    text = typeof value === "string" ? JSON.stringify(value) : typeof value === "object" ? JSON.stringify(value) : String(value);
  } catch {
    text = `a ${typeof value}`;
  }
  text = text ?? String(value);
  return text.length <= 60 ? text : `${text.slice(0, 60)}…`;
}
