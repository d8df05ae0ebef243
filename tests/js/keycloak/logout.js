// A session ends in Keycloak, and so do the impersonations that began in it. An API may require
// that the agent has signed in for this session.
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import * as jose from 'jose';
import * as oidc from 'openid-client';
import { followTo } from '../stack/browser.js';
import { ADMIN } from '../stack/keycloak.js';
import { REDIRECT_URI } from '../stack/names.js';
import { call, everything, exchangeAt, signInAs } from './parties.js';
import { USERS } from './stack.js';

// Other tests use the session of `agent-1`.
const AGENT = 'user-43';

let all;
let origin;
let admin; // may do everything in Keycloak

before(async () => {
  all = await everything();
  ({ origin } = all);
  const [username, password] = ADMIN;
  // A token of the administrator is good for a minute.
  const signIn = async () => (await fetch(`${all.behind}/realms/master/protocol/openid-connect/token`, {
    method: 'POST',
    body: new URLSearchParams({ grant_type: 'password', client_id: 'admin-cli', username, password }),
  })).json();
  admin = async (method, path, body) => {
    const { access_token: token } = await signIn();
    const headers = { authorization: `Bearer ${token}`, ...(body && { 'content-type': 'application/json' }) };
    const response = await fetch(`${all.behind}/admin/realms/acme${path}`, { method, headers, body: body && JSON.stringify(body) });
    assert.equal(response.status, 204, await response.text());
  };
});

/** Signs in, and begins an impersonation. Returns its access token, and what the agent has. */
async function begin(cookies) {
  const agent = await signInAs(all.portal, AGENT, {}, cookies);
  const { status, json, text } = await exchangeAt(origin, { ...(await all.exchange()), actor_token: agent.access_token });
  assert.equal(status, 200, text);
  return { agent, token: json.access_token, sid: jose.decodeJwt(agent.access_token).sid };
}

const use = async (token) => (await call(`${origin}/orders/1`, { token })).status;

describe('impersonations end by themselves', () => {
  test('an access token of an agent names the session, and so does the impersonation', async () => {
    const { token, sid } = await begin();
    assert.match(sid, /^.{16,}$/);
    assert.deepEqual(jose.decodeJwt(token).act, { sub: USERS[AGENT].id, sid, acr: '1' });
  });

  test('the agent signs out at another client: what began in this session ends, and nothing else', async () => {
    const cookies = new Map();
    const [first, second] = [await begin(cookies), await begin()];
    assert.deepEqual([await use(first.token), await use(second.token)], [200, 200]);

    const { id_token: idToken } = await signInAs(all.shop, AGENT, {}, cookies);
    const url = oidc.buildEndSessionUrl(all.shop, { id_token_hint: idToken, post_logout_redirect_uri: REDIRECT_URI });
    await followTo(REDIRECT_URI, url, {}, cookies);
    assert.deepEqual([await use(first.token), await use(second.token)], [401, 200]);

    // The agent's own token is still within its lifetime.
    const again = await exchangeAt(origin, { ...(await all.exchange()), actor_token: first.agent.access_token });
    assert.deepEqual([again.status, again.json.error], [400, 'invalid_request']);
    assert.equal(await use((await begin(cookies)).token), 200);
  });

  test('an administrator ends one session of the agent, then all of them', async () => {
    const [first, second, third] = [await begin(), await begin(), await begin()];
    await admin('DELETE', `/sessions/${first.sid}`);
    assert.deepEqual([await use(first.token), await use(second.token), await use(third.token)], [401, 200, 200]);
    await admin('POST', `/users/${USERS[AGENT].id}/logout`);
    assert.deepEqual([await use(second.token), await use(third.token)], [401, 401]);
  });

  test('Keycloak does not report that an account is disabled or has another password', async () => {
    const user = `/users/${USERS[AGENT].id}`;
    const { token } = await begin();
    await admin('PUT', user, { ...USERS[AGENT], credentials: undefined, enabled: false });
    assert.equal(await use(token), 200);
    await admin('PUT', user, { ...USERS[AGENT], credentials: undefined });
    await admin('PUT', `${user}/reset-password`, USERS[AGENT].credentials[0]);
    assert.equal(await use(token), 200);
  });
});

describe('step-up', () => {
  test('a token says when and how the agent has signed in', async () => {
    const before = Math.floor(Date.now() / 1000);
    const { acr, auth_time: time } = jose.decodeJwt((await signInAs(all.portal, AGENT)).access_token);
    assert.equal(acr, '1');
    assert.ok(time >= before - 1, `${time} ${before}`);
  });

  test('an agent who came by a cookie gets no token for invoices, and gets one after a sign-in', async () => {
    const cookies = new Map();
    await signInAs(all.portal, AGENT, {}, cookies);
    const { access_token: byCookie } = await signInAs(all.portal, AGENT, {}, cookies);
    assert.equal(jose.decodeJwt(byCookie).acr, '0');
    const invoices = { ...(await all.exchange()), resource: `${origin}/invoices`, scope: 'invoices:read' };
    const refused = await exchangeAt(origin, { ...invoices, actor_token: byCookie });
    assert.deepEqual([refused.status, refused.json.error], [400, 'unmet_authentication_requirements']);

    const { access_token: signedIn } = await signInAs(all.portal, AGENT, { prompt: 'login' }, cookies);
    const granted = await exchangeAt(origin, { ...invoices, actor_token: signedIn });
    assert.equal(granted.status, 200, granted.text);
  });
});
