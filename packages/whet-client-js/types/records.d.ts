/** @typedef {Record<string, unknown>} Row */
/**
 * An answer as the server reads it. Texts that are too long are cut, and those with what no database keeps are cleaned;
 * `metadata.cut` and `metadata.cleaned` name them.
 * @param {string} prompt
 * @param {string} output
 * @param {InferenceFields} known fields that the prompt gives
 * @param {InferenceFields} more those that the app gives, which go first
 * @returns {Row & {id: string}}
 * @throws {UsageError} for a field that is none or cannot be
 */
export function inferenceRow(prompt: string, output: string, known: InferenceFields, more: InferenceFields): Row & {
    id: string;
};
/**
 * Feedback as the server reads it, a row for each kind.
 * @param {"inference" | "episode" | "session"} targetKind
 * @param {string} target
 * @param {FeedbackValues} values
 * @returns {(Row & {id: string})[]}
 * @throws {UsageError} for a word that is none, and for a value that cannot be
 */
export function feedbackRows(targetKind: "inference" | "episode" | "session", target: string, values: FeedbackValues): (Row & {
    id: string;
})[];
/** Whether a value is a text without a character that shows. @param {unknown} value */
export function isBlank(value: unknown): boolean;
/**
 * Refuse what is no id and no name: a text on one line, without control characters, of 200 characters at most.
 * @param {unknown} value @param {string} name @param {string} where @param {number} [least]
 */
export function checkName(value: unknown, name: string, where: string, least?: number): void;
export const LONGEST_ID: 200;
export const LONGEST_NAME: 255;
export const LONGEST_LABEL: 200;
export const LONGEST_TEXT: 32000;
export const LONGEST_OUTPUT: 256000;
export const LONGEST_INPUTS: 256000;
export const LONGEST_METADATA: 16000;
export const LARGEST_VERSION: number;
/** Who speaks: somebody who uses the app, somebody who reviews answers, a model that judges, a program. */
export const SOURCES: readonly ["user", "annotator", "model", "code"];
/**
 * The other fields of an answer: `cost` is in dollars, `latency` in seconds, `time` in microseconds since 1970-01-01 UTC or a Date.
 * `episode` joins all calls that share an outcome; `response` is the provider's own id of the answer.
 * @typedef {object} InferenceFields
 * @property {number} [version] of the prompt; 0: unknown
 * @property {Readonly<Record<string, unknown>> | null} [inputs] the values of the prompt's slots
 * @property {string | null} [id] the idempotency key: the same id and content twice are one row
 * @property {string | null} [model]
 * @property {number | null} [cost]
 * @property {number | null} [latency]
 * @property {number | null} [input_tokens]
 * @property {number | null} [output_tokens]
 * @property {string | null} [session]
 * @property {string | null} [user]
 * @property {string | null} [episode]
 * @property {string | null} [experiment]
 * @property {string | null} [variant]
 * @property {string | null} [response]
 * @property {string | null} [error]
 * @property {number | Date | null} [time]
 * @property {Readonly<Record<string, unknown>> | null} [metadata]
 */
/**
 * Feedback by kinds, each a row of its own. A comment goes with the rating, thumb, score or label, or stands alone.
 * @typedef {object} FeedbackValues
 * @property {number | null} [rating] stars, 1 (worst) to 5
 * @property {"up" | "down" | boolean | number | string | null} [thumb]
 * @property {number | null} [score] a number under the name of a metric
 * @property {string | null} [comment] free text about the answer
 * @property {string | null} [explanation] the same as `comment`
 * @property {string | null} [correction] the answer as it should have been
 * @property {string | null} [label] a category
 * @property {number | null} [choice] 1: preferred to the answer that `over` names, 0: the other one, 0.5: equal
 * @property {string | null} [over]
 * @property {number | boolean | null} [copy] part of the answer that was copied
 * @property {number | null} [edit_distance] 0: used as it was, 1: rewritten altogether
 * @property {number | boolean | null} [regenerate] times that another answer was asked for
 * @property {number | boolean | null} [follow_up] questions asked back
 * @property {number | boolean | null} [abandon] 1: left without using the answer
 * @property {number | null} [dwell] seconds spent on the answer
 * @property {number | boolean | null} [share] times the answer was passed on
 * @property {number | boolean | null} [external_check] how well it did outside: tests passed, sale made
 * @property {string | null} [name] the metric of a score or label
 * @property {string | null} [user]
 * @property {"user" | "annotator" | "model" | "code" | null} [source]
 * @property {Readonly<Record<string, unknown>> | null} [metadata]
 * @property {string | null} [id]
 * @property {number | Date | null} [time]
 */
