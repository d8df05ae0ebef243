// The filter and the guard with Canaille, an identity gateway with paths of its own: everything
// that docs/gateways/canaille.md says.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { createRemoteJWKSet, decodeProtectedHeader, jwtVerify } from 'jose';
import { followTo } from '../stack/browser.js';
import { ACCESS_TOKEN, EXCHANGE, REDIRECT_URI } from '../stack/names.js';
import { COMPANION } from '../stack/envoy.js';
import { freePorts, stopAll } from '../stack/process.js';
import { send } from '../stack/requests.js';
import { startApi } from './api.js';
import { client, idOf, password, startCanaille, startEnvoyBeforeCanaille } from './canaille.js';
import { ask, basic } from '../stack/http.js';

const DOCUMENTS = ['/.well-known/openid-configuration', '/.well-known/oauth-authorization-server'];

// Each person signs in once: Canaille cannot give one person two access tokens in one second.
const USERS = ['agent-1', 'agent-2', 'agent-3', 'user-42', 'user-43', 'user-44', 'user-45'];

let origin;
let config;
let front; // Envoy, and Canaille behind it
let behind;
let agentToken; // from a sign-in, as a person does it

before(async () => {
  const [public_, admin, gateway, apiPort] = await freePorts(4);
  const ports = { public: public_, admin, gateway, api: apiPort };
  const host = `127.0.0.1:${public_}`;
  origin = `http://${host}`;
  front = { port: public_, host };
  behind = { port: gateway, host };
  await startApi(apiPort);
  [config] = await Promise.all([startEnvoyBeforeCanaille(ports), startCanaille(ports, USERS)]);
  agentToken = (await signIn('agent-1')).access_token;
});

after(stopAll);

test('check finds no problem in the file, and proves the guard before every API', () => {
  const printed = execFileSync(COMPANION, ['check', '--strict', '--assume-environment', config], { encoding: 'utf8' });
  assert.match(printed, /: valid; the guard stands before 2 of 2 routes to APIs\n$/);
});

for (const path of DOCUMENTS) {
  test(`${path} is Canaille's, with our grant added to it`, async () => {
    const [ours, own] = await both({ path });
    assert.equal(own.json.issuer, origin);
    // Canaille has all other endpoints, at the paths that the filter is configured with.
    assert.equal(own.json.revocation_endpoint, `${origin}/oauth/revoke`);
    assert.equal(own.json.introspection_endpoint, `${origin}/oauth/introspect`);
    assert.deepEqual(ours.json, { ...own.json, grant_types_supported: [...own.json.grant_types_supported, EXCHANGE] });
  });
}

test('the key set is Canaille\'s, with our key added to it', async () => {
  const [ours, own] = await both({ path: '/oauth/jwks.json' });
  const added = ours.json.keys.filter(({ kid }) => !own.json.keys.some((key) => key.kid === kid));
  assert.deepEqual(ours.json.keys.filter((key) => !added.includes(key)), own.json.keys);
  assert.deepEqual(added.map(({ kty, alg, d }) => [kty, alg, d]), [['RSA', 'RS256', undefined]]);
});

test('Canaille\'s own answers arrive byte for byte', async () => {
  const token = '/oauth/token';
  const backend = basic(client('integrator-backend'));
  for (const [name, request] of Object.entries({
    'a grant that the client may not use': { path: token, headers: backend, form: { grant_type: 'password', username: 'agent-1', password: 'x' } },
    'an unknown grant': { path: token, headers: backend, form: { grant_type: 'nothing' } },
    'a wrong secret': { path: token, headers: basic(['integrator-backend', 'wrong']), form: { grant_type: 'client_credentials' } },
    'an odd form': { path: token, headers: backend, form: 'grant_type=nothing&a=%zz&&b=+' },
    'an unknown refresh token': { path: token, headers: basic(client('support-portal')), form: { grant_type: 'refresh_token', refresh_token: 'x' } },
    'introspection of an unknown token': { path: '/oauth/introspect', headers: basic(client('orders-api')), form: { token: 'x' } },
    'introspection by nobody': { path: '/oauth/introspect', form: { token: 'x' } },
    'revocation of an unknown token': { path: '/oauth/revoke', headers: basic(client('support-portal')), form: { token: 'x' } },
    'userinfo of an unknown token': { path: '/oauth/userinfo', headers: { authorization: 'Bearer x' } },
    'userinfo of the agent': { path: '/oauth/userinfo', headers: { authorization: `Bearer ${agentToken}` } },
    'webfinger': { path: '/.well-known/webfinger?resource=acct:agent-1' },
  })) {
    const [ours, own] = await both(request);
    assert.deepEqual([ours.status, ours.text], [own.status, own.text], name);
    for (const answer of [ours, own]) delete answer.headers.date;
    assert.deepEqual(comparable(ours.headers), comparable(own.headers), name);
  }
});

