// docs/gateways/README.md: the filter accepts the paths of each gateway in its table.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { COMPANION } from './canaille.js';
import { block, page } from './page.js';

const [, table] = /<!-- The tests read this table\. -->\n([^]*?)<!-- end of the table -->/.exec(page('README.md'));
const [head, , ...rows] = table.trim().split('\n').map((line) => line.split('|').slice(1, -1).map((cell) => cell.trim()));

let folder;

before(() => {
  folder = mkdtempSync(join(tmpdir(), 'paths-'));
});

after(() => rmSync(folder, { recursive: true }));

test('the table has the gateways that people ask about', () => {
  const names = rows.map(([name]) => name);
  for (const name of ['Keycloak', 'Canaille', 'Auth0', 'Okta', 'Microsoft Entra ID', 'ZITADEL', 'Logto', 'Ory', 'authentik']) {
    assert.ok(names.some((listed) => listed.startsWith(name)), name);
  }
});

for (const [name, , ...cells] of rows) {
  // The columns whose heads are members of `paths`, and the cells that are paths as code.
  const paths = cells.flatMap((cell, index) => {
    const [, member] = /^`(\w+)`$/.exec(head[index + 2]) ?? [];
    const [, path] = /^`(\/\S+)`$/.exec(cell) ?? [];
    return member && path ? [[member, path]] : [];
  });

  test(`the paths of ${name} are accepted`, () => {
    assert.ok(paths.length >= 3, 'token, jwks and discovery at least');
    const config = join(folder, 'configuration.yaml');
    const members = `paths: ${JSON.stringify(Object.fromEntries(paths))}\n`;
    writeFileSync(config, block('canaille.md', 'configuration').replace(/^paths:\n(?: .*\n)+/m, members));
    const printed = execFileSync(COMPANION, ['check', '--assume-environment', config], { encoding: 'utf8' });
    assert.match(printed, /: valid/);
  });
}
