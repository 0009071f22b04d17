/** Slots `{{name}}`: found and filled by one literal pass. Every other brace is ordinary text. The same names as in Python. */

const OUTSIDE = "\\/:-@\\[-^`{-\\x9f\\u2028\\u2029";
const NAME = `[^\\x00-.${OUTSIDE}](?:[^\\x00-\\x1f!-,${OUTSIDE}]{0,200}[^\\x00-\\-${OUTSIDE}])?`;
const SLOT = new RegExp(`\\{\\{[ \\t]*(?![0-9 .\\-]+[ \\t]*\\}\\})(${NAME})[ \\t]*\\}\\}`, "gu");
const BLANKS = /[\s\x1c-\x1f\x85]+/u;

/**
 * The one spelling of a slot's name: NFC, blanks of any kind as single spaces, none at its ends.
 * @param {string} name
 */
export function canonicalName(name) {
  if (/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) return name;
  return name.split(BLANKS).filter((piece) => piece !== "").join(" ").normalize("NFC");
}

/**
 * Names of the slots in a text.
 * @param {string} text
 * @returns {Set<string>}
 */
export function slotsOf(text) {
  return new Set(Array.from(text.matchAll(SLOT), (match) => canonicalName(match[1] ?? "")));
}

/**
 * Replace known slots by their values in a single pass; values are never scanned again.
 * @param {string} text
 * @param {ReadonlyMap<string, string>} values
 */
export function fill(text, values) {
  const known = new Map(Array.from(values, ([name, value]) => [canonicalName(name), value]));
  return text.replace(SLOT, (slot, /** @type {string} */ name) => known.get(canonicalName(name)) ?? slot);
}
