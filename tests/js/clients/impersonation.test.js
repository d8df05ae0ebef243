// The impersonation flow by a real client library, and the APIs that accept the token: Envoy's own
// jwt_authn decides that, with the issuer's key set.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createRemoteJWKSet, jwtVerify } from 'jose';
import * as oidc from 'openid-client';
import { OPAQUE_API } from '../gateway/provider.js';
import { poll } from '../stack/envoy.js';
import { ACCESS_TOKEN, EXCHANGE, SECRETS } from '../stack/names.js';
import { stopAll } from '../stack/process.js';
import { discover, signIn } from '../stack/client.js';
import { startStack } from '../stack/shipped.js';

let origin;
let envoy;
let ports;
let backend; // the integrator's backend
let portal; // a confidential client
let console_; // a public client
let agentToken; // opaque; both clients must send it

before(async () => {
  ({ origin, envoy, ports } = await startStack());
  backend = await discover(origin, 'integrator-backend');
  portal = await discover(origin, 'support-portal');
  console_ = await discover(origin, 'support-console', undefined, oidc.None());
  ({ access_token: agentToken } = await signIn(portal, 'agent-1'));
  // Until the filter has the gateway's keys, it asks callers to retry (503).
  const token = await machineToken('impersonate users:read');
  await poll(async () => (await mint('user-42', token)).status !== 503);
});

after(stopAll);

test('a confidential client gets a token for the customer that names the agent', async () => {
  const granted = await exchange(portal, await subjectToken('user-42'), { actor_token: agentToken });

  assert.deepEqual(Object.keys(granted).sort(), [
    'access_token', 'expires_in', 'issued_token_type', 'scope', 'token_type',
  ]);
  assert.equal(granted.issued_token_type, ACCESS_TOKEN);
  assert.equal(granted.scope, 'orders:read');
  const { payload } = await verified(granted.access_token, `${origin}/orders`);
  assert.equal(payload.sub, 'user-42');
  assert.equal(payload.client_id, 'support-portal');
  assert.deepEqual(payload.act, { sub: 'agent-1' });
  assert.equal(payload.exp - payload.iat, granted.expires_in);
});

test('a public client gets an access token, too', async () => {
  const granted = await exchange(console_, await subjectToken('user-43'), { actor_token: agentToken });
  const { payload } = await verified(granted.access_token, `${origin}/orders`);
  assert.deepEqual([payload.sub, payload.client_id, payload.act], ['user-43', 'support-console', { sub: 'agent-1' }]);
});

test('no client gets an access token without an actor, not even for a token that another was refused', async () => {
  const token = await subjectToken('user-42');
  for (const client of [portal, console_]) await refused(exchange(client, token), 400, 'invalid_request');
  await exchange(console_, token, { actor_token: agentToken });
});

test('a subject token can be exchanged once', async () => {
  const token = await subjectToken('user-42');
  await exchange(console_, token, { actor_token: agentToken });
  await refused(exchange(console_, token, { actor_token: agentToken }), 400, 'invalid_request');
});

test('a refused exchange leaves the subject token unspent', async () => {
  const token = await subjectToken('user-42');
  await refused(exchange(portal, token, { actor_token: 'not-a-token' }), 400, 'invalid_request');
  await refused(exchange(portal, token, { actor_token: agentToken, scope: 'admin' }), 400, 'invalid_scope');
  await refused(
    exchange(portal, token, { actor_token: agentToken, resource: `${origin}/unknown` }), 400, 'invalid_target',
  );
  await exchange(portal, token, { actor_token: agentToken });
});

test('a confidential client must authenticate', async () => {
  const impostor = await discover(origin, 'support-portal', 'a-guess');
  await refused(
    exchange(impostor, await subjectToken('user-42'), { actor_token: agentToken }), 401, 'invalid_client',
  );
});

test('the machine\'s token may be opaque: then the filter introspects it', async () => {
  const opaque = async (parameters) => {
    const granted = await oidc.clientCredentialsGrant(backend, { scope: 'impersonate users:read', ...parameters });
    assert.equal(granted.access_token.split('.').length, 1);
    return granted.access_token;
  };
  assert.equal((await mint('user-42', await opaque({ resource: OPAQUE_API }))).status, 201);
  // A token without an audience is refused.
  assert.deepEqual(await answer(mint('user-42', await opaque({}))), [401, 'invalid_token']);
});

test('only a machine with the scope gets a subject token', async () => {
  const wrongScope = await machineToken('users:read');
  assert.deepEqual(await answer(mint('user-42', wrongScope)), [403, 'insufficient_scope']);
  assert.deepEqual(await answer(mint('user-42', agentToken)), [401, 'invalid_token']);
  assert.deepEqual(await answer(mint('user-42', 'not-a-token')), [401, 'invalid_token']);
  const granted = await exchange(console_, await subjectToken('user-42'), { actor_token: agentToken });
  assert.deepEqual(await answer(mint('user-43', granted.access_token)), [401, 'invalid_token']);
});

