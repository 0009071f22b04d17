/** Clients of the OpenAI SDK that log: objects of its form, with its promises and streams. */

import assert from "node:assert/strict";
import test from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Client, UsageError } from "../src/index.js";
import { answerId, wrap } from "../src/openai.js";
import { NOWHERE, SILENT, World } from "./helpers.js";

const COMPLETION = {
  id: "chatcmpl-1", model: "m-2026", system_fingerprint: "fp_1",
  choices: [{ index: 0, finish_reason: "stop", message: { role: "assistant", content: "Tomorrow." } }],
  usage: { prompt_tokens: 7, completion_tokens: 2 },
};
const CALL = { name: "find", arguments: '{"parcel": 7}' };
const CALLS = { ...COMPLETION, choices: [{ index: 0, finish_reason: "tool_calls", message: { content: null, tool_calls: [{ function: CALL }] } }] };
const RESPONSE = {
  id: "resp_1", model: "m-2026", status: "completed", error: null, usage: { input_tokens: 7, output_tokens: 2 },
  output: [{ type: "message", content: [{ type: "output_text", text: "Tomorrow." }] }, { type: "function_call", name: "find", arguments: '{"parcel": 7}' }],
};
/** @param {object} delta @param {string | null} [finish_reason] */
const chunk = (delta, finish_reason = null) => ({ id: "chatcmpl-1", model: "m-2026", choices: [{ index: 0, delta, finish_reason }] });
const CHUNKS = [chunk({ content: "Tomor" }), chunk({ content: "row." }), chunk({}, "stop"), { choices: [], usage: COMPLETION.usage }];
const CALL_CHUNKS = [
  chunk({ tool_calls: [{ index: 0, function: { name: "find", arguments: "" } }] }), chunk({ tool_calls: [{ index: 0, function: { arguments: '{"parcel": 7}' } }] }),
];
const EVENTS = [
  { type: "response.created", response: { ...RESPONSE, output: [], usage: null } }, { type: "response.output_text.delta", delta: "Tomor" },
  { type: "response.output_text.delta", delta: "row." }, { type: "response.completed", response: RESPONSE },
];
const REQUEST = { model: "m", messages: [{ role: "system", content: "Help." }, { role: "user", content: "When?" }] };

/** A promise in the form of the SDK's. @extends {Promise<any>} */
class ApiPromise extends Promise {
  #raw = "the response";