test('Canaille\'s own grants work: machines, sign-in, refresh', async () => {
  const machine = await machineToken('integrator-backend', 'impersonate');
  assert.equal(machine.status, 200);
  assert.equal(machine.json.access_token.includes('.'), false, 'a machine\'s token is opaque');

  const granted = await signIn('user-42');
  const refreshed = await send({
    url: `${origin}/oauth/token`,
    basic: client('support-portal'),
    form: { grant_type: 'refresh_token', refresh_token: granted.refresh_token },
  });
  assert.equal(refreshed.status, 200, refreshed.text);
  assert.equal((await userinfo(refreshed.json.access_token)).json.sub, 'user-42');

  const { payload } = await jwtVerify(granted.id_token, keys(), { issuer: origin, audience: 'orders-api', algorithms: ['RS256'] });
  assert.equal(payload.sub, 'user-42');
});

test('a machine mints, and an agent\'s token is the actor', async () => {
  const { access_token: token, ...granted } = await impersonate();
  assert.deepEqual(granted, { issued_token_type: ACCESS_TOKEN, token_type: 'Bearer', expires_in: 900, scope: 'orders:read' });
  assert.equal(decodeProtectedHeader(token).alg, 'RS256');
  const { payload } = await jwtVerify(token, keys(), { issuer: origin, audience: `${origin}/orders`, typ: 'at+jwt' });
  assert.deepEqual([payload.sub, payload.act, payload.client_id], ['user-42', { sub: 'agent-1' }, 'support-portal']);
});

test('the subject is Canaille\'s name for the user, however the user was found', async () => {
  const { access_token: token } = await impersonate({ userId: idOf('user-42') });
  assert.equal((await jwtVerify(token, keys())).payload.sub, 'user-42');
  const unknown = await mint({ userId: 'nobody' });
  assert.deepEqual([unknown.status, unknown.json.error], [404, 'user_not_found']);
});

test('only the backend\'s token with its scope may mint', async () => {
  for (const [name, token, status, error] of [
    ['without the scope', (await machineToken('integrator-backend', 'other')).json.access_token, 403, 'insufficient_scope'],
    ['another client', (await machineToken('operations', 'impersonations:read')).json.access_token, 401, 'invalid_token'],
    ['an agent', agentToken, 401, 'invalid_token'],
    ['nobody', 'nobodys', 401, 'invalid_token'],
  ]) {
    const refused = await mint({ token });
    assert.deepEqual([refused.status, refused.json.error], [status, error], `${name}: ${refused.text}`);
  }
});

test('only a person\'s live token with openid may act', async () => {
  const revoked = (await signIn('agent-2')).access_token;
  await revoke(revoked);
  for (const [name, actor] of [
    ['a machine', (await machineToken('integrator-backend', 'impersonate')).json.access_token],
    ['a person without openid', (await signIn('agent-3', 'profile')).access_token],
    ['a revoked token', revoked],
  ]) {
    const refused = await exchange(await subjectToken(), { actor_token: actor });
    assert.deepEqual([refused.status, refused.json.error], [400, 'invalid_request'], `${name}: ${refused.text}`);
  }
  const { access_token: impersonation } = await impersonate();
  const chained = await exchange(await subjectToken(), { actor_token: impersonation });
  assert.equal(chained.json.error, 'invalid_request', 'an impersonation');
});

