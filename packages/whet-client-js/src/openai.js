/**
 * A client of the OpenAI SDK that logs its answers: the app calls it as before, and feedback finds each answer.
 *
 * Nothing here imports the SDK: a client of any version, and of any library with the same calls, is wrapped. What the SDK returns and
 * throws reaches the app as it is; a log that fails goes to `console.warn`, and is never thrown.
 */

import { UsageError, didYouMean, showValue, wordsOf } from "./errors.js";
import { isObject } from "./http.js";
import { newId } from "./ids.js";
import { LivePrompt } from "./live_prompts.js";
import { checkName } from "./records.js";

/** The calls whose answers are logged. */
const LOGGED = [
  "chat.completions.create",
  "chat.completions.parse",
  "beta.chat.completions.parse",
  "responses.create",
  "responses.parse",
];
/** The types of parts of a message that are its text. @type {unknown[]} */
const TEXT_PARTS = [undefined, null, "text", "output_text", "refusal"];
const OPTIONS = ["whet", "prompt", "inputs", "user", "session", "episode", "metadata"];

/** @type {WeakMap<object, string>} */
const ids = new WeakMap();
/** Streams that the app drops before their end, read or not; some runtimes do not tell. @type {FinalizationRegistry<Answer> | null} */
const dropped = typeof FinalizationRegistry === "undefined" ? null : new FinalizationRegistry((answer) => answer.logLeft());

/**
 * @typedef {object} WrapOptions
 * @property {import("./client.js").Client} whet
 * @property {LivePrompt | string} prompt the live prompt (or the name of one) that the messages were made of
 * @property {Readonly<Record<string, unknown>>} [inputs] what filled its slots; without them, the messages are logged
 * @property {string | null} [user]
 * @property {string | null} [session]
 * @property {string | null} [episode]
 * @property {Readonly<Record<string, unknown>>} [metadata]
 */

/**
 * A client of OpenAI's SDK that logs the answers of `chat.completions` and `responses`.
 *
 * To wrap is cheap: wrap once for each request. A stream is logged when it ends, and its tokens are known only if the request asks for
 * them (`stream_options: {include_usage: true}`).
 * @template {object} C
 * @param {C} client
 * @param {WrapOptions} options
 * @returns {C}
 * @throws {UsageError} for an unknown option, and for a prompt, user, session or episode that cannot be
 */
export function wrap(client, options) {
  for (const name of Object.keys(options)) {
    if (!OPTIONS.includes(name)) throw new UsageError(`wrap has no option "${name}".${didYouMean(name, OPTIONS)}`);
  }
  for (const name of /** @type {const} */ (["user", "session", "episode"])) checkName(options[name], name, "wrap");
  if (typeof options.prompt !== "string" && !(options.prompt instanceof LivePrompt)) {
    throw new UsageError(`prompt is a LivePrompt or the name of one; this is ${showValue(options.prompt)}.`);
  }
  return /** @type {C} */ (proxyOf(client, "", options));
}

/**
 * The id of a logged answer, for `Client.feedback`: of a completion, response or stream that a wrapped client returned.
 * @param {object} answer
 * @returns {string}
 * @throws {UsageError} for anything else
 */
export function answerId(answer) {
  const id = ids.get(answer);
  if (id === undefined) throw new UsageError("This is no answer of a wrapped client, or was copied since.");
  return id;
}

/**
 * A client, or a part of one such as `client.chat`.
 * @param {object} target
 * @param {string} path
 * @param {WrapOptions} options
 * @returns {object}
 */
function proxyOf(target, path, options) {
  return new Proxy(target, {
    get(_, name) {
      const value = Reflect.get(target, name, target);
      if (typeof name !== "string") return value;
      const way = path ? `${path}.${name}` : name;
      if (typeof value === "function") {
        if (LOGGED.includes(way)) return (/** @type {unknown[]} */ ...args) => call(value.bind(target), args, options);
        if (way === "withOptions") return (/** @type {unknown[]} */ ...args) => proxyOf(value.apply(target, args), "", options);
        return value.bind(target);
      }
      return isObject(value) && LOGGED.some((one) => one.startsWith(`${way}.`)) ? proxyOf(value, way, options) : value;
    },
  });
}

