/** What an app reports: inferences, and what people and programs say or do about them. The vocabulary of the server. */

import { UsageError, didYouMean, showValue } from "./errors.js";
import { isObject } from "./http.js";
import { iso, newId, now } from "./ids.js";
import { cleanText, cutText, cutTexts, isJson, jsonValue, lengthOf } from "./json_values.js";

export const LONGEST_ID = 200;
export const LONGEST_NAME = 255;
export const LONGEST_LABEL = 200;
export const LONGEST_TEXT = 32_000;
export const LONGEST_OUTPUT = 256_000;
export const LONGEST_INPUTS = 256_000;
export const LONGEST_METADATA = 16_000;
export const LARGEST_VERSION = 2 ** 31 - 1;
/** Levels of nesting in a JSON value. */
const DEEPEST = 64;
const [EARLIEST, LATEST] = [946_684_800_000_000, 4_102_444_800_000_000];
/** Characters that the names of what was cut and cleaned may need in the metadata. */
const MARKS = 200;

/** Who speaks: somebody who uses the app, somebody who reviews answers, a model that judges, a program. */
export const SOURCES = /** @type {const} */ (["user", "annotator", "model", "code"]);

/**
 * The other fields of an answer: `cost` is in dollars, `latency` in seconds, `time` in microseconds since 1970-01-01 UTC or a Date.
 * `episode` joins all calls that share an outcome; `response` is the provider's own id of the answer.
 * @typedef {object} InferenceFields
 * @property {number} [version] of the prompt; 0: unknown
 * @property {Readonly<Record<string, unknown>> | null} [inputs] the values of the prompt's slots
 * @property {string | null} [id] the idempotency key: the same id and content twice are one row
 * @property {string | null} [model]
 * @property {number | null} [cost]
 * @property {number | null} [latency]
 * @property {number | null} [input_tokens]
 * @property {number | null} [output_tokens]
 * @property {string | null} [session]
 * @property {string | null} [user]
 * @property {string | null} [episode]
 * @property {string | null} [experiment]
 * @property {string | null} [variant]
 * @property {string | null} [response]
 * @property {string | null} [error]
 * @property {number | Date | null} [time]
 * @property {Readonly<Record<string, unknown>> | null} [metadata]
 */

/**
 * Feedback by kinds, each a row of its own. A comment goes with the rating, thumb, score or label, or stands alone.
 * @typedef {object} FeedbackValues
 * @property {number | null} [rating] stars, 1 (worst) to 5
 * @property {"up" | "down" | boolean | number | string | null} [thumb]
 * @property {number | null} [score] a number under the name of a metric
 * @property {string | null} [comment] free text about the answer
 * @property {string | null} [explanation] the same as `comment`
 * @property {string | null} [correction] the answer as it should have been
 * @property {string | null} [label] a category
 * @property {number | null} [choice] 1: preferred to the answer that `over` names, 0: the other one, 0.5: equal
 * @property {string | null} [over]
 * @property {number | boolean | null} [copy] part of the answer that was copied
 * @property {number | null} [edit_distance] 0: used as it was, 1: rewritten altogether
 * @property {number | boolean | null} [regenerate] times that another answer was asked for
 * @property {number | boolean | null} [follow_up] questions asked back
 * @property {number | boolean | null} [abandon] 1: left without using the answer
 * @property {number | null} [dwell] seconds spent on the answer
 * @property {number | boolean | null} [share] times the answer was passed on
 * @property {number | boolean | null} [external_check] how well it did outside: tests passed, sale made
 * @property {string | null} [name] the metric of a score or label
 * @property {string | null} [user]
 * @property {"user" | "annotator" | "model" | "code" | null} [source]
 * @property {Readonly<Record<string, unknown>> | null} [metadata]
 * @property {string | null} [id]
 * @property {number | Date | null} [time]
 */

/**
 * One word of the vocabulary. `low` and `high` bound `value`, `only` says which values there are, if few.
 * @typedef {{needs: "value" | "text" | "label", meaning: string, low?: number, high?: number, only?: readonly number[]}} FeedbackKind
 */