test('a user who does not exist gets no subject token', async () => {
  const token = await machineToken('impersonate users:read');
  assert.deepEqual(await answer(mint('user-44', token)), [404, 'user_not_found']);
  assert.deepEqual(await answer(mint('../orders/1', token)), [404, 'user_not_found']);
  const mayNotLook = await machineToken('impersonate');
  assert.deepEqual(await answer(mint('user-42', mayNotLook)), [403, 'insufficient_scope']);
});

test('the API accepts a token that is bound to it, on behalf of the customer', async () => {
  const { access_token: token } = await exchange(portal, await subjectToken('user-42'), { actor_token: agentToken });
  const response = await call('/orders/7', token);
  assert.equal(response.status, 200);
  const { path, claims } = await response.json();
  assert.deepEqual([path, claims.sub, claims.act], ['/orders/7', 'user-42', { sub: 'agent-1' }]);
});

test('the API accepts no other token, and no other API accepts this one', async () => {
  const forOrders = (await exchange(console_, await subjectToken('user-42'), { actor_token: agentToken })).access_token;
  const forInvoices = (await exchange(console_, await subjectToken('user-42'), {
    actor_token: agentToken, resource: `${origin}/invoices`, scope: 'invoices:read',
  })).access_token;
  const [header, payload, signature] = forOrders.split('.');
  const claims = { ...JSON.parse(Buffer.from(payload, 'base64url')), sub: 'user-43' };
  const forged = [header, Buffer.from(JSON.stringify(claims)).toString('base64url'), signature].join('.');

  const status = async (path, token) => (await call(path, token)).status;
  assert.equal(await status('/invoices/1', forInvoices), 200);
  assert.equal(await status('/invoices/1', forOrders), 403);
  assert.equal(await status('/orders/1', forInvoices), 403);
  assert.equal(await status('/orders/1', await machineToken('impersonate')), 403);
  assert.equal(await status('/orders/1', forged), 401);
  assert.equal(await status('/orders/1', agentToken), 401);
  assert.equal(await status('/orders/1'), 401);
});

test('the API accepts the customer\'s own token from the gateway: the key set has both keys', async () => {
  const own = await signIn(portal, 'user-42', { resource: `${origin}/orders`, scope: 'openid orders:read' });
  const token = await oidc.refreshTokenGrant(portal, own.refresh_token, { resource: `${origin}/orders` });
  const response = await call('/orders/1', token.access_token);
  assert.equal(response.status, 200);
  assert.equal((await response.json()).claims.sub, 'user-42');
});

test('the agent can read but not write, and the API learns who acts from the guard alone', async () => {
  const { access_token: token } = await exchange(portal, await subjectToken('user-42'), { actor_token: agentToken });
  const forged = { 'x-impersonator': 'nobody', 'x-impersonation-id': 'none' };
  // Servers that read header fields as variables take these for others.
  for (const name of ['x.impersonator', 'x!impersonation!id', 'x.jwt.payload', 'x!jwt!payload']) forged[name] = 'none';
  const ask = (method, bearer) => fetch(`${origin}/orders/7`, {
    method, headers: { ...forged, authorization: `Bearer ${bearer}` },
  });
  const read = await ask('GET', token);
  assert.equal(read.status, 200);
  const { payload } = await verified(token, `${origin}/orders`);
  const seen = await read.json();
  assert.deepEqual([seen.impersonation, seen.oddNames], [{ id: payload.txn, actor: 'agent-1' }, []]);

  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
    assert.deepEqual(await answer(ask(method, token)), [403, 'insufficient_scope'], method);
  }
  const refusal = await logged((entry) => entry.impersonation?.event === 'impersonated_request.refused');
  assert.deepEqual([refusal.guard, refusal.token.act], ['refused: default', 'agent-1']);

  // The guard does not change the customer's own requests.
  const own = await signIn(portal, 'user-42', { resource: `${origin}/orders`, scope: 'openid orders:read' });
  const ordinary = await oidc.refreshTokenGrant(portal, own.refresh_token, { resource: `${origin}/orders` });
  const write = await ask('POST', ordinary.access_token);
  assert.equal(write.status, 200);
  const unchanged = await write.json();
  assert.deepEqual([unchanged.impersonation, unchanged.oddNames], [{}, []]);
});