/**
 * One word of the vocabulary. `low` and `high` bound `value`, `only` says which values there are, if few.
 * @typedef {{needs: "value" | "text" | "label", meaning: string, low?: number, high?: number, only?: readonly number[]}} FeedbackKind
 */
/** Every kind of feedback. @type {Readonly<Record<string, FeedbackKind>>} */
export const KINDS: Readonly<Record<string, FeedbackKind>>;
export type Row = Record<string, unknown>;
/**
 * The other fields of an answer: `cost` is in dollars, `latency` in seconds, `time` in microseconds since 1970-01-01 UTC or a Date.
 * `episode` joins all calls that share an outcome; `response` is the provider's own id of the answer.
 */
export type InferenceFields = {
    /**
     * of the prompt; 0: unknown
     */
    version?: number | undefined;
    /**
     * the values of the prompt's slots
     */
    inputs?: Readonly<Record<string, unknown>> | null | undefined;
    /**
     * the idempotency key: the same id and content twice are one row
     */
    id?: string | null | undefined;
    model?: string | null | undefined;
    cost?: number | null | undefined;
    latency?: number | null | undefined;
    input_tokens?: number | null | undefined;
    output_tokens?: number | null | undefined;
    session?: string | null | undefined;
    user?: string | null | undefined;
    episode?: string | null | undefined;
    experiment?: string | null | undefined;
    variant?: string | null | undefined;
    response?: string | null | undefined;
    error?: string | null | undefined;
    time?: number | Date | null | undefined;
    metadata?: Readonly<Record<string, unknown>> | null | undefined;
};
/**
 * Feedback by kinds, each a row of its own. A comment goes with the rating, thumb, score or label, or stands alone.
 */
export type FeedbackValues = {
    /**
     * stars, 1 (worst) to 5
     */
    rating?: number | null | undefined;
    thumb?: string | number | boolean | null | undefined;
    /**
     * a number under the name of a metric
     */
    score?: number | null | undefined;
    /**
     * free text about the answer
     */
    comment?: string | null | undefined;
    /**
     * the same as `comment`
     */
    explanation?: string | null | undefined;
    /**
     * the answer as it should have been
     */
    correction?: string | null | undefined;
    /**
     * a category
     */
    label?: string | null | undefined;
    /**
     * 1: preferred to the answer that `over` names, 0: the other one, 0.5: equal
     */
    choice?: number | null | undefined;
    over?: string | null | undefined;
    /**
     * part of the answer that was copied
     */
    copy?: number | boolean | null | undefined;
    /**
     * 0: used as it was, 1: rewritten altogether
     */
    edit_distance?: number | null | undefined;
    /**
     * times that another answer was asked for
     */
    regenerate?: number | boolean | null | undefined;
    /**
     * questions asked back
     */
    follow_up?: number | boolean | null | undefined;
    /**
     * 1: left without using the answer
     */
    abandon?: number | boolean | null | undefined;
    /**
     * seconds spent on the answer
     */
    dwell?: number | null | undefined;
    /**
     * times the answer was passed on
     */
    share?: number | boolean | null | undefined;
    /**
     * how well it did outside: tests passed, sale made
     */
    external_check?: number | boolean | null | undefined;
    /**
     * the metric of a score or label
     */
    name?: string | null | undefined;
    user?: string | null | undefined;
    source?: "code" | "user" | "model" | "annotator" | null | undefined;
    metadata?: Readonly<Record<string, unknown>> | null | undefined;
    id?: string | null | undefined;
    time?: number | Date | null | undefined;
};
/**
 * One word of the vocabulary. `low` and `high` bound `value`, `only` says which values there are, if few.
 */
export type FeedbackKind = {
    needs: "value" | "text" | "label";
    meaning: string;
    low?: number;
    high?: number;
    only?: readonly number[];
};
