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
export function wrap<C extends object>(client: C, options: WrapOptions): C;
/**
 * The id of a logged answer, for `Client.feedback`: of a completion, response or stream that a wrapped client returned.
 * @param {object} answer
 * @returns {string}
 * @throws {UsageError} for anything else
 */
export function answerId(answer: object): string;
export type WrapOptions = {
    whet: import("./client.js").Client;
    /**
     * the live prompt (or the name of one) that the messages were made of
     */
    prompt: LivePrompt | string;
    /**
     * what filled its slots; without them, the messages are logged
     */
    inputs?: Readonly<Record<string, unknown>> | undefined;
    user?: string | null | undefined;
    session?: string | null | undefined;
    episode?: string | null | undefined;
    metadata?: Readonly<Record<string, unknown>> | undefined;
};
export type ToolCall = {
    name: string;
    arguments: string;
};
import { LivePrompt } from "./live_prompts.js";
