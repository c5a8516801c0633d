// node-redlock with ioredis, driven by lines on stdin as README.md says.
//
// client.mjs URL...

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(new URL(".installed/node/", import.meta.url));
const { Redis } = require("ioredis");
const { default: Redlock, ExecutionError, ResourceLockedError } = require("redlock");

const servers = process.argv.slice(2).map((url) => new Redis(url));
const locks = new Redlock(servers, { retryCount: 0 });
let lock;

// It throws the same for a no and for a failure; the votes tell which it was.
async function unless(refused, action) {
  try {
    return await action();
  } catch (error) {
    if (!(error instanceof ExecutionError)) throw error;
    const votes = await Promise.all(error.attempts);
    const failed = votes.flatMap(({ votesAgainst }) => [...votesAgainst.values()])
      .find((vote) => !(vote instanceof ResourceLockedError));
    if (failed) throw failed;
    return refused;
  }
}

async function answer(line) {
  const [verb, key, ttl] = line.split(" ");
  switch (verb) {
    case "acquire":
      return unless("refused", async () => {
        lock = await locks.acquire([key], Number(ttl));
        return "held";
      });
    case "release":
      return unless("not ours", async () => {
        await lock.release();
        return "released";
      });
  }
  throw new Error(`${JSON.stringify(line)} makes no sense`);
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(await answer(line).catch((error) => `error ${error}`));
}
for (const server of servers) server.disconnect();