test('introspection and revocation answer for both kinds of tokens', async () => {
  const own = (await signIn('user-43')).access_token;
  const { access_token: ours } = await impersonate();
  assert.deepEqual(pick(await introspect(own), ['active', 'sub', 'client_id', 'aud']), [true, 'user-43', 'support-portal', ['orders-api']]);
  assert.deepEqual(pick(await introspect(ours), ['active', 'sub', 'act', 'aud']), [true, 'user-42', { sub: 'agent-1' }, `${origin}/orders`]);
  // Canaille itself knows only its own.
  const { json } = await ask({ ...behind, path: '/oauth/introspect', headers: basic(client('orders-api')), form: { token: ours } });
  assert.deepEqual(json, { active: false });

  for (const token of [own, ours]) {
    const revoked = await revoke(token);
    assert.equal(revoked.status, 200);
    assert.deepEqual(await introspect(token), { active: false });
  }
  assert.equal((await userinfo(own)).status, 401);
});

test('an API behind the guard accepts ordinary users\' tokens and impersonations', async () => {
  const ordinary = (await signIn('user-44')).access_token;
  assert.equal(decodeProtectedHeader(ordinary).alg, 'RS256');
  const { access_token: impersonation } = await impersonate();

  assert.deepEqual((await order(ordinary, 'POST')).json, { method: 'POST', sub: 'user-44', aud: ['orders-api'] });
  assert.deepEqual((await order(impersonation)).json, { method: 'GET', sub: 'user-42', act: { sub: 'agent-1' }, aud: `${origin}/orders`, impersonator: 'agent-1' });
  const write = await order(impersonation, 'POST');
  assert.deepEqual([write.status, write.json.error], [403, 'insufficient_scope']);

  const { access_token: invoices } = await impersonate({ resource: `${origin}/invoices`, scope: 'invoices:read' });
  assert.equal((await order(invoices)).status, 403, 'another audience');
  const machine = (await machineToken('integrator-backend', 'impersonate')).json.access_token;
  assert.equal((await order(machine)).status, 401, 'a machine\'s opaque token');
});

test('nobody forges the claims that Envoy passes on', async () => {
  const ordinary = (await signIn('user-45')).access_token;
  const forged = { 'x-jwt-payload': Buffer.from(JSON.stringify({ sub: 'user-42' })).toString('base64url'), 'x-impersonator': 'agent-1' };
  const answer = await ask({ ...front, path: '/orders/1', headers: { authorization: `Bearer ${ordinary}`, ...forged } });
  assert.deepEqual(answer.json, { method: 'GET', sub: 'user-45', aud: ['orders-api'] });
  assert.equal((await ask({ ...front, path: '/orders/1', headers: forged })).status, 401);
});

test('other spellings of Canaille\'s paths do not reach it', async () => {
  for (const path of ['/OAuth/token', '/oauth/token/', '/oauth/token;x', '/oauth;x/token', '/oauth/Introspect', '/oauth/revoke%3bx', '/OAUTH/jwks.json', '/.Well-Known/oauth-authorization-server', '/.well-known/openid-configuration/']) {
    const answer = await ask({ ...front, path, form: { grant_type: EXCHANGE, subject_token: 'sub_x' } });
    assert.equal(answer.status, 404, path);
    assert.equal(answer.text, '', `${path}: Envoy answers, and not Canaille`);
  }
});

