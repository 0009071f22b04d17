/** Prompts as the server, or a bundled copy, gives them, and as an app uses them. */

import { UNITS, assign } from "./assignment.js";
import { AUTO, checkedMessages, nameOf, parseDocument, readMessages, withoutMarkers } from "./document.js";
import { UsageError, showValue } from "./errors.js";
import { isObject, parseJson } from "./http.js";
import { jsonText } from "./json_values.js";
import { contentOf, piecesOf } from "./media.js";
import { isFolder, readFile } from "#runtime";
import { canonicalName, fill, slotsOf } from "./slots.js";

/** @typedef {import("./document.js").Message} Message */
/** @typedef {import("./assignment.js").Arm} Arm */
/** @typedef {import("./media.js").Part} Part */

/**
 * A value for a slot: a text, or what JSON holds.
 * @typedef {string | number | bigint | boolean | null | readonly unknown[] | {readonly [name: string]: unknown}} SlotValue
 */

/**
 * A message for a model.
 * @typedef {{role: string, content: string | Part[], name?: string}} FormattedMessage
 */

/**
 * A prompt that comes with the app: one text, or messages.
 * @typedef {string | readonly Message[]} Bundled
 */

/**
 * Who is served: the user, the session, the episode.
 * @typedef {{user?: string | null | undefined, session?: string | null | undefined, episode?: string | null | undefined}} Units
 */

/**
 * One version. `version` is 0 for a text that was bundled without a number.
 * @typedef {{name: string, version: number, messages: readonly Message[], config: Readonly<Record<string, unknown>>}} Content
 */

/**
 * What an app needs to assign units by itself. `contents` are the versions of the arms.
 * @typedef {{id: string, salt: string, unit: "user" | "session" | "episode", variant: string, arms: readonly Arm[],
 *   contents: Map<number, Content>}} AssignableExperiment
 */

/**
 * What one label of a prompt stands for: a version, and the experiment that runs on it.
 * @typedef {{content: Content, label: string, source: "server" | "fallback", experiment: AssignableExperiment | null}} ServedPrompt
 */

/** One version of a prompt for one request. */
export class LivePrompt {
  /** @type {Content} */
  #content;

  /**
   * @param {Content} content
   * @param {string} label
   * @param {"server" | "fallback"} source
   * @param {{experiment: string | null, variant: string | null}} assigned
   * @param {Units} units
   */
  constructor(content, label, source, assigned, units) {
    this.#content = content;
    /** @readonly */
    this.label = label;
    /** Where it came from. @readonly */
    this.source = source;
    /** The experiment in which a version was assigned; null outside experiments. @readonly */
    this.experiment = assigned.experiment;
    /** @readonly */
    this.variant = assigned.variant;
    /** The user, session and episode that it was asked for; `Client.log` logs them with it. @readonly */
    this.units = Object.freeze({ ...units });
  }

  /** The prompt's name. */
  get name() {
    return this.#content.name;
  }

  /** The version's number; 0 for a bundled text. */
  get version() {
    return this.#content.version;
  }

  /** Model, temperature and what else was stored with the version. */
  get config() {
    return this.#content.config;
  }

