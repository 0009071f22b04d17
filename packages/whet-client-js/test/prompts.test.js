/** Prompts: assignments and texts as the Python client has them, the cache, bundled copies. */

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import test from "node:test";
import { Client, NotFound, Unavailable, UsageError, assign, waiting } from "../src/index.js";
import { NOWHERE, SILENT, TOKEN, World, folderOf, listening, serve } from "./helpers.js";

/**
 * @type {{waiting: {salt: string, unit: string, version: number, waiting: number}[],
 *   assignments: {salt: string, unit: string, arms: [number, number][], version: number}[],
 *   formats: {prompt: any, values: Record<string, import("../src/live_prompts.js").SlotValue>, messages: unknown, slots: string[]}[]}}
 */
const CASES = JSON.parse(readFileSync(new URL("cases.json", import.meta.url), "utf8"));

/** A client of a world without a network, with a clock. @param {World} world @param {object} [options] */
function clientOf(world, options = {}) {
  const clock = { now: 0 };
  const client = new Client(NOWHERE, { send: world.send, spool: null, log: SILENT, clock: () => clock.now, ...options });
  return { client, clock };
}

test("units see the versions that the Python client assigns", () => {
  for (const { salt, unit, version, waiting: expected } of CASES.waiting) {
    const time = waiting(salt, unit, version); // the hash is the same; logarithms may differ in the last bit from library to library
    assert.ok(Math.abs(time - expected) <= 4e-16 * expected, `${salt} ${unit} ${version}: ${time}, not ${expected}`);
  }
  for (const one of CASES.assignments) assert.equal(assign(one.salt, one.unit, one.arms), one.version, JSON.stringify(one));
});

test("an assignment that cannot be is refused", () => {
  for (const [unit, arms] of /** @type {[string, [number, number][]][]} */ ([["", [[1, 1]]], ["u", [[1, 0]]], ["u", [[1, -1]]], ["u", [[1, NaN]]]])) {
    assert.throws(() => assign("s", unit, arms), UsageError);
  }
});

test("texts are formatted as the Python client formats them", async () => {
  for (const one of CASES.formats) {
    const { client } = clientOf(new World(), { fallbacks: { p: one.prompt } });
    const prompt = await client.prompt("p");
    assert.deepEqual(prompt.format(one.values), one.messages, JSON.stringify(one.prompt));
    assert.deepEqual([...prompt.slots].sort(), one.slots);
  }
});

test("a value that is missing or none is refused by name", async () => {
  const { client } = clientOf(new World(), { fallbacks: { p: "{{a}} {{b}}" } });
  const prompt = await client.prompt("p");
  assert.throws(() => prompt.format({ a: 1 }), /needs values for b; given: a\./);
  const twice = /** @type {unknown[]} */ ([]);
  twice.push(twice);
  for (const b of [NaN, Infinity, new Date(0), new Map(), () => 1, Symbol("x"), undefined, [undefined], { c: [NaN] }, twice]) {
    assert.throws(() => prompt.format({ a: 1, b: /** @type {any} */ (b) }), /\{\{b\}\} must be a text, a finite number, .*; this is /s);
  }
});

test("prompts that cannot be used are refused", async () => {
  for (const [prompt, reason] of /** @type {[any, RegExp][]} */ ([
    [" ", /is empty/], ["<!-- whet:begin -->\nx", /never closed/], ["<!-- whet:end -->", /without a/], ["<!-- whet:start -->", /looks like a fence/],
    ['[{"role": "system", "content": "x"}', /no valid JSON/], ["- role: user\n  content: x", /YAML/], [[{ role: "boss", content: "x" }], /known role/],
    ["a\0", /NUL/], ["a\ud800", /surrogate/],
  ])) {
    const { client } = clientOf(new World(), { fallbacks: { p: prompt } });
    await assert.rejects(client.prompt("p"), (error) => error instanceof UsageError && reason.test(error.message));
  }
});