  asResponse() {
    return Promise.resolve(this.#raw);
  }

  async withResponse() {
    return { data: await this, response: this.#raw };
  }
}

/** A stream in the form of the SDK's. */
class Stream {
  #parts;
  controller = "the controller";

  /** @param {unknown[]} parts @param {Error} [error] */
  constructor(parts, error) {
    this.#parts = parts;
    this.error = error;
  }

  async *[Symbol.asyncIterator]() {
    yield* this.#parts;
    if (this.error) throw this.error;
  }
}

/** A stream whose own methods read it by `iterator`, as the SDK's do, and that ends quietly when its request is aborted. */
class SdkStream {
  #client = "the client";
  controller;
  iterator;

  /** @param {() => AsyncIterator<unknown>} iterator @param {AbortController} controller */
  constructor(iterator, controller) {
    this.iterator = iterator;
    this.controller = controller;
  }

  /** @param {unknown[]} parts */
  static of(parts) {
    const controller = new AbortController();
    return new SdkStream(async function* () {
      for (const part of parts) if (!controller.signal.aborted) yield part;
    }, controller);
  }

  [Symbol.asyncIterator]() {
    return this.iterator();
  }

  tee() {
    if (!this.#client) throw new TypeError("no client");
    const iterator = this.iterator();
    /** @type {Promise<IteratorResult<unknown>>[][]} */
    const queues = [[], []];
    return queues.map((queue) => {
      const next = () => {
        if (!queue.length) {
          const part = iterator.next();
          for (const one of queues) one.push(part);
        }
        return /** @type {Promise<IteratorResult<unknown>>} */ (queue.shift());
      };
      return new SdkStream(() => ({ next }), this.controller);
    });
  }

  toReadableStream() {
    const iterator = this[Symbol.asyncIterator]();
    return new ReadableStream({
      async pull(controller) {
        const { value, done } = await iterator.next();
        if (done) controller.close();
        else controller.enqueue(new TextEncoder().encode(`${JSON.stringify(value)}\n`));
      },
      async cancel() {
        await iterator.return?.();
      },
    });
  }
}

/** @param {unknown} answer */
function sdkOf(answer) {
  const create = (/** @type {unknown} */ request) => {
    void request;
    return answer instanceof Error ? ApiPromise.reject(answer) : ApiPromise.resolve(answer);
  };
  const client = {
    apiKey: "secret", chat: { completions: { create, parse: create, list: () => "others" } }, responses: { create, parse: create },
    /** @returns {any} */
    withOptions: () => client,
  };
  return /** @type {any} */ (client);
}

/** @param {World} world */
function whetOf(world) {
  return new Client(NOWHERE, { send: world.send, spool: null, log: SILENT });
}

test("an answer is logged, and its id takes feedback", async () => {
  const world = new World();
  world.put("p", "Help. {{question}}", 4);
  const whet = whetOf(world);
  const prompt = await whet.prompt("p", { user: "u" });
  const ai = wrap(sdkOf(COMPLETION), { whet, prompt, inputs: { question: "When?" }, session: "s", metadata: { country: "GR" } });
  const answer = await ai.chat.completions.create(REQUEST);
  assert.equal(answer, COMPLETION, "the app has what the SDK returned");
  whet.feedback(answerId(answer), { thumb: "up" });
  await whet.close();
  const { time, latency, ...row } = world.rows.get(answerId(answer));
  assert.ok(time && latency >= 0);
  assert.deepEqual(row, {
    id: answerId(answer), prompt: "p", version: 4, user: "u", session: "s", inputs: { question: "When?" }, output: "Tomorrow.", model: "m-2026",
    response: "chatcmpl-1", input_tokens: 7, output_tokens: 2, metadata: { system_fingerprint: "fp_1", finish_reason: "stop", country: "GR" },
  });
});

test("completions, responses and streams", async () => {
  const call = JSON.stringify(CALL);
  for (const [path, answer, output, tokens] of /** @type {[string, any, string, number | undefined][]} */ ([
    ["completions.create", COMPLETION, "Tomorrow.", 7], ["completions.parse", CALLS, call, 7], ["responses.create", RESPONSE, `Tomorrow.\n${call}`, 7],
    ["completions.create", new Stream(CHUNKS), "Tomorrow.", 7], ["completions.create", new Stream(CALL_CHUNKS), call, undefined],
    ["responses.create", new Stream(EVENTS), `Tomorrow.\n${call}`, 7],
  ])) {
    const world = new World();
    const whet = whetOf(world);
    const ai = wrap(sdkOf(answer), { whet, prompt: "p" });
    const stream = answer instanceof Stream;
    const isChat = path.startsWith("completions");
    const own = path.split(".")[1] === "parse" ? "parse" : "create";
    const request = isChat ? { ...REQUEST, stream } : { model: "m", instructions: "Help.", input: "When?", stream };
    const given = await (isChat ? ai.chat.completions[own] : ai.responses[own])(request);
    if (stream) {
      assert.equal(given.controller, "the controller");
      const parts = [];
      for await (const part of given) parts.push(part);
      assert.ok(parts.length > 1);
    }
    await whet.close();
    const row = world.rows.get(answerId(given));
    assert.deepEqual([row.output, row.input_tokens, row.model, row.inputs, world.rows.size], [output, tokens, "m-2026", { messages: REQUEST.messages }, 1]);
  }
});

test("a stream that breaks or is left is logged with what came", async () => {
  const world = new World();
  const whet = whetOf(world);
  const broken = await wrap(sdkOf(new Stream(CHUNKS.slice(0, 1), new TypeError("reset"))), { whet, prompt: "p" }).chat.completions.create({ stream: true });
  await assert.rejects(async () => {
    for await (const part of broken) void part;
  }, /reset/);
  const left = await wrap(sdkOf(new Stream(CHUNKS)), { whet, prompt: "p" }).chat.completions.create({ stream: true });
  for await (const part of left) {
    void part;
    break;
  }
  await whet.close();
  const [one, two] = [world.rows.get(answerId(broken)), world.rows.get(answerId(left))];
  assert.deepEqual([one.output, one.error], ["Tomor", "TypeError: reset"]);
  assert.deepEqual([two.output, two.error, two.metadata.left], ["Tomor", undefined, true]);
});

test("a stream that the SDK splits, turns into bytes or aborts is logged", async () => {
  const [world, refusal] = [new World(), { refusal: "No." }];
  const whet = whetOf(world);
  /** @param {unknown[]} parts @returns {Promise<any>} */
  const streamOf = (parts) => wrap(sdkOf(SdkStream.of(parts)), { whet, prompt: "p" }).chat.completions.create({ stream: true });
  const [split, bytes, aborted, refused] = await Promise.all([streamOf(CHUNKS), streamOf(CHUNKS), streamOf(CHUNKS), streamOf([chunk(refusal)])]);
  for (const one of split.tee()) {
    const parts = [];
    for await (const part of one) parts.push(part);
    assert.deepEqual(parts, CHUNKS);
  }
  for await (const part of bytes.toReadableStream()) void part;
  for await (const part of aborted) {
    void part;
    aborted.controller.abort();
  }
  for await (const part of refused) void part;
  await whet.close();
  const rows = [split, bytes, aborted, refused].map((one) => world.rows.get(answerId(one)));
  assert.deepEqual(rows.map((row) => row?.output), ["Tomorrow.", "Tomorrow.", "Tomor", "No."]);
  assert.deepEqual(rows.map((row) => [row?.metadata.left, row?.metadata.refusal]), [[undefined, undefined], [undefined, undefined], [true, undefined], [undefined, true]]);
});

test("a stream that is handed out twice is logged once, and one whose bytes are cancelled as left", async () => {
  const world = new World();
  const whet = whetOf(world);
  const made = wrap(sdkOf(SdkStream.of(CHUNKS)), { whet, prompt: "p" }).chat.completions.create({ ...REQUEST, stream: true });
  const { data } = await made.withResponse();
  const stream = await made;
  for await (const part of stream) void part;
  const bytes = await wrap(sdkOf(SdkStream.of(CHUNKS)), { whet, prompt: "p" }).chat.completions.create({ ...REQUEST, stream: true });
  const reader = bytes.toReadableStream().getReader();
  await reader.read();
  await reader.cancel();
  await whet.close();
  assert.equal(answerId(stream), answerId(data));
  const rows = [stream, bytes].map((one) => world.rows.get(answerId(one)));
  assert.deepEqual(rows.map(({ output, metadata }) => [output, metadata.left]), [["Tomorrow.", undefined], ["Tomor", true]]);
});

test("a stream that nobody reads is logged as left when its memory is freed", async () => {
  setFlagsFromString("--expose-gc");
  const [world, collect] = [new World(), runInNewContext("gc")];
  const whet = whetOf(world);
  const id = await (async () => answerId(await wrap(sdkOf(new Stream(CHUNKS)), { whet, prompt: "p" }).chat.completions.create({ stream: true })))();
  for (let turn = 0; turn < 200 && !world.rows.has(id); turn += 1) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    collect();
    await whet.flush();
  }
  const row = world.rows.get(id);
  assert.deepEqual([row?.output, row?.metadata.left], ["", true]);
  await whet.close();
});

test("errors stay the app's, and are logged", async () => {
  const world = new World();
  const whet = whetOf(world);
  const error = new RangeError("too slow");
  const ai = wrap(sdkOf(error), { whet, prompt: "p" });
  await assert.rejects(ai.chat.completions.create(REQUEST), (one) => one === error);
  await whet.close();
  const [row] = world.rows.values();
  assert.deepEqual([row.error, row.output, row.model], ["RangeError: too slow", "", "m"]);
});

test("a stream of several choices logs the first and their number", async () => {
  const world = new World();
  const whet = whetOf(world);
  const other = { ...CHUNKS[0], choices: [{ index: 1, delta: { content: "Never." }, finish_reason: "stop" }] };
  const stream = await wrap(sdkOf(new Stream([CHUNKS[0], other, ...CHUNKS.slice(1)])), { whet, prompt: "p" }).chat.completions.create({ stream: true, n: 2 });
  for await (const part of stream) void part;
  await whet.close();
  const [row] = world.rows.values();
  assert.deepEqual([row.output, row.metadata.choices], ["Tomorrow.", 2]);
});

test("why a response is incomplete is logged", async () => {
  for (const reason of ["content_filter", "max_output_tokens"]) {
    const cut = { ...RESPONSE, status: "incomplete", incomplete_details: { reason } };
    for (const answer of [cut, new Stream([...EVENTS.slice(0, -1), { type: "response.incomplete", response: cut }])]) {
      const world = new World();
      const whet = whetOf(world);
      const given = await wrap(sdkOf(answer), { whet, prompt: "p" }).responses.create({ model: "m", input: "When?", stream: answer instanceof Stream });
      if (answer instanceof Stream) for await (const part of given) void part;
      await whet.close();
      assert.deepEqual([...world.rows.values()].map((row) => row.metadata.finish_reason), [reason]);
    }
  }
});

test("contents in parts are their text, without thoughts", async () => {
  const thinking = { type: "thinking", thinking: [{ type: "text", text: "It was sent today." }] };
  const content = [thinking, { type: "text", text: "Tomor" }, { type: "reasoning", text: "So tomorrow." }, { type: "text", text: "row." }];
  const whole = { ...COMPLETION, choices: [{ index: 0, message: { content } }] };
  for (const answer of [whole, new Stream(content.map((part) => chunk({ content: [part] })))]) {
    const world = new World();
    const whet = whetOf(world);
    const given = await wrap(sdkOf(answer), { whet, prompt: "p" }).chat.completions.create({ ...REQUEST, stream: answer instanceof Stream });
    if (answer instanceof Stream) for await (const part of given) void part;
    await whet.close();
    assert.deepEqual([...world.rows.values()].map((row) => row.output), ["Tomorrow."]);
  }
});

test("calls of tools stay apart, whatever names their parts", async () => {
  /** @param {string | null} name @param {unknown} args @param {object} [more] */
  const tool = (name, args, more) => ({ ...more, function: { name, arguments: args } });
  const output = '{"name":"find","arguments":"{\\"a\\":1}"}\n{"name":"get","arguments":"{}"}';
  for (const parts of [
    [tool("find", '{"a":1}', { id: "c1" }), tool("get", "{}", { id: "c2" })],
    [tool("find", { a: 1 }, { index: 0, id: "c1" }), tool("get", {}, { index: 0, id: "c2" })],
    [tool("find", '{"a":1}'), tool("get", "{}")],
    [tool("find", '{"a"', { id: "c1" }), tool(null, ":1}"), tool("get", "{", { id: "c2" }), tool("", "}")],
    [tool("find", '{"a"', { id: "c1" }), tool("", ":1}", { id: "c1" }), tool("get", "{}", { id: "c2" })],
    [tool("find", "", { index: 0, id: "x1" }), tool(null, '{"a":1}', { index: 0, id: "x2" }), tool("get", "{}", { index: 1, id: "x3" })],
    [tool("find", '{"a"', { index: 0, id: "c1" }), tool("get", "{", { index: 1, id: "c2" }), tool(null, ":1}", { index: 0 }), tool(null, "}", { index: 1 })],
  ]) {
    const world = new World();
    const whet = whetOf(world);
    for (const chunks of [[chunk({ tool_calls: parts })], parts.map((part) => chunk({ tool_calls: [part] }))]) {
      for await (const part of await wrap(sdkOf(new Stream(chunks)), { whet, prompt: "p" }).chat.completions.create({ stream: true })) void part;
    }
    await whet.close();
    assert.deepEqual([...world.rows.values()].map((row) => row.output), [output, output]);
  }
});

test("the promise of the SDK and the rest of the client are as they were", async () => {
  const world = new World();
  const whet = whetOf(world);
  const ai = wrap(sdkOf(COMPLETION), { whet, prompt: "p" });
  assert.deepEqual([ai.apiKey, ai.chat.completions.list()], ["secret", "others"]);
  assert.equal(await ai.chat.completions.create(REQUEST).asResponse(), "the response");
  const { data, response } = await ai.withOptions({}).chat.completions.create(REQUEST).withResponse();
  await whet.close();
  assert.deepEqual([data, response, [...world.rows.keys()]], [COMPLETION, "the response", [answerId(data)]]);
});

test("a log that fails never reaches the app", async (t) => {
  t.mock.method(console, "warn", () => {});
  const whet = whetOf(new World());
  whet.log = () => {
    throw new Error("the disk is gone");
  };
  assert.equal(await wrap(sdkOf(COMPLETION), { whet, prompt: "p" }).chat.completions.create(REQUEST), COMPLETION);
});

test("what cannot be wrapped or has no id is refused", () => {
  const whet = whetOf(new World());
  // @ts-expect-error: there is no such option
  assert.throws(() => wrap({}, { whet, prompt: "p", sesion: "s" }), /Did you mean "session"/);
  // @ts-expect-error: a number is no prompt
  assert.throws(() => wrap({}, { whet, prompt: 3 }), /prompt is a LivePrompt or the name of one; this is 3/);
  assert.throws(() => wrap({}, { whet, prompt: "p", user: "a\nb" }), /control character/);
  assert.throws(() => answerId({}), UsageError);
});
