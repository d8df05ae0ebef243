// Checks the cross-origin rules of envoy.yaml by a browser's rules: it sends a preflight before a
// request that no form could send, and it shows an answer to the page only if the answer allows it
// (Fetch standard, 3.2).
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import * as jose from 'jose';
import { parse } from 'yaml';
import { CONFIG, ROOT } from '../stack/envoy.js';
import { EXCHANGE } from '../stack/names.js';
import { freePorts, stopAll } from '../stack/process.js';
import { parties } from '../stack/client.js';
import { startEnvoyOn, startStack } from '../stack/shipped.js';

const PAGE = 'http://localhost:3000'; // as envoy.yaml names it
const ELSEWHERE = 'https://evil.example';
/** Requests that a page may send without a preflight, and header fields that it may read. */
const SAFE = {
  methods: ['GET', 'HEAD', 'POST'],
  types: ['application/x-www-form-urlencoded', 'text/plain', 'multipart/form-data'],
  fields: ['cache-control', 'content-language', 'content-length', 'content-type', 'expires', 'last-modified', 'pragma'],
};

let stack;
let people;
let origin;

before(async () => {
  stack = await startStack();
  ({ origin } = stack);
  people = await parties(origin);
});

after(stopAll);

/** The browser kept the answer from the page, or did not send the request. */
class Blocked extends Error {}

/** `fetch` by a page at `page`. The answer has what the page can see of it. */
async function fetchFrom(page, url, { method = 'GET', headers = {}, body } = {}) {
  const unsafe = Object.entries(headers).filter(([name, value]) => (
    name !== 'content-type' || !SAFE.types.includes(value)
  )).map(([name]) => name).sort();
  const allows = (response) => [page, '*'].includes(response.headers.get('access-control-allow-origin'));
  if (!SAFE.methods.includes(method) || unsafe.length > 0) {
    const asked = await fetch(url, {
      method: 'OPTIONS',
      headers: {
        origin: page,
        'access-control-request-method': method,
        ...(unsafe.length > 0 && { 'access-control-request-headers': unsafe.join(',') }),
      },
    });
    const list = (name) => (asked.headers.get(name) ?? '').toLowerCase().split(',').map((word) => word.trim());
    if (!asked.ok || !allows(asked)) throw new Blocked(`the preflight: ${asked.status}`);
    const allowed = list('access-control-allow-methods');
    if (!SAFE.methods.includes(method) && !allowed.includes(method.toLowerCase())) throw new Blocked(`the method ${method}`);
    const named = list('access-control-allow-headers');
    for (const name of unsafe) if (!named.includes(name)) throw new Blocked(`the header field ${name}`);
  }
  const response = await fetch(url, { method, headers: { ...headers, origin: page }, body });
  const text = await response.text();
  if (!allows(response)) throw new Blocked(`the answer: ${response.status}`);
  const exposed = (response.headers.get('access-control-expose-headers') ?? '').toLowerCase().split(/ *, */);
  const fields = [...response.headers].filter(([name]) => SAFE.fields.includes(name) || exposed.includes(name));
  return { status: response.status, headers: new Headers(fields), text };
}

const form = (parameters) => ({ method: 'POST', body: new URLSearchParams(parameters), headers: { 'content-type': SAFE.types[0] } });
const bearer = (token, more) => ({ ...more, headers: { authorization: `Bearer ${token}`, ...more?.headers } });

async function exchangeForm() {
  return { grant_type: EXCHANGE, client_id: 'support-console', ...(await people.exchange()) };
}

async function begin() {
  const answer = await fetchFrom(PAGE, `${origin}/oidc/token`, form(await exchangeForm()));
  assert.equal(answer.status, 200, answer.text);
  return JSON.parse(answer.text).access_token;
}