test("a prompt is fetched once, served from memory, and refreshed behind the app", async () => {
  const world = new World();
  world.put("shop/help me", "One {{q}}", 1);
  world.prompts.set("shop/help%20me?label=production", /** @type {any} */ (world.prompts.get("shop/help me?label=production")));
  const { client, clock } = clientOf(world, { fresh: 60 });
  const [first, again] = await Promise.all([client.prompt("shop/help me"), client.prompt("shop/help me")]);
  assert.deepEqual([first.version, first.source, first.config, again.version], [1, "server", { model: "m" }, 1]);
  assert.equal(world.requests.length, 2);
  world.put("shop/help me", "Two", 2);
  world.prompts.set("shop/help%20me?label=production", /** @type {any} */ (world.prompts.get("shop/help me?label=production")));
  clock.now = 59;
  assert.equal((await client.prompt("shop/help me")).version, 1);
  assert.equal(world.requests.length, 2);
  clock.now = 61;
  assert.equal((await client.prompt("shop/help me")).version, 1, "the stale one is served at once");
  await settle();
  assert.equal((await client.prompt("shop/help me")).version, 2);
});

test("a server that goes down changes nothing and is asked less and less", async () => {
  const world = new World();
  world.put("p", "One");
  const { client, clock } = clientOf(world, { fresh: 10 });
  await client.prompt("p");
  world.isDown = true;
  let asked = 0;
  for (clock.now = 11; clock.now < 200; clock.now += 1) {
    world.requests = [];
    assert.equal((await client.prompt("p")).version, 1);
    await settle();
  }
  world.isDown = false;
  for (; clock.now < 300; clock.now += 1) {
    world.requests = [];
    await client.prompt("p");
    await settle();
    asked += world.requests.length;
    if (asked) break;
  }
  assert.ok(asked > 0, "it is asked again");
  assert.ok(clock.now < 261, "after a minute at most");
});

test("bundled copies work from the first call on, and give way", async () => {
  const world = new World();
  world.isDown = true;
  const { messages, log } = listening();
  const { client, clock } = clientOf(world, { fallbacks: { p: "Bundled" }, log });
  const prompt = await client.prompt("p");
  assert.deepEqual([prompt.version, prompt.source], [0, "fallback"]);
  assert.match(messages.join(), /Using the bundled copy of p/);
  assert.equal((await client.prompt("q", { fallback: "Mine" })).source, "fallback");
  await assert.rejects(client.prompt("r"), (error) => error instanceof Unavailable && /No copy of r is bundled/.test(error.message));
  world.isDown = false;
  world.put("p", "Served", 3);
  clock.now = 5;
  await client.prompt("p");
  await settle();
  assert.deepEqual([(await client.prompt("p")).version, (await client.prompt("p")).source], [3, "server"]);
  await assert.rejects(client.prompt("unknown"), NotFound);
});

test("a folder of bundled prompts", async (t) => {
  const folder = folderOf(t);
  mkdirSync(`${folder}/shop/hi`, { recursive: true });
  writeFileSync(`${folder}/shop/help.md`, "Help {{q}}");
  writeFileSync(`${folder}/shop/hi/@labels.json`, '{"production": 4}');
  writeFileSync(`${folder}/shop/hi/@4.json`, '{"messages": [{"role": "system", "file": "@4.system.md"}], "config": {"temperature": 0}}');
  writeFileSync(`${folder}/shop/hi/@4.system.md`, "Hi");
  const world = new World();
  world.isDown = true;
  const { client } = clientOf(world, { fallbacks: folder });
  assert.deepEqual((await client.prompt("shop/help")).format({ q: "me" }), [{ role: "user", content: "Help me" }]);
  const hi = await client.prompt("shop/hi");
  assert.deepEqual([hi.version, hi.config, hi.format()], [4, { temperature: 0 }, [{ role: "system", content: "Hi" }]]);
  await assert.rejects(client.prompt("../secret"), /is no name of a prompt/);
  assert.throws(() => clientOf(world, { fallbacks: `${folder}/none` }), /no folder/);
});

