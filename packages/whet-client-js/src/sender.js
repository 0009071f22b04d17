/**
 * Rows on their way to the server: in batches, behind the app's back, and lost only where it is said.
 *
 * Rows wait in memory for a fraction of a second and go out together. While the server is down they wait there, up to a bound; what is
 * beyond it, and what is left at the end, goes to the spool, which the next process sends. A log of what waits lies there too, so that
 * a kill loses nothing. Every row has its own id, so that sending one twice changes nothing.
 */

import { Unavailable, wordsOf } from "./errors.js";
import { isObject, parseJson, reasonOf, throwIfUnavailable } from "./http.js";

/** @typedef {import("./runtime_node.js").Line} Line */
/** @typedef {Line["kind"]} Kind */

/**
 * Where warnings go; the console has this form.
 * @typedef {{warn: (message: string) => void, error: (message: string) => void}} Log
 */

/**
 * What became of rows so far. `refused` are those that the server will never take, `lost` those that found room neither in memory nor
 * in the spool.
 * @typedef {{sent: number, spooled: number, refused: number, lost: number}} DeliveryTally
 */

/** Rows and bytes of one request. */
export const MOST_ROWS = 500;
const MOST_BYTES = 1_000_000;
const MOST_REASONS = 5;
const [FIRST_PAUSE, LONGEST_PAUSE] = [0.5, 30];
/** Answers that say something about the rows; any other is about the server or the token, and the rows are kept. */
const ABOUT_ROWS = [400, 409, 413, 422];
const ENCODER = new TextEncoder();

/** Sends rows in the background. */
export class Sender {
  /** @type {DeliveryTally} */
  tally = { sent: 0, spooled: 0, refused: 0, lost: 0 };
  /** @type {Line[]} */
  #queue = [];
  #bytes = 0;
  /** @type {Line[]} */
  #inFlight = [];
  #failures = 0;
  /** Since the spool was empty: rows of earlier processes wait while there are any. */
  #spoolAttempts = 0;
  #retryAt = 0;
  #isBusy = false;
  #isClosed = false;
  #isNoted = true;
  #hurries = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** @type {Set<() => void>} */
  #waiters = new Set();

  /**
   * @param {import("./http.js").Send} send
   * @param {string} url
   * @param {import("./runtime_node.js").Spool | null} spool
   * @param {number} memory bytes that may wait
   * @param {number} pause seconds that a row waits for others
   * @param {Log} log
   */
  constructor(send, url, spool, memory, pause, log) {
    this.send = send;
    this.url = url;
    this.spool = spool;
    this.memory = memory;
    this.pause = pause;
    this.log = log;
  }

  /** Bytes that wait in memory. */
  get bytes() {
    return this.#bytes;
  }

