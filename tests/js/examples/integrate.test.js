// docs/integrate.md has the examples' own lines, and the rules of rules.js. `make docs` writes
// them.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { ROOT } from '../stack/envoy.js';
import { made } from './page.js';

const PAGE = `${ROOT}docs/integrate.md`;
const packages = (file) => {
  const { dependencies, devDependencies } = JSON.parse(readFileSync(`${ROOT}${file}`, 'utf8'));
  return { ...dependencies, ...devDependencies };
};

test('the page has the lines of the examples and all rules: make docs', () => {
  const page = readFileSync(PAGE, 'utf8');
  if (process.env.UPDATE_DOCS) writeFileSync(PAGE, made(page));
  else assert.equal(page, made(page));
});

test('the page and its examples of code have at most 3000 words', () => {
  const words = readFileSync(PAGE, 'utf8').split(/\s+/).filter((word) => /\w/.test(word)).length;
  assert.ok(words <= 3000, `${words}`);
});

test('the example in Node.js names the packages that the tests run', () => {
  const tested = packages('tests/js/package.json');
  for (const [name, version] of Object.entries(packages('examples/node/package.json'))) assert.equal(version, tested[name], name);
});
