// An Envoy that has only the snippets of docs/gateway.md and docs/guard.md, and the README's first
// configuration: what the pages call the least is enough.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import * as oidc from 'openid-client';
import { parse, stringify } from 'yaml';
import { COMPANION, ROOT } from '../stack/envoy.js';
import { EXCHANGE, SECRETS } from '../stack/names.js';
import { namedBlocks } from '../stack/readme.js';
import { stopAll } from '../stack/process.js';
import { parties, signIn } from '../stack/client.js';
import { startStack } from '../stack/shipped.js';

let origin;
let file;

/** envoy.yaml without everything that the snippets bring. */
function bare(yaml) {
  const config = parse(yaml);
  const [{ filters: [{ typed_config: manager }] }] = config.static_resources.listeners[0].filter_chains;
  // The listener of browser sessions is another page's.
  config.static_resources.listeners.length = 1;
  const host = manager.route_config.virtual_hosts.find(({ name }) => name === 'public');
  manager.http_filters = manager.http_filters.slice(-1);
  host.routes = host.routes.slice(-1);
  return { config, manager, host };
}

/** Returns the first configuration of the README, for the clients of tests/js/gateway. */
function firstConfiguration() {
  const readme = readFileSync(`${ROOT}README.md`, 'utf8');
  const example = parse(readme.split('<!-- This example is checked by the tests. -->\n```yaml\n')[1].split('```')[0]);
  example.clients[0].client_secret_sha256 = [createHash('sha256').update(SECRETS['support-portal']).digest('hex')];
  return example;
}

function edit(yaml) {
  const [address] = yaml.match(/http:\/\/127\.0\.0\.1:\d+(?=\/oidc)/);
  const { config, manager, host } = bare(yaml);
  const [[filter], routes] = parsed('docs/gateway.md', ['filter', 'routes']);
  const [guard, api] = parsed('docs/guard.md', ['guard', 'api']);
  filter.typed_config.config.configuration.value = firstConfiguration();
  manager.http_filters.unshift(...guard, filter);
  host.routes.unshift(...routes, ...api);
  return stringify(config)
    .replaceAll('https://auth.example.com', address)
    .replaceAll('https://api.example.com', address)
    .replaceAll('/etc/envoy/', 'target/wasm32-wasip1/release/')
    .replaceAll('timeout: 2s', 'timeout: 10s');
}

const parsed = (page, names) => names.map((name) => parse(namedBlocks(page)[name]));

before(async () => {
  ({ origin, config: file } = await startStack(edit));
});

after(stopAll);

test('with the snippets alone an impersonation begins, reads, may not write, and ends', async () => {
  const { portal, exchange } = await parties(origin);
  const { access_token: token } = await oidc.genericGrantRequest(portal, EXCHANGE, await exchange());
  const ask = async (method) => (await fetch(`${origin}/orders/1`, { method, headers: { authorization: `Bearer ${token}` } })).status;
  assert.deepEqual([await ask('GET'), await ask('POST')], [200, 403]);
  await oidc.tokenRevocation(portal, token);
  assert.equal(await ask('GET'), 401);
});

test('an ordinary user reads and writes as before', async () => {
  const { portal } = await parties(origin);
  const signedIn = await signIn(portal, 'user-42', { resource: `${origin}/orders`, scope: 'openid orders:read' });
  const { access_token: token } = await oidc.refreshTokenGrant(portal, signedIn.refresh_token, { resource: `${origin}/orders` });
  for (const method of ['GET', 'POST']) {
    const { status } = await fetch(`${origin}/orders/1`, { method, headers: { authorization: `Bearer ${token}` } });
    assert.notEqual(status, 401, method);
    assert.notEqual(status, 403, method);
  }
});

test('docs/approvals.md has the routes of envoy.yaml', () => {
  const page = readFileSync(`${ROOT}docs/approvals.md`, 'utf8');
  const [, routes] = /```yaml\n(- match: \{path: \/api\/approvals\}\n[^]*?)```/.exec(page);
  assert.ok(readFileSync(`${ROOT}envoy.yaml`, 'utf8').includes(routes.replaceAll(/^(?=.)/gm, ' '.repeat(14))));
});

test('check finds no error in the snippets, and proves the route to the API', () => {
  const checked = execFileSync(COMPANION, ['check', '--assume-environment', file], { encoding: 'utf8', stdio: 'pipe' });
  assert.match(checked, /the guard stands before 1 of 1 route to APIs$/m);
});
