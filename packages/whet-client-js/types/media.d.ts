/**
 * A text of a prompt in pieces: texts, and the parts that it holds.
 * @param {string} text
 * @returns {(string | Part)[]}
 */
export function piecesOf(text: string): (string | Part)[];
/**
 * The content of a message: the text of its pieces, or a list of parts where one of them is a part.
 * @param {readonly (string | Part)[]} pieces
 * @returns {string | Part[]}
 */
export function contentOf(pieces: readonly (string | Part)[]): string | Part[];
/**
 * A part of a message: a text, an image, a sound or a file.
 */
export type Part = {
    type: string;
    [key: string]: unknown;
};
