/** The client: prompts from the cache, rows to the sender. */

import { Prompts } from "./cache.js";
import { UsageError, showValue } from "./errors.js";
import { connect, isObject } from "./http.js";
import { LivePrompt, checkedFallbacks, forUnits } from "./live_prompts.js";
import { checkName, feedbackRows, inferenceRow, isBlank } from "./records.js";
import { atEnd, defaultFolder, openSpool, variable } from "#runtime";
import { Sender } from "./sender.js";

/** @typedef {import("./live_prompts.js").Bundled} Bundled */
/** @typedef {import("./live_prompts.js").Units} Units */
/** @typedef {import("./records.js").InferenceFields} InferenceFields */
/** @typedef {import("./records.js").FeedbackValues} FeedbackValues */

const DEFAULT_URL = "http://127.0.0.1:8321";
const MEMORY = 16 * 1024 * 1024;
const SPOOL = 64 * 1024 * 1024;
const TARGETS = /** @type {const} */ (["inference", "episode", "session"]);

/**
 * @typedef {object} ClientOptions
 * @property {string | null} [token] of the role `app`; else WHET_TOKEN
 * @property {Readonly<Record<string, Bundled>> | string | null} [fallbacks] prompts bundled with the app: a mapping from names to texts
 *   or messages, or (Node) a folder with NAME.md, or with what `whet prompts export` wrote
 * @property {number} [fresh] the age in seconds at which a prompt is fetched again in the background (60)
 * @property {number} [timeout] bounds each wait for the network, in seconds (2)
 * @property {string | boolean | null} [spool] the folder for rows that wait: true means ~/.local/state/whet/spool-js, null keeps
 *   nothing on disk; runtimes without Node's files have none
 * @property {import("./sender.js").Log} [log] where warnings go (the console)
 * @property {import("./http.js").Send} [send] replaces the network
 * @property {() => number} [clock] seconds, for tests
 */

/** @type {Set<Client>} */
const open = new Set();
let isWatched = false;

/**
 * Everything an app needs of whet, for one server. Make one for the process.
 *
 * What the network, the server or the disk does never throws: it is logged and counted in `tally`. A UsageError says that the app
 * itself asked for what cannot be.
 */
export class Client {
  /** @type {Prompts} */
  #prompts;
  /** @type {Sender} */
  #sender;

  /**
   * @param {string | null} [url] else WHET_URL, else http://127.0.0.1:8321
   * @param {ClientOptions} [options]
   * @throws {UsageError} for an address that is none
   */
  constructor(url, options = {}) {
    const { fresh = 60, timeout = 2, spool = true, log = console } = options;
    const { clock = () => performance.now() / 1000 } = options;
    for (const [name, value] of Object.entries({ fresh, timeout })) {
      if (!(value >= 0 && value < 2 ** 31 / 1000)) throw new UsageError(`${name} is a number of seconds; this is ${showValue(value)}.`);
    }
    /** @readonly */
    this.url = url || variable("WHET_URL") || DEFAULT_URL;
    const connected = connect(this.url, options.token || variable("WHET_TOKEN") || null, timeout);
    const send = options.send ?? connected;
    const safe = safeLog(log);
    this.#prompts = new Prompts(send, this.url, checkedFallbacks(options.fallbacks), fresh, safe, clock);
    const folder = spool === true ? defaultFolder() : spool || null;
    this.#sender = new Sender(send, this.url, folder === null ? null : openSpool(folder, this.url, SPOOL), MEMORY, 0.2, safe);
    open.add(this);
    if (!isWatched) atEnd(closeAll);
    isWatched = true;
  }

