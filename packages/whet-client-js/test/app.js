/** An app that reports answers and prints their ids: URL TOKEN SPOOL COUNT. */

import { Client } from "../src/index.js";

const [, , url, token, spool, count] = process.argv;
const client = new Client(String(url), { token: String(token), spool: String(spool), timeout: 30 });
for (let number = 0; number < Number(count); number++) {
  const answer = client.log("p", "an answer");
  const line = `${[answer, ...client.feedback(answer, { thumb: 1 })].join(" ")}\n`;
  if (!process.stdout.write(line)) await new Promise((resolve) => process.stdout.once("drain", () => resolve(null)));
  if (number % 20 === 0) await new Promise((resolve) => setImmediate(resolve));
}
