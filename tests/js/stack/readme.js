// Runs the lines of the documentation as a reader pastes them into a shell, with the companion that
// `make companion` built.
import { execFile, execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { COMPANION, ROOT } from './envoy.js';

const ORIGIN = 'http://127.0.0.1:10000';
const SEPARATOR = '---- the next part ----';

/** The parts of a page that are marked as run by the tests, in order. */
export function lines(page) {
  return marked(page).map(([, , part]) => part);
}

/** The marked parts that have a name, by name. */
export function namedLines(page) {
  return Object.fromEntries(marked(page).filter(([, name]) => name).map(([, name, part]) => [name, part]));
}

function marked(page) {
  const mark = /<!-- These lines are run by the tests(?:: ([\w ]+)|[^>]*?) -->\n```sh\n([^]*?)```/g;
  return [...readFileSync(`${ROOT}${page}`, 'utf8').matchAll(mark)];
}

/** The block in this language after the marked part of a page. */
export function shown(page, language) {
  const text = readFileSync(`${ROOT}${page}`, 'utf8');
  return text.split('These lines are run by the tests')[1].split(`\`\`\`${language}\n`)[1].split('```')[0];
}

/**
 * Runs the parts one after the other in one shell and one fresh folder. Replaces only the address
 * and the texts in `changed`. Returns what each part printed.
 */
export async function paste(parts, { origin = ORIGIN, changed = {} } = {}) {
  if (!existsSync(COMPANION)) throw new Error('the companion is missing: make companion');
  let script = parts.join(`\necho; echo '${SEPARATOR}'\n`).replaceAll(ORIGIN, origin);
  for (const [text, other] of Object.entries(changed)) script = script.replaceAll(text, other);
  const cwd = mkdtempSync(join(tmpdir(), 'pasted-'));
  const env = { ...process.env, PATH: `${dirname(COMPANION)}:${process.env.PATH}` };
  try {
    const { stdout, stderr } = await promisify(execFile)('sh', ['-c', script], { cwd, env });
    if (stderr) console.error(stderr);
    return stdout.split(`\n${SEPARATOR}\n`);
  } finally {
    rmSync(cwd, { recursive: true });
  }
}

/** Runs the flow, line by line. Returns the answers of the two APIs. */
export async function pasteFlow(origin) {
  const [printed] = await paste(lines('docs/flow.md'), { origin });
  return printed;
}

/** The programs that the README says a reader needs, besides a shell and what `make run` builds. */
const README_NEEDS = ['curl', 'sed'];

/**
 * Runs the README's lines, in the order of the page and without any other page, in a fresh shell in
 * the repository's folder. Returns what each part printed. `make run` must be running.
 */
export async function pasteReadme() {
  const tools = mkdtempSync(join(tmpdir(), 'tools-'));
  for (const tool of README_NEEDS) {
    symlinkSync(execFileSync('sh', ['-c', `command -v ${tool}`], { encoding: 'utf8' }).trim(), join(tools, tool));
  }
  const script = lines('README.md').join(`\necho '${SEPARATOR}'\n`);
  try {
    const options = { cwd: ROOT, env: { PATH: tools } };
    const { stdout, stderr } = await promisify(execFile)('/bin/sh', ['-e', '-c', script], options);
    if (stderr) throw new Error(`the README's lines have complained: ${stderr}`);
    return stdout.split(`${SEPARATOR}\n`);
  } finally {
    rmSync(tools, { recursive: true });
  }
}

/** The blocks of a page that the tests use, by name. */
export function namedBlocks(page) {
  const mark = /<!-- The tests use this block: ([\w ]+) -->\n```\w+\n([^]*?)```/g;
  return Object.fromEntries([...readFileSync(`${ROOT}${page}`, 'utf8').matchAll(mark)].map(([, name, block]) => [name, block]));
}
