/** An app that reports answers and prints their ids: URL TOKEN SPOOL COUNT [SECONDS], for so long it waits at its end until all is sent. */

import { Client } from "../src/index.js";

const [, , url, token, spool, count, seconds] = process.argv;
const client = new Client(String(url), { token: String(token), spool: String(spool), timeout: 30 });
for (let number = 0; number < Number(count); number++) {
  const answer = client.log("p", "an answer");
  const line = `${[answer, ...client.feedback(answer, { thumb: 1 })].join(" ")}\n`;
  if (!process.stdout.write(line)) await new Promise((resolve) => process.stdout.once("drain", () => resolve(null)));
  if (number % 20 === 0) await new Promise((resolve) => setImmediate(resolve));
}
if (seconds !== undefined) await client.flush(Number(seconds));
