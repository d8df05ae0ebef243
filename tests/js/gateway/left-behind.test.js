// No program leaves a service running that it has started, however the program ends.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import test from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';

const PROCESS = new URL('../stack/process.js', import.meta.url);
const LEASH = fileURLToPath(new URL('../../../scripts/leash', import.meta.url));

// The service prints its process id and would run for an hour.
const SLEEPER = "sh -c 'echo $$; exec sleep 3600'";
const program = (then) => `
  const { start } = await import(${JSON.stringify(PROCESS)});
  const sleeper = await start('a sleeper', 'sh', ['-c', 'echo ready; exec sleep 3600'], { ready: /ready/ });
  console.log(sleeper.pid);
  ${then}`;
const node = (then) => [process.execPath, ['--input-type=module', '-e', program(then)]];
const waits = 'await new Promise(() => setInterval(() => {}, 1000));';

function isRunning(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

async function ends(pid) {
  for (let tries = 0; isRunning(pid); tries += 1) {
    assert.ok(tries < 1200, `${pid} is still there`);
    await pause(50);
  }
}

async function run([command, args], end) {
  // A process group of its own, like a terminal's.
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'ignore'], detached: true });
  const closed = once(child, 'exit');
  const [line] = await once(createInterface(child.stdout), 'line');
  assert.match(line, /^\d+$/);
  end(child);
  await closed;
  await ends(Number(line));
}

const shell = ([command, args]) => ['sh', ['-c', '"$@"; true', 'sh', command, ...args]];

for (const [name, command, end] of [
  ['returns', node('process.exit(0);'), () => {}],
  ['throws', node('throw new Error("as it should");'), () => {}],
  ['is told to end', node(waits), (child) => child.kill('SIGTERM')],
  ['is interrupted', node(waits), (child) => child.kill('SIGINT')],
  ['is interrupted from a terminal', node(waits), (child) => process.kill(-child.pid, 'SIGINT')],
  ['is killed', node(waits), (child) => child.kill('SIGKILL')],
  ['loses its parent', shell(node(waits)), (child) => child.kill('SIGTERM')],
]) {
  test(`no service is left behind by a program that ${name}`, () => run(command, end));
}

for (const [name, command, signal] of [
  ['is told to end', [LEASH, ['sh', '-c', `${SLEEPER} & wait`]], 'SIGTERM'],
  ['is interrupted', [LEASH, ['sh', '-c', `${SLEEPER} & wait`]], 'SIGINT'],
  ['loses its parent', shell([LEASH, ['sh', '-c', `${SLEEPER} & wait`]]), 'SIGTERM'],
]) {
  test(`no command is left behind by a leash that ${name}`, () => run(command, (child) => child.kill(signal)));
}

test('a leash ends with the status of its command', async () => {
  for (const expected of [0, 3]) {
    const [status] = await once(spawn(LEASH, ['sh', '-c', `exit ${expected}`]), 'exit');
    assert.equal(status, expected);
  }
});
