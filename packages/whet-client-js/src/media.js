/** Images, sounds and files of a prompt, which its text holds as `[[whet:KIND:DATA URL]]`, as parts of a message in OpenAI's form. */

import { isObject, parseJson } from "./http.js";

/**
 * A part of a message: a text, an image, a sound or a file.
 * @typedef {{type: string, [key: string]: unknown}} Part
 */

const INLINE = /\[\[whet:(?:image|audio|file):data:([\w.+-]+\/[\w.+-]+);base64,([A-Za-z0-9+/=\s]+)\]\]/g;
const FORMATS = new Map([["audio/mpeg", "mp3"], ["audio/wav", "wav"]]);

/**
 * A text of a prompt in pieces: texts, and the parts that it holds.
 * @param {string} text
 * @returns {(string | Part)[]}
 */
export function piecesOf(text) {
  /** @type {(string | Part)[]} */
  const pieces = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    const part = partOf(String(match[1]), String(match[2]).replace(/\s/g, ""));
    if (!part) continue;
    pieces.push(text.slice(at, match.index), part);
    at = match.index + match[0].length;
  }
  return [...pieces, text.slice(at)];
}

/**
 * The content of a message: the text of its pieces, or a list of parts where one of them is a part.
 * @param {readonly (string | Part)[]} pieces
 * @returns {string | Part[]}
 */
export function contentOf(pieces) {
  if (pieces.every((piece) => typeof piece === "string")) return pieces.join("");
  return pieces
    .filter((piece) => typeof piece !== "string" || piece.trim())
    .map((piece) => (typeof piece === "string" ? { type: "text", text: piece.replace(/^\n+|\n+$/g, "") } : piece));
}

/** @param {string} mime @param {string} data @returns {Part | undefined} */
function partOf(mime, data) {
  if (mime === "application/json") {
    const value = parseJson(decoded(data));
    return isObject(value) && typeof value.type === "string" ? { ...value, type: value.type } : undefined;
  }
  const url = `data:${mime};base64,${data}`;
  if (mime.startsWith("image/")) return { type: "image_url", image_url: { url } };
  const format = FORMATS.get(mime);
  return format ? { type: "input_audio", input_audio: { data, format } } : { type: "file", file: { filename: mime, file_data: url } };
}

/** The text of base64; empty where it is none. @param {string} data */
function decoded(data) {
  try {
    return new TextDecoder().decode(Uint8Array.from(atob(data), (one) => one.charCodeAt(0)));
  } catch {
    return "";
  }
}
