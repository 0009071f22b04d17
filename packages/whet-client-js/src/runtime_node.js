/**
 * What the client needs of Node: random bytes, the environment, files, and the spool.
 *
 * The spool has rows that could not be sent yet, in files that the next process sends. One of the files is the log of this process:
 * every row that waits in its memory, for the case that it is killed. A file holds one row a line, `{"kind": ..., "row": {...}}`.
 * Every row has an id of its own, so that a file that is sent twice changes nothing.
 *
 * Names: `ID.jsonl` is anybody's; `ID.OWNER.log` and `ID.OWNER.claim` belong to a process until it is dead, or has not touched them
 * for ten minutes. Who sends a file claims it first by renaming it, which one process only can do.
 */

import { createHash, randomBytes as cryptoBytes } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import process from "node:process";

/** @typedef {{kind: "inferences" | "feedback", text: string, size: number}} Line */

/** Bytes of the log that may be out of date before it is written anew. */
const SLACK = 1_000_000;
const ABANDONED = 600_000;

/** @param {number} count @returns {Uint8Array} */
export function randomBytes(count) {
  return cryptoBytes(count);
}

/** @param {string} name @returns {string | undefined} */
export function variable(name) {
  return process.env[name] || undefined;
}

/**
 * The text of a file; null where there is none.
 * @param {string} name
 * @returns {string | null}
 */
export function readFile(name) {
  try {
    return fs.readFileSync(name, "utf8");
  } catch (error) {
    if (codeOf(error) === "ENOENT" || codeOf(error) === "ENOTDIR") return null;
    throw error;
  }
}

