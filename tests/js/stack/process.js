// A program that runs beside this one. It is ready when it prints a given line, and it ends when
// this program ends, in whatever way: see scripts/watchdog.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const KEPT_LINES = 1000;
const GRACE_MS = 5_000;
const WATCHDOG = fileURLToPath(new URL('../../../scripts/watchdog', import.meta.url));

// make and the test runner do not pass a SIGTERM on, so this program watches its parent.
const parent = process.ppid;
setInterval(() => process.ppid === parent || process.exit(1), 100).unref();

/** A program did not print the expected line. The message ends with the end of its output. */
export class ProcessError extends Error {}

/** All programs that were started here, ready or not, running or not. */
const services = [];

/** Stops all programs, the youngest first: it may depend on the older ones. */
export async function stopAll() {
  for (const service of services.toReversed()) await service.stop();
}

/** Returns the end of each log, for finding out what went wrong. */
export function tails() {
  return services.map(({ name, tail }) => `The end of the log of ${name}:\n${tail()}`).join('\n\n');
}

/**
 * Starts a program and waits until a line of its output matches `ready`. Rejects with the end of
 * its output if the program stops before that, or is not ready in time. `log` names a file for all
 * of its output.
 */
export async function start(name, command, args, { ready, log, timeout = 120_000, ...options }) {
  const watchdog = spawn(WATCHDOG, ['TERM'], { stdio: ['pipe', 'ignore', 'ignore'] });
  watchdog.stdin.on('error', () => {});
  for (const handle of [watchdog, watchdog.stdin]) handle.unref();
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
  if (child.pid) watchdog.stdin.write(`${child.pid}\n`);
  const file = log && openSync(log, 'w');
  const lines = [];
  const waiting = [];
  const tail = (count = 20) => lines.slice(-count).join('\n');

  // Resolves with the first line that matches `pattern`, an object with a method `test`. Lines that
  // are printed already count, too.
  const printed = (pattern, limit = timeout) => {
    const already = lines.find((line) => pattern.test(line));
    if (already !== undefined) return Promise.resolve(already);
    return new Promise((resolve, reject) => {
      const entry = { pattern, resolve, reject };
      waiting.push(entry);
      entry.timer = setTimeout(
        () => settle(entry, reject, failure(`did not print what was waited for in ${limit} ms`)),
        limit,
      );
    });
  };
  const settle = (entry, how, value) => {
    clearTimeout(entry.timer);
    waiting.splice(waiting.indexOf(entry), 1);
    how(value);
  };
  const failure = (what) => new ProcessError(`${name} ${what}. The end of its output:\n${tail()}`);

  for (const stream of [child.stdout, child.stderr]) {
    createInterface(stream).on('line', (line) => {
      if (lines.push(line) > KEPT_LINES) lines.shift();
      if (log) writeSync(file, `${line}\n`);
      for (const entry of waiting.filter(({ pattern }) => pattern.test(line))) {
        settle(entry, entry.resolve, line);
      }
    });
  }

  const stop = async () => {
    child.kill();
    const impatience = setTimeout(() => child.kill('SIGKILL'), GRACE_MS);
    await closed;
    clearTimeout(impatience);
  };
  const service = { name, pid: child.pid, printed, stop, tail };
  services.push(service);

  // 'close' comes after the last line of output, 'exit' may come before it.
  const closed = service.closed = once(child, 'close').then(
    ([code, signal]) => `stopped (${signal ?? `status ${code}`})`,
    (error) => `could not be started: ${error.message}`,
  );
  closed.then((how) => {
    watchdog.kill('SIGKILL');
    if (log) closeSync(file);
    for (const entry of [...waiting]) settle(entry, entry.reject, failure(how));
  });

  try {
    await printed(ready);
  } catch (error) {
    await stop();
    throw error;
  }
  return service;
}

/**
 * Returns true if `port` is free. Checked before Envoy starts: two Envoys can share one port
 * without an error.
 */
export async function isFree(port) {
  const server = createServer().listen({ port, host: '127.0.0.1', exclusive: true });
  try {
    await once(server, 'listening');
  } catch {
    return false;
  }
  server.close();
  await once(server, 'close');
  return true;
}

/**
 * Returns `count` different ports that are free, and stay free of other tests until this program
 * ends. They are below those that the system gives to connections, because Envoy may take many
 * seconds until it binds them.
 */
export async function freePorts(count) {
  const ports = [];
  while (ports.length < count) {
    const port = FIRST_PORT + Math.floor(Math.random() * PORTS);
    if (reserve(port) && await isFree(port)) ports.push(port);
  }
  return ports;
}

const FIRST_PORT = 11_000;
const PORTS = 20_000;
/** A file for each port that a test has. Its content is the process of the test. */
const RESERVED = join(tmpdir(), `impersonation-filter-ports-${process.getuid?.()}`);
const reserved = [];
process.on('exit', () => reserved.forEach((file) => rmSync(file, { force: true })));

/** Returns true if no other test has the port. */
function reserve(port) {
  mkdirSync(RESERVED, { recursive: true });
  const file = join(RESERVED, String(port));
  try {
    writeFileSync(file, String(process.pid), { flag: 'wx' });
  } catch (error) {
    if (error.code !== 'EEXIST') throw error;
    // A test that was killed has left its file.
    if (!isRunning(file)) rmSync(file, { force: true });
    return false;
  }
  reserved.push(file);
  return true;
}

/** Returns true if the process in the file runs, or its number is not written yet. */
function isRunning(file) {
  try {
    return process.kill(Number(readFileSync(file, 'utf8')), 0);
  } catch (error) {
    return error.code === 'EPERM';
  }
}
