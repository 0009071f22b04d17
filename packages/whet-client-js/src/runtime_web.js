/** What a runtime without Node's modules has: random bytes. Nothing is written to disk there. */

/** @typedef {import("./runtime_node.js").Spool} Spool */

/** @param {number} count @returns {Uint8Array} */
export function randomBytes(count) {
  return globalThis.crypto.getRandomValues(new Uint8Array(count));
}

/** @param {string} name @returns {string | undefined} */
export function variable(name) {
  void name;
  return undefined;
}

/** @returns {string | null} */
export function defaultFolder() {
  return null;
}

/**
 * @param {string} folder
 * @param {string} url
 * @param {number} limit
 * @returns {Spool | null}
 */
export function openSpool(folder, url, limit) {
  void [folder, url, limit];
  return null;
}

/** @type {import("./runtime_node.js").readFile} */
export function readFile(path) {
  void path;
  return null;
}

/** @param {string} path */
export function isFolder(path) {
  void path;
  return false;
}

/** @param {() => void} close */
export function atEnd(close) {
  void close;
}