test("an experiment assigns in the process, and is logged with the answer", async () => {
  const world = new World();
  world.put("p", "One", 1);
  world.put("p", "Two", 2, "other");
  const arms = [{ version: 1, weight: 1 }, { version: 2, weight: 1 }];
  world.experiments = [{ id: "x1", salt: "s", unit: "user", revision: 3, label: "production", arms }];
  const { client } = clientOf(world);
  for (let number = 0; number < 20; number++) {
    const prompt = await client.prompt("p", { user: `u${number}`, session: "s1" });
    assert.equal(prompt.version, assign("s", `u${number}`, [[1, 1], [2, 1]]));
    const id = client.log(prompt, "out");
    await client.flush();
    const { time, ...row } = world.rows.get(id);
    assert.match(time, /^20.*Z$/);
    assert.deepEqual(row, {
      id, prompt: "p", output: "out", version: prompt.version, user: `u${number}`, session: "s1", experiment: "x1", variant: "3",
    });
  }
  assert.equal((await client.prompt("p")).experiment, null);
  assert.ok(world.requests.filter((one) => one.startsWith("GET")).length <= 3);
});

test("an experiment that cannot be had is left out", async () => {
  const world = new World();
  world.put("p", "One", 1);
  world.experiments = [{ id: "x1", salt: "s", unit: "planet", label: "production", arms: [{ version: 1, weight: 1 }] }];
  const { messages, log } = listening();
  const { client } = clientOf(world, { log });
  assert.equal((await client.prompt("p", { user: "u" })).experiment, null);
  assert.match(messages.join(), /assigns by "planet"/);
});

test("over the network: the token goes to the server, and to no other", async (t) => {
  const world = new World();
  world.put("p", "One");
  const server = await serve(world);
  /** @type {(string | undefined)[]} */
  const tokens = [];
  const thief = createServer((request, response) => {
    tokens.push(request.headers.authorization);
    response.end("{}");
  });
  await new Promise((resolve) => thief.listen(0, "127.0.0.1", () => resolve(null)));
  const other = createServer((request, response) => {
    const { port } = /** @type {import("node:net").AddressInfo} */ (thief.address());
    response.writeHead(307, { location: `http://127.0.0.1:${port}${request.url}` }).end();
  });
  await new Promise((resolve) => other.listen(0, "127.0.0.1", () => resolve(null)));
  t.after(() => {
    server.stop();
    for (const one of [thief, other]) one.closeAllConnections();
    thief.close();
    other.close();
  });
  const client = new Client(server.url, { token: TOKEN, spool: null, log: SILENT });
  assert.equal((await client.prompt("p")).source, "server");
  client.log("p", "out");
  client.log("p", null);
  assert.ok(await client.flush());
  const { port } = /** @type {import("node:net").AddressInfo} */ (other.address());
  const led = new Client(`http://127.0.0.1:${port}`, { token: TOKEN, spool: null, log: SILENT });
  await assert.rejects(led.prompt("p"), /does not give/);
  led.log("p", "out");
  assert.equal(await led.flush(0.3), false);
  await led.close(0);
  assert.deepEqual(tokens, []);
});

test("an answer that never ends is given up", async (t) => {
  const server = createServer((_, response) => void response.writeHead(200).write("{"));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(null)));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  const client = new Client(`http://127.0.0.1:${port}`, { timeout: 0.1, spool: null, log: SILENT });
  await assert.rejects(client.prompt("p"), /its answer is not complete after 0.1 seconds/);
});

test("addresses, tokens and times that are none are refused", () => {
  for (const url of ["ftp://a", "http://", "a:b@c", "http://me:pw@host", "http://host?x=1", "host"]) {
    assert.throws(() => new Client(url), /is no address of a server/);
  }
  assert.throws(() => new Client(NOWHERE, { token: "a\nb" }), /token has characters/);
  assert.throws(() => new Client(NOWHERE, { timeout: -1 }), /timeout is a number of seconds/);
});

test("a user whom log could not take is refused at once", async () => {
  const { client } = clientOf(new World(), { fallbacks: { p: "x" } });
  await assert.rejects(client.prompt("p", { user: "a\nb" }), /control character/);
  await assert.rejects(client.prompt("p", { user: "x".repeat(201) }), /at most 200/);
  // @ts-expect-error: a number is no user
  await assert.rejects(client.prompt("p", { user: 7 }), /user must be a text/);
});

/** Let what is under way behind the app come to its end. */
async function settle() {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  await new Promise((resolve) => setImmediate(resolve));
}
