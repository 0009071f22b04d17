/** Requests to the server: no redirects, so that the token goes nowhere else; bounded answers; a time limit on each. */

import { Unavailable, UsageError, WhetError, showValue, wordsOf } from "./errors.js";

/** Bytes of one answer. */
export const LARGEST_ANSWER = 16 * 1024 * 1024;

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
export function connect(url, token, timeout) {
  const base = addressOf(url);
  if (token !== null && !/^[\x20-\x7e]*$/.test(token)) {
    throw new UsageError("The token has characters that no token has. Copy it again.");
  }
  return async (method, path, headers, body) => {
    const all = { Accept: "application/json", ...headers, ...(token === null ? {} : { Authorization: `Bearer ${token}` }) };
    for (let attempt = 1; ; attempt++) {
      const stop = new AbortController();
      const timer = setTimeout(() => stop.abort(), timeout * 1000);
      try {
        const answer = await fetch(base + path, { method, headers: all, body, redirect: "manual", signal: stop.signal });
        return { status: answer.status, headers: Object.fromEntries(answer.headers), body: await textOf(answer) };
      } catch (error) {
        // A kept connection that the server had closed meanwhile: every request of whet may be repeated.
        if (attempt === 1 && isLost(error)) continue;
        if (error instanceof WhetError) throw error;
        const reason = stop.signal.aborted ? `its answer is not complete after ${timeout} seconds` : wordsOf(error);
        throw new Unavailable(`The server ${url} cannot be reached: ${reason}.`);
      } finally {
        clearTimeout(timer);
      }
    }
  };
}

/** @param {string} url */
function addressOf(url) {
  let parts;
  try {
    parts = new URL(url);
  } catch {
    parts = null;
  }
  const odd = parts === null || !/^https?:$/.test(parts.protocol) || parts.username || parts.password || parts.search || parts.hash;
  if (parts === null || odd) {
    throw new UsageError(`${showValue(url)} is no address of a server. Write http://HOST:PORT or https://HOST.`);
  }
  return parts.href.replace(/\/+$/, "");
}

/** @param {unknown} error */
function isLost(error) {
  const cause = error instanceof Error ? error.cause : undefined;
  const code = cause instanceof Error && "code" in cause ? cause.code : "";
  return code === "ECONNRESET" || code === "EPIPE" || code === "UND_ERR_SOCKET";
}

/** @param {Response} answer */
async function textOf(answer) {
  if (answer.body === null) return "";
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (let size = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    size += value.length;
    if (size > LARGEST_ANSWER) {
      await reader.cancel();
      throw new Unavailable(`The answer has more than ${LARGEST_ANSWER} bytes.`);
    }
    text += decoder.decode(value, { stream: true });
  }
}

/**
 * The value of a text of JSON; undefined where it is none.
 * @param {string} text
 * @returns {unknown}
 */
export function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Whether a value is an object with keys.
 * @param {unknown} value
 * @returns {value is Record<string, unknown>}
 */
export function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * The reason that the server gives for its answer, in one line.
 * @param {HttpReply} answer
 */
export function reasonOf(answer) {
  const value = parseJson(answer.body);
  const error = isObject(value) ? value.error : undefined;
  const message = isObject(error) ? error.message : error;
  const words = message === undefined ? `status ${answer.status}: ${answer.body.slice(0, 600)}` : String(message);
  return words.split(/\s+/).join(" ").trim().slice(0, 300).replace(/\.+$/, "");
}

/**
 * The answer, unless the server is overloaded or broken.
 * @param {HttpReply} answer
 * @param {string} url
 * @throws {Unavailable} for 408, 425, 429 and 5xx
 */
export function throwIfUnavailable(answer, url) {
  if ([408, 425, 429].includes(answer.status) || answer.status >= 500) {
    const named = answer.headers["retry-after"];
    const delay = named !== undefined && Number.isFinite(Number(named)) ? Math.max(Number(named), 0) : null;
    throw new Unavailable(`The server ${url} cannot serve now (status ${answer.status}).`, answer.status, delay);
  }
  return answer;
}
