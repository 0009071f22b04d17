/**
 * The one spelling of a slot's name: NFC, blanks of any kind as single spaces, none at its ends.
 * @param {string} name
 */
export function canonicalName(name: string): string;
/**
 * Names of the slots in a text.
 * @param {string} text
 * @returns {Set<string>}
 */
export function slotsOf(text: string): Set<string>;
/**
 * Replace known slots by their values in a single pass; values are never scanned again.
 * @param {string} text
 * @param {ReadonlyMap<string, string>} values
 */
export function fill(text: string, values: ReadonlyMap<string, string>): string;