/** Every kind of feedback. @type {Readonly<Record<string, FeedbackKind>>} */
export const KINDS = {
  rating: { needs: "value", meaning: "stars, 1 (worst) to 5", low: 1, high: 5 },
  thumb: { needs: "value", meaning: "1 for up, 0 for down", only: [0, 1] },
  score: { needs: "value", meaning: "a number under the name of a metric", low: -1e12, high: 1e12 },
  comment: { needs: "text", meaning: "free text about the answer" },
  correction: { needs: "text", meaning: "the answer as it should have been" },
  label: { needs: "label", meaning: "a category, with the reason as text" },
  choice: { needs: "value", meaning: "1: preferred to the other one, 0: the other one, 0.5: equal", only: [0, 0.5, 1] },
  copy: { needs: "value", meaning: "part of the answer that was copied" },
  edit_distance: { needs: "value", meaning: "0: used as it was, 1: rewritten altogether" },
  regenerate: { needs: "value", meaning: "times that another answer was asked for", low: 1, high: 1000 },
  follow_up: { needs: "value", meaning: "questions asked back", low: 1, high: 1000 },
  abandon: { needs: "value", meaning: "1: left without using the answer" },
  dwell: { needs: "value", meaning: "seconds spent on the answer", high: 86_400 },
  share: { needs: "value", meaning: "times the answer was passed on", low: 1, high: 1000 },
  external_check: { needs: "value", meaning: "how well it did outside: tests passed, sale made" },
};

/** Values of a thumb as programs write them, in lower case. @type {Readonly<Record<string, number>>} */
const THUMBS = {
  up: 1, thumbs_up: 1, thumb_up: 1, like: 1, positive: 1, true: 1, 1: 1, "+1": 1, "👍": 1,
  down: 0, thumbs_down: 0, thumb_down: 0, dislike: 0, negative: 0, false: 0, 0: 0, "-1": 0, "👎": 0,
};

const INFERENCE_FIELDS = [
  "version", "inputs", "id", "model", "cost", "latency", "input_tokens", "output_tokens", "session", "user", "episode",
  "experiment", "variant", "response", "error", "time", "metadata",
];
const BESIDE = ["comment", "explanation", "name", "over", "user", "source", "metadata", "id", "time"];

/** @typedef {Record<string, unknown>} Row */

/**
 * An answer as the server reads it. Texts that are too long are cut, and those with what no database keeps are cleaned;
 * `metadata.cut` and `metadata.cleaned` name them.
 * @param {string} prompt
 * @param {string} output
 * @param {InferenceFields} known fields that the prompt gives
 * @param {InferenceFields} more those that the app gives, which go first
 * @returns {Row & {id: string}}
 * @throws {UsageError} for a field that is none or cannot be
 */
export function inferenceRow(prompt, output, known, more) {
  for (const name of Object.keys(more)) {
    if (!INFERENCE_FIELDS.includes(name)) throw new UsageError(`There is no field "${name}".${didYouMean(name, INFERENCE_FIELDS)}`);
  }
  const row = fitTexts({ id: newId(), time: now(), prompt, output, ...present(known), ...present(more) });
  const where = "inference";
  checkName(row.id, "id", where, 1);
  checkText(row.prompt, "prompt", where, LONGEST_NAME, 1);
  if (String(row.prompt).includes("|")) throw new UsageError(`${where}: prompt: ${showValue(row.prompt)} has a |, which no name has.`);
  checkText(row.output, "output", where, LONGEST_OUTPUT);
  checkText(row.error, "error", where, LONGEST_TEXT);
  for (const name of NAMES) checkName(row[name], name, where);
  for (const name of ["version", "input_tokens", "output_tokens"]) checkWhole(row[name], name, where);
  checkNumber(row.cost, "cost", where, 0, 1e6);
  checkNumber(row.latency, "latency", where, 0, 1e7);
  checkObject(row.inputs, "inputs", where, LONGEST_INPUTS);
  checkObject(row.metadata, "metadata", where, LONGEST_METADATA);
  return asRow(row, where);
}

/**
 * Feedback as the server reads it, a row for each kind.
 * @param {"inference" | "episode" | "session"} targetKind
 * @param {string} target
 * @param {FeedbackValues} values
 * @returns {(Row & {id: string})[]}
 * @throws {UsageError} for a word that is none, and for a value that cannot be
 */
export function feedbackRows(targetKind, target, values) {
  const left = present(values);
  for (const name of Object.keys(left)) {
    if (!(name in KINDS) && !BESIDE.includes(name)) {
      throw new UsageError(`"${name}" is no kind of feedback.${didYouMean(name, [...Object.keys(KINDS), ...BESIDE])}`);
    }
  }
  if ((left.choice === undefined) !== (left.over === undefined)) {
    throw new UsageError("feedback: choice and over go together: {choice: 1, over: ID_OF_THE_OTHER_ANSWER}.");
  }
  const base = { target, target_kind: targetKind, ...pick(left, ["user", "source", "metadata", "time"]) };
  let reason = left.comment || left.explanation;
  /** @type {Row[]} */
  const rows = [];
  for (const kind of Object.keys(left).filter((name) => name in KINDS && name !== "comment")) {
    /** @type {Row} */
    const row = { ...base, kind, [kindOf(kind).needs]: plainValue(kind, left[kind]) };
    if (kind === "score" || kind === "label") row.name = left.name;
    if (kind === "choice") row.label = left.over;
    if (reason !== undefined && reason !== "" && ["rating", "thumb", "score", "label"].includes(kind)) {
      row.text = reason;
      reason = undefined;
    }
    rows.push(row);
  }
  if (reason !== undefined && reason !== "") rows.push({ ...base, kind: "comment", text: reason });
  if (rows.length === 0) throw new UsageError(`The feedback says nothing. Give one of ${Object.keys(KINDS).join(", ")}.`);
  return rows.map((row, number) => {
    const own = left.id === undefined ? newId() : number === 0 ? left.id : `${cutText(String(left.id), LONGEST_ID - 9)}#${number}`;
    return checkedFeedback(fitTexts({ time: now(), ...present(row), id: own }));
  });
}

