// Renews the lock in the background, until the post step ends this process, the lock is lost or the runner is gone.
'use strict';

const fs = require('fs');
const { input, rlock } = require('./job.js');

const MINUTE = 60_000;
// The step that started this process has written it to the pipe, and closed that.
const password = fs.readFileSync(0, 'utf8');
const runner = Number(process.env.RLOCK_RUNNER);
const ends = Date.now() + (Number(input('max-hold')) || 360) * MINUTE;

/** Whether the runner that started the job lives: without it no post step comes. */
function runnerLives() {
  try {
    return process.kill(runner, 0);
  } catch (error) {
    return error.code === 'EPERM';
  }
}

/** Returns the ms in a duration as rlock takes it, such as 1m30s. */
function milliseconds(duration) {
  const units = { ms: 1, s: 1000, m: MINUTE, h: 60 * MINUTE };
  const parts = [...duration.matchAll(/(\d+)(ms|s|m|h)/g)];
  return parts.reduce((sum, [, number, unit]) => sum + Number(number) * units[unit], 0);
}

const pause = Math.max(milliseconds(input('ttl')) / 3, 1000);

function renew() {
  if (Date.now() >= ends || !runnerLives()) return;
  // 1: the lock is another client's. Any other failure may pass.
  if (rlock(['renew', '-q'], {}, password).code !== 1) setTimeout(renew, pause);
}

// At once: the start of this process has cost time.
renew();