/** @param {string} name */
export function isFolder(name) {
  return fs.statSync(name, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

/**
 * Call something when the process has nothing left to do, before it ends.
 * @param {() => void} close
 */
export function atEnd(close) {
  process.on("beforeExit", close);
}

/**
 * Where rows wait on this machine: XDG_STATE_HOME, else ~/.local/state, and there whet/spool-js.
 * @returns {string | null}
 */
export function defaultFolder() {
  return path.join(process.env.XDG_STATE_HOME || path.join(os.homedir(), ".local", "state"), "whet", "spool-js");
}

/**
 * @param {string} folder
 * @param {string} url
 * @param {number} limit bytes
 * @returns {Spool | null}
 */
export function openSpool(folder, url, limit) {
  return new Spool(folder, url, limit);
}

/** Files of waiting rows for one server. The folder can be read by its owner only. Every method throws when the disk refuses. */
export class Spool {
  /** @type {number | null} */
  #log = null;
  #logged = "";
  #size = 0;

  /** @param {string} folder @param {string} url @param {number} limit */
  constructor(folder, url, limit) {
    this.folder = path.join(folder, createHash("sha256").update(url, "utf8").digest("hex").slice(0, 16));
    this.limit = limit;
  }

  /** Names of files with rows that nobody else holds, oldest first. @returns {string[]} */
  waiting() {
    return this.#names().filter((name) => this.#isFree(name));
  }

  /**
   * Write rows to a new file, durably; the number of rows that had no room any more.
   * @param {readonly Line[]} lines
   */
  write(lines) {
    let room = this.limit;
    for (const name of this.#names()) if (name !== this.#logged) room -= sizeOf(path.join(this.folder, name));
    let lost = 0;
    const { id, part, file } = this.#new();
    try {
      for (const line of lines) {
        const raw = rawOf(line);
        room -= raw.length;
        if (room < 0) lost += 1;
        else writeAll(file, raw);
      }
      fs.fsyncSync(file);
    } finally {
      fs.closeSync(file);
    }
    fs.renameSync(part, path.join(this.folder, `${id}.jsonl`));
    syncFolder(this.folder);
    return lost;
  }

  /**
   * Add a row that waits in memory to the log of this process. It is with the operating system when this returns, so that a kill
   * does not lose it; a power cut may.
   * @param {Line} line
   * @param {() => readonly Line[]} all every row that waits, this one among them
   */
  note(line, all) {
    if (this.#log === null || fs.fstatSync(this.#log).nlink === 0) this.#begin(all());
    else this.#append([line]);
  }

  /**
   * Of the rows in the log only `rest` waits still. The file is written anew only when most of it is out of date.
   * @param {readonly Line[]} rest
   */
  forget(rest) {
    if (this.#log === null) return;
    const size = rest.reduce((sum, line) => sum + line.size, 0);
    if (rest.length === 0) {
      if (this.#size) fs.ftruncateSync(this.#log, 0);
      this.#size = 0;
    } else if (this.#size > SLACK + 2 * size) this.#begin(rest);
    else {
      const moment = new Date();
      fs.futimesSync(this.#log, moment, moment);
    }
  }

  /** The log is over. */
  end() {
    if (this.#log === null) return;
    removeFile(path.join(this.folder, this.#logged));
    fs.closeSync(this.#log);
    [this.#log, this.#logged, this.#size] = [null, "", 0];
  }

  /**
   * The rows of a file that nobody else sends meanwhile; null when somebody does, or when it is gone. A line that was cut off by a
   * crash is left out.
   * @param {string} name
   * @returns {{lines: Line[], done: () => void, back: () => void} | null}
   */
  claim(name) {
    const id = name.split(".")[0];
    const mine = path.join(this.folder, `${id}.${OWNER}.claim`);
    try {
      fs.renameSync(path.join(this.folder, name), mine);
    } catch {
      return null;
    }
    const moment = new Date();
    fs.utimesSync(mine, moment, moment);
    const lines = fs.readFileSync(mine, "utf8").split("\n").flatMap(lineOf);
    return {
      lines,
      done: () => removeFile(mine),
      back: () => fs.renameSync(mine, path.join(this.folder, `${id}.jsonl`)),
    };
  }

  #names() {
    try {
      return fs.readdirSync(this.folder).filter((name) => /\.(jsonl|log|claim)$/.test(name)).sort();
    } catch (error) {
      if (codeOf(error) === "ENOENT") return [];
      throw error;
    }
  }

  /** @param {string} name */
  #isFree(name) {
    const [, owner, kind] = name.split(".");
    if (kind === undefined || owner === undefined) return true;
    if (owner === OWNER) return false;
    const [host, pid, start] = owner.split("-");
    if (host === HOST && !isAlive(Number(pid), start ?? "")) return true;
    const touched = fs.statSync(path.join(this.folder, name), { throwIfNoEntry: false })?.mtimeMs;
    return touched !== undefined && Date.now() - touched > ABANDONED;
  }

  /** @param {readonly Line[]} rows */
  #begin(rows) {
    const { id, part, file } = this.#new();
    const before = /** @type {const} */ ([this.#log, this.#logged, this.#size]);
    [this.#log, this.#size] = [file, 0];
    try {
      this.#append(rows);
      const name = `${id}.${OWNER}.log`;
      fs.renameSync(part, path.join(this.folder, name));
      this.#logged = name;
    } catch (error) {
      [this.#log, this.#logged, this.#size] = before;
      fs.closeSync(file);
      removeFile(part);
      throw error;
    }
    if (before[0] !== null) {
      removeFile(path.join(this.folder, before[1]));
      fs.closeSync(before[0]);
    }
  }

  /** @param {readonly Line[]} rows */
  #append(rows) {
    if (this.#log === null || rows.length === 0) return;
    const data = rows.length === 1 ? rawOf(/** @type {Line} */ (rows[0])) : Buffer.concat(rows.map(rawOf));
    writeAll(this.#log, data);
    this.#size += data.length;
  }

  /** A new file, which nobody reads under its present name. */
  #new() {
    fs.mkdirSync(this.folder, { recursive: true, mode: 0o700 });
    const id = `${Date.now().toString(16).padStart(12, "0")}${cryptoBytes(8).toString("hex")}`;
    const part = path.join(this.folder, `${id}.part`);
    const { O_CREAT, O_WRONLY, O_EXCL, O_APPEND } = fs.constants;
    return { id, part, file: fs.openSync(part, O_CREAT | O_WRONLY | O_EXCL | O_APPEND, 0o600) };
  }
}

/** @param {number} file @param {Uint8Array} data */
function writeAll(file, data) {
  for (let written = 0; written < data.length; ) written += fs.writeSync(file, data, written);
}

/** @param {Line} line */
function rawOf(line) {
  return Buffer.from(`{"kind": "${line.kind}", "row": ${line.text}}\n`, "utf8");
}

/** @param {string} raw @returns {Line[]} */
function lineOf(raw) {
  try {
    const { kind, row } = JSON.parse(raw);
    if ((kind !== "inferences" && kind !== "feedback") || typeof row !== "object" || row === null) return [];
    const text = JSON.stringify(row);
    return [{ kind, text, size: Buffer.byteLength(text) }];
  } catch {
    return [];
  }
}

/** @param {string} name */
function sizeOf(name) {
  return fs.statSync(name, { throwIfNoEntry: false })?.size ?? 0;
}

/** @param {string} name */
function removeFile(name) {
  fs.rmSync(name, { force: true });
}

/** @param {string} folder */
function syncFolder(folder) {
  try {
    const file = fs.openSync(folder, fs.constants.O_RDONLY);
    try {
      fs.fsyncSync(file);
    } finally {
      fs.closeSync(file);
    }
  } catch (error) {
    if (codeOf(error) === "EIO" || codeOf(error) === "ENOSPC") throw error;
  }
}

/** @param {unknown} error @returns {unknown} */
function codeOf(error) {
  return error instanceof Error && "code" in error ? error.code : undefined;
}

/**
 * Whether a process of this machine lives. Where the system says when it started, another one with its number is not it.
 * @param {number} pid
 * @param {string} start
 */
function isAlive(pid, start) {
  if (!Number.isInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
  } catch (error) {
    return codeOf(error) === "EPERM";
  }
  return start === "0" || startOf(pid) === start;
}

/**
 * The time at which a process started, in ticks since the boot; "0" where the system does not say it.
 * @param {number} pid
 */
function startOf(pid) {
  try {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, "latin1");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? "0";
  } catch {
    return "0";
  }
}

const HOST = createHash("sha256").update(os.hostname(), "utf8").digest("hex").slice(0, 12);
const OWNER = `${HOST}-${process.pid}-${startOf(process.pid)}`;