  /**
   * The prompt that a label stands for, in the version that this user, session or episode is to see.
   *
   * Only the first call for a label may wait for the server. Rejects with UsageError when the server does not know the prompt and with
   * Unavailable when it cannot be reached, both only when no copy is bundled; and with UsageError for a user, session or episode that
   * `log` could not take.
   * @param {string} name
   * @param {Units & {label?: string, fallback?: Bundled | null}} [options] `fallback` is a bundled copy for this prompt
   * @returns {Promise<LivePrompt>}
   */
  async prompt(name, options = {}) {
    const { label = "production", fallback, user, session, episode } = options;
    const units = { user, session, episode };
    for (const [what, unit] of Object.entries(units)) checkName(unit, what, "prompt");
    const named = Object.fromEntries(Object.entries(units).filter(([, unit]) => !isBlank(unit)));
    return forUnits(await this.#prompts.get(name, label, fallback), named);
  }

  /**
   * Report an answer, without waiting; the id to give feedback about.
   *
   * Version, experiment and units come from the prompt. Texts that are too long are cut, and `metadata.cut` names them.
   * @param {LivePrompt | string} prompt
   * @param {string | null} [output] null, as the content of a message that calls tools, is an empty text
   * @param {InferenceFields} [more]
   * @returns {string}
   * @throws {UsageError} for a field that is none or cannot be
   */
  log(prompt, output = "", more = {}) {
    const isLive = prompt instanceof LivePrompt;
    const { experiment, variant } = isLive ? prompt : { experiment: null, variant: null };
    const known = isLive ? { version: prompt.version, ...prompt.units, experiment, variant } : {};
    const row = inferenceRow(isLive ? prompt.name : prompt, output ?? "", known, more);
    this.#sender.put("inferences", row);
    return row.id;
  }

  /**
   * Report feedback about an answer, or, as `{episode: ..., ...}` or `{session: ..., ...}`, about a whole episode or session; the ids
   * of the rows. It does not matter whether the answer has been sent.
   * @param {string | (FeedbackValues & {inference?: string | null, episode?: string | null, session?: string | null})} target
   * @param {FeedbackValues} [values]
   * @returns {string[]}
   * @throws {UsageError} for a word that is none, and for a value that cannot be
   */
  feedback(target, values = {}) {
    if (!isObject(target) && typeof target !== "string") throw new UsageError("Feedback is about the id of an answer, or {episode: ...}.");
    const { inference, episode, session, ...beside } = isObject(target) ? target : { inference: target };
    const targets = { inference, episode, session };
    const named = TARGETS.filter((kind) => targets[kind]);
    const [kind] = named;
    if (kind === undefined || named.length > 1) {
      throw new UsageError("Feedback is about one inference, one episode or one session. Name exactly one.");
    }
    const rows = feedbackRows(kind, String(targets[kind]), { ...beside, ...values });
    for (const row of rows) this.#sender.put("feedback", row);
    return rows.map((row) => row.id);
  }

  /** How many rows were sent, spooled, refused, lost. */
  get tally() {
    return { ...this.#sender.tally };
  }

  /**
   * Wait until every row is sent; false when that takes longer than `timeout` seconds.
   * @param {number} [timeout]
   * @returns {Promise<boolean>}
   */
  flush(timeout = 5) {
    return this.#sender.flush(timeout);
  }

  /**
   * Send every row, for at most `timeout` seconds, and keep the rest in the spool. It happens by itself when the process has nothing
   * left to do; calling it twice is harmless.
   * @param {number} [timeout]
   * @returns {Promise<void>}
   */
  async close(timeout = 5) {
    open.delete(this);
    await this.#sender.close(timeout);
    this.#prompts.close();
  }
}

function closeAll() {
  for (const client of open) void client.close();
}

/**
 * A log that never throws into the app.
 * @param {import("./sender.js").Log} log
 * @returns {import("./sender.js").Log}
 */
function safeLog(log) {
  /** @param {"warn" | "error"} level */
  const guarded = (level) => (/** @type {string} */ message) => {
    try {
      log[level](message);
    } catch {
      // a log that is broken is the app's; the rows go on
    }
  };
  return { warn: guarded("warn"), error: guarded("error") };
}