test('a support client in the browser exchanges, calls the API, and revokes its own token', async () => {
  const token = await begin();
  const read = () => fetchFrom(PAGE, `${origin}/orders/1`, bearer(token));
  const seen = await read();
  assert.deepEqual([seen.status, JSON.parse(seen.text).claims.sub], [200, 'user-42']);
  const revoked = await fetchFrom(PAGE, `${origin}/oidc/token/revocation`, form({ token, client_id: 'support-console' }));
  assert.equal(revoked.status, 200);
  assert.equal((await read()).status, 401);
});

test('a page binds its token to a key, and calls the API with proofs', async () => {
  const { publicKey, privateKey } = await jose.generateKeyPair('ES256');
  const proof = async (htm, path, more) => new jose.SignJWT({ htm, htu: `${origin}${path}`, jti: randomUUID(), ...more }).setIssuedAt()
    .setProtectedHeader({ typ: 'dpop+jwt', alg: 'ES256', jwk: await jose.exportJWK(publicKey) }).sign(privateKey);
  const exchange = form(await exchangeForm());
  exchange.headers.dpop = await proof('POST', '/oidc/token');
  const { status, text } = await fetchFrom(PAGE, `${origin}/oidc/token`, exchange);
  assert.equal(status, 200, text);
  const { access_token: token, token_type: type } = JSON.parse(text);
  assert.equal(type, 'DPoP');
  const ath = createHash('sha256').update(token).digest('base64url');
  const call = async (headers) => (await fetchFrom(PAGE, `${origin}/orders/1`, { headers })).status;
  assert.equal(await call({ authorization: `DPoP ${token}`, dpop: await proof('GET', '/orders/1', { ath }) }), 200);
  assert.equal(await call({ authorization: `Bearer ${token}` }), 401);
  // If proofs need a nonce, a page can read it.
  const answer = await fetch(`${origin}/oidc/token`, { ...exchange, headers: { origin: PAGE } });
  assert.match(answer.headers.get('access-control-expose-headers'), /(^|[ ,])dpop-nonce([ ,]|$)/);
});

test('a page may use each method of an API, with a body in JSON', async () => {
  const token = await begin();
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
    const body = { method, headers: { 'content-type': 'application/json' }, body: '{}' };
    // The guard's answer: an impersonation may only read.
    const answer = await fetchFrom(PAGE, `${origin}/orders/1`, bearer(token, body));
    assert.deepEqual([answer.status, JSON.parse(answer.text).error], [403, 'insufficient_scope'], method);
  }
  const invoices = await fetchFrom(PAGE, `${origin}/invoices/1`, bearer(token));
  assert.deepEqual([invoices.status, invoices.text], [403, 'Audiences in Jwt are not allowed']);
});

test('the page can read why it is refused and how to go on', async () => {
  const token = await begin();
  const exchange = await exchangeForm();
  const without = (name) => { const { [name]: _, ...rest } = exchange; return rest; };
  for (const [name, path, request, status, error, challenge] of [
    ['no scope', '/oidc/token', form(without('scope')), 400, 'invalid_request'],
    ['no such client', '/oidc/token', form({ ...exchange, client_id: 'nobody' }), 401, 'invalid_client', /^Basic /],
    ['no such client', '/oidc/token/revocation', form({ token, client_id: 'nobody' }), 401, 'invalid_client', /^Basic /],
    ['no token', '/orders/1', {}, 401, undefined, /^Bearer /],
    ['a write', '/orders/1', bearer(token, { method: 'DELETE' }), 403, 'insufficient_scope', /insufficient_scope/],
  ]) {
    const answer = await fetchFrom(PAGE, `${origin}${path}`, request);
    assert.equal(answer.status, status, name);
    if (error) assert.equal(JSON.parse(answer.text).error, error, name);
    if (challenge) assert.match(answer.headers.get('www-authenticate'), challenge, name);
  }
  await fetchFrom(PAGE, `${origin}/oidc/token/revocation`, form({ token, client_id: 'support-console' }));
  const ended = await fetchFrom(PAGE, `${origin}/orders/1`, bearer(token));
  assert.equal(ended.status, 401);
  assert.match(ended.headers.get('www-authenticate'), /^Bearer .*error="invalid_token"/);
});