/** @param {Row} row */
function checkedFeedback(row) {
  const where = "feedback";
  const name = String(row.kind);
  const kind = kindOf(name);
  for (const key of ["id", "target"]) checkName(row[key], key, where, 1);
  if (row.source !== undefined && !SOURCES.some((one) => one === row.source)) {
    throw new UsageError(`${where}: source: ${showValue(row.source)} is none of ${SOURCES.join(", ")}.`);
  }
  checkText(row.text, "text", where, LONGEST_TEXT);
  checkText(row.label, "label", where, LONGEST_LABEL);
  checkText(row.name, "name", where, LONGEST_NAME);
  checkName(row.user, "user", where);
  if (row[kind.needs] === undefined || row[kind.needs] === "") {
    throw new UsageError(`${where}: ${kind.needs}: a ${name} (${kind.meaning}) needs one. Add it.`);
  }
  if (name === "choice" && row.label === row.target) {
    throw new UsageError(`${where}: label: a choice is between two inferences; this names the same one twice.`);
  }
  checkNumber(row.value, "value", where, kind.low ?? 0, kind.high ?? 1);
  if (kind.only && !kind.only.some((one) => one === row.value)) {
    throw new UsageError(`${where}: value must be ${kind.only.join(" or ")}; this is ${showValue(row.value)}.`);
  }
  checkObject(row.metadata, "metadata", where, LONGEST_METADATA);
  return asRow(row, where);
}

/** @param {string} name */
function kindOf(name) {
  return /** @type {FeedbackKind} */ (KINDS[name]);
}

/**
 * Words and truth values as numbers where a number is wanted.
 * @param {string} kind
 * @param {unknown} value
 */
function plainValue(kind, value) {
  if (kindOf(kind).needs !== "value") return value;
  if (kind === "thumb") return thumbValue(value);
  return typeof value === "boolean" && kind !== "rating" ? Number(value) : value;
}

/** @param {unknown} value */
function thumbValue(value) {
  const word = String(value).trim().toLowerCase();
  const known = Object.hasOwn(THUMBS, word) ? THUMBS[word] : THUMBS[word.replaceAll("-", "_").replaceAll(" ", "_")];
  if (known === undefined || (typeof value === "object" && value !== null)) {
    throw new UsageError(`feedback: thumb is ${showValue(value)}; a thumb is "up" or "down", true or false, 1 or 0.`);
  }
  return known;
}

/**
 * Texts cut to what is kept, and without what no database keeps; the metadata name those that were cut or cleaned.
 * @param {Row} row
 * @returns {Row}
 */
function fitTexts(row) {
  /** @type {{cut: string[], cleaned: string[]}} */
  const changed = { cut: [], cleaned: [] };
  const fitted = { ...row };
  for (const [name, most] of Object.entries({ output: LONGEST_OUTPUT, error: LONGEST_TEXT, text: LONGEST_TEXT, label: LONGEST_LABEL })) {
    const text = row[name];
    if (typeof text !== "string") continue;
    const clean = cleanText(text);
    fitted[name] = cutText(clean, most);
    if (fitted[name] !== clean) changed.cut.push(name);
    if (clean !== text) changed.cleaned.push(name);
  }
  for (const [name, most] of Object.entries({ inputs: LONGEST_INPUTS, metadata: LONGEST_METADATA - MARKS })) {
    const value = row[name];
    if (!isObject(value)) continue;
    const written = jsonValue(value);
    if (!isObject(written)) throw new UsageError(`${name} must be an object; as JSON, this is ${showValue(written)}.`);
    if (!isJson(value, written)) changed.cleaned.push(name);
    fitted[name] = cutTexts(written, most);
    if (lengthOf(written) > most) changed.cut.push(name);
  }
  const marks = Object.fromEntries(Object.entries(changed).filter(([, names]) => names.length));
  const { metadata } = fitted;
  if (Object.keys(marks).length && (metadata === undefined || isObject(metadata))) fitted.metadata = { ...metadata, ...marks };
  return fitted;
}

