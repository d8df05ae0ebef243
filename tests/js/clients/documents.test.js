// Discovery and the key set: the documents that the filter adds to. Clients and caches must be able
// to rely on them as on the gateway's own.
import assert from 'node:assert/strict';
import { get } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import * as oauth from 'oauth4webapi';
import { EXCHANGE } from '../stack/names.js';
import { stopAll } from '../stack/process.js';
import { startStack } from '../stack/shipped.js';

const DISCOVERY = '/oidc/.well-known/openid-configuration';
const KEYS = '/oidc/jwks';

let stack;

before(async () => {
  stack = await startStack();
});

after(stopAll);

test('discovery is the gateway\'s, with our grant and our endpoints added to it', async () => {
  const [ours, own] = await both(DISCOVERY);
  const { origin } = stack;
  // The gateway introspects at the filter's path, and does not revoke.
  assert.equal(own.json.introspection_endpoint, `${origin}/oidc/token/introspection`);
  assert.equal(own.json.revocation_endpoint, undefined);
  assert.deepEqual(ours.json, {
    ...own.json,
    grant_types_supported: [...own.json.grant_types_supported, EXCHANGE],
    dpop_signing_alg_values_supported: [...own.json.dpop_signing_alg_values_supported, 'ES384', 'PS256'],
    revocation_endpoint: `${origin}/oidc/token/revocation`,
    revocation_endpoint_auth_methods_supported: ['client_secret_basic', 'none'],
  });
  const added = ['revocation_endpoint', 'revocation_endpoint_auth_methods_supported'];
  assert.deepEqual(Object.keys(ours.json), [...Object.keys(own.json), ...added]);
});

test('each API has its metadata, as a client that discovers it reads it (RFC 9728)', async () => {
  const { origin } = stack;
  const { scopes_supported: scopes } = (await read(stack.behind, DISCOVERY)).json;
  for (const [api, expected] of [['orders', ['orders:read', 'orders:write']], ['invoices', ['invoices:read']]]) {
    const resource = new URL(`${origin}/${api}`);
    const answer = await oauth.resourceDiscoveryRequest(resource, { [oauth.allowInsecureRequests]: true });
    assert.deepEqual(await oauth.processResourceDiscoveryResponse(resource, answer), {
      resource: resource.href,
      authorization_servers: [`${origin}/oidc`],
      scopes_supported: expected,
      bearer_methods_supported: ['header'],
      dpop_signing_alg_values_supported: ['ES256', 'ES384'],
    });
    for (const scope of expected) assert.ok(scopes.includes(scope), scope);
  }
});

test('the filter signs with the algorithm of the gateway', async () => {
  const [ours, own] = await both(KEYS);
  const algorithms = (keys) => [...new Set(keys.map(({ alg }) => alg))];
  assert.deepEqual(algorithms(own.json.keys), ['ES256']);
  assert.deepEqual(algorithms(ours.json.keys), ['ES256']);
});

test('the key set is the gateway\'s, with our public keys added to it', async () => {
  const [ours, own] = await both(KEYS);
  const added = ours.json.keys.filter(({ kid }) => !own.json.keys.some((key) => key.kid === kid));
  const kept = ours.json.keys.filter((key) => !added.includes(key));
  assert.deepEqual(kept, own.json.keys);
  assert.deepEqual(added.map(({ kty, crv, alg, use }) => ({ kty, crv, alg, use })), [
    { kty: 'EC', crv: 'P-256', alg: 'ES256', use: 'sig' },
  ]);
  assert.equal('d' in added[0], false);
});

for (const path of [DISCOVERY, KEYS]) {
  test(`${path}: the body has the coding that its headers name`, async () => {
    const bodies = [];
    for (const coding of [undefined, 'identity', 'gzip', 'gzip, deflate, br', '*']) {
      const answer = await read(stack.origin, path, coding && { 'accept-encoding': coding });
      assert.equal(answer.status, 200);
      if (answer.headers['content-length']) assert.equal(Number(answer.headers['content-length']), answer.raw.length);
      bodies.push(answer.json); // decoded by its content-encoding
    }
    for (const body of bodies) assert.deepEqual(body, bodies[0]);
  });

  test(`${path}: type, lifetime and cross-origin headers stay the gateway's`, async () => {
    const [ours, own] = await both(path);
    assert.equal(mediaType(ours), mediaType(own));
    for (const name of ['cache-control', 'access-control-allow-origin']) {
      assert.equal(ours.headers[name], own.headers[name], name);
    }
  });

  test(`${path}: a validator of the gateway's document does not match ours`, async () => {
    const own = await read(stack.behind, path);
    assert.notEqual(own.headers.etag, undefined);
    const answer = await read(stack.origin, path, { 'if-none-match': own.headers.etag });
    assert.equal(answer.status, 200);
    assert.deepEqual(answer.json, (await read(stack.origin, path)).json);
  });

  test(`${path}: our validator, if there is one, can be revalidated`, async () => {
    const first = await read(stack.origin, path);
    const { etag } = first.headers;
    if (etag === undefined) return;
    assert.notEqual(etag, (await read(stack.behind, path)).headers.etag);
    const again = await read(stack.origin, path, { 'if-none-match': etag });
    assert.ok([200, 304].includes(again.status));
    if (again.status === 200) assert.deepEqual(again.json, first.json);
    else assert.equal(again.raw.length, 0);
  });

  test(`${path}: HEAD is answered like GET`, async () => {
    const [head, ours] = [await fetch(`${stack.origin}${path}`, { method: 'HEAD' }), await read(stack.origin, path)];
    assert.equal(head.status, 200);
    const { date, ...fields } = ours.headers;
    for (const [name, value] of Object.entries(fields)) assert.equal(head.headers.get(name), value, name);
    const known = await fetch(`${stack.origin}${path}`, { method: 'HEAD', headers: { 'if-none-match': ours.headers.etag } });
    assert.equal(known.status, 304);
  });

  test(`${path}: other methods are answered by the gateway`, async () => {
    const post = async (origin) => (await fetch(`${origin}${path}`, { method: 'POST' })).status;
    assert.equal(await post(stack.origin), await post(stack.behind));
  });
}

test('while the gateway is dead, its last whole key set is served', async () => {
  const all = await read(stack.origin, KEYS);
  await stack.gateway.stop();
  const standIn = await read(stack.origin, KEYS);
  assert.equal(standIn.status, 200);
  assert.deepEqual(standIn.json, all.json);
  assert.equal(standIn.headers['cache-control'], 'max-age=60');

  await stack.restartGateway();
  const again = await read(stack.origin, KEYS);
  assert.equal(again.headers['cache-control'], all.headers['cache-control']);
  assert.equal(again.json.keys.length, all.json.keys.length);
});

/** JSON has no charset parameter: the gateway's means nothing. */
function mediaType({ headers }) {
  return headers['content-type'].split(';', 1)[0];
}

async function both(path) {
  return [await read(stack.origin, path), await read(stack.behind, path)];
}

/** A GET without what fetch adds and decodes by itself. */
async function read(origin, path, headers = {}) {
  const response = await new Promise((resolve, reject) => {
    get(`${origin}${path}`, { headers }, resolve).on('error', reject);
  });
  const raw = await buffer(response);
  const coding = response.headers['content-encoding'] ?? 'identity';
  const text = coding === 'gzip' ? gunzipSync(raw) : raw;
  assert.ok(['gzip', 'identity'].includes(coding), coding);
  const json = text.length > 0 ? JSON.parse(text) : undefined;
  return { status: response.statusCode, headers: response.headers, raw, json };
}
