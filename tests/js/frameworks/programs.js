// The programs in Java and Go, which `make frameworks` builds below target/frameworks.
import { execFile } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { promisify } from 'node:util';
import { ROOT } from '../stack/envoy.js';
import { freePorts, start } from '../stack/process.js';

export const BUILT = `${ROOT}target/frameworks`;
export const FILES = `${BUILT}/run`;

/** Starts a gateway in Go. */
export function startInGo(program, args, { ready, ...options }) {
  mkdirSync(FILES, { recursive: true });
  return start(program, `${BUILT}/${program}`, args, { ready, log: `${FILES}/${program}.log`, ...options });
}

/** Runs a client or a verifier in Go, and returns what it prints. */
export async function runInGo(task, given) {
  const { stdout } = await promisify(execFile)(`${BUILT}/clients`, [task, JSON.stringify(given)]);
  return JSON.parse(stdout);
}

/**
 * Starts the one process of all programs in Java. Returns the function that runs one of its tasks.
 * Java compiles less, so that it starts faster.
 */
export async function startJava() {
  mkdirSync(FILES, { recursive: true });
  const [port] = await freePorts(1);
  const program = process.env.JAVA_HOME ? `${process.env.JAVA_HOME}/bin/java` : 'java';
  const options = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xmx256m', '-Xshare:auto'];
  await start('Java', program, [...options, '-cp', `${BUILT}/java/classes:${BUILT}/java/libraries/*`, 'frameworks.Main', `${port}`], {
    ready: /^ready$/, log: `${FILES}/java-${port}.log`,
  });
  return async (task, given) => {
    const response = await fetch(`http://127.0.0.1:${port}/${task}`, { method: 'POST', body: JSON.stringify(given) });
    const answer = await response.json();
    if (response.status !== 200) throw new Error(answer.error);
    return answer;
  };
}
