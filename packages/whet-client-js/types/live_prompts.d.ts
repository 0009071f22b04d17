/**
 * The prompt for somebody. Who has no unit of the experiment, or one of a version that is not here, is not in the experiment.
 * @param {ServedPrompt} served
 * @param {Units} units
 */
export function forUnits({ content, label, source, experiment }: ServedPrompt, units: Units): LivePrompt;
/**
 * A version from the server's JSON.
 * @param {Record<string, unknown>} value
 * @returns {Content}
 * @throws {UsageError} for one that is none
 */
export function readContent(value: Record<string, unknown>): Content;
/**
 * An experiment from the server's JSON.
 * @param {unknown} value
 * @param {Map<number, Content>} contents
 * @returns {AssignableExperiment}
 * @throws {UsageError} for one that is none
 */
export function readExperiment(value: unknown, contents: Map<number, Content>): AssignableExperiment;
/**
 * A prompt that comes with the app.
 * @param {string} name
 * @param {Bundled} fallback
 * @returns {Content}
 * @throws {UsageError} for a broken fence or no text
 */
export function loadBundled(name: string, fallback: Bundled): Content;
/**
 * A prompt below a folder: NAME.md, or what `whet prompts export` wrote, by its label; null when it is not there.
 * @param {string} folder
 * @param {string} name
 * @param {string} label
 * @returns {Content | null}
 * @throws {UsageError} for a file that cannot be used
 */
export function fromFolder(folder: string, name: string, label: string): Content | null;
/**
 * The copies that an app brings along, if they can be used.
 * @param {Readonly<Record<string, Bundled>> | string | null | undefined} fallbacks
 */
export function checkedFallbacks(fallbacks: Readonly<Record<string, Bundled>> | string | null | undefined): string | Readonly<Record<string, Bundled>>;
/** @typedef {import("./document.js").Message} Message */
/** @typedef {import("./assignment.js").Arm} Arm */
/** @typedef {import("./media.js").Part} Part */
/**
 * A value for a slot: a text, or what JSON holds.
 * @typedef {string | number | bigint | boolean | null | readonly unknown[] | {readonly [name: string]: unknown}} SlotValue
 */
/**
 * A message for a model.
 * @typedef {{role: string, content: string | Part[], name?: string}} FormattedMessage
 */
/**
 * A prompt that comes with the app: one text, or messages.
 * @typedef {string | readonly Message[]} Bundled
 */
/**
 * Who is served: the user, the session, the episode.
 * @typedef {{user?: string | null | undefined, session?: string | null | undefined, episode?: string | null | undefined}} Units
 */
/**
 * One version. `version` is 0 for a text that was bundled without a number.
 * @typedef {{name: string, version: number, messages: readonly Message[], config: Readonly<Record<string, unknown>>}} Content
 */
/**
 * What an app needs to assign units by itself. `contents` are the versions of the arms.
 * @typedef {{id: string, salt: string, unit: "user" | "session" | "episode", variant: string, arms: readonly Arm[],
 *   contents: Map<number, Content>}} AssignableExperiment
 */
/**
 * What one label of a prompt stands for: a version, and the experiment that runs on it.
 * @typedef {{content: Content, label: string, source: "server" | "fallback", experiment: AssignableExperiment | null}} ServedPrompt
 */
/** One version of a prompt for one request. */
export class LivePrompt {
    /**
     * @param {Content} content
     * @param {string} label
     * @param {"server" | "fallback"} source
     * @param {{experiment: string | null, variant: string | null}} assigned
     * @param {Units} units
     */
    constructor(content: Content, label: string, source: "server" | "fallback", assigned: {
        experiment: string | null;
        variant: string | null;
    }, units: Units);
    /** @readonly */
    readonly label: string;
    /** Where it came from. @readonly */
    readonly source: "fallback" | "server";
    /** The experiment in which a version was assigned; null outside experiments. @readonly */
    readonly experiment: string | null;
    /** @readonly */
    readonly variant: string | null;
    /** The user, session and episode that it was asked for; `Client.log` logs them with it. @readonly */
    readonly units: Readonly<{
        user?: string | null | undefined;
        session?: string | null | undefined;
        episode?: string | null | undefined;
    }>;
    /** The prompt's name. */
    get name(): string;
    /** The version's number; 0 for a bundled text. */
    get version(): number;
    /** Model, temperature and what else was stored with the version. */
    get config(): Readonly<Record<string, unknown>>;
    /** Names of the prompt's slots. @returns {Set<string>} */
    get slots(): Set<string>;
    /**
     * The messages for a model, every slot `{{name}}` filled by the value of that name.
     *
     * Values are put in literally, in one pass: braces in a value stay braces. A prompt of one text that has none of the slots is the
     * system message, and the values follow as the user message. A value that is no text stands there as JSON, null as nothing. A
     * content with images, sounds or files is a list of parts in OpenAI's form.
     * @param {Readonly<Record<string, SlotValue>>} [values]
     * @returns {FormattedMessage[]}
     * @throws {UsageError} for a slot without a value, and for a value that JSON cannot hold
     */
    format(values?: Readonly<Record<string, SlotValue>>): FormattedMessage[];
    #private;
}
export type Message = import("./document.js").Message;
export type Arm = import("./assignment.js").Arm;
export type Part = import("./media.js").Part;
/**
 * A value for a slot: a text, or what JSON holds.
 */
export type SlotValue = string | number | bigint | boolean | null | readonly unknown[] | {
    readonly [name: string]: unknown;
};
/**
 * A message for a model.
 */
export type FormattedMessage = {
    role: string;
    content: string | Part[];
    name?: string;
};
/**
 * A prompt that comes with the app: one text, or messages.
 */
export type Bundled = string | readonly Message[];
/**
 * Who is served: the user, the session, the episode.
 */
export type Units = {
    user?: string | null | undefined;
    session?: string | null | undefined;
    episode?: string | null | undefined;
};
/**
 * One version. `version` is 0 for a text that was bundled without a number.
 */
export type Content = {
    name: string;
    version: number;
    messages: readonly Message[];
    config: Readonly<Record<string, unknown>>;
};
/**
 * What an app needs to assign units by itself. `contents` are the versions of the arms.
 */
export type AssignableExperiment = {
    id: string;
    salt: string;
    unit: "user" | "session" | "episode";
    variant: string;
    arms: readonly Arm[];
    contents: Map<number, Content>;
};
/**
 * What one label of a prompt stands for: a version, and the experiment that runs on it.
 */
export type ServedPrompt = {
    content: Content;
    label: string;
    source: "server" | "fallback";
    experiment: AssignableExperiment | null;
};
