// What the steps of the action share: inputs, the runner's files and commands, and rlock with its settings.
'use strict';

const { spawnSync } = require('child_process');
const { randomUUID } = require('crypto');
const fs = require('fs');

/**
 * Returns an input of action.yml, as the runner passes it. A line break in it would write further lines to the runner's
 * files, such as BASH_ENV=…: keys come from titles and from events that any user may send.
 */
function input(name) {
  const value = (process.env[`INPUT_${name.toUpperCase()}`] ?? '').trim();
  if (/\p{Cc}/u.test(value)) fail(`the input ${name} has a control character`);
  return value;
}

/** Returns the addresses of the nodes. Later steps see them, so that they may hold no password. */
function nodes() {
  const told = input('node');
  for (const address of told.split(',')) {
    const user = address.slice(0, Math.max(address.lastIndexOf('@'), 0)).split('://').pop();
    if (user.includes(':')) fail('write the password of the nodes in the input password, not in their addresses');
  }
  return told;
}

/** Ends the step with an error. */
function fail(why, code = 64) {
  command('error', `rlock: ${why}`);
  process.exit(code);
}

/** Gives the runner a command. It reads one from each line, and undoes this encoding. */
function command(name, text) {
  const encoded = text.replace(/%/g, '%25').replace(/\r/g, '%0D').replace(/\n/g, '%0A');
  process.stdout.write(`::${name}::${encoded}\n`);
}

/** Adds `name=value` to one of the runner's files: GITHUB_ENV, GITHUB_OUTPUT or GITHUB_STATE. */
function tell(file, name, value) {
  fs.appendFileSync(process.env[file], `${name}=${value}\n`);
}

/** Returns the environment of rlock, or of a process that runs it, without the input that is the password. */
function environment(settings) {
  const { INPUT_PASSWORD, ...rest } = process.env;
  return { ...rest, RLOCK_NODE: nodes(), ...settings };
}

/**
 * Runs rlock to its end. Its lines on stderr are the step's log. They may name a holder's note, so that the runner takes no
 * command from them.
 */
function rlock(words, settings = {}, password = input('password')) {
  const secret = password ? { RLOCK_PASSWORD: password } : {};
  const options = { env: environment({ ...secret, ...settings }), encoding: 'utf8', stdio: ['ignore', 'pipe', 1] };
  const pause = randomUUID();
  command('stop-commands', pause);
  const ended = spawnSync(input('rlock') || 'rlock', words, options);
  command(pause, '');
  if (ended.error) throw ended.error;
  return { code: ended.status ?? 1, stdout: ended.stdout };
}

module.exports = { command, environment, fail, input, nodes, rlock, tell };
