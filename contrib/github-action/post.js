// Ends the renewals and gives the lock back, however the job ended.
'use strict';

const { fail, input, rlock } = require('./job.js');

const token = process.env.STATE_token;
// Without a token the lock was never taken.
if (token) {
  try {
    process.kill(Number(process.env.STATE_renewer), 'SIGTERM');
  } catch {
    // It has ended by itself.
  }
  const held = { RLOCK_KEY: input('key'), RLOCK_TOKEN: token };
  const { code } = rlock(['release'], held);
  // 1: the lock was lost while the job ran, and another client may have had it too.
  if (code !== 0) fail(`${input('key')} was not released (exit ${code}): was it lost while the job ran?`, code);
}