/** @typedef {{name: string, arguments: string}} ToolCall */

/** What is known of one answer so far. */
class Answer {
  id = newId();
  start = performance.now();
  text = "";
  /** @type {ToolCall[]} */
  calls = [];
  /** The calls by the index and by the id that the parts of a stream name them by. @type {Map<unknown, ToolCall>} */
  places = new Map();
  /** @type {import("./records.js").InferenceFields} */
  more = {};
  /** @type {Record<string, unknown>} */
  metadata = {};
  isLogged = false;

  /** @param {unknown} request @param {WrapOptions} options */
  constructor(request, options) {
    this.request = isObject(request) ? request : {};
    this.options = options;
  }

  /** The text of the answer, and each call of a tool as JSON on a line of its own. */
  get output() {
    return [...(this.text ? [this.text] : []), ...this.calls.map((one) => JSON.stringify(one))].join("\n");
  }

  /** Log a stream that the app left before its end. */
  logLeft() {
    if (!this.isLogged) this.metadata.left = true;
    this.log();
  }

  /** Log it once, after `read`. Never throws. @param {() => void} [read] */
  log(read = () => {}) {
    if (this.isLogged) return;
    this.isLogged = true;
    quietly("An answer could not be logged", () => {
      const latency = (performance.now() - this.start) / 1000;
      read();
      const { whet, prompt, inputs, user, session, episode, metadata } = this.options;
      const model = typeof this.request.model === "string" ? this.request.model : null;
      const given = Object.fromEntries(Object.entries({ user, session, episode }).filter(([, value]) => value));
      const fields = { model, latency, ...this.more, ...given, id: this.id, inputs: inputs ?? inputsOf(this.request) };
      whet.log(prompt, this.output, { ...fields, metadata: { ...this.metadata, ...metadata } });
    });
  }
}

/** @param {string} what @param {() => void} act */
function quietly(what, act) {
  try {
    act();
  } catch (error) {
    console.warn(`whet: ${what}: ${wordsOf(error)}`);
  }
}

/**
 * What a call of the SDK returns, logged when the app waits for it.
 * @param {Function} method
 * @param {unknown[]} args
 * @param {WrapOptions} options
 */
function call(method, args, options) {
  const answer = new Answer(args[0], options);
  const failed = (/** @type {unknown} */ error) => {
    answer.log(() => (answer.more.error = errorText(error)));
    throw error;
  };
  let returned;
  try {
    returned = method(...args);
  } catch (error) {
    return failed(error);
  }
  if (!isObject(returned) || typeof returned.then !== "function") return logAnswer(answer, returned);
  const promise = /** @type {Promise<unknown>} */ (/** @type {unknown} */ (returned));
  /** @type {Promise<unknown> | undefined} */
  let logged;
  const value = () => (logged ??= promise.then((one) => logAnswer(answer, one), failed));
  // The SDK's promise can do more than others (`asResponse`): what reads the body itself stays untouched, and is not logged.
  return new Proxy(returned, {
    get(target, name) {
      if (name === "then" || name === "catch" || name === "finally") {
        return (/** @type {unknown[]} */ ...next) => Reflect.apply(Reflect.get(value(), name), value(), next);
      }
      const own = Reflect.get(target, name, target);
      if (name === "withResponse" && typeof own === "function") {
        return async () => {
          const { data, ...rest } = await own.call(target).catch(failed);
          return { data: logAnswer(answer, data), ...rest };
        };
      }
      return typeof own === "function" ? own.bind(target) : own;
    },
  });
}

/** @param {Answer} answer @param {unknown} value */
function logAnswer(answer, value) {
  if (typeof value !== "object" || value === null) return value;
  if (answer.request.stream && Symbol.asyncIterator in value) return streamOf(answer, value);
  ids.set(value, answer.id);
  answer.log(() => readWhole(answer, value));
  return value;
}

