// A command under node-redlock's `using`, which renews the lock, and asks every 0.1 to 0.3 s by default.
//
// node_redlock.mjs URL[,URL...] KEY CMD [ARGS...]

import { spawn } from "node:child_process";
import { createRequire } from "node:module";

const require = createRequire(new URL("../../tests/interop/.installed/node/", import.meta.url));
const { Redis } = require("ioredis");
const { default: Redlock } = require("redlock");

const [urls, key, command, ...args] = process.argv.slice(2);
const servers = urls.split(",").map((url) => new Redis(url));
const locks = new Redlock(servers);

// By default it gives up waiting after some two seconds. The lease counts from the first try, so one that is shorter than the
// wait is over when it is granted.
const code = await locks.using([key], 600_000, { retryCount: -1 }, (signal) => new Promise((resolve, reject) => {
  spawn(command, args, { stdio: "inherit", signal }).on("error", reject).on("exit", (code) => resolve(code ?? 1));
}));
// Not `quit` or `disconnect`, which take seconds where a server hangs.
process.exit(code);
