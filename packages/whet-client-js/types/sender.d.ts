/** @typedef {import("./runtime_node.js").Line} Line */
/** @typedef {Line["kind"]} Kind */
/**
 * Where warnings go; the console has this form.
 * @typedef {{warn: (message: string) => void, error: (message: string) => void}} Log
 */
/**
 * What became of rows so far. `refused` are those that the server will never take, `lost` those that found room neither in memory nor
 * in the spool.
 * @typedef {{sent: number, spooled: number, refused: number, lost: number}} DeliveryTally
 */
/** Rows and bytes of one request. */
export const MOST_ROWS: 500;
/** Sends rows in the background. */
export class Sender {
    /**
     * @param {import("./http.js").Send} send
     * @param {string} url
     * @param {import("./runtime_node.js").Spool | null} spool
     * @param {number} memory bytes that may wait
     * @param {number} pause seconds that a row waits for others
     * @param {Log} log
     */
    constructor(send: import("./http.js").Send, url: string, spool: import("./runtime_node.js").Spool | null, memory: number, pause: number, log: Log);
    /** @type {DeliveryTally} */
    tally: DeliveryTally;
    send: import("./http.js").Send;
    url: string;
    spool: import("./runtime_node.js").Spool | null;
    memory: number;
    pause: number;
    log: Log;
    /** Bytes that wait in memory. */
    get bytes(): number;
    /**
     * Queue a row, without waiting.
     * @param {Kind} kind
     * @param {object} row
     */
    put(kind: Kind, row: object): void;
    /**
     * Wait until everything is sent or refused, also what earlier processes left in the spool, once it was begun; false when that takes
     * longer than `timeout` seconds.
     * @param {number} timeout
     */
    flush(timeout: number): Promise<boolean>;
    /**
     * Send what waits, for at most `timeout` seconds; what the server cannot take goes to the spool. Where there is a spool, the first
     * attempt that fails is the last one.
     * @param {number} timeout
     */
    close(timeout: number): Promise<void>;
    #private;
}
export type Line = import("./runtime_node.js").Line;
export type Kind = Line["kind"];
/**
 * Where warnings go; the console has this form.
 */
export type Log = {
    warn: (message: string) => void;
    error: (message: string) => void;
};
/**
 * What became of rows so far. `refused` are those that the server will never take, `lost` those that found room neither in memory nor
 * in the spool.
 */
export type DeliveryTally = {
    sent: number;
    spooled: number;
    refused: number;
    lost: number;
};