/**
 * The same stream, which is read along from now on, whichever of its ways the app takes. It is logged once: at its end, at its failure,
 * or when the app leaves it; of one that the app drops without a word, when its memory is freed.
 *
 * `tee` and `toReadableStream` of the SDK read by the stream's `iterator`, streams of others by their `Symbol.asyncIterator`.
 * @param {Answer} answer
 * @param {object} stream
 */
function streamOf(answer, stream) {
  if (ids.get(stream) === answer.id) return stream;
  const name = typeof get(stream, "iterator") === "function" ? "iterator" : Symbol.asyncIterator;
  const source = Reflect.get(stream, name);
  let isRead = false;
  async function* parts() {
    const read = { [Symbol.asyncIterator]: () => source.call(stream) };
    if (isRead) return yield* read;
    isRead = true;
    let isWhole = false;
    try {
      for await (const part of read) {
        quietly("A part of a stream could not be read", () => readPart(answer, part));
        yield part;
      }
      isWhole = !get(get(get(stream, "controller"), "signal"), "aborted"); // the SDK ends an aborted stream as if it were whole
    } catch (error) {
      answer.log(() => (answer.more.error = errorText(error)));
      throw error;
    } finally {
      if (isWhole) answer.log();
      else answer.logLeft();
    }
  }
  ids.set(stream, answer.id);
  dropped?.register(stream, answer);
  quietly("A stream cannot be read along", () => Object.defineProperty(stream, name, { value: parts, configurable: true, writable: true }));
  return stream;
}

/** @param {unknown} value @param {string} name @returns {unknown} */
function get(value, name) {
  return typeof value === "object" && value !== null ? Reflect.get(value, name) : undefined;
}

/** @param {unknown} value @returns {unknown[]} */
function listOf(value) {
  return Array.isArray(value) ? value : [];
}

/** @param {unknown} value */
function textOf(value) {
  return typeof value === "string" ? value : "";
}

/** @param {unknown} error */
function errorText(error) {
  if (!(error instanceof Error)) return String(error);
  return `${error.name === "Error" ? error.constructor.name : error.name}: ${error.message}`; // the SDK's classes are all named Error
}

/** The messages of a request, in the form in which traces have them. @param {Record<string, unknown>} request */
function inputsOf(request) {
  const messages = request.messages ?? request.input;
  const listed = typeof messages === "string" ? [{ role: "user", content: messages }] : listOf(messages);
  const first = typeof request.instructions === "string" ? [{ role: "system", content: request.instructions }] : [];
  return { messages: [...first, ...listed] };
}

/** Read a completion or a response. @param {Answer} answer @param {unknown} value */
function readWhole(answer, value) {
  readHead(answer, value);
  const choices = listOf(get(value, "choices"));
  if (choices.length) readChoice(answer, choices[0], "message");
  if (choices.length > 1) answer.metadata.choices = choices.length; // the first one is logged
  for (const item of listOf(get(value, "output"))) readItem(answer, item);
}

/** Model, ids and tokens, which a stream has in one of its parts. @param {Answer} answer @param {unknown} value */
function readHead(answer, value) {
  const usage = get(value, "usage");
  const numbers = {
    input_tokens: get(usage, "prompt_tokens") ?? get(usage, "input_tokens"),
    output_tokens: get(usage, "completion_tokens") ?? get(usage, "output_tokens"),
  };
  for (const [name, number] of Object.entries(numbers)) if (typeof number === "number") Object.assign(answer.more, { [name]: number });
  for (const [name, text] of Object.entries({ model: get(value, "model"), response: get(value, "id") })) {
    if (textOf(text)) Object.assign(answer.more, { [name]: text });
  }
  const reason = textOf(get(get(value, "incomplete_details"), "reason")) || get(value, "status");
  for (const [name, mark] of Object.entries({ system_fingerprint: get(value, "system_fingerprint"), finish_reason: reason })) {
    if (textOf(mark)) answer.metadata[name] = mark;
  }
  const error = get(value, "error");
  if (error !== null && error !== undefined) answer.more.error = textOf(get(error, "message")) || showValue(error);
}

