/**
 * The cache of prompts: what was fetched is served at once, and fetched again behind the app's back when it is old.
 *
 * Only the first call for a label may wait for the network. After that, a stale prompt is served while the new one is on its way, and
 * a server that is down changes nothing.
 */

import { NotFound, Unavailable, UsageError, WhetError, wordsOf } from "./errors.js";
import { isObject, parseJson, reasonOf, throwIfUnavailable } from "./http.js";
import { fromFolder, loadBundled, readContent, readExperiment } from "./live_prompts.js";

/** @typedef {import("./live_prompts.js").Content} Content */
/** @typedef {import("./live_prompts.js").ServedPrompt} ServedPrompt */
/** @typedef {import("./live_prompts.js").Bundled} Bundled */

/**
 * What is known of one label. `due` is the time at which it is worth asking again, `tags` are those of the version and of the
 * experiment that the server sent last.
 * @typedef {{value: ServedPrompt | null, due: number, versionTag: string, experimentTag: string, failures: number, isAsking: boolean}}
 *   Entry
 */

const MOST_VERSIONS = 1000;
const [FIRST_PAUSE, LONGEST_PAUSE] = [1, 60];

/** Prompts by name and label. */
export class Prompts {
  /** @type {Map<string, Entry & {value: ServedPrompt}>} */
  #entries = new Map();
  /** @type {Map<string, Promise<Entry & {value: ServedPrompt}>>} */
  #first = new Map();
  /** @type {Map<string, Content>} */
  #versions = new Map();
  #downUntil = -Infinity;
  #isClosed = false;

  /**
   * @param {import("./http.js").Send} send
   * @param {string} url
   * @param {Readonly<Record<string, Bundled>> | string} fallbacks a mapping from names, or a folder
   * @param {number} fresh seconds
   * @param {import("./sender.js").Log} log
   * @param {() => number} clock seconds
   */
  constructor(send, url, fallbacks, fresh, log, clock) {
    this.send = send;
    this.url = url;
    this.fallbacks = fallbacks;
    this.fresh = fresh;
    this.log = log;
    this.clock = clock;
  }

  /**
   * What a label stands for, from memory after the first call.
   * @param {string} name
   * @param {string} label
   * @param {Bundled | null | undefined} fallback
   * @returns {Promise<ServedPrompt>}
   */
  async get(name, label, fallback) {
    const key = JSON.stringify([name, label]);
    const entry = this.#entries.get(key);
    if (entry === undefined) {
      const asked = this.#first.get(key) ?? this.#getFirst(name, label, fallback).finally(() => this.#first.delete(key));
      this.#first.set(key, asked);
      const first = await asked;
      this.#entries.set(key, first);
      return first.value;
    }
    if (!entry.isAsking && this.clock() >= entry.due && !this.#isClosed) void this.#askAgain(name, label, entry);
    return entry.value;
  }

  /** Stop fetching; what is known is still served. */
  close() {
    this.#isClosed = true;
  }

  /** @param {string} name @param {string} label @param {Bundled | null | undefined} fallback */
  async #getFirst(name, label, fallback) {
    try {
      if (this.clock() < this.#downUntil) throw new Unavailable(`The server ${this.url} could not be reached a moment ago.`);
      return await this.#fetch(name, label, newEntry(null));
    } catch (error) {
      if (!(error instanceof WhetError)) throw error;
      return this.#useBundled(name, label, fallback, error);
    }
  }

  /** @param {string} name @param {string} label @param {Bundled | null | undefined} fallback @param {WhetError} error */
  #useBundled(name, label, fallback, error) {
    if (error instanceof Unavailable) this.#downUntil = this.clock() + FIRST_PAUSE;
    const content = this.#bundled(name, label, fallback);
    if (content === null) {
      error.message += ` No copy of ${name} is bundled with the app to use instead.`;
      throw error;
    }
    this.log.warn(`whet: ${error.message} Using the bundled copy of ${name}.`);
    const entry = newEntry({ content, label, source: /** @type {const} */ ("fallback"), experiment: null });
    this.#wait(entry, error);
    return entry;
  }

