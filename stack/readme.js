// The curl lines of the README, as somebody pastes them into a shell.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { ROOT } from './envoy.js';

const README_ORIGIN = 'http://127.0.0.1:10000';

/** Runs them, verbatim but for the address. Returns what they print: the answers of the two APIs. */
export async function pasteReadme(origin = README_ORIGIN) {
  const [, lines] = /<!-- These lines are run by the tests\. -->\n```sh\n([^]*?)```/.exec(readFileSync(`${ROOT}README.md`, 'utf8'));
  const { stdout } = await promisify(execFile)('sh', ['-c', lines.replaceAll(README_ORIGIN, origin)]);
  return stdout;
}