  /**
   * Queue a row, without waiting.
   * @param {Kind} kind
   * @param {object} row
   */
  put(kind, row) {
    const text = JSON.stringify(row);
    const line = { kind, text, size: ENCODER.encode(text).length };
    this.#queue.push(line);
    this.#bytes += line.size;
    if (!this.#isClosed) this.#note((spool) => spool.note(line, () => [...this.#inFlight, ...this.#queue]));
    const spilled = this.#overflow();
    if (spilled.length) this.#keep(spilled);
    this.#schedule();
  }

  /**
   * Wait until everything is sent or refused, also what earlier processes left in the spool, once it was begun; false when that takes
   * longer than `timeout` seconds.
   * @param {number} timeout
   */
  flush(timeout) {
    return this.#drain(timeout, true);
  }

  /**
   * Send what waits, for at most `timeout` seconds; what the server cannot take goes to the spool. Where there is a spool, the first
   * attempt that fails is the last one.
   * @param {number} timeout
   */
  async close(timeout) {
    if (!this.#isClosed) await this.#drain(timeout, this.spool === null);
    this.#isClosed = true;
    clearTimeout(this.#timer);
    const rest = [...this.#inFlight, ...this.#take(this.#bytes)];
    this.#inFlight = [];
    if (rest.length) this.#keep(rest);
    this.#note((spool) => spool.end());
    this.#wake();
  }

  /**
   * Change the log of what waits, as long as the disk takes it.
   * @param {(spool: import("./runtime_node.js").Spool) => void} change
   */
  #note(change) {
    if (this.spool === null || !this.#isNoted) return;
    try {
      change(this.spool);
    } catch (error) {
      this.#isNoted = false;
      this.log.warn(`whet: Rows that wait for ${this.url} are not safe from a kill: ${wordsOf(error)}.`);
    }
  }

  /** @param {number} timeout @param {boolean} isPatient @returns {Promise<boolean>} */
  #drain(timeout, isPatient) {
    const failures = this.#failures;
    const isDone = () => this.#queue.length === 0 && !this.#isBusy && this.#spoolAttempts === 0;
    const isOver = () => isDone() || this.#isClosed || (!isPatient && this.#failures > failures);
    this.#hurries += 1;
    this.#retryAt = 0;
    this.#schedule();
    return new Promise((resolve) => {
      /** @type {ReturnType<typeof setTimeout> | undefined} */
      let timer;
      const look = () => {
        if (isOver()) end();
      };
      const end = () => {
        clearTimeout(timer);
        this.#waiters.delete(look);
        this.#hurries -= 1;
        resolve(isDone());
      };
      timer = setTimeout(end, Math.max(timeout, 0) * 1000);
      this.#waiters.add(look);
      look();
    });
  }

  #wake() {
    for (const look of [...this.#waiters]) look();
  }

  /** Set the time of the next request: now, after the pause, or when the server may be asked again. */
  #schedule() {
    if (this.#isBusy || this.#isClosed || (this.#queue.length === 0 && this.#spoolAttempts === 0)) return;
    const isEnough = this.#hurries > 0 || this.#queue.length >= MOST_ROWS;
    const wait = Math.max(this.#retryAt - Date.now(), isEnough ? 0 : this.pause * 1000);
    if (this.#timer !== undefined && this.#hurries === 0 && this.#queue.length !== MOST_ROWS) return;
    clearTimeout(this.#timer);
    const timer = setTimeout(() => void this.#work(), wait);
    this.#timer = timer;
    if (this.#hurries === 0 && typeof timer === "object" && "unref" in timer) timer.unref();
  }

  async #work() {
    this.#timer = undefined;
    this.#isBusy = true;
    // Rows that were there at the beginning go out without another pause, whatever their kinds.
    let ripe = this.#queue.length;
    do {
      const batch = this.#pick();
      ripe -= batch.length;
      if (!(await this.#try(batch))) break;
      this.#note((spool) => spool.forget(this.#queue));
    } while (ripe > 0 && this.#queue.length && !this.#isClosed);
    this.#isBusy = false;
    if (!this.#isClosed) this.#note((spool) => spool.forget(this.#queue));
    this.#wake();
    this.#schedule();
  }

  /** Send a batch, none where only rows of earlier processes wait; false where the server cannot take it now. @param {Line[]} batch */
  async #try(batch) {
    this.#inFlight = batch;
    try {
      await this.#deliver(batch);
      this.#inFlight = [];
      this.#spoolAttempts += 1;
      await this.#emptySpool();
      this.#spoolAttempts = 0;
      this.#failures = 0;
      return true;
    } catch (error) {
      if (error instanceof Unavailable) this.#again(error);
      else {
        this.#spoolAttempts = 0;
        this.tally.refused += this.#inFlight.length;
        this.log.error(`whet: ${this.#inFlight.length} rows for ${this.url} could not be sent: ${wordsOf(error)}`);
        this.#inFlight = [];
      }
      return !(error instanceof Unavailable);
    }
  }

  /** The oldest rows of one kind, as many as fit one request. */
  #pick() {
    const kind = this.#queue[0]?.kind;
    /** @type {Line[]} */
    const batch = [];
    /** @type {Line[]} */
    const others = [];
    let size = 0;
    for (const line of this.#queue) {
      if (line.kind === kind && batch.length < MOST_ROWS && size < MOST_BYTES) {
        batch.push(line);
        size += line.size;
      } else others.push(line);
    }
    this.#queue = others;
    this.#bytes -= size;
    return batch;
  }

  /** The oldest rows when more wait than memory holds; all of them after the end. */
  #overflow() {
    const most = this.#isClosed ? 0 : this.memory;
    return this.#bytes > most ? this.#take(this.#bytes - Math.floor(most / 2)) : [];
  }

  /** The oldest rows, together at least `size` bytes. @param {number} size */
  #take(size) {
    let count = 0;
    for (let left = size; left > 0 && count < this.#queue.length; count++) left -= this.#queue[count]?.size ?? 0;
    const taken = this.#queue.splice(0, count);
    this.#bytes -= taken.reduce((sum, line) => sum + line.size, 0);
    return taken;
  }

  /** Write rows to the spool; count and tell those that are lost. @param {readonly Line[]} lines */
  #keep(lines) {
    let lost = lines.length;
    let reason = "there is no spool";
    if (this.spool !== null) {
      try {
        lost = this.spool.write(lines);
        reason = "the spool is full";
      } catch (error) {
        reason = `the spool ${this.spool.folder} cannot be written: ${wordsOf(error)}`;
      }
    }
    this.tally.spooled += lines.length - lost;
    this.tally.lost += lost;
    if (lost) this.log.error(`whet: ${lost} rows for ${this.url} are lost: ${reason}.`);
  }

  /** Put rows back, behind the others if they may have broken the server. @param {Unavailable} error */
  #again(error) {
    const batch = this.#inFlight;
    this.#inFlight = [];
    if (this.#isClosed) return;
    this.#queue = error.status === 500 ? [...this.#queue, ...batch] : [...batch, ...this.#queue];
    this.#bytes += batch.reduce((sum, line) => sum + line.size, 0);
    const spilled = this.#overflow();
    if (spilled.length) this.#keep(spilled);
    this.#failures += 1;
    const earlier = this.#spoolAttempts > 0 ? " and those of earlier processes" : "";
    if (this.#failures === 1 || this.#failures === 10) this.log.warn(`whet: ${error.message} ${this.#queue.length} rows${earlier} wait.`);
    const pause = Math.min(FIRST_PAUSE * 2 ** Math.min(this.#failures - 1, 10), LONGEST_PAUSE) * (0.7 + 0.6 * Math.random());
    this.#retryAt = Date.now() + Math.max(Math.min(error.retryAfter ?? 0, LONGEST_PAUSE), pause) * 1000;
  }

  /**
   * Send rows of one kind until the server has them or has refused them for good. Rejects with Unavailable.
   * @param {readonly Line[]} batch
   * @returns {Promise<void>}
   */
  async #deliver(batch) {
    const kind = batch[0]?.kind;
    if (kind === undefined) return;
    const body = `{"${kind}": [${batch.map((line) => line.text).join(", ")}]}`;
    const answer = throwIfUnavailable(await this.send("POST", `/v1/${kind}`, { "Content-Type": "application/json" }, body), this.url);
    if ([200, 201, 202].includes(answer.status)) {
      const receipt = parseJson(answer.body);
      if (!isObject(receipt) || !("accepted" in receipt)) {
        throw new Unavailable(`Something else than the server answers at ${this.url}.`, answer.status);
      }
      this.tally.sent += batch.length;
      return;
    }
    const rest = this.#withoutRefused(batch, answer);
    if (!ABOUT_ROWS.includes(answer.status) && rest.length === batch.length) {
      const what = [401, 403].includes(answer.status) ? "does not accept this client's token" : "takes no rows here";
      throw new Unavailable(`The server ${this.url} ${what} (${reasonOf(answer)}).`, answer.status);
    }
    if (rest.length < batch.length) await this.#deliver(rest);
    else if (batch.length === 1) {
      this.tally.refused += 1;
      this.log.error(`whet: The server ${this.url} refuses a row: ${reasonOf(answer)}`);
    } else {
      const middle = batch.length >> 1;
      await this.#deliver(batch.slice(0, middle));
      await this.#deliver(batch.slice(middle));
    }
  }

  /**
   * The rows without those that the server names: their ids are taken, the token is not for their prompts, or they cannot be stored.
   * A row that it names by its place goes, and others with the same id stay. Of rows with one id and several contents, the first may
   * still be stored.
   * @param {readonly Line[]} batch
   * @param {import("./http.js").HttpReply} answer
   */
  #withoutRefused(batch, answer) {
    const name = answer.status === 409 ? "conflicts" : [400, 403].includes(answer.status) ? "refused" : "";
    const value = parseJson(answer.body);
    const named = isObject(value) && Array.isArray(value[name]) ? value[name].filter(isObject) : [];
    const places = new Set(named.map((one) => one.index).filter((index) => typeof index === "number"));
    const ids = new Set(named.filter((one) => one.id && typeof one.index !== "number").map((one) => String(one.id)));
    const others = batch.filter((_, place) => !places.has(place));
    const rest = ids.size ? leaveOut(others, ids, answer.status === 409) : others;
    const count = batch.length - rest.length;
    if (count === 0) return batch;
    this.tally.refused += count;
    const reasons = named.map((one) => String(one.message ?? "")).filter((message) => message).slice(0, MOST_REASONS);
    this.log.error(`whet: ${count} rows are refused by ${this.url}: ${reasons.join(" ") || reasonOf(answer)}`);
    return rest;
  }

  /** Send what earlier processes left behind, now that the server answers. Rejects with Unavailable. */
  async #emptySpool() {
    if (this.spool === null) return;
    let names;
    try {
      names = this.spool.waiting();
    } catch (error) {
      this.log.warn(`whet: The spool ${this.spool.folder} cannot be read: ${wordsOf(error)}.`);
      return;
    }
    for (const name of names) {
      if (this.#isClosed) return;
      try {
        await this.#sendFile(this.spool, name);
      } catch (error) {
        if (error instanceof Unavailable) throw error;
        this.log.warn(`whet: ${name} in the spool ${this.spool.folder} cannot be sent: ${wordsOf(error)}.`);
      }
    }
  }

  /** @param {import("./runtime_node.js").Spool} spool @param {string} name */
  async #sendFile(spool, name) {
    const claimed = spool.claim(name);
    if (claimed === null) return;
    try {
      for (const kind of /** @type {const} */ (["inferences", "feedback"])) {
        const rows = claimed.lines.filter((line) => line.kind === kind);
        for (const batch of inBatches(rows)) await this.#deliver(batch);
      }
      claimed.done();
    } catch (error) {
      claimed.back();
      throw error;
    }
  }
}

/**
 * The rows without those of these ids; with `keepsFirst`, an id with several contents keeps the first of them.
 * @param {readonly Line[]} batch @param {ReadonlySet<string>} ids @param {boolean} keepsFirst
 */
function leaveOut(batch, ids, keepsFirst) {
  /** @type {Map<string, Set<string>>} */
  const contents = new Map();
  for (const line of batch) contents.set(idOf(line), (contents.get(idOf(line)) ?? new Set()).add(line.text));
  return batch.filter((line) => {
    const texts = [...(contents.get(idOf(line)) ?? [])];
    return !ids.has(idOf(line)) || (keepsFirst && texts.length > 1 && line.text === texts[0]);
  });
}

/** @param {Line} line */
function idOf(line) {
  const row = parseJson(line.text);
  return isObject(row) ? String(row.id) : "";
}

/** @param {readonly Line[]} lines */
function* inBatches(lines) {
  /** @type {Line[]} */
  let batch = [];
  let size = 0;
  for (const line of lines) {
    batch.push(line);
    size += line.size;
    if (batch.length >= MOST_ROWS || size >= MOST_BYTES) {
      yield batch;
      [batch, size] = [[], 0];
    }
  }
  if (batch.length) yield batch;
}
