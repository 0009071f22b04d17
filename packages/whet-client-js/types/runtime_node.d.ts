/** @param {number} count @returns {Uint8Array} */
export function randomBytes(count: number): Uint8Array;
/** @param {string} name @returns {string | undefined} */
export function variable(name: string): string | undefined;
/**
 * The text of a file; null where there is none.
 * @param {string} name
 * @returns {string | null}
 */
export function readFile(name: string): string | null;
/** @param {string} name */
export function isFolder(name: string): boolean;
/**
 * Call something when the process has nothing left to do, before it ends.
 * @param {() => void} close
 */
export function atEnd(close: () => void): void;
/**
 * Where rows wait on this machine: XDG_STATE_HOME, else ~/.local/state, and there whet/spool-js.
 * @returns {string | null}
 */
export function defaultFolder(): string | null;
/**
 * @param {string} folder
 * @param {string} url
 * @param {number} limit bytes
 * @returns {Spool | null}
 */
export function openSpool(folder: string, url: string, limit: number): Spool | null;
/** Files of waiting rows for one server. The folder can be read by its owner only. Every method throws when the disk refuses. */
export class Spool {
    /** @param {string} folder @param {string} url @param {number} limit */
    constructor(folder: string, url: string, limit: number);
    folder: string;
    limit: number;
    /** Names of files with rows that nobody else holds, oldest first. @returns {string[]} */
    waiting(): string[];
    /**
     * Write rows to a new file, durably; the number of rows that had no room any more.
     * @param {readonly Line[]} lines
     */
    write(lines: readonly Line[]): number;
    /**
     * Add a row that waits in memory to the log of this process. It is with the operating system when this returns, so that a kill
     * does not lose it; a power cut may.
     * @param {Line} line
     * @param {() => readonly Line[]} all every row that waits, this one among them
     */
    note(line: Line, all: () => readonly Line[]): void;
    /**
     * Of the rows in the log only `rest` waits still. The file is written anew only when most of it is out of date.
     * @param {readonly Line[]} rest
     */
    forget(rest: readonly Line[]): void;
    /** The log is over. */
    end(): void;
    /**
     * The rows of a file that nobody else sends meanwhile; null when somebody does, or when it is gone. A line that was cut off by a
     * crash is left out.
     * @param {string} name
     * @returns {{lines: Line[], done: () => void, back: () => void} | null}
     */
    claim(name: string): {
        lines: Line[];
        done: () => void;
        back: () => void;
    } | null;
    #private;
}
export type Line = {
    kind: "inferences" | "feedback";
    text: string;
    size: number;
};