test('an ordinary user\'s token that is bound to a key reaches the API only with a proof of the key', async () => {
  const own = await signIn(portal, 'user-42', { resource: `${origin}/orders`, scope: 'openid orders:read' });
  const DPoP = oidc.getDPoPHandle(portal, await oidc.randomDPoPKeyPair('ES256'));
  const bound = await oidc.refreshTokenGrant(portal, own.refresh_token, { resource: `${origin}/orders` }, { DPoP });
  assert.equal(bound.token_type, 'dpop');
  const orders = new URL(`${origin}/orders/7`);
  const write = await oidc.fetchProtectedResource(portal, bound.access_token, orders, 'POST', undefined, undefined, { DPoP });
  assert.equal(write.status, 200);
  for (const scheme of ['Bearer', 'DPoP']) {
    const answer = await fetch(orders, { headers: { authorization: `${scheme} ${bound.access_token}` } });
    assert.equal(answer.status, 401, scheme);
  }
});

test('a response of an API may take any time as long as it moves', async () => {
  const dump = await (await fetch(`http://127.0.0.1:${ports.admin}/config_dump?resource=static_route_configs`)).json();
  const routes = dump.configs.flatMap(({ route_config: { virtual_hosts: hosts } }) => hosts.flatMap((host) => host.routes));
  const toApis = routes.filter(({ route }) => route?.cluster === 'apis').map(({ route }) => route);
  // Without a timeout of its own a route has one of 15 s.
  assert.deepEqual(toApis.map(({ timeout }) => timeout), ['0s', '0s']);
  assert.deepEqual(toApis.map(({ max_stream_duration: most }) => most.max_stream_duration), ['3600s', '3600s']);
});

test('the access log says who acted as whom, and holds no token', async () => {
  const token = await subjectToken('user-42');
  const granted = await exchange(portal, token, { actor_token: agentToken });
  const { payload } = await verified(granted.access_token, `${origin}/orders`);
  await call('/orders/1', granted.access_token);

  const exchanged = await logged(({ impersonation }) => impersonation?.jti === payload.jti);
  const { subject_token_id: id, ...facts } = exchanged.impersonation;
  assert.deepEqual(facts, {
    event: 'token_exchange.succeeded',
    user_id: 'user-42',
    actor_id: 'agent-1',
    client_id: 'support-portal',
    caller: 'integrator-backend',
    resource: `${origin}/orders`,
    scope: 'orders:read',
    jti: payload.jti,
  });
  const minted = await logged(({ impersonation }) => (
    impersonation?.event === 'subject_token.created' && impersonation.subject_token_id === id
  ));
  assert.equal(minted.impersonation.user_id, 'user-42');
  const used = await logged((entry) => entry.token?.jti === payload.jti);
  assert.deepEqual(used.token, { txn: id, sub: 'user-42', act: 'agent-1', jti: payload.jti });
  assert.equal(used.guard, 'allowed: default');

  const log = envoy.tail(Infinity);
  for (const secret of [token, agentToken, granted.access_token, SECRETS['support-portal']]) {
    assert.equal(log.includes(secret), false);
  }
});

/** Returns the first entry of the access log, past or to come, that `matches`. */
async function logged(matches) {
  const test = (line) => line.startsWith('{') && matches(JSON.parse(line));
  return JSON.parse(await envoy.printed({ test }));
}

function machineToken(scope) {
  return oidc.clientCredentialsGrant(backend, { scope, resource: `${origin}/api` }).then((it) => it.access_token);
}

function mint(userId, token) {
  return fetch(`${origin}/api/subject-tokens`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify({ userId, context: { ticketId: 'T-1001' } }),
  });
}

async function subjectToken(userId) {
  const response = await mint(userId, await machineToken('impersonate users:read'));
  assert.equal(response.status, 201, await response.clone().text());
  return (await response.json()).subjectToken;
}

function exchange(config, token, { actor_token: actor, ...parameters } = {}) {
  return oidc.genericGrantRequest(config, EXCHANGE, {
    client_id: config.clientMetadata().client_id,
    scope: 'orders:read',
    subject_token: token,
    subject_token_type: ACCESS_TOKEN,
    resource: `${origin}/orders`,
    ...(actor && { actor_token: actor, actor_token_type: ACCESS_TOKEN }),
    ...parameters,
  });
}

async function verified(token, audience) {
  const { jwks_uri: keys, issuer } = portal.serverMetadata();
  return jwtVerify(token, createRemoteJWKSet(new URL(keys)), { issuer, audience, typ: 'at+jwt' });
}

function call(path, token) {
  return fetch(`${origin}${path}`, { headers: token ? { authorization: `Bearer ${token}` } : {} });
}

async function answer(pending) {
  const response = await pending;
  return [response.status, (await response.json()).error];
}

/**
 * openid-client reads the error from the body, except if there is a challenge: then it leaves the
 * body.
 */
async function refused(promise, status, error) {
  const thrown = await promise.then(() => assert.fail('not refused'), (reason) => reason);
  assert.equal(thrown.status, status, thrown.message);
  assert.equal(thrown.error ?? (await thrown.response.json()).error, error);
}
