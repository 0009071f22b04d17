/** The app's side of a live prompt: fetch it by label, try versions, report answers and what people do with them. */

export { assign, waiting } from "./assignment.js";
export { Client } from "./client.js";
export { NotFound, Unavailable, UsageError, WhetError } from "./errors.js";
export { newId } from "./ids.js";
export { LivePrompt } from "./live_prompts.js";
export { KINDS, SOURCES } from "./records.js";

/** @typedef {import("./client.js").ClientOptions} ClientOptions */
/** @typedef {import("./document.js").Message} Message */
/** @typedef {import("./live_prompts.js").Bundled} Bundled */
/** @typedef {import("./live_prompts.js").FormattedMessage} FormattedMessage */
/** @typedef {import("./media.js").Part} Part */
/** @typedef {import("./live_prompts.js").Units} Units */
/** @typedef {import("./records.js").InferenceFields} InferenceFields */
/** @typedef {import("./records.js").FeedbackValues} FeedbackValues */
/** @typedef {import("./sender.js").DeliveryTally} DeliveryTally */
/** @typedef {import("./sender.js").Log} Log */
