// What the steps of the action share: inputs, the runner's files, and rlock with its settings.
'use strict';

const { spawnSync } = require('child_process');
const fs = require('fs');

/** Returns an input of action.yml, as the runner passes it. */
function input(name) {
  return (process.env[`INPUT_${name.toUpperCase()}`] ?? '').trim();
}

/** Adds `name=value` to one of the runner's files: GITHUB_ENV, GITHUB_OUTPUT or GITHUB_STATE. */
function tell(file, name, value) {
  fs.appendFileSync(process.env[file], `${name}=${value}\n`);
}

/** Returns the environment of rlock. The password is in no argument, and no later step sees it. */
function environment(settings) {
  const password = input('password');
  const secret = password ? { RLOCK_PASSWORD: password } : {};
  return { ...process.env, ...secret, RLOCK_NODE: input('node'), ...settings };
}

/** Runs rlock to its end. Its lines on stderr are the step's log. */
function rlock(words, settings = {}) {
  const options = { env: environment(settings), encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] };
  const ended = spawnSync(input('rlock') || 'rlock', words, options);
  if (ended.error) throw ended.error;
  return { code: ended.status ?? 1, stdout: ended.stdout };
}

module.exports = { environment, input, rlock, tell };
