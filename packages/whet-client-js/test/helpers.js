/** A small server for tests: prompts from a map, rows kept by id; and logs that are silent. */

import { createServer } from "node:http";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** @typedef {import("../src/http.js").HttpReply} HttpReply */

export const TOKEN = "secret";
export const NOWHERE = "http://127.0.0.1:9";

/** What the server knows and has seen. `broken` answers every request with a status, `taken` are ids in use. */
export class World {
  /** @type {Map<string, Record<string, unknown>>} */
  prompts = new Map();
  /** @type {unknown[]} */
  experiments = [];
  /** @type {Map<string, any>} */
  rows = new Map();
  /** @type {string[]} */
  requests = [];
  /** @type {Set<string>} */
  taken = new Set();
  namesRows = false;
  broken = 0;
  isDown = false;
  /** @type {string | null} */
  strange = null;

  /** @param {string} name @param {string} content @param {number} [version] @param {string} [label] */
  put(name, content, version = 1, label = "production") {
    const value = { name, version, messages: [{ role: "auto", content }], config: { model: "m" } };
    this.prompts.set(`${name}?label=${label}`, value);
    this.prompts.set(`${name}?version=${version}`, value);
  }

  /**
   * @param {string} method @param {string} target @param {Record<string, string | undefined>} headers @param {string} body
   * @returns {HttpReply}
   */
  answer(method, target, headers, body) {
    this.requests.push(`${method} ${target}`);
    if (this.strange !== null) return { status: 200, headers: {}, body: this.strange };
    if (this.broken) return reply(this.broken, { error: { message: "broken" } });
    if (headers.authorization !== `Bearer ${TOKEN}`) return reply(401, { error: { message: "Who are you?" } });
    if (method === "POST") return this.#store(/** @type {Record<string, any[]>} */ (JSON.parse(body)));
    const isAssignments = target.startsWith("/v1/assignments");
    const value = isAssignments ? { experiments: this.experiments } : this.prompts.get(target.replace("/v1/prompts/", ""));
    if (value === undefined) return reply(404, { error: { message: "There is no such prompt." } });
    const etag = `"${JSON.stringify(value).length}-${JSON.stringify(value).slice(-60)}"`.replace(/[^\x21-\x7e]/g, "");
    if (headers["if-none-match"] === etag) return { status: 304, headers: { etag }, body: "" };
    return { ...reply(200, value), headers: { etag } };
  }

  /** @param {Record<string, any[]>} body */
  #store(body) {
    const rows = Object.values(body).flat();
    const refused = rows.flatMap((row, index) => (row.kind === "shrug" ? [{ index, id: row.id, message: "no kind" }] : []));
    if (this.namesRows && refused.length) return reply(400, { error: { message: "no kind" }, refused });
    const first = new Map([...rows].reverse().map((row) => [row.id, JSON.stringify(row)]));
    const clashes = rows.filter((row) => this.taken.has(row.id) || first.get(row.id) !== JSON.stringify(row));
    const conflicts = clashes.map((row) => ({ id: row.id, message: "it is taken" }));
    if (conflicts.length) return reply(409, { error: { message: "taken" }, conflicts });
    for (const row of rows) {
      if (row.kind === "shrug") return reply(400, { error: { message: "no kind" } });
    }
    for (const row of rows) this.rows.set(row.id, row);
    return reply(200, { accepted: rows.length, duplicates: 0 });
  }

  /** Requests without a network. @type {import("../src/http.js").Send} */
  send = async (method, path, headers, body) => {
    if (this.isDown) {
      const { Unavailable } = await import("../src/index.js");
      throw new Unavailable("The server is down.");
    }
    const lower = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
    return this.answer(method, path, { authorization: `Bearer ${TOKEN}`, ...lower }, body ?? "");
  };
}

/** @param {number} status @param {unknown} value @returns {HttpReply} */
function reply(status, value) {
  return { status, headers: {}, body: JSON.stringify(value) };
}

/**
 * A real server of a world.
 * @param {World} world
 */
export async function serve(world) {
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (piece) => (body += piece));
    request.on("end", () => {
      const headers = /** @type {Record<string, string | undefined>} */ (request.headers);
      const answer = world.answer(request.method ?? "", request.url ?? "", headers, body);
      response.writeHead(answer.status, answer.headers).end(answer.body);
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(null)));
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const stop = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${port}`, port, stop };
}

/** Messages of a log, and the log. */
export function listening() {
  /** @type {string[]} */
  const messages = [];
  const log = { warn: (/** @type {string} */ text) => void messages.push(text), error: (/** @type {string} */ text) => void messages.push(text) };
  return { messages, log };
}

export const SILENT = { warn: () => {}, error: () => {} };

/** A folder that is deleted at the end of a test. @param {import("node:test").TestContext} test */
export function folderOf(test) {
  const folder = mkdtempSync(join(tmpdir(), "whet-"));
  test.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Names of all files below a folder. @param {string} folder @returns {string[]} */
export function filesBelow(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((one) =>
    one.isDirectory() ? filesBelow(join(folder, one.name)) : [join(folder, one.name)],
  );
}
