// The lines of the documentation, as somebody pastes them into a shell, with the companion that `make companion` built.
import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from './envoy.js';

const ORIGIN = 'http://127.0.0.1:10000';
const COMPANION = `${ROOT}target/companion`;

/** The parts of a page that are marked as run by the tests, in order. */
export function lines(page) {
  return marked(page).map(([, , part]) => part);
}

/** Those that the marks have names for, by these. */
export function namedLines(page) {
  return Object.fromEntries(marked(page).filter(([, name]) => name).map(([, name, part]) => [name, part]));
}

function marked(page) {
  const mark = /<!-- These lines are run by the tests(?:: ([\w ]+)|[^>]*?) -->\n```sh\n([^]*?)```/g;
  return [...readFileSync(`${ROOT}${page}`, 'utf8').matchAll(mark)];
}

/** What the block of this language behind the marked part of a page has. */
export function shown(page, language) {
  const text = readFileSync(`${ROOT}${page}`, 'utf8');
  return text.split('These lines are run by the tests')[1].split(`\`\`\`${language}\n`)[1].split('```')[0];
}

/**
 * Runs them one after the other in one shell, verbatim but for the address and what else `changed` says, in a folder of
 * their own. Returns what each of them printed.
 */
export async function paste(parts, { origin = ORIGIN, changed = {} } = {}) {
  if (!existsSync(`${COMPANION}/impersonation-filter`)) throw new Error('the companion is missing: make companion');
  const separator = '---- the next part ----';
  let script = parts.join(`\necho; echo '${separator}'\n`).replaceAll(ORIGIN, origin);
  for (const [text, other] of Object.entries(changed)) script = script.replaceAll(text, other);
  const cwd = mkdtempSync(join(tmpdir(), 'pasted-'));
  const env = { ...process.env, PATH: `${COMPANION}:${process.env.PATH}` };
  try {
    const { stdout, stderr } = await promisify(execFile)('sh', ['-c', script], { cwd, env });
    if (stderr) console.error(stderr);
    return stdout.split(`\n${separator}\n`);
  } finally {
    rmSync(cwd, { recursive: true });
  }
}

/** The flow, line by line: the answers of the two APIs. */
export async function pasteFlow(origin) {
  const [printed] = await paste(lines('docs/flow.md'), { origin });
  return printed;
}

/** The same, and then the README's lines: what those printed. */
export async function pasteReadme(origin) {
  const [, printed] = await paste([...lines('docs/flow.md'), ...lines('README.md')], { origin });
  return printed;
}