test('operators list impersonations and end them, and the next request is refused', async () => {
  const { access_token: token } = await impersonate();
  const txn = (await jwtVerify(token, keys())).payload.txn;
  assert.equal((await order(token)).status, 200);

  const bearer = (await machineToken('operations', 'impersonations:read impersonations:revoke')).json.access_token;
  const list = async () => (await send({ url: `${origin}/api/impersonations?actorId=agent-1&limit=1000`, bearer })).json;
  const { impersonations, complete } = await list();
  assert.equal(complete, true);
  const listed = impersonations.find(({ id }) => id === txn);
  assert.deepEqual(
    [listed.userId, listed.actorId, listed.caller, listed.clientId],
    ['user-42', 'agent-1', 'integrator-backend', 'support-portal'],
  );

  const ended = await send({ url: `${origin}/api/impersonations/revocations`, bearer, json: { actorId: 'agent-1' } });
  assert.equal(ended.status, 201, ended.text);
  const refused = await order(token);
  assert.deepEqual([refused.status, refused.json.error], [401, 'invalid_token']);
  assert.deepEqual((await list()).impersonations, []);
  assert.deepEqual(await introspect(token), { active: false });
  // The agent's own token is the agent's, and goes on.
  assert.equal((await userinfo(agentToken)).status, 200);

  const others = await send({ url: `${origin}/api/impersonations`, bearer: (await machineToken('integrator-backend', 'impersonate')).json.access_token });
  assert.equal(others.status, 401, 'the backend is no operator');
});

/** The authorization code flow, in which a person fills in Canaille's own pages. */
async function signIn(user, scope = 'openid profile orders:read orders:write') {
  const verifier = randomBytes(32).toString('base64url');
  const fields = { login: user, password: password(user), answer: 'accept' };
  const callback = await followTo(REDIRECT_URI, `${origin}/oauth/authorize?${new URLSearchParams({
    client_id: 'support-portal',
    response_type: 'code',
    scope,
    redirect_uri: REDIRECT_URI,
    nonce: randomBytes(8).toString('hex'),
    code_challenge: createHash('sha256').update(verifier).digest('base64url'),
    code_challenge_method: 'S256',
  })}`, fields);
  const granted = await send({
    url: `${origin}/oauth/token`,
    basic: client('support-portal'),
    form: { grant_type: 'authorization_code', code: callback.searchParams.get('code'), redirect_uri: REDIRECT_URI, code_verifier: verifier },
  });
  assert.equal(granted.status, 200, granted.text);
  return granted.json;
}

function machineToken(name, scope) {
  return send({ url: `${origin}/oauth/token`, basic: client(name), form: { grant_type: 'client_credentials', scope } });
}

async function mint({ userId = 'user-42', token } = {}) {
  const bearer = token ?? (await machineToken('integrator-backend', 'impersonate')).json.access_token;
  return send({ url: `${origin}/api/subject-tokens`, bearer, json: { userId, context: { ticketId: 'T-1' } } });
}

async function subjectToken(parameters) {
  const minted = await mint(parameters);
  assert.equal(minted.status, 201, minted.text);
  return minted.json.subjectToken;
}

function exchange(subject, parameters) {
  const form = {
    grant_type: EXCHANGE,
    subject_token: subject,
    subject_token_type: ACCESS_TOKEN,
    resource: `${origin}/orders`,
    scope: 'orders:read',
    actor_token: agentToken,
    actor_token_type: ACCESS_TOKEN,
    ...parameters,
  };
  return send({ url: `${origin}/oauth/token`, basic: client('support-portal'), form });
}

async function impersonate({ userId, ...parameters } = {}) {
  const granted = await exchange(await subjectToken({ userId }), parameters);
  assert.equal(granted.status, 200, granted.text);
  return granted.json;
}

async function introspect(token) {
  return (await send({ url: `${origin}/oauth/introspect`, basic: client('orders-api'), form: { token } })).json;
}

function revoke(token) {
  return send({ url: `${origin}/oauth/revoke`, basic: client('support-portal'), form: { token } });
}

function userinfo(bearer) {
  return send({ url: `${origin}/oauth/userinfo`, bearer });
}

function order(token, method = 'GET') {
  return ask({ ...front, path: '/orders/1', method, headers: { authorization: `Bearer ${token}` } });
}

function keys() {
  return createRemoteJWKSet(new URL(`${origin}/oauth/jwks.json`));
}

async function both(request) {
  return [await ask({ ...front, ...request }), await ask({ ...behind, ...request })];
}

/** Header fields that two connections share: all but the connection's own. */
function comparable({ connection, 'keep-alive': _, ...others }) {
  return others;
}

function pick(object, names) {
  return names.map((name) => object[name]);
}
