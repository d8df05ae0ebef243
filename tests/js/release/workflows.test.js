// The workflows of GitHub, which nothing here can run.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { ROOT } from '../stack/envoy.js';

const FOLDER = `${ROOT}.github/workflows`;
const workflows = readdirSync(FOLDER).toSorted().map((name) => [name, readFileSync(`${FOLDER}/${name}`, 'utf8')]);

test('actionlint finds nothing in the workflows', () => {
  execFileSync(`${ROOT}scripts/actionlint`, workflows.map(([name]) => `${FOLDER}/${name}`), { cwd: ROOT, stdio: ['ignore', 'inherit', 'inherit'] });
});

test('every action is pinned by its commit, and every job names its permissions', () => {
  for (const [name, text] of workflows) {
    for (const [, action] of text.matchAll(/uses: ([^.].*)/g)) assert.match(action, /^[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/, name);
    assert.match(text, /^permissions: \{\}$/m, `${name}: a job has only the permissions that it names`);
  }
});

test('the jobs of CI run every part of the tests', () => {
  const makefile = readFileSync(`${ROOT}Makefile`, 'utf8').replaceAll('\\\n', ' ');
  const listed = ['parts', 'others'].flatMap((list) => makefile.match(new RegExp(`^${list} := (.*)$`, 'm'))[1].trim().split(/\s+/));
  const jobs = [...Object.fromEntries(workflows)['ci.yml'].matchAll(/^ +parts: (.*)$/gm)];
  const ran = jobs.flatMap(([, parts]) => parts.split(' '));
  assert.deepEqual(listed.filter((part) => !ran.includes(part)), []);
});
