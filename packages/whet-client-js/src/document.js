/** A prompt as a document: its messages as their author wrote them, and as a model receives them. */

import { UsageError, showValue } from "./errors.js";
import { isObject, parseJson } from "./http.js";

/** @typedef {{role: string, content: string, name?: string}} Message */

/** The role of a prompt of one text: its slots decide whether it is the system message or the user message. */
export const AUTO = "auto";

const MARKER = /<!--[ \t]*whet:(begin|end)(?:[ \t]+([\p{L}\p{N}_.-]+))?[ \t]*-->/gu;
const LOOKS_LIKE_MARKER = /<!--\s*whet:/gi;
const FRONT_MATTER = /^---[ \t]*\r?\n((?:[^\n]*\n)*?)(?:---|\.\.\.)[ \t]*(?:\r?\n(?:[ \t]*\r?\n)*|$)/;
const ENTRY = /^[a-z][\p{L}\p{N}_.-]*[ \t]*:(?:[ \t]|$)/u;
const BELOW = /^(?:[ \t]|#|-(?:[ \t]|$)|[\]}])/;
const LINES = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/;
/** @type {Readonly<Record<string, string>>} */
const ROLES = {
  system: "system", developer: "system", user: "user", human: "user", assistant: "assistant", ai: "assistant", model: "assistant",
};
const HEADING = /(?:^|\r?\n\r?\n)\[(system|user|assistant)\](?:\r?\n|$)/g;
const PROMPTY_HEADING = /^(system|developer|user|human|assistant|ai|model):[ \t]*(?:\r?\n|$(?![^]))/gm;
const DOTPROMPT_HEADING = /\{\{role ["'](system|developer|user|human|assistant|ai|model)["']\}\}[ \t]*(?:\r?\n)?/g;
const MEANT_AS_JSON =
  /^(?:\s*(?:\[\s*)?\{\s*["'](?:role|content|messages|lc|_type)["']\s*:|\s*\[\s*\[\s*["'](?:system|human|user|ai|assistant)["']\s*,)/;
const MEANT_AS_YAML = /^\s*(?:messages:\s*)?-[ \t]+role:/;
const EXAMPLE = '[{"role": "system", "content": "..."}, {"role": "user", "content": "{{input}}"}]';

/**
 * The front matter with which a text begins, lines `---` and blank lines below included; empty where there is none.
 * @param {string} text
 */
export function frontMatterOf(text) {
  const match = FRONT_MATTER.exec(text);
  const inner = match?.[1] ?? "";
  if (match === null || inner.includes("{{") || inner.search(LOOKS_LIKE_MARKER) >= 0) return "";
  const lines = inner.split(LINES).filter((line) => line.trim());
  const known = lines.every((line) => ENTRY.test(line) || BELOW.test(line));
  return known && lines.some((line) => ENTRY.test(line)) ? match[0] : "";
}

/**
 * The text that a model sees: no front matter, no markers, and no empty lines where markers stood alone.
 * @param {string} text
 */
export function withoutMarkers(text) {
  const pieces = [];
  let at = frontMatterOf(text).length;
  for (const match of text.matchAll(MARKER)) {
    const end = match.index + match[0].length;
    const line = text.lastIndexOf("\n", match.index - 1) + 1;
    const beginsLine = match.index === 0 ? 0 : line;
    const after = endOfOwnLine(text, beginsLine, match.index, end);
    pieces.push(text.slice(at, after > end && beginsLine >= at ? beginsLine : match.index));
    at = Math.max(after, end);
  }
  pieces.push(text.slice(at));
  return pieces.join("");
}

/**
 * Offset after the newline that follows a marker which stands on a line of its own, else `stop`.
 * @param {string} text @param {number} beginsLine @param {number} start @param {number} stop
 */
function endOfOwnLine(text, beginsLine, start, stop) {
  if (!/^[ \t]*$/.test(text.slice(beginsLine, start))) return stop;
  const rest = /[ \t]*(?:\r\n|\n|$)/y;
  rest.lastIndex = stop;
  return rest.test(text) ? rest.lastIndex : stop;
}

/**
 * Messages of the server or of the app, if they are a prompt.
 * @param {readonly Message[]} messages
 * @param {string} where
 * @returns {Message[]}
 * @throws {UsageError} for a broken fence and for no text
 */
export function checkedMessages(messages, where) {
  let fences = 0;
  for (const { content } of messages) {
    if (/\p{Surrogate}/u.test(content)) {
      throw new UsageError(`${where}: half of a surrogate pair stands alone; it is no character. Remove it.`);
    }
    fences += checkFences(content, where);
  }
  if (fences === 0 && !messages.some(({ content }) => withoutMarkers(content).trim())) {
    throw new UsageError(`${where}: the prompt is empty.`);
  }
  return messages.map((m) => ({ role: m.role, content: m.content, ...nameOf(m) }));
}

/** @param {string} text @param {string} where @returns {number} */
function checkFences(text, where) {
  let opened = null;
  let count = 0;
  let matched = 0;
  for (const match of text.matchAll(MARKER)) {
    matched += 1;
    const at = `${where}:${text.slice(0, match.index).split("\n").length}`;
    if (match[1] === "begin") {
      if (opened !== null) {
        throw new UsageError(`${at}: a fence begins inside another fence. Close the first one with <!-- whet:end -->.`);
      }
      opened = match[2] ?? "instructions";
      count += 1;
      continue;
    }
    if (opened === null) throw new UsageError(`${at}: <!-- whet:end --> without a <!-- whet:begin --> before it.`);
    if (match[2] !== undefined && match[2] !== opened) {
      throw new UsageError(`${at}: <!-- whet:end ${match[2]} --> closes a fence named "${opened}".`);
    }
    opened = null;
  }
  if (opened !== null) throw new UsageError(`${where}: a fence is never closed. Add <!-- whet:end --> after the editable text.`);
  if ((text.match(LOOKS_LIKE_MARKER) ?? []).length > matched) {
    throw new UsageError(
      `${where}: a comment looks like a fence but is not one. Write <!-- whet:begin --> or <!-- whet:begin NAME --> and <!-- whet:end -->.`,
    );
  }
  return count;
}

/**
 * The messages of a prompt's text: those that it lists (as JSON, or with a line `[system]` above each), else one of the role `auto`.
 * @param {string} source
 * @param {string} where
 * @returns {Message[]}
 * @throws {UsageError} for a text that looks like a list of messages and cannot be read as such
 */
export function parseDocument(source, where) {
  const text = source.replace(/^\ufeff/, "");
  if (text.includes("\0")) throw new UsageError(`${where}: a NUL character. Remove it.`);
  const front = frontMatterOf(text);
  const body = text.slice(front.length);
  const headed =
    headedMessages(text, HEADING) ??
    (front
      ? headedMessages(body, HEADING) ?? messagesBelow(body, PROMPTY_HEADING) ?? messagesBelow(body, DOTPROMPT_HEADING)
      : null);
  if (headed !== null) {
    const [first, ...others] = headed;
    const keeps = front && first ? [{ role: first.role, content: front + first.content }, ...others] : headed;
    return checkedMessages(keeps, where);
  }
  const value = /^\s*[[{]/.test(text) ? parseJson(text) : undefined;
  if (value !== undefined && looksLikeChat(value)) return readMessages(value, where);
  if (value === undefined && MEANT_AS_JSON.test(text)) {
    throw new UsageError(`${where}: this looks like a list of messages and is no valid JSON. Correct it.`);
  }
  if (MEANT_AS_YAML.test(text)) {
    throw new UsageError(`${where}: these are messages in YAML, and not one text. Write JSON: ${EXAMPLE}.`);
  }
  return checkedMessages([{ role: AUTO, content: text }], where);
}

/**
 * Whether a value is meant as messages or as a template of another tool, readable or not.
 * @param {unknown} value
 */
function looksLikeChat(value) {
  if (isObject(value)) {
    const isPrompt = (value.type === "chat" || value.type === "text") && "prompt" in value;
    return Array.isArray(value.messages) || ("role" in value && "content" in value) || isPrompt || "lc" in value || "_type" in value;
  }
  return Array.isArray(value) && value.some((one) => isPair(one) || (isObject(one) && ("role" in one || "content" in one || "lc" in one)));
}

/** @param {unknown} value */
function isPair(value) {
  return Array.isArray(value) && value.length === 2 && typeof value[0] === "string" && (value[0] in ROLES || value[0] === "placeholder");
}

/** @param {string} text @param {RegExp} heading @returns {Message[] | null} */
function headedMessages(text, heading) {
  const headings = [...text.matchAll(heading)];
  if (headings[0]?.index !== 0) return null;
  return headings.map((match, number) => ({
    role: ROLES[match[1] ?? ""] ?? AUTO,
    content: text.slice(match.index + match[0].length, headings[number + 1]?.index ?? text.length),
  }));
}

/** @param {string} body @param {RegExp} heading @returns {Message[] | null} */
function messagesBelow(body, heading) {
  const messages = headedMessages(body.replace(/^[\r\n]+/, ""), heading);
  const last = (messages?.length ?? 0) - 1;
  return messages?.map((m, number) => (number < last ? { role: m.role, content: m.content.replace(/[\r\n]+$/, "") } : m)) ?? null;
}

/**
 * The messages of a value: a list of objects with `role` and `content`, or an object with such a list under `messages`.
 * @param {unknown} value
 * @param {string} where
 * @returns {Message[]}
 * @throws {UsageError} naming what cannot be read
 */
export function readMessages(value, where) {
  const list = isObject(value) && "messages" in value ? value.messages : isObject(value) ? [value] : value;
  if (!Array.isArray(list) || list.length === 0) {
    throw new UsageError(`${where}: a prompt of several messages is a list; this is ${showValue(list)}. Write ${EXAMPLE}.`);
  }
  const first = isObject(value) && typeof value.system === "string" ? [{ role: "system", content: value.system }] : [];
  return checkedMessages([...first, ...list.map((one, number) => readMessage(one, `${where}, message ${number + 1}`))], where);
}

/** The name of who speaks, where a message has one. @param {{name?: unknown}} message @returns {{name?: string}} */
export function nameOf({ name }) {
  return typeof name === "string" && name ? { name } : {};
}

/** @param {unknown} one @param {string} where @returns {Message} */
function readMessage(one, where) {
  const role = isObject(one) && typeof one.role === "string" ? ROLES[one.role] : undefined;
  if (!isObject(one) || role === undefined) {
    throw new UsageError(`${where}: this is no message with a known role: ${showValue(one)}. Write ${EXAMPLE}.`);
  }
  const parts = typeof one.content === "string" ? [one.content] : Array.isArray(one.content) ? one.content : [];
  const texts = parts.map((part) => (typeof part === "string" ? part : isObject(part) ? part.text : undefined));
  if (texts.length === 0 || !texts.every((text) => typeof text === "string")) {
    throw new UsageError(`${where}: \`content\` must be text; this is ${showValue(one.content)}.`);
  }
  return { role, content: texts.join("\n"), ...nameOf(one) };
}
