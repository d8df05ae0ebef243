// What must hold in front of an identity gateway, whichever mesh has configured the Envoys.
import assert from 'node:assert/strict';
import { parties, signIn } from '../stack/client.js';
import { poll } from '../stack/envoy.js';
import { basic } from '../stack/http.js';
import { client, EXCHANGE } from '../stack/names.js';
import { API, send, statusOf } from './mesh.js';

const PAGE = 'https://support.example.com';

/** The parameters of an exchange by the public client. */
const CONSOLE = { grant_type: EXCHANGE, client_id: 'support-console' };

/**
 * Plays the flow. `gateway` is the port of the Envoy with the filter, `api` the port of the Envoy
 * that clients of the API use. Returns the access tokens of an impersonation and of an ordinary
 * user, and a function that exchanges another subject token.
 */
export async function begin({ origin, gateway, api }) {
  const { exchange: parameters, portal } = await parties(origin);
  const exchange = async () => send(gateway, '/oidc/token', {
    method: 'POST', form: { ...CONSOLE, ...await parameters() },
  });
  const granted = await exchange();
  assert.equal(granted.status, 200, granted.text);
  const signedIn = await signIn(portal, 'user-43', { resource: `${origin}/orders`, scope: 'openid orders:read' });
  const { json: { access_token: ordinary } } = await send(gateway, '/oidc/token', {
    method: 'POST',
    headers: basic(client('support-portal')),
    form: { grant_type: 'refresh_token', refresh_token: signedIn.refresh_token, resource: `${origin}/orders` },
  });
  const impersonation = granted.json.access_token;
  // jwt_authn fetches the key set again until it gets one, and a guard that has just started asks
  // callers to retry until it has read the revocations.
  for (const token of [ordinary, impersonation]) {
    await poll(async () => ![401, 503].includes((await send(api, '/orders/1', { host: API, token })).status));
  }
  return { impersonation, ordinary, exchange };
}

/** The impersonation's identifier in an access token. */
const txnOf = (token) => JSON.parse(Buffer.from(token.split('.')[1], 'base64url')).txn;

/** The key set has the filter's key beside the gateway's. */
export async function documentsAreMerged({ origin, gateway, ports }) {
  const own = (await send(ports.gateway, '/oidc/jwks')).json.keys.length;
  await poll(async () => (await send(gateway, '/oidc/jwks')).json?.keys.length === own + 1);
  const { json } = await send(gateway, '/oidc/.well-known/openid-configuration');
  assert.ok(json.grant_types_supported.includes(EXCHANGE));
  assert.equal(json.issuer, `${origin}/oidc`);
}

/** The API lets an impersonation read, and an ordinary user write. */
export async function guardHolds({ api }, { impersonation, ordinary }) {
  const orders = (options) => send(api, '/orders/1', { host: API, ...options });
  const read = await orders({ token: impersonation });
  assert.equal(read.status, 200, read.text);
  assert.deepEqual(read.json.impersonation, { id: txnOf(impersonation), actor: 'agent-1' });
  const write = await orders({ token: impersonation, method: 'POST', json: { quantity: 1 } });
  assert.deepEqual([write.status, write.json?.error], [403, 'insufficient_scope'], write.text);
  for (const method of ['GET', 'POST']) {
    const { status, json, text } = await orders({ token: ordinary, method });
    assert.equal(status, 200, text);
    assert.deepEqual([json.method, json.impersonation], [method, {}]);
  }
  const [head, payload, signature] = impersonation.split('.');
  const changed = `${head}.${payload}.${signature.startsWith('A') ? 'B' : 'A'}${signature.slice(1)}`;
  for (const [which, token] of [['no token', undefined], ['a changed signature', changed]]) {
    const { status } = await orders({ token });
    assert.ok([401, 403].includes(status), `${which}: ${status}`);
  }
  // The token counts in the header only.
  const inQuery = await send(api, `/orders/1?access_token=${impersonation}`, { host: API });
  assert.ok([401, 403].includes(inQuery.status), inQuery.text);
}

/** No caller can make the header fields that say who acts. */
export async function headersCannotBeForged({ api }, { ordinary }) {
  const forged = (headers) => send(api, '/orders/1', { host: API, token: ordinary, headers });
  const { status, json } = await forged({ 'x-impersonation-id': 'forged', 'X-Impersonator': 'forged' });
  assert.deepEqual([status, json?.impersonation], [200, {}]);
  const spelled = await forged({ x_impersonator: 'forged' });
  assert.ok(spelled.status === 400 || spelled.status === 200, `${spelled.status}`);
}

