/** Answers and feedback on their way: batches, a server that is down or refuses, the spool, the end of the process, a kill. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { webcrypto } from "node:crypto";
import { chmodSync, cpSync, mkdirSync, readFileSync, readdirSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import test from "node:test";
import { fileURLToPath } from "node:url";
import { Unavailable } from "../src/errors.js";
import { Client, UsageError, newId } from "../src/index.js";
import { Spool } from "../src/runtime_node.js";
import { Sender } from "../src/sender.js";
import { NOWHERE, SILENT, TOKEN, World, filesBelow, folderOf, listening, serve } from "./helpers.js";

const APP = fileURLToPath(new URL("app.js", import.meta.url));

/** @param {World} world @param {object} [options] */
function clientOf(world, options = {}) {
  return new Client(NOWHERE, { send: world.send, spool: null, log: SILENT, ...options });
}

/** @param {number} number @param {object} [more] */
function row(number, more = {}) {
  return { kind: "copy", target: "i", value: 1, id: `f${number}`, ...more };
}

test("rows go out in batches and arrive whole", async (t) => {
  const world = new World();
  const server = await serve(world);
  t.after(() => server.stop());
  const client = new Client(server.url, { token: TOKEN, spool: null });
  const ids = Array.from({ length: 1200 }, (_, n) => client.log("p", `out ${n}`, { inputs: { x: n }, cost: 0.1, latency: 0.5, input_tokens: 3 }));
  const feedback = ids.slice(0, 100).flatMap((id) => client.feedback(id, { rating: 4, comment: "Nice.", copy: true }));
  assert.ok(await client.flush(60));
  assert.deepEqual([...world.rows.keys()].sort(), [...ids, ...feedback].sort());
  const { time, ...first } = world.rows.get(String(ids[0]));
  assert.match(time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
  assert.deepEqual(first, { id: ids[0], prompt: "p", output: "out 0", inputs: { x: 0 }, cost: 0.1, latency: 0.5, input_tokens: 3 });
  assert.ok(world.requests.length <= 12, `${world.requests.length} requests`);
  assert.equal(client.tally.sent, 1400);
});

test("feedback by kinds", async () => {
  for (const [values, rows] of /** @type {[any, any[]][]} */ ([
    [{ thumb: "down", comment: "Odd." }, [["thumb", 0, "Odd.", , ,]]],
    [{ thumb: true }, [["thumb", 1, , , ,]]],
    [{ thumb: "👍" }, [["thumb", 1, , , ,]]],
    [{ comment: "Odd." }, [["comment", , "Odd.", , ,]]],
    [{ correction: "So.", comment: "Odd." }, [["correction", , "So.", , ,], ["comment", , "Odd.", , ,]]],
    [{ label: "wrong", explanation: "Why", name: "m" }, [["label", , "Why", "wrong", "m"]]],
    [{ score: 0.5, name: "tone" }, [["score", 0.5, , , "tone"]]],
    [{ choice: 1, over: "j" }, [["choice", 1, , "j", ,]]],
    [{ dwell: 12.5, regenerate: 2, abandon: null }, [["dwell", 12.5, , , ,], ["regenerate", 2, , , ,]]],
  ])) {
    const world = new World();
    const client = clientOf(world);
    const ids = client.feedback("i", { user: "u", source: "annotator", metadata: { k: 1 }, ...values });
    await client.close();
    assert.deepEqual([...world.rows.keys()], ids);
    const stored = [...world.rows.values()];
    assert.deepEqual(stored.map((one) => [one.kind, one.value, one.text, one.label, one.name]), rows.map((one) => Array.from({ length: 5 }, (_, n) => one[n])));
    assert.ok(stored.every((one) => one.target === "i" && one.user === "u" && one.source === "annotator" && one.metadata.k === 1));
  }
});

test("feedback is about exactly one thing", async () => {
  const world = new World();
  const client = clientOf(world);
  client.feedback({ episode: "e", thumb: 1, id: "key" });
  client.feedback({ session: "s", rating: 2, correction: "x", id: "other" });
  for (const wrong of [{ thumb: 1 }, { inference: "i", episode: "e", thumb: 1 }]) {
    assert.throws(() => client.feedback(wrong), /Name exactly one/);
  }
  await client.close();
  assert.deepEqual(Array.from(world.rows, ([id, one]) => [id, one.target_kind]), [["key", "episode"], ["other", "session"], ["other#1", "session"]]);
});

test("what cannot be is refused at the call", async () => {
  const world = new World();
  const client = clientOf(world);
  for (const [values, reason] of /** @type {[any, RegExp][]} */ ([
    [{ rating: 6 }, /value must be a number from 1 to 5/], [{ thumbs: 1 }, /Did you mean "thumb"/], [{}, /says nothing/],
    [{ rating: 3, source: "boss" }, /source/], [{ label: "" }, /label/], [{ choice: 1, label: "j" }, /choice and over go together/],
    [{ thumb: "sideways" }, /"up" or "down"/], [{ rating: true }, /from 1 to 5/], [{ choice: 0.7, over: "j" }, /0 or 0.5 or 1/], [{ dwell: NaN }, /number/],
  ])) {
    assert.throws(() => client.feedback("i", values), (error) => error instanceof UsageError && reason.test(error.message), JSON.stringify(values));
  }
  for (const [more, reason] of /** @type {[any, RegExp][]} */ ([
    [{ modle: "m" }, /Did you mean "model"/], [{ cost: -1 }, /cost/], [{ version: "x" }, /version/], [{ user: "a\nb" }, /control/], [{ inputs: 3 }, /object/],
    [{ time: 5 }, /years 2000 and 2100/], [{ metadata: nested(70) }, /64 levels/],
  ])) {
    assert.throws(() => client.log("p", "out", more), (error) => error instanceof UsageError && reason.test(error.message), JSON.stringify(more));
  }
  assert.throws(() => client.log("a|b"), /has a \|/);
  await client.close();
  assert.equal(world.rows.size, 0);
});

/** @param {number} depth @returns {object} */
function nested(depth) {
  return depth ? { a: nested(depth - 1) } : {};
}

test("long texts are cut, odd ones cleaned, and the metadata say so", async () => {
  const world = new World();
  const client = clientOf(world);
  const long = client.log("p", "a\0".repeat(300_000), { metadata: { k: 1 } });
  const odd = client.log("p", "a\ud800b😀");
  const pair = client.log("p", "x".repeat(255_999) + "😀");
  const pairs = client.log("p", "😀".repeat(256_001), { inputs: { question: "😀".repeat(200_000) } });
  const [comment] = client.feedback(long, { comment: "b".repeat(40_000) });
  const pages = client.log("p", "", { inputs: { question: "Why?", pages: ["\n".repeat(200_000), "b".repeat(300_000)] }, metadata: { t: "t".repeat(20_000), step: 3 } });
  const numbers = client.log("p", "", { inputs: { ids: Array.from({ length: 100_000 }, (_, n) => n) } });
  await client.close();
  const of = (/** @type {string | undefined} */ id) => world.rows.get(String(id));
  assert.equal(of(long).output.length, 256_000);
  assert.deepEqual(of(long).metadata, { k: 1, cut: ["output"], cleaned: ["output"] });
  assert.deepEqual([of(odd).output, of(odd).metadata], ["a\ufffdb😀", { cleaned: ["output"] }]);
  assert.equal(of(pair).output, `${"x".repeat(255_999)}😀`); // characters count, as in Python
  assert.equal(of(pairs).output, "😀".repeat(256_000));
  assert.deepEqual([of(pairs).inputs.question, of(pairs).metadata], ["😀".repeat(200_000), { cut: ["output"] }]);
  assert.equal(of(comment).text.length, 32_000);
  assert.ok(JSON.stringify(of(pages).inputs).length <= 256_000 && of(pages).inputs.question === "Why?");
  assert.deepEqual([of(pages).metadata.cut, of(pages).metadata.step], [["inputs", "metadata"], 3]);
  assert.ok(of(numbers).inputs.json.startsWith('{"ids":[0,1,2,'));
});

test("a blank user, session or episode is none", async () => {
  const world = new World();
  const client = clientOf(world);
  const id = client.log("p", "out", { user: "", session: " ", episode: "e", model: "" });
  const [thumb] = client.feedback(id, { thumb: "up", user: "" });
  await client.close();
  const [answer, vote] = [world.rows.get(id), world.rows.get(String(thumb))];
  assert.deepEqual([answer.user, answer.session, answer.episode, answer.model, vote.user], [undefined, undefined, "e", undefined, undefined]);
});

test("whatever a program has at hand is logged as JSON", async () => {
  const world = new World();
  const client = clientOf(world);
  /** @type {Record<string, unknown>} */
  const circle = { name: "c" };
  circle.self = circle;
  const inputs = {
    when: new Date(0), ids: new Set([1, 2]), map: new Map([["a", 1]]), big: 2n ** 70n, small: 3n, nan: NaN, huge: 1e20, f: () => 1, no: undefined,
    circle, array: new Float64Array([0.5]), error: new TypeError("odd"),
  };
  const id = client.log("p", "", { inputs });
  const plain = client.log("p", "", { inputs: { a: [1, null, { b: "c" }], d: true } });
  await client.close();
  const row = world.rows.get(id);
  const { f, ...rest } = row.inputs;
  assert.match(f, /=> 1/);
  assert.deepEqual(rest, {
    when: "1970-01-01T00:00:00.000Z", ids: [1, 2], map: { a: 1 }, big: String(2n ** 70n), small: 3, nan: "nan", huge: "100000000000000000000",
    circle: { name: "c", self: "…" }, array: [0.5], error: "TypeError: odd",
  });
  assert.deepEqual(row.metadata, { cleaned: ["inputs"] });
  assert.deepEqual([world.rows.get(plain).inputs, world.rows.get(plain).metadata], [{ a: [1, null, { b: "c" }], d: true }, undefined]);
});

test("rows that the server refuses do not hold up the others", async () => {
  const world = new World();
  const { messages, log } = listening();
  const sender = new Sender(world.send, NOWHERE, null, 1_000_000, 0, log);
  world.taken = new Set(["f7", "f70"]);
  for (let n = 0; n < 100; n++) sender.put("feedback", n === 50 ? row(n, { kind: "shrug" }) : row(n));
  assert.ok(await sender.flush(60));
  assert.equal(world.rows.size, 97);
  assert.deepEqual(sender.tally, { sent: 97, spooled: 0, refused: 3, lost: 0 });
  assert.match(messages.join("\n"), /2 rows are refused.*it is taken/);
  assert.match(messages.join("\n"), /refuses a row: no kind/);
});

test("of a malformed row and a good one with its id the good one is stored", async () => {
  const world = new World();
  world.namesRows = true;
  const sender = new Sender(world.send, NOWHERE, null, 1_000_000, 0, SILENT);
  for (const one of [row(1, { kind: "shrug" }), row(1), row(2), row(2, { kind: "shrug" })]) sender.put("feedback", one);
  assert.ok(await sender.flush(60));
  assert.deepEqual([world.rows.size, sender.tally.sent, sender.tally.refused], [2, 2, 2]);
});

test("of two rows with one id in a batch the first is stored", async () => {
  const world = new World();
  const sender = new Sender(world.send, NOWHERE, null, 1_000_000, 0, SILENT);
  world.taken = new Set(["f3"]);
  for (const [n, value] of [[1, 1], [2, 1], [1, 0], [3, 1], [3, 0], [1, 1]]) sender.put("feedback", row(n ?? 0, { value }));
  assert.ok(await sender.flush(60));
  assert.deepEqual([...world.rows.values()].map((one) => [one.id, one.value]), [["f1", 1], ["f2", 1]]);
  assert.deepEqual([sender.tally.sent, sender.tally.refused], [3, 3]);
});

test("rows wait while the server cannot take them", async () => {
  for (const status of [401, 403, 404, 429, 500, 503, 302, 200]) {
    const world = new World();
    const sender = new Sender(world.send, NOWHERE, null, 1_000_000, 0, SILENT);
    if (status === 200) world.strange = "<html>Please sign in</html>";
    else world.broken = status;
    sender.put("feedback", row(1));
    assert.equal(await sender.flush(0.02), false);
    assert.ok(world.requests.length > 0);
    [world.broken, world.strange] = [0, null];
    sender.put("feedback", row(2));
    assert.ok(await sender.flush(60), `after ${status}`);
    assert.deepEqual([[...world.rows.keys()].sort(), sender.tally.refused], [["f1", "f2"], 0]);
  }
});

test("memory is bounded, and what is beyond it goes to the spool", async (t) => {
  const [world, folder] = [new World(), folderOf(t)];
  world.isDown = true;
  const sender = new Sender(world.send, NOWHERE, new Spool(folder, NOWHERE, 10 ** 7), 20_000, 0, SILENT);
  for (let n = 0; n < 2000; n++) sender.put("feedback", row(n));
  assert.ok(sender.bytes <= 20_000);
  assert.ok(sender.tally.spooled > 1000);
  assert.equal(sender.tally.lost, 0);
  world.isDown = false;
  assert.ok(await sender.flush(60));
  await sender.close(1);
  assert.equal(world.rows.size, 2000);
  assert.deepEqual(filesBelow(folder), []);
});

test("without a spool, and in a full one, what is lost is counted and logged", async (t) => {
  const world = new World();
  world.isDown = true;
  const { messages, log } = listening();
  const none = new Sender(world.send, NOWHERE, null, 10_000, 0, log);
  for (let n = 0; n < 1000; n++) none.put("feedback", row(n));
  await none.close(0);
  assert.deepEqual(none.tally, { sent: 0, spooled: 0, refused: 0, lost: 1000 });
  const full = new Sender(world.send, NOWHERE, new Spool(folderOf(t), NOWHERE, 1_000), 10_000, 0, log);
  for (let n = 0; n < 100; n++) full.put("feedback", row(n));
  await full.close(0);
  assert.ok(full.tally.lost > 50 && full.tally.spooled > 0 && full.tally.lost + full.tally.spooled === 100);
  assert.match(messages.join("\n"), /there is no spool/);
  assert.match(messages.join("\n"), /the spool is full/);
});

test("the spool is private, and a disk that refuses does not reach the app", async (t) => {
  const [world, folder] = [new World(), folderOf(t)];
  const spool = new Spool(folder, NOWHERE, 10 ** 6);
  spool.write([{ kind: "feedback", text: JSON.stringify(row(1)), size: 60 }]);
  const [name] = spool.waiting();
  assert.equal(statSync(spool.folder).mode & 0o777, 0o700);
  assert.equal(statSync(`${spool.folder}/${name}`).mode & 0o777, 0o600);
  writeFileSync(`${folder}/file`, "");
  const { messages, log } = listening();
  const client = clientOf(world, { spool: `${folder}/file`, log });
  client.log("p", "out");
  assert.ok(await client.flush(60));
  assert.match(messages.join("\n"), /not safe from a kill/);
  assert.equal(client.tally.sent, 1);
});

test("files of dead and silent processes are sent, those of living ones are not", async (t) => {
  const [world, folder] = [new World(), folderOf(t)];
  const spool = new Spool(folder, NOWHERE, 10 ** 6);
  spool.note({ kind: "feedback", text: JSON.stringify(row(0)), size: 60 }, () => [{ kind: "feedback", text: JSON.stringify(row(0)), size: 60 }]);
  const [own] = readdirSync(spool.folder);
  const [host, pid, start] = String(own).split(".")[1]?.split("-") ?? [];
  const line = (/** @type {number} */ n) => `{"kind": "feedback", "row": ${JSON.stringify(row(n))}}\n`;
  const names = {
    dead: `a1.${host}-4194305-1.log`, reused: `a2.${host}-${pid}-${Number(start) + 1}.log`, elsewhere: `a3.ffffffffffff-1-1.claim`, silent: `a4.ffffffffffff-1-1.log`,
  };
  Object.values(names).forEach((name, n) => writeFileSync(`${spool.folder}/${name}`, line(n + 1)));
  writeFileSync(`${spool.folder}/a5.jsonl`, `${line(5)}{"kind": "feedback", "row": {"id": "cut`);
  utimesSync(`${spool.folder}/${names.silent}`, 0, 0);
  const sender = new Sender(world.send, NOWHERE, new Spool(folder, NOWHERE, 10 ** 6), 10_000, 0, SILENT);
  sender.put("feedback", row(9));
  assert.ok(await sender.flush(60));
  const isLinux = process.platform === "linux";
  assert.deepEqual([...world.rows.keys()].sort(), isLinux ? ["f1", "f2", "f4", "f5", "f9"] : ["f1", "f4", "f5", "f9"]);
  await sender.close(0);
  assert.ok(filesBelow(folder).some((name) => name.endsWith(String(own))));
});

test("a log that another process has sent is begun anew with all that waits", async (t) => {
  const [world, folder] = [new World(), folderOf(t)];
  world.isDown = true;
  const sender = new Sender(world.send, NOWHERE, new Spool(folder, NOWHERE, 10 ** 6), 10_000, 0, SILENT);
  sender.put("feedback", row(1));
  const [log] = filesBelow(folder);
  const { unlinkSync } = await import("node:fs");
  unlinkSync(String(log));
  sender.put("feedback", row(2));
  const [next] = filesBelow(folder);
  assert.deepEqual(readFileSync(String(next), "utf8").trim().split("\n").map((one) => JSON.parse(one).row.id), ["f1", "f2"]);
  await sender.close(0);
});

test("what earlier processes left is sent again after a failure, and a flush waits for it", async (t) => {
  const [world, folder] = [new World(), folderOf(t)];
  new Spool(folder, NOWHERE, 10 ** 6).write([{ kind: "feedback", text: JSON.stringify(row(1)), size: 60 }]);
  const { messages, log } = listening();
  let asked = 0;
  /** @type {import("../src/http.js").Send} */
  const lossy = (...request) => {
    asked += 1;
    if (asked === 2 || asked === 3) throw new Unavailable("The request was lost.");
    return world.send(...request);
  };
  const sender = new Sender(lossy, NOWHERE, new Spool(folder, NOWHERE, 10 ** 6), 10_000, 0, log);
  sender.put("feedback", row(2));
  assert.ok(await sender.flush(60));
  assert.deepEqual([[...world.rows.keys()], asked], [["f2", "f1"], 4]);
  assert.deepEqual(messages, ["whet: The request was lost. 0 rows and those of earlier processes wait."]);
  await sender.close(60);
  assert.deepEqual(filesBelow(folder), []);
});

test("what a server that is down leaves, the next client sends", async (t) => {
  const [world, folder] = [new World(), folderOf(t)];
  world.isDown = true;
  const first = clientOf(world, { spool: folder });
  const ids = [first.log("p", "one"), first.log("p", "two")];
  await first.close();
  ids.push(first.log("p", "after the end"));
  assert.deepEqual(first.tally, { sent: 0, spooled: 3, refused: 0, lost: 0 });
  world.isDown = false;
  const second = clientOf(world, { spool: folder });
  ids.push(second.log("p", "three"));
  await second.close();
  assert.deepEqual([...world.rows.keys()].sort(), ids.sort());
  assert.deepEqual(filesBelow(folder), []);
});

test("an app that is killed loses no row, and a normal end needs no close", async (t) => {
  const [world, folder] = [new World(), folderOf(t)];
  const server = await serve(world);
  t.after(() => server.stop());
  const ids = [];
  for (const [token, rows] of /** @type {[string, number][]} */ ([[TOKEN, 300], ["wrong", 200], [TOKEN, 1]])) {
    const app = spawn(process.execPath, [APP, server.url, token, folder, "1000000"], { stdio: ["ignore", "pipe", "ignore"] });
    let seen = 0;
    for await (const line of createInterface({ input: app.stdout })) {
      ids.push(...line.split(" ").filter((id) => id.length === 36));
      if (++seen === rows) app.kill("SIGKILL");
    }
    if (app.signalCode === null) await once(app, "exit");
    assert.equal(app.signalCode, "SIGKILL");
  }
  const last = spawn(process.execPath, [APP, server.url, TOKEN, folder, "3"], { stdio: ["ignore", "pipe", "inherit"] });
  for await (const line of createInterface({ input: last.stdout })) ids.push(...line.split(" "));
  const missing = ids.filter((id) => !world.rows.has(id));
  assert.deepEqual(missing, [], `${missing.length} of ${ids.length} rows are lost`);
  assert.deepEqual(filesBelow(folder), []);
});

test("a log and a clock of the app that throw do not reach it", async () => {
  const world = new World();
  world.broken = 503;
  const broken = () => {
    throw new Error("the disk of the log is full");
  };
  const client = clientOf(world, { log: { warn: broken, error: broken } });
  client.log("p", "out");
  assert.equal(await client.flush(0.05), false);
  await client.close(0);
  assert.equal(client.tally.lost, 1);
});

test("ids sort in the order in which they were made", () => {
  const ids = Array.from({ length: 20_000 }, () => newId());
  assert.deepEqual([...ids].sort(), ids);
  assert.equal(new Set(ids).size, ids.length);
  assert.match(String(ids[0]), /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

test("a folder that cannot be written loses nothing while the server answers", { skip: process.getuid?.() === 0 }, async (t) => {
  const [world, folder] = [new World(), folderOf(t)];
  mkdirSync(`${folder}/locked`);
  chmodSync(`${folder}/locked`, 0o500);
  const client = clientOf(world, { spool: `${folder}/locked` });
  client.log("p", "out");
  assert.ok(await client.flush(60));
  await client.close();
});

test("without Node's modules the client works too, and writes nothing to disk", async (t) => {
  const folder = folderOf(t);
  cpSync(new URL("../src", import.meta.url), `${folder}/src`, { recursive: true });
  writeFileSync(`${folder}/package.json`, JSON.stringify({ type: "module", imports: { "#runtime": "./src/runtime_web.js" } }));
  if (!("crypto" in globalThis)) Object.defineProperty(globalThis, "crypto", { value: webcrypto, configurable: true });
  const { Client: WebClient } = await import(`${folder}/src/index.js`);
  const world = new World();
  world.put("p", "Help. {{q}}");
  const client = new WebClient(NOWHERE, { send: world.send, fallbacks: { other: "Mine" }, log: SILENT });
  const id = client.log(await client.prompt("p"), "out");
  client.feedback(id, { thumb: "up" });
  assert.equal((await client.prompt("other")).source, "fallback");
  await client.close();
  assert.deepEqual([world.rows.size, client.tally.sent, world.rows.get(id).version], [2, 2, 1]);
  assert.deepEqual(filesBelow(folder).filter((name) => /\.(jsonl|log|part)$/.test(name)), []);
  assert.throws(() => new WebClient(NOWHERE, { fallbacks: folder }), /no folder/);
});
