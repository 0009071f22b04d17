/** What a runtime without Node's modules has: random bytes. Nothing is written to disk there. */
/** @typedef {import("./runtime_node.js").Spool} Spool */
/** @param {number} count @returns {Uint8Array} */
export function randomBytes(count: number): Uint8Array;
/** @param {string} name @returns {string | undefined} */
export function variable(name: string): string | undefined;
/** @returns {string | null} */
export function defaultFolder(): string | null;
/**
 * @param {string} folder
 * @param {string} url
 * @param {number} limit
 * @returns {Spool | null}
 */
export function openSpool(folder: string, url: string, limit: number): Spool | null;
export function readFile(name: string): string | null;
/** @param {string} path */
export function isFolder(path: string): boolean;
/** @param {() => void} close */
export function atEnd(close: () => void): void;
export type Spool = import("./runtime_node.js").Spool;
