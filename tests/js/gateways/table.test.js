// docs/gateways/README.md has the paths of known gateways, and docs/gateway.md the lines that move
// envoy.yaml to them.
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { ROOT, validate } from '../stack/envoy.js';
import { check, knownGateways, moved } from './moved.js';

const FILES = `${ROOT}target/gateways`;
const gateways = knownGateways();

/** Writes a file, and returns its name. */
function written(name, yaml) {
  mkdirSync(FILES, { recursive: true });
  const file = `${FILES}/moved-${name.replace(/\W+/g, '-')}.yaml`;
  writeFileSync(file, yaml);
  return file;
}

test('the table has the gateways that people ask about', () => {
  const names = Object.keys(gateways);
  for (const name of ['Keycloak', 'Canaille', 'Auth0', 'Okta', 'Microsoft Entra ID', 'ZITADEL', 'Logto', 'Ory', 'authentik']) {
    assert.ok(names.some((listed) => listed.startsWith(name)), name);
  }
});

for (const [name, paths] of Object.entries(gateways)) {
  test(`the lines move envoy.yaml to the paths of ${name}`, () => {
    const yaml = moved(paths);
    const lines = check(written(name, yaml)).trim().split('\n');
    assert.match(lines.pop(), /: valid, \d warnings?; the guard stands before 3 of 3 routes to APIs$/);
    for (const warning of lines) assert.match(warning, /: warning: .* demo's/);
  });
}

test('the lines leave no path of envoy.yaml as it was, and Envoy accepts the file', () => {
  const yaml = moved();
  assert.doesNotMatch(yaml, /\/oidc\b/);
  validate('-c', written('as-printed', yaml));
});
