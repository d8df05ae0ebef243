// A program that runs beside this one: known to be ready by what it prints, and gone when we are done.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';

const KEPT_LINES = 400;
const GRACE_MS = 5_000;

/**
 * Starts a program and waits until a line of its output matches `ready`. Rejects with the end of its
 * output if it stops before that, or is not ready in time.
 */
export async function start(name, command, args, { ready, timeout = 30_000, ...options }) {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
  const lines = [];
  const waiting = [];
  const tail = (count = 20) => lines.slice(-count).join('\n');

  // Resolves with the first line that matches, among those already printed too.
  const printed = (pattern, limit = timeout) => {
    const already = lines.find((line) => pattern.test(line));
    if (already !== undefined) return Promise.resolve(already);
    return new Promise((resolve, reject) => {
      const entry = { pattern, resolve, reject };
      waiting.push(entry);
      entry.timer = setTimeout(
        () => settle(entry, reject, failure(`printed nothing like ${pattern} in ${limit} ms`)),
        limit,
      );
    });
  };
  const settle = (entry, how, value) => {
    clearTimeout(entry.timer);
    waiting.splice(waiting.indexOf(entry), 1);
    how(value);
  };
  const failure = (what) => new Error(`${name} ${what}. The end of its output:\n${tail()}`);

  for (const stream of [child.stdout, child.stderr]) {
    createInterface(stream).on('line', (line) => {
      if (lines.push(line) > KEPT_LINES) lines.shift();
      for (const entry of waiting.filter(({ pattern }) => pattern.test(line))) {
        settle(entry, entry.resolve, line);
      }
    });
  }

  // 'close' comes after the last line of output, 'exit' may come before it.
  const closed = once(child, 'close').then(
    ([code, signal]) => `stopped (${signal ?? `status ${code}`})`,
    (error) => `could not be started: ${error.message}`,
  );
  closed.then((how) => {
    for (const entry of [...waiting]) settle(entry, entry.reject, failure(how));
  });

  const stop = async () => {
    child.kill();
    const impatience = setTimeout(() => child.kill('SIGKILL'), GRACE_MS);
    await closed;
    clearTimeout(impatience);
  };

  try {
    await printed(ready);
  } catch (error) {
    await stop();
    throw error;
  }
  return { name, pid: child.pid, closed, printed, stop, tail };
}

/** Whether `port` can be listened on. Asked before Envoy starts: two Envoys may share one port, silently. */
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

/** `count` different ports that nothing listens on. */
export async function freePorts(count) {
  const servers = Array.from({ length: count }, () => createServer().listen(0, '127.0.0.1'));
  await Promise.all(servers.map((server) => once(server, 'listening')));
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => once(server.close(), 'close')));
  return ports;
}
