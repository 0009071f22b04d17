/** Prompts by name and label. */
export class Prompts {
    /**
     * @param {import("./http.js").Send} send
     * @param {string} url
     * @param {Readonly<Record<string, Bundled>> | string} fallbacks a mapping from names, or a folder
     * @param {number} fresh seconds
     * @param {import("./sender.js").Log} log
     * @param {() => number} clock seconds
     */
    constructor(send: import("./http.js").Send, url: string, fallbacks: Readonly<Record<string, Bundled>> | string, fresh: number, log: import("./sender.js").Log, clock: () => number);
    send: import("./http.js").Send;
    url: string;
    fallbacks: string | Readonly<Record<string, import("./live_prompts.js").Bundled>>;
    fresh: number;
    log: import("./sender.js").Log;
    clock: () => number;
    /**
     * What a label stands for, from memory after the first call.
     * @param {string} name
     * @param {string} label
     * @param {Bundled | null | undefined} fallback
     * @returns {Promise<ServedPrompt>}
     */
    get(name: string, label: string, fallback: Bundled | null | undefined): Promise<ServedPrompt>;
    /** Stop fetching; what is known is still served. */
    close(): void;
    #private;
}
export type Content = import("./live_prompts.js").Content;
export type ServedPrompt = import("./live_prompts.js").ServedPrompt;
export type Bundled = import("./live_prompts.js").Bundled;
/**
 * What is known of one label. `due` is the time at which it is worth asking again, `tags` are those of the version and of the
 * experiment that the server sent last.
 */
export type Entry = {
    value: ServedPrompt | null;
    due: number;
    versionTag: string;
    experimentTag: string;
    failures: number;
    isAsking: boolean;
};
