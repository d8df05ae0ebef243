// Keycloak's feature `token-exchange-delegation` beside the filter. The version of scripts/keycloak
// has half of the feature: it asks the user, and its exchange does not look at the actor. If a
// newer version fails here, docs/gateways/keycloak.md must say something else.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import * as jose from 'jose';
import * as oidc from 'openid-client';
import { discoverAt, signIn } from '../stack/client.js';
import { poll } from '../stack/envoy.js';
import { ADMIN } from '../stack/keycloak.js';
import { ACCESS_TOKEN, EXCHANGE, REDIRECT_URI } from '../stack/names.js';
import { stopAll } from '../stack/process.js';
import { exchangeAt, mint, post, SECRETS, signInAs } from './parties.js';
import { startEnvoyBefore, startStack, USERS } from './stack.js';

const [AGENT, USER] = [USERS['agent-1'].id, USERS['user-42'].id];
const CLIENT = 'delegating';

let stack;
let portal;
let delegating;

before(async () => {
  // The user may be asked about people with this role only.
  const agent = { ...USERS['agent-1'], clientRoles: { 'realm-management': ['impersonation'] } };
  stack = await startStack({
    variant: 'delegation',
    recorded: false,
    java: ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xms256m'],
    users: { ...USERS, 'agent-1': agent },
    realm: { accessTokenLifespan: 3600 },
  });
  SECRETS[CLIENT] = 'demo-only-delegating';
  await createClient({
    clientId: CLIENT,
    secret: SECRETS[CLIENT],
    redirectUris: [REDIRECT_URI],
    consentRequired: true,
    attributes: { 'standard.token.exchange.enabled': 'true' },
    defaultClientScopes: ['basic'],
    optionalClientScopes: ['delegation', 'orders:read'],
  });
  await startEnvoyBefore(stack);
  portal = await discoverAt(stack.issuer, 'support-portal', SECRETS['support-portal']);
  delegating = await discoverAt(stack.issuer, CLIENT, SECRETS[CLIENT]);
});

after(stopAll);

async function createClient(client) {
  const [username, password] = ADMIN;
  const form = new URLSearchParams({ grant_type: 'password', client_id: 'admin-cli', username, password });
  const granted = await fetch(`${stack.behind}/realms/master/protocol/openid-connect/token`, { method: 'POST', body: form });
  const { access_token: token } = await granted.json();
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const response = await fetch(`${stack.behind}/admin/realms/acme/clients`, { method: 'POST', headers, body: JSON.stringify(client) });
  assert.equal(response.status, 201, await response.text());
}

/**
 * The user signs in and, if Keycloak asks, consents that `actor` may act. Returns the claims, too.
 */
async function delegate(actor) {
  const fields = { username: 'user-42', password: 'demo-only-user-42', credentialId: '', accept: 'Yes' };
  const { access_token: token } = await signIn(delegating, 'user-42', { scope: `openid orders:read delegation:${actor}` }, fields);
  return { token, claims: jose.decodeJwt(token) };
}

/** Keycloak's exchange, at Envoy. */
async function exchange(parameters) {
  const url = `${stack.issuer}/protocol/openid-connect/token`;
  const form = { grant_type: EXCHANGE, subject_token_type: ACCESS_TOKEN, actor_token_type: ACCESS_TOKEN, scope: 'orders:read', ...parameters };
  const { status, json, text } = await post(url, form, CLIENT);
  assert.equal(status, 200, text);
  return jose.decodeJwt(json.access_token);
}

test('the user signs in and consents, and the user\'s own token says who may act', async () => {
  const { claims } = await delegate('agent-1');
  assert.deepEqual([claims.sub, claims.may_act], [USER, { sub: AGENT }]);
  // Nobody is asked about a person who may not impersonate.
  assert.equal((await delegate('user-43')).claims.may_act, undefined);
});

test('the exchange looks at no actor token, and its token names nobody', async () => {
  const { token } = await delegate('agent-1');
  const actors = await Promise.all(['agent-1', 'user-43'].map((name) => signInAs(portal, name)));
  for (const actor_token of [...actors.map((granted) => granted.access_token), 'nobody']) {
    const claims = await exchange({ subject_token: token, actor_token });
    assert.deepEqual([claims.sub, claims.act, claims.may_act], [USER, undefined, undefined]);
  }
});

test('the filter names the actor, and the user need not be there', async () => {
  const backend = await discoverAt(stack.issuer, 'integrator-backend', SECRETS['integrator-backend']);
  const { access_token: backendToken } = await oidc.clientCredentialsGrant(backend, { scope: 'impersonate' });
  let minted;
  await poll(async () => {
    minted = await mint(stack.origin, backendToken, { userId: USER, actorId: AGENT });
    return minted.status !== 503;
  });
  const form = {
    scope: 'orders:read',
    subject_token: minted.json.subjectToken,
    subject_token_type: ACCESS_TOKEN,
    resource: `${stack.origin}/orders`,
    actor_token_type: ACCESS_TOKEN,
  };
  const another = await exchangeAt(stack.origin, { ...form, actor_token: (await signInAs(portal, 'user-43')).access_token });
  assert.equal(another.status, 400, another.text);
  const { json } = await exchangeAt(stack.origin, { ...form, actor_token: (await signInAs(portal, 'agent-1')).access_token });
  const claims = jose.decodeJwt(json.access_token);
  assert.deepEqual([claims.sub, claims.act.sub], [USER, AGENT]);
});