/** A choice, or what a part of a stream adds to it. @param {Answer} answer @param {unknown} choice @param {"message" | "delta"} name */
function readChoice(answer, choice, name) {
  const message = get(choice, name);
  readContent(answer, get(message, "content"));
  readRefusal(answer, contentOf(get(message, "refusal")));
  for (const one of listOf(get(message, "tool_calls"))) {
    const own = get(one, "function") ?? get(one, "custom");
    const named = textOf(get(own, "name"));
    const known = name === "delta" ? callOf(answer, one, named) : addCall(answer);
    known.name += named;
    known.arguments += argumentsOf(own);
  }
  const reason = get(choice, "finish_reason");
  if (textOf(reason)) answer.metadata.finish_reason = reason;
}

/** The content of a message; a part of it may refuse. @param {Answer} answer @param {unknown} content */
function readContent(answer, content) {
  if (listOf(content).some((part) => get(part, "refusal"))) answer.metadata.refusal = true;
  answer.text += contentOf(content);
}

/** What a model says in place of an answer, which quality counts. @param {Answer} answer @param {string} text */
function readRefusal(answer, text) {
  if (text) answer.metadata.refusal = true;
  answer.text += text;
}

/** The text of a message: a text, or its parts without thoughts and media. @param {unknown} content */
function contentOf(content) {
  if (typeof content === "string") return content;
  const parts = listOf(content).filter((part) => TEXT_PARTS.includes(get(part, "type")));
  return parts.map((part) => textOf(get(part, "text") ?? get(part, "refusal"))).join("");
}

/** @param {Answer} answer @returns {ToolCall} */
function addCall(answer) {
  const added = { name: "", arguments: "" };
  answer.calls.push(added);
  return added;
}

/**
 * The call that a part of a stream adds to.
 *
 * Parts of one call have one index, but some providers send none, or one for all calls; the id comes with the first part, with each
 * part, or as another one with each part. So a part with a name begins a call if its id is new, or without id and index.
 * @param {Answer} answer
 * @param {unknown} part
 * @param {string} name
 * @returns {ToolCall}
 */
function callOf(answer, part, name) {
  const { places } = answer;
  const index = get(part, "index") ?? undefined;
  const id = textOf(get(part, "id"));
  const begins = id ? !places.has(id) && (name || !places.has(index)) : !places.has(index) && (name || index !== undefined);
  const known = begins ? undefined : (places.get(id) ?? places.get(index) ?? answer.calls.at(-1));
  const found = known ?? addCall(answer);
  if (index !== undefined) places.set(index, found);
  if (id) places.set(id, found);
  return found;
}

/** The arguments of a call as a text; a few providers send an object. @param {unknown} own */
function argumentsOf(own) {
  const held = get(own, "arguments") ?? get(own, "input") ?? "";
  return typeof held === "string" ? held : JSON.stringify(held);
}

/** An item of a response: a message, or the call of a function. @param {Answer} answer @param {unknown} item */
function readItem(answer, item) {
  const kind = get(item, "type");
  if (kind === "message") readContent(answer, get(item, "content"));
  else if (kind === "function_call" || kind === "custom_tool_call") {
    Object.assign(addCall(answer), { name: textOf(get(item, "name")), arguments: argumentsOf(item) });
  }
}

/** A chunk of a completion, or an event of a response. @param {Answer} answer @param {unknown} part */
function readPart(answer, part) {
  const kind = textOf(get(part, "type"));
  if (!kind.startsWith("response.") && kind !== "error") {
    readHead(answer, part);
    for (const choice of listOf(get(part, "choices"))) {
      const index = Number(get(choice, "index") ?? 0);
      if (index) answer.metadata.choices = Math.max(index + 1, Number(answer.metadata.choices ?? 0));
      else readChoice(answer, choice, "delta");
    }
  } else if (kind === "response.output_text.delta") answer.text += textOf(get(part, "delta"));
  else if (kind === "response.refusal.delta") readRefusal(answer, textOf(get(part, "delta")));
  else if (["response.completed", "response.incomplete", "response.failed"].includes(kind)) {
    answer.text = "";
    readWhole(answer, get(part, "response"));
  } else if (kind === "response.created") readHead(answer, get(part, "response"));
  else if (kind === "error") answer.more.error = textOf(get(part, "message")) || showValue(part);
}
