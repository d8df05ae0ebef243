// Tests the gateway alone, without Envoy: the tests in front of Envoy rely on it.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { text } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { createRemoteJWKSet, decodeProtectedHeader, jwtVerify } from 'jose';
import { followTo } from '../stack/browser.js';
import { startGateway } from '../stack/gateway.js';
import { freePorts } from '../stack/process.js';
import { send } from '../stack/requests.js';
import { serve } from '../stack/server.js';
import { OPAQUE_API, REDIRECT_URI, SIGNED_OUT_URI } from './provider.js';

const secrets = {
  INTEGRATOR_BACKEND_SECRET: randomBytes(16).toString('hex'),
  OPERATIONS_SECRET: randomBytes(16).toString('hex'),
  SUPPORT_PORTAL_SECRET: randomBytes(16).toString('hex'),
  INTROSPECTION_SECRET: randomBytes(16).toString('hex'),
};
let origin;
let gateway;
const received = []; // the logouts

before(async () => {
  const envoy = await serve(async (request, response) => {
    received.push([request.url, new URLSearchParams(await text(request))]);
    response.end();
  });
  const [port] = await freePorts(1);
  origin = `http://127.0.0.1:${port}`;
  gateway = await startGateway({ port, origin, env: { ...secrets, ENVOY_ORIGIN: `http://127.0.0.1:${envoy.port}` } });
});

after(() => gateway.stop());

test('client_credentials with a resource gives a JWT bound to it (RFC 9068)', async () => {
  const granted = await machineToken({ scope: 'impersonate users:read', resource: `${origin}/api` });
  assert.equal(granted.scope, 'impersonate users:read');
  const keys = createRemoteJWKSet(new URL(`${origin}/oidc/jwks`));
  const { payload } = await jwtVerify(granted.access_token, keys, {
    issuer: `${origin}/oidc`,
    audience: `${origin}/api`,
    typ: 'at+jwt',
  });
  assert.equal(payload.client_id, 'integrator-backend');
  assert.equal(decodeProtectedHeader(granted.access_token).alg, 'ES256');
});

test('client_credentials without a resource gives an opaque token, which only the filter may introspect', async () => {
  const { access_token: token } = await machineToken({ scope: 'impersonate' });
  assert.equal(token.split('.').length, 1);
  const answer = await introspect(token, 'impersonation-filter', secrets.INTROSPECTION_SECRET);
  assert.deepEqual(
    [answer.active, answer.scope, answer.client_id],
    [true, 'impersonate', 'integrator-backend'],
  );
  assert.deepEqual(
    await introspect(token, 'support-portal', secrets.SUPPORT_PORTAL_SECRET),
    { active: false },
  );
});

test('an opaque token has an audience if it is asked for', async () => {
  const audience = async (form) => {
    const { access_token: token } = await machineToken({ scope: 'impersonate', ...form });
    assert.equal(token.split('.').length, 1);
    return (await introspect(token, 'impersonation-filter', secrets.INTROSPECTION_SECRET)).aud;
  };
  assert.equal(await audience({}), undefined);
  assert.equal(await audience({ resource: OPAQUE_API }), `${origin}/api`);
});

test('the operator\'s client cannot mint, and the minter cannot end impersonations', async () => {
  const parties = [
    ['operations', secrets.OPERATIONS_SECRET, 'impersonations:read impersonations:revoke', 'impersonate'],
    ['integrator-backend', secrets.INTEGRATOR_BACKEND_SECRET, 'impersonate users:read', 'impersonations:revoke'],
  ];
  for (const [id, secret, own, others] of parties) {
    const form = { grant_type: 'client_credentials', resource: `${origin}/api` };
    assert.equal((await token({ ...form, scope: own }, [id, secret])).scope, own);
    const refused = await send({ url: `${origin}/oidc/token`, basic: [id, secret], form: { ...form, scope: others } });
    assert.deepEqual([refused.status, refused.json.error], [400, 'invalid_scope']);
  }
});

test('a user signs in, gets an opaque token with openid, and the token refreshes', async () => {
  const granted = await signIn('agent-1', { client_id: 'support-portal' });
  assert.equal(granted.access_token.split('.').length, 1);
  assert.equal((await userinfo(granted.access_token)).sub, 'agent-1');

  const refreshed = await token({
    grant_type: 'refresh_token',
    refresh_token: granted.refresh_token,
  }, ['support-portal', secrets.SUPPORT_PORTAL_SECRET]);
  assert.notEqual(refreshed.access_token, granted.access_token);
  assert.equal((await userinfo(refreshed.access_token)).sub, 'agent-1');
});

test('a public client needs PKCE and no secret', async () => {
  const granted = await signIn('user-42', { client_id: 'support-console' });
  assert.equal((await userinfo(granted.access_token)).sub, 'user-42');
});