/**
 * The fields that say something, as the server reads them.
 * @param {Row} row
 * @param {string} where
 * @returns {Row & {id: string}}
 */
function asRow(row, where) {
  const time = row.time instanceof Date ? row.time.getTime() * 1000 : row.time;
  if (typeof time !== "number" || !Number.isInteger(time)) {
    throw new UsageError(`${where}: time must be a Date or a whole number, the microseconds since 1970; this is ${showValue(row.time)}.`);
  }
  if (time < EARLIEST || time >= LATEST) {
    throw new UsageError(`${where}: time must lie between the years 2000 and 2100; this is ${showValue(row.time)}.`);
  }
  const kept = Object.entries(row).filter(([, value]) => !(isObject(value) && Object.keys(value).length === 0));
  return { ...Object.fromEntries(kept), id: String(row.id), time: iso(time) };
}

/** Fields that name something beside the row: a blank one names nothing, as `user: ""` for somebody who has not signed in. */
const NAMES = ["model", "session", "user", "episode", "experiment", "variant", "response"];

/** Whether a value is a text without a character that shows. @param {unknown} value */
export function isBlank(value) {
  return typeof value === "string" && value.trim() === "";
}

/** The fields that have a value. @param {object} fields @returns {Row} */
function present(fields) {
  const known = Object.entries(fields).filter(([name, value]) => value !== undefined && value !== null && !(NAMES.includes(name) && isBlank(value)));
  return Object.fromEntries(known);
}

/** @param {Row} row @param {readonly string[]} names */
function pick(row, names) {
  return Object.fromEntries(names.filter((name) => name in row).map((name) => [name, row[name]]));
}

/**
 * Refuse what is no text of `least` to `most` characters.
 * @param {unknown} value @param {string} name @param {string} where @param {number} most @param {number} [least]
 */
function checkText(value, name, where, most, least = 0) {
  if (value === undefined && least === 0) return;
  if (typeof value !== "string") throw new UsageError(`${where}: ${name} must be a text; this is ${showValue(value)}.`);
  if (value.length < least) throw new UsageError(`${where}: ${name} is empty. Fill it in.`);
  const length = value.length > most ? [...value].length : value.length;
  if (length > most) throw new UsageError(`${where}: ${name} has ${length} characters, at most ${most}. Shorten it.`);
  if (value !== cleanText(value)) throw new UsageError(`${where}: ${name} has a NUL or half a surrogate pair, which is no text. Remove it.`);
}

/**
 * Refuse what is no id and no name: a text on one line, without control characters, of 200 characters at most.
 * @param {unknown} value @param {string} name @param {string} where @param {number} [least]
 */
export function checkName(value, name, where, least = 0) {
  checkText(value ?? undefined, name, where, LONGEST_ID, least);
  if (typeof value === "string" && /\p{Cc}/u.test(value)) {
    throw new UsageError(`${where}: ${name} holds a control character: ${showValue(value)}. Leave it out.`);
  }
}

/** @param {unknown} value @param {string} name @param {string} where @param {number} low @param {number} high */
function checkNumber(value, name, where, low, high) {
  if (value === undefined) return;
  if (typeof value !== "number" || !(value >= low && value <= high)) {
    throw new UsageError(`${where}: ${name} must be a number from ${low} to ${high}; this is ${showValue(value)}.`);
  }
}

/** @param {unknown} value @param {string} name @param {string} where */
function checkWhole(value, name, where) {
  if (value === undefined) return;
  if (typeof value !== "number" || !Number.isInteger(value) || value < 0 || value > LARGEST_VERSION) {
    throw new UsageError(`${where}: ${name} must be a whole number from 0; this is ${showValue(value)}.`);
  }
}

/** @param {unknown} value @param {string} name @param {string} where @param {number} most */
function checkObject(value, name, where, most) {
  if (value === undefined) return;
  if (!isObject(value)) throw new UsageError(`${where}: ${name} must be an object; this is ${showValue(value)}.`);
  const length = lengthOf(value);
  if (length > most) throw new UsageError(`${where}: ${name} has ${length} characters as JSON, at most ${most}. Shorten it.`);
  /** @type {object[]} */
  let level = [value];
  for (let depth = 0; depth < DEEPEST; depth++) {
    level = level.flatMap((outer) => Object.values(outer).filter((one) => typeof one === "object" && one !== null));
    if (level.length === 0) return;
  }
  throw new UsageError(`${where}: ${name} is nested more than ${DEEPEST} levels deep. Make it flatter.`);
}
