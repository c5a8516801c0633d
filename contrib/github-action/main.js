// Takes the lock, and starts a process that renews it until the job's post step ends it.
'use strict';

const { spawn } = require('child_process');
const path = require('path');
const { command, environment, input, nodes, rlock, tell } = require('./job.js');

const words = ['acquire', '--format', 'json', '-k', input('key'), '--ttl', input('ttl'), '--wait', input('wait')];
if (input('note')) words.push('--note', input('note'));
const taken = rlock(words);
if (taken.code !== 0) process.exit(taken.code);

const { token, fence } = JSON.parse(taken.stdout);
// It is enough to release the lock, and the runner prints the environment of each later step.
command('add-mask', token);
const held = { RLOCK_KEY: input('key'), RLOCK_TOKEN: token, RLOCK_FENCE: String(fence) };
// First the way back: whatever fails from here on, the post step gives the lock back.
tell('GITHUB_STATE', 'token', token);
tell('GITHUB_OUTPUT', 'fence', fence);
// Later steps can ask: rlock check --for 5m.
for (const [name, value] of Object.entries(held)) tell('GITHUB_ENV', name, value);
tell('GITHUB_ENV', 'RLOCK_NODE', nodes());

const renewer = spawn(process.execPath, [path.join(__dirname, 'renew.js')], {
  detached: true,
  stdio: ['pipe', 'ignore', 'ignore'],
  env: environment({ ...held, RLOCK_RUNNER: String(process.ppid) }),
});
// Not in its environment, which later steps could read in /proc as long as it runs.
renewer.stdin.end(input('password'));
renewer.unref();
tell('GITHUB_STATE', 'renewer', renewer.pid);
