// The page's configuration as a whole.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { before, test } from 'node:test';
import { COMPANION, ROOT } from '../stack/envoy.js';
import { everything } from './parties.js';

let all;

before(async () => {
  all = await everything();
});

test('`impersonation-filter check` finds nothing but the secrets of the demo', () => {
  for (const { config, env } of [all.main, all.introspection, all.userinfo]) {
    const checked = spawnSync(COMPANION, ['check', config], {
      cwd: ROOT, encoding: 'utf8', env: { ...process.env, ...env },
    });
    assert.equal(checked.status, 0, checked.stdout);
    const lines = checked.stdout.trim().split('\n');
    assert.match(lines.pop(), /: valid, \d warnings?; the guard stands before 2 of 2 routes to APIs$/);
    for (const warning of lines) assert.match(warning, /: warning: .* demo's/);
  }
});
