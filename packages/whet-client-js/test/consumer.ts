// Compiled, not run: what an app in TypeScript writes, and what the types refuse.
import { Client, LivePrompt, UsageError, type FeedbackValues, type FormattedMessage } from "whet-client";

const client = new Client("http://127.0.0.1:8321", { token: "whet_...", fallbacks: { "shop/help": "Help {{q}}" }, spool: null });
const prompt: LivePrompt = await client.prompt("shop/help", { label: "staging", user: "u", fallback: [{ role: "system", content: "x" }] });
const messages: FormattedMessage[] = prompt.format({ q: "Why?", n: 3 });
const id: string = client.log(prompt, messages[0]?.role ?? "", { model: "m", cost: 0.1, inputs: { q: "Why?" }, time: new Date() });
const values: FeedbackValues = { thumb: "down", comment: "Odd.", source: "user" };
const ids: string[] = client.feedback(id, values);
client.feedback({ episode: "e", external_check: 1 });
const sent: number = client.tally.sent + ids.length;
const done: boolean = await client.flush(sent);
if (!done) throw new UsageError("not sent");

// @ts-expect-error: there is no such kind of feedback
client.feedback(id, { thumbs: 1 });
// @ts-expect-error: a model is a text
client.log(prompt, "", { model: 3 });
// @ts-expect-error: a version cannot be changed
prompt.version = 3;