  /** Names of the prompt's slots. @returns {Set<string>} */
  get slots() {
    return new Set(this.#content.messages.flatMap(({ content }) => [...slotsOf(content)]));
  }

  /**
   * The messages for a model, every slot `{{name}}` filled by the value of that name.
   *
   * Values are put in literally, in one pass: braces in a value stay braces. A prompt of one text that has none of the slots is the
   * system message, and the values follow as the user message. A value that is no text stands there as JSON, null as nothing. A
   * content with images, sounds or files is a list of parts in OpenAI's form.
   * @param {Readonly<Record<string, SlotValue>>} [values]
   * @returns {FormattedMessage[]}
   * @throws {UsageError} for a slot without a value, and for a value that JSON cannot hold
   */
  format(values = {}) {
    const texts = new Map(Object.entries(values).map(([name, value]) => [name, textOf(name, value)]));
    const slots = this.slots;
    const missing = [...slots].filter((name) => !texts.has(name)).sort();
    if (missing.length) {
      const passed = [...texts.keys()].sort().join(", ") || "nothing";
      throw new UsageError(`${this.name} version ${this.version} needs values for ${missing.join(", ")}; given: ${passed}.`);
    }
    const isFilled = [...texts.keys()].some((name) => slots.has(canonicalName(name)));
    const clean = this.#content.messages.map(({ content, ...who }) => ({ who, pieces: piecesOf(withoutMarkers(content)) }));
    const filled = clean.map(({ who, pieces }) => ({
      ...who, content: contentOf(pieces.map((one) => (isFilled && typeof one === "string" ? fill(one, texts) : one))),
    }));
    if (texts.size === 0) return filled.map((m) => (m.role === AUTO ? { ...m, role: "system" } : m));
    const isOneText = clean.length === 1 && clean[0]?.who.role === AUTO;
    const shown = isOneText ? filled.map((m) => ({ role: isFilled ? "user" : "system", content: m.content })) : filled;
    return isFilled ? shown : [...shown, { role: "user", content: userText(texts) }];
  }
}

/** @param {ReadonlyMap<string, string>} texts */
function userText(texts) {
  const [only] = texts.values();
  return texts.size === 1 ? only ?? "" : Array.from(texts, ([name, value]) => `${name}: ${value}`).join("\n");
}

/** @param {string} name @param {unknown} value */
function textOf(name, value) {
  const text = value === null ? "" : typeof value === "string" ? value : jsonText(value);
  if (text !== null) return text;
  const kinds = "a text, a finite number, true, false, null, or an array or plain object of these";
  throw new UsageError(`The value of {{${name}}} must be ${kinds}; this is ${showValue(value)}.`);
}

/**
 * The prompt for somebody. Who has no unit of the experiment, or one of a version that is not here, is not in the experiment.
 * @param {ServedPrompt} served
 * @param {Units} units
 */
export function forUnits({ content, label, source, experiment }, units) {
  const unit = experiment === null ? null : units[experiment.unit];
  if (experiment !== null && unit) {
    const assigned = experiment.contents.get(assign(experiment.salt, unit, experiment.arms));
    if (assigned) {
      return new LivePrompt(assigned, label, source, { experiment: experiment.id, variant: experiment.variant }, units);
    }
  }
  return new LivePrompt(content, label, source, { experiment: null, variant: null }, units);
}

/**
 * A version from the server's JSON.
 * @param {Record<string, unknown>} value
 * @returns {Content}
 * @throws {UsageError} for one that is none
 */
export function readContent(value) {
  const { name, version, messages, config } = value;
  const listed = Array.isArray(messages) && messages.every((m) => isObject(m) && typeof m.role === "string" && typeof m.content === "string");
  if (typeof name !== "string" || !Number.isInteger(version) || !listed) {
    throw new UsageError("The server's answer is no version of a prompt.");
  }
  const texts = /** @type {Message[]} */ (messages);
  return { name, version: Number(version), messages: checkedMessages(texts, name), config: isObject(config) ? config : {} };
}

/**
 * An experiment from the server's JSON.
 * @param {unknown} value
 * @param {Map<number, Content>} contents
 * @returns {AssignableExperiment}
 * @throws {UsageError} for one that is none
 */
export function readExperiment(value, contents) {
  if (!isObject(value) || !Array.isArray(value.arms) || value.id === undefined || value.salt === undefined) {
    throw new UsageError("The definition of the experiment cannot be read.");
  }
  const arms = value.arms.map((arm) => /** @type {Arm} */ ([Number(arm?.version), Number(arm?.weight)]));
  if (!arms.every(([version]) => Number.isInteger(version))) throw new UsageError("The arms of the experiment cannot be read.");
  const unit = UNITS.find((one) => one === value.unit);
  if (unit === undefined) {
    throw new UsageError(`The experiment assigns by "${String(value.unit).slice(0, 40)}"; this client knows ${UNITS.join(", ")}.`);
  }
  assign(String(value.salt), "any", arms);
  return { id: String(value.id), salt: String(value.salt), unit, variant: String(value.revision ?? ""), arms, contents };
}

/**
 * A prompt that comes with the app.
 * @param {string} name
 * @param {Bundled} fallback
 * @returns {Content}
 * @throws {UsageError} for a broken fence or no text
 */
export function loadBundled(name, fallback) {
  const where = `fallback of ${name}`;
  const messages = typeof fallback === "string" ? parseDocument(fallback, where) : readMessages(fallback, where);
  return { name, version: 0, messages, config: {} };
}

/**
 * A prompt below a folder: NAME.md, or what `whet prompts export` wrote, by its label; null when it is not there.
 * @param {string} folder
 * @param {string} name
 * @param {string} label
 * @returns {Content | null}
 * @throws {UsageError} for a file that cannot be used
 */
export function fromFolder(folder, name, label) {
  if (name.split(/[/\\]/).includes("..") || /^(?:[/\\]|[A-Za-z]:)/.test(name)) throw new UsageError(`"${name}" is no name of a prompt.`);
  const home = `${folder}/${name}`;
  try {
    const plain = readFile(`${home}.md`);
    if (plain !== null) return loadBundled(name, plain);
    const labels = parseJson(readFile(`${home}/@labels.json`) ?? "");
    const number = isObject(labels) ? labels[label] : undefined;
    if (typeof number !== "number" || !Number.isInteger(number)) return null;
    const side = parseJson(readFile(`${home}/@${number}.json`) ?? "");
    if (!isObject(side) || !Array.isArray(side.messages)) throw new UsageError(`@${number}.json names no messages`);
    const messages = side.messages.map((row) => {
      const content = readFile(`${home}/${String(row?.file).split(/[/\\]/).pop()}`);
      if (content === null) throw new UsageError(`the file ${String(row?.file)} is not there`);
      return { role: String(row?.role), content, ...nameOf(row ?? {}) };
    });
    return { name, version: number, messages: checkedMessages(messages, home), config: isObject(side.config) ? side.config : {} };
  } catch (error) {
    throw new UsageError(`${home}: the bundled prompt cannot be read: ${error instanceof Error ? error.message : error}`);
  }
}

/**
 * The copies that an app brings along, if they can be used.
 * @param {Readonly<Record<string, Bundled>> | string | null | undefined} fallbacks
 */
export function checkedFallbacks(fallbacks) {
  if (typeof fallbacks === "string" && !isFolder(fallbacks)) {
    throw new UsageError(`${fallbacks}: there is no folder of bundled prompts.`);
  }
  return fallbacks ?? {};
}
