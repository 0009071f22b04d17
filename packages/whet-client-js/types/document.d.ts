/**
 * The front matter with which a text begins, lines `---` and blank lines below included; empty where there is none.
 * @param {string} text
 */
export function frontMatterOf(text: string): string;
/**
 * The text that a model sees: no front matter, no markers, and no empty lines where markers stood alone.
 * @param {string} text
 */
export function withoutMarkers(text: string): string;
/**
 * Messages of the server or of the app, if they are a prompt.
 * @param {readonly Message[]} messages
 * @param {string} where
 * @returns {Message[]}
 * @throws {UsageError} for a broken fence and for no text
 */
export function checkedMessages(messages: readonly Message[], where: string): Message[];
/**
 * The messages of a prompt's text: those that it lists (as JSON, or with a line `[system]` above each), else one of the role `auto`.
 * @param {string} source
 * @param {string} where
 * @returns {Message[]}
 * @throws {UsageError} for a text that looks like a list of messages and cannot be read as such
 */
export function parseDocument(source: string, where: string): Message[];
/**
 * The messages of a value: a list of objects with `role` and `content`, or an object with such a list under `messages`.
 * @param {unknown} value
 * @param {string} where
 * @returns {Message[]}
 * @throws {UsageError} naming what cannot be read
 */
export function readMessages(value: unknown, where: string): Message[];
/** The name of who speaks, where a message has one. @param {{name?: unknown}} message @returns {{name?: string}} */
export function nameOf({ name }: {
    name?: unknown;
}): {
    name?: string;
};
/** @typedef {{role: string, content: string, name?: string}} Message */
/** The role of a prompt of one text: its slots decide whether it is the system message or the user message. */
export const AUTO: "auto";
export type Message = {
    role: string;
    content: string;
    name?: string;
};