test('a logout is reported to Envoy before the browser goes on, by the name of the user', async () => {
  const browser = new Map();
  const { access_token: accessToken } = await signIn('agent-1', { client_id: 'support-portal', browser });
  const url = new URL(`${origin}/oidc/session/end`);
  url.search = new URLSearchParams({ client_id: 'support-portal', post_logout_redirect_uri: SIGNED_OUT_URI });
  await followTo(SIGNED_OUT_URI, url, { logout: 'yes' }, browser);

  const [[path, form], ...others] = received;
  assert.deepEqual([path, [...form.keys()], others], ['/oidc/backchannel-logout', ['logout_token'], []]);
  const keys = createRemoteJWKSet(new URL(`${origin}/oidc/jwks`));
  const { payload } = await jwtVerify(form.get('logout_token'), keys, { issuer: `${origin}/oidc`, audience: 'support-portal', typ: 'logout+jwt' });
  assert.deepEqual([payload.sub, payload.sid], ['agent-1', undefined]);
  const response = await fetch(`${origin}/oidc/me`, { headers: { authorization: `Bearer ${accessToken}` } });
  assert.equal(response.status, 401);
});

test('a user who does not exist cannot sign in', async () => {
  const callback = await followTo(REDIRECT_URI, authorizationUrl({
    client_id: 'support-portal', login_hint: 'nobody', ...pkce().request,
  }));
  assert.equal(callback.searchParams.get('error'), 'access_denied');
});

test('the management API requires a machine with users:read', async () => {
  const status = async (id, authorization) => {
    const headers = authorization ? { authorization } : {};
    return (await fetch(`${origin}/api/users/${id}`, { headers })).status;
  };
  const jwt = await machineToken({ scope: 'users:read', resource: `${origin}/api` });
  const opaque = await machineToken({ scope: 'users:read' });
  const otherScope = await machineToken({ scope: 'impersonate', resource: `${origin}/api` });
  const user = await signIn('user-42', { client_id: 'support-portal' });

  assert.equal(await status('user-42', `Bearer ${jwt.access_token}`), 200);
  assert.equal(await status('user-42', `Bearer ${opaque.access_token}`), 200);
  assert.equal(await status('user-44', `Bearer ${jwt.access_token}`), 404);
  assert.equal(await status('%ff', `Bearer ${jwt.access_token}`), 404);
  assert.equal(await status('user-42', `Bearer ${otherScope.access_token}`), 403);
  assert.equal(await status('user-42', `Bearer ${user.access_token}`), 401);
  assert.equal(await status('user-42', undefined), 401);
});

test('the documents depend on ISSUER, not on the Host header, and can be revalidated', async () => {
  const url = `${origin}/oidc/.well-known/openid-configuration`;
  const first = await fetch(url, { headers: { 'x-forwarded-host': 'evil.example' } });
  const document = await first.json();
  assert.equal(first.headers.get('content-encoding'), 'gzip');
  assert.equal(document.issuer, `${origin}/oidc`);
  assert.equal(document.token_endpoint, `${origin}/oidc/token`);
  assert.equal(document.jwks_uri, `${origin}/oidc/jwks`);

  // fetch would add `cache-control: no-cache`, which asks for the document in any case.
  const conditional = { 'if-none-match': first.headers.get('etag'), 'cache-control': 'max-age=0' };
  const again = await fetch(url, { headers: conditional });
  assert.equal(again.status, 304);
  const plain = await fetch(url, { headers: { 'accept-encoding': 'identity' } });
  assert.equal(plain.headers.get('content-encoding'), null);
  assert.deepEqual(await plain.json(), document);
});

test('the key set holds no private member', async () => {
  const { keys } = await (await fetch(`${origin}/oidc/jwks`)).json();
  assert.equal(keys.length, 1);
  assert.equal(keys[0].d, undefined);
});

async function token(form, basic) {
  const { status, text: body, json } = await send({ url: `${origin}/oidc/token`, basic, form });
  assert.equal(status, 200, body);
  return json;
}

function machineToken(form) {
  return token(
    { grant_type: 'client_credentials', ...form },
    ['integrator-backend', secrets.INTEGRATOR_BACKEND_SECRET],
  );
}

async function introspect(subject, id, secret) {
  return (await send({ url: `${origin}/oidc/token/introspection`, basic: [id, secret], form: { token: subject } })).json;
}

async function userinfo(accessToken) {
  const { status, json } = await send({ url: `${origin}/oidc/me`, bearer: accessToken });
  assert.equal(status, 200);
  return json;
}

function pkce() {
  const verifier = randomBytes(32).toString('base64url');
  const challenge = createHash('sha256').update(verifier).digest('base64url');
  return { verifier, request: { code_challenge: challenge, code_challenge_method: 'S256' } };
}

function authorizationUrl(parameters) {
  return `${origin}/oidc/auth?${new URLSearchParams({
    response_type: 'code', scope: 'openid', redirect_uri: REDIRECT_URI, ...parameters,
  })}`;
}

async function signIn(user, { client_id, browser }) {
  const { verifier, request } = pkce();
  const url = authorizationUrl({ client_id, login_hint: user, ...request });
  const callback = await followTo(REDIRECT_URI, url, undefined, browser);
  const form = {
    grant_type: 'authorization_code',
    code: callback.searchParams.get('code'),
    redirect_uri: REDIRECT_URI,
    code_verifier: verifier,
  };
  return client_id === 'support-portal'
    ? token(form, [client_id, secrets.SUPPORT_PORTAL_SECRET])
    : token({ ...form, client_id });
}