test('no page can mint, list, end or introspect', async () => {
  const json = { headers: { 'content-type': 'application/json' }, body: '{}' };
  for (const [path, request] of [
    ['/api/subject-tokens', bearer(people.backendToken, { method: 'POST', ...json })],
    ['/api/subject-tokens/00', bearer(people.backendToken, { method: 'DELETE' })],
    ['/api/impersonations', bearer('x')],
    ['/api/impersonations/00', bearer('x', { method: 'DELETE' })],
    ['/api/impersonations/revocations', bearer('x', { method: 'POST', ...json })],
    ['/api/approvals', bearer('x')],
    ['/api/approvals/00', bearer('x', { method: 'POST', ...json })],
    // Requests without a preflight: the page must not see the answer.
    ['/api/impersonations', {}],
    ['/oidc/token/introspection', form({ token: await begin(), client_id: 'support-console' })],
  ]) {
    await assert.rejects(fetchFrom(PAGE, `${origin}${path}`, request), Blocked, path);
  }
});

test('a page of another origin reads no answer, and sends nothing that needs a preflight', async () => {
  const token = await begin();
  for (const [path, request] of [
    ['/oidc/token', form(await exchangeForm())],
    ['/oidc/token/revocation', form({ token: 'x', client_id: 'support-console' })],
    ['/orders/1', {}],
    ['/orders/1', bearer(token)],
    ['/orders/1', bearer(token, { method: 'DELETE' })],
  ]) {
    for (const page of [ELSEWHERE, 'null', 'http://localhost:3001', 'http://localhost:3000.evil.example']) {
      await assert.rejects(fetchFrom(page, `${origin}${path}`, request), Blocked, `${page} ${path}`);
    }
  }
});

test('the shipped policies are on no route but these', () => {
  const { static_resources: { listeners } } = parse(readFileSync(CONFIG, 'utf8'));
  const { virtual_hosts: hosts } = listeners[0].filter_chains[0].filters[0].typed_config.route_config;
  const { routes } = hosts.find(({ name }) => name === 'public');
  const policies = routes.map(({ match, typed_per_filter_config: config }) => [match.path ?? match.path_separated_prefix, config?.['envoy.filters.http.cors']]);
  const named = policies.filter(([, policy]) => policy).map(([path]) => path);
  assert.deepEqual(named, ['/oidc/token', '/oidc/token/revocation', '/orders', '/invoices']);
});

test('while the guard cannot reach etcd, the page can read that it should retry', async () => {
  const token = await begin();
  const [listener, admin] = await freePorts(2);
  // Another Envoy at the same address, whose etcd is missing.
  const yaml = execFileSync(`${ROOT}scripts/envoy-in-cluster`, ['127.0.0.1:1:1'], { encoding: 'utf8' });
  // It fetches the key set from the first Envoy, which has issued the tokens.
  const keysOfTheFirst = [/(cluster_name: public_listener[^]*?port_value: )\d+/, `$1${stack.ports.public}`];
  const { origin: other } = await startEnvoyOn({ ...stack.ports, listener, admin }, (edited) => edited.replace(...keysOfTheFirst), yaml);
  const call = await fetchFrom(PAGE, `${other}/orders/1`, bearer(token));
  assert.deepEqual([call.status, JSON.parse(call.text).error], [503, 'temporarily_unavailable']);
  assert.equal(call.headers.get('retry-after'), '1');
});

// This test is the last, because the gateway does not come back.
test('while the filter cannot verify the actor, the page can read that it should retry', async () => {
  const exchange = form({ ...(await exchangeForm()), actor_token: 'of-nobody-yet' });
  await stack.gateway.stop();
  const answer = await fetchFrom(PAGE, `${origin}/oidc/token`, exchange);
  assert.deepEqual([answer.status, JSON.parse(answer.text).error], [503, 'temporarily_unavailable']);
  assert.equal(answer.headers.get('retry-after'), '1');
});
