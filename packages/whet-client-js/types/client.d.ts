/**
 * Everything an app needs of whet, for one server. Make one for the process.
 *
 * What the network, the server or the disk does never throws: it is logged and counted in `tally`. A UsageError says that the app
 * itself asked for what cannot be.
 */
export class Client {
    /**
     * @param {string | null} [url] else WHET_URL, else http://127.0.0.1:8321
     * @param {ClientOptions} [options]
     * @throws {UsageError} for an address that is none
     */
    constructor(url?: string | null, options?: ClientOptions);
    /** @readonly */
    readonly url: string;
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
    prompt(name: string, options?: Units & {
        label?: string;
        fallback?: Bundled | null;
    }): Promise<LivePrompt>;
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
    log(prompt: LivePrompt | string, output?: string | null, more?: InferenceFields): string;
    /**
     * Report feedback about an answer, or, as `{episode: ..., ...}` or `{session: ..., ...}`, about a whole episode or session; the ids
     * of the rows. It does not matter whether the answer has been sent.
     * @param {string | (FeedbackValues & {inference?: string | null, episode?: string | null, session?: string | null})} target
     * @param {FeedbackValues} [values]
     * @returns {string[]}
     * @throws {UsageError} for a word that is none, and for a value that cannot be
     */
    feedback(target: string | (FeedbackValues & {
        inference?: string | null;
        episode?: string | null;
        session?: string | null;
    }), values?: FeedbackValues): string[];
    /** How many rows were sent, spooled, refused, lost. */
    get tally(): {
        sent: number;
        spooled: number;
        refused: number;
        lost: number;
    };
    /**
     * Wait until every row is sent; false when that takes longer than `timeout` seconds.
     * @param {number} [timeout]
     * @returns {Promise<boolean>}
     */
    flush(timeout?: number): Promise<boolean>;
    /**
     * Send every row, for at most `timeout` seconds, and keep the rest in the spool. It happens by itself when the process has nothing
     * left to do; calling it twice is harmless.
     * @param {number} [timeout]
     * @returns {Promise<void>}
     */
    close(timeout?: number): Promise<void>;
    #private;
}
export type Bundled = import("./live_prompts.js").Bundled;
export type Units = import("./live_prompts.js").Units;
export type InferenceFields = import("./records.js").InferenceFields;
export type FeedbackValues = import("./records.js").FeedbackValues;
export type ClientOptions = {
    /**
     * of the role `app`; else WHET_TOKEN
     */
    token?: string | null | undefined;
    /**
     * prompts bundled with the app: a mapping from names to texts
     * or messages, or (Node) a folder with NAME.md, or with what `whet prompts export` wrote
     */
    fallbacks?: string | Readonly<Record<string, import("./live_prompts.js").Bundled>> | null | undefined;
    /**
     * the age in seconds at which a prompt is fetched again in the background (60)
     */
    fresh?: number | undefined;
    /**
     * bounds each wait for the network, in seconds (2)
     */
    timeout?: number | undefined;
    /**
     * the folder for rows that wait: true means ~/.local/state/whet/spool-js, null keeps
     * nothing on disk; runtimes without Node's files have none
     */
    spool?: string | boolean | null | undefined;
    /**
     * where warnings go (the console)
     */
    log?: import("./sender.js").Log | undefined;
    /**
     * replaces the network
     */
    send?: import("./http.js").Send | undefined;
    /**
     * seconds, for tests
     */
    clock?: (() => number) | undefined;
};
import { LivePrompt } from "./live_prompts.js";