/** An operator lists the impersonation and ends it, and the API refuses its next request. */
export async function killEnds({ origin, gateway, api }, { impersonation, exchange }) {
  const another = (await exchange()).json.access_token;
  const { json: { access_token: operator } } = await send(gateway, '/oidc/token', {
    method: 'POST',
    headers: basic(client('operations')),
    form: { grant_type: 'client_credentials', scope: 'impersonations:read impersonations:revoke', resource: `${origin}/api` },
  });
  const list = async () => (await send(gateway, '/api/impersonations?actorId=agent-1', { token: operator })).json.impersonations;
  const listed = (await list()).map(({ id }) => id);
  for (const token of [impersonation, another]) assert.ok(listed.includes(txnOf(token)), `${listed}`);
  const ended = await send(gateway, '/api/impersonations/revocations', { method: 'POST', token: operator, json: { actorId: 'agent-1' } });
  assert.equal(ended.status, 201, ended.text);
  assert.deepEqual(await list(), []);
  for (const token of [impersonation, another]) {
    await poll(async () => (await send(api, '/orders/1', { host: API, token })).status === 401);
    const refused = await send(api, '/orders/1', { host: API, token });
    assert.deepEqual([refused.status, refused.json?.error], [401, 'invalid_token']);
  }
}

/** A subject token is spent once. */
export async function spentOnce({ origin, gateway }) {
  const { exchange } = await parties(origin);
  const form = { ...CONSOLE, ...await exchange() };
  const statuses = [];
  for (let time = 0; time < 2; time += 1) statuses.push((await send(gateway, '/oidc/token', { method: 'POST', form })).status);
  assert.deepEqual(statuses, [200, 400]);
}

/** Other spellings of the filter's paths get a 404, and the gateway's own paths pass. */
export async function lookAlikesAreRefused({ gateway }) {
  const faults = [];
  for (const path of ['/api/subject-tokens', '/api/impersonations', '/api/impersonations/revocations', '/oidc/token', '/oidc/jwks',
    '/oidc/.well-known/openid-configuration', '/oidc/token/revocation', '/oidc/token/introspection']) {
    const [, first, rest] = /^\/([^/]+)(.*)$/.exec(path);
    const itself = await statusOf(gateway, path, '127.0.0.1');
    for (const target of [
      path.toUpperCase(), `/${first};x${rest}`, `/${first}%3bx${rest}`, `/;x${path}`, `/elsewhere/..;${path}`, `/elsewhere/..%3b${path}`,
      `/${first}/.;x${rest}`, `${path};x`, `${path}%3Bx`, `${path}/`, `${path}/?a=b`,
    ]) {
      const status = await statusOf(gateway, target, '127.0.0.1');
      // Envoy itself normalises some of them, and routes them as the path.
      const normalised = /\/\.+;/.test(target) && status === itself;
      if (status !== 404 && !normalised) faults.push(`${target}: ${status}`);
    }
  }
  // Envoy routes by the normalised path: the filter answers these.
  for (const target of ['/api//subject-tokens', '/x/../api/subject-tokens', '/api/subject-%74okens', '/./api/subject-tokens']) {
    const status = await statusOf(gateway, target, '127.0.0.1');
    if (status !== 401) faults.push(`${target}: ${status}`);
  }
  const escaped = await statusOf(gateway, '/api%2Fsubject-tokens', '127.0.0.1');
  if (![307, 400, 401].includes(escaped)) faults.push(`/api%2Fsubject-tokens: ${escaped}`);
  const own = await send(gateway, '/oidc/me');
  assert.deepEqual([faults, own.status], [[], 401]);
}

/** A page may exchange and read. It may not mint. */
export async function pagesMay({ gateway, api }) {
  const preflight = async (port, path, method, options = {}) => {
    const { status, headers } = await send(port, path, {
      ...options,
      method: 'OPTIONS',
      headers: { origin: options.origin ?? PAGE, 'access-control-request-method': method, 'access-control-request-headers': 'authorization' },
    });
    return { status, origin: headers['access-control-allow-origin'] };
  };
  for (const path of ['/oidc/token', '/oidc/token/revocation']) {
    assert.equal((await preflight(gateway, path, 'POST')).origin, PAGE, path);
  }
  for (const path of ['/api/subject-tokens', '/api/impersonations']) {
    assert.equal((await preflight(gateway, path, 'POST')).origin, undefined, path);
  }
  const allowed = await preflight(api, '/orders/1', 'GET', { host: API });
  assert.deepEqual([allowed.status, allowed.origin], [200, PAGE]);
  assert.equal((await preflight(api, '/orders/1', 'GET', { host: API, origin: 'https://other.example' })).origin, undefined);
  // A page can read a refusal.
  const refused = await send(gateway, '/oidc/token', { method: 'POST', headers: { origin: PAGE }, form: { grant_type: EXCHANGE } });
  assert.deepEqual([refused.status >= 400, refused.headers['access-control-allow-origin']], [true, PAGE], refused.text);
}

/** The filter itself answers a body of almost 64 KiB. */
export async function longBodiesArrive({ gateway }) {
  const { status, json, text } = await send(gateway, '/oidc/token', {
    method: 'POST', form: { grant_type: EXCHANGE, client_id: 'support-console', subject_token: `sub_${'x'.repeat(60_000)}` },
  });
  assert.equal(status, 400, text);
  assert.equal(json.error, 'invalid_request');
}