  /** @param {string} name @param {string} label @param {Bundled | null | undefined} fallback */
  #bundled(name, label, fallback) {
    if (fallback !== undefined && fallback !== null) return loadBundled(name, fallback);
    if (typeof this.fallbacks === "string") return fromFolder(this.fallbacks, name, label);
    const packaged = Object.hasOwn(this.fallbacks, name) ? this.fallbacks[name] : undefined;
    return packaged === undefined ? null : loadBundled(name, packaged);
  }

  /**
   * Set the time to ask again: after `fresh` seconds where the server knows no such label, else later each time.
   * @param {Entry} entry
   * @param {unknown} error
   */
  #wait(entry, error) {
    let pause = this.fresh;
    if (error instanceof NotFound) entry.failures = 0;
    else {
      pause = Math.min(FIRST_PAUSE * 2 ** Math.min(entry.failures, 10), LONGEST_PAUSE);
      entry.failures += 1;
    }
    entry.due = this.clock() + pause;
  }

  /** @param {string} name @param {string} label @param {Entry} entry */
  async #askAgain(name, label, entry) {
    entry.isAsking = true;
    try {
      await this.#fetch(name, label, entry);
    } catch (error) {
      this.#wait(entry, error);
      this.log.warn(`whet: ${name} is not refreshed: ${wordsOf(error)} The copy from before stays in use.`);
    }
    entry.isAsking = false;
  }

  /**
   * Bring an entry up to date, or leave it as it was.
   * @template {Entry} E
   * @param {string} name
   * @param {string} label
   * @param {E} entry
   * @returns {Promise<E & {value: ServedPrompt}>}
   */
  async #fetch(name, label, entry) {
    let content = entry.value?.content ?? null;
    let experiment = entry.value?.experiment ?? null;
    const version = await this.#get(addressOf(name, { label }), content === null ? "" : entry.versionTag);
    if (version !== null) {
      content = this.#keep(readContent(version.value));
      entry.versionTag = version.tag;
    }
    if (content === null) throw new Unavailable(`The server ${this.url} did not send ${name}.`);
    try {
      const assigned = await this.#get(`/v1/assignments?${new URLSearchParams({ prompt: name })}`, entry.experimentTag);
      if (assigned !== null) {
        experiment = await this.#experiment(assigned.value, content, label);
        entry.experimentTag = assigned.tag;
      }
    } catch (error) {
      if (!(error instanceof WhetError)) throw error;
      this.log.warn(`whet: The experiments on ${name} are as they were: ${error.message}`);
    }
    const value = { content, label, source: /** @type {const} */ ("server"), experiment };
    return Object.assign(entry, { value, failures: 0, due: this.clock() + this.fresh });
  }

  /**
   * The experiment on a label with the versions of all its arms.
   * @param {Record<string, unknown>} answer
   * @param {Content} content
   * @param {string} label
   */
  async #experiment(answer, content, label) {
    const rows = Array.isArray(answer.experiments) ? answer.experiments : [];
    const mine = rows.find((row) => isObject(row) && row.label === label);
    if (mine === undefined) return null;
    const contents = new Map([[content.version, content]]);
    const experiment = readExperiment(mine, contents);
    for (const [version, weight] of experiment.arms) {
      if (weight > 0 && !contents.has(version)) contents.set(version, await this.#version(content.name, version));
    }
    return experiment;
  }

  /** @param {string} name @param {number} version */
  async #version(name, version) {
    const known = this.#versions.get(JSON.stringify([name, version]));
    if (known !== undefined) return known;
    const answer = await this.#get(addressOf(name, { version: String(version) }), "");
    if (answer === null) throw new Unavailable(`The server ${this.url} did not send version ${version} of ${name}.`);
    return this.#keep(readContent(answer.value));
  }

  /** Remember a version, which never changes. @param {Content} content */
  #keep(content) {
    this.#versions.set(JSON.stringify([content.name, content.version]), content);
    const [oldest] = this.#versions.keys();
    if (this.#versions.size > MOST_VERSIONS && oldest !== undefined) this.#versions.delete(oldest);
    return content;
  }

  /**
   * A JSON object with its tag; null when it is the one that is known.
   * @param {string} path
   * @param {string} tag
   */
  async #get(path, tag) {
    const answer = throwIfUnavailable(await this.send("GET", path, tag ? { "If-None-Match": tag } : {}, null), this.url);
    if (answer.status === 304 && tag) return null;
    if (answer.status !== 200) {
      const Kind = answer.status === 404 ? NotFound : UsageError;
      throw new Kind(`The server ${this.url} does not give ${path}: ${reasonOf(answer)}.`);
    }
    const value = parseJson(answer.body);
    if (!isObject(value)) throw new UsageError(`The server ${this.url} answered ${path} with something else than was asked for.`);
    return { value, tag: answer.headers.etag ?? "" };
  }
}

/** @template {ServedPrompt | null} V @param {V} value */
function newEntry(value) {
  return { value, due: 0, versionTag: "", experimentTag: "", failures: 0, isAsking: false };
}

/** @param {string} name @param {Record<string, string>} query */
function addressOf(name, query) {
  return `/v1/prompts/${encodeURIComponent(name).replaceAll("%2F", "/")}?${new URLSearchParams(query)}`;
}
