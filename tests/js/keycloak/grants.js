// Keycloak's own grants pass: each side gets the bytes that the other has sent.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import * as jose from 'jose';
import * as oidc from 'openid-client';
import { ACCESS_TOKEN, EXCHANGE } from '../stack/names.js';
import { everything, post, signInAs } from './parties.js';
import { USERS } from './stack.js';

const TOKEN = '/realms/acme/protocol/openid-connect/token';

let all;
let portal;
let backend;
let shop;
let exchanged; // what the clients sent and got

before(async () => {
  all = await everything();
  [portal, backend, shop] = await Promise.all(['support-portal', 'integrator-backend', 'shop'].map((id) => all.client(id, observedFetch)));
  exchanged = [];
  all.recorder.passed.length = 0;
});

/** The global function, which notes what it sent and got. */
async function observedFetch(url, options) {
  const response = await fetch(url, options);
  const body = Buffer.from(await response.clone().arrayBuffer());
  exchanged?.push({ url: new URL(url), sent: Buffer.from(String(options.body ?? '')), response, body });
  return response;
}

describe('Keycloak\'s own grants', () => {
  test('authorization code with PKCE, its ID token verified, then userinfo and refresh', async () => {
    oidc.enableNonRepudiationChecks(portal);
    const granted = await signInAs(portal, 'agent-1', { scope: 'openid profile' });
    assert.equal(granted.claims().sub, USERS['agent-1'].id);
    await oidc.fetchUserInfo(portal, granted.access_token, USERS['agent-1'].id);
    const refreshed = await oidc.refreshTokenGrant(portal, granted.refresh_token);
    assert.equal(refreshed.claims().sub, USERS['agent-1'].id);
  });

  test('client credentials', async () => {
    const granted = await oidc.clientCredentialsGrant(backend, { scope: 'impersonate' });
    assert.equal(jose.decodeJwt(granted.access_token).azp, 'integrator-backend');
  });

  test('standard token exchange, of its own subject tokens', async () => {
    const { access_token: token } = await signInAs(shop, 'user-42', { scope: 'openid orders:read' });
    const granted = await oidc.genericGrantRequest(shop, EXCHANGE, { subject_token: token, subject_token_type: ACCESS_TOKEN, scope: 'orders:read' });
    const { sub, act, iss } = jose.decodeJwt(granted.access_token);
    assert.deepEqual([sub, act, iss], [USERS['user-42'].id, undefined, all.issuer]);
  });

  test('Keycloak exchanges no subject token of the filter, and no impersonation', async () => {
    const { subject_token: minted } = await all.exchange();
    const impersonation = await all.impersonate();
    for (const token of [minted, impersonation]) {
      for (const at of [all.origin, all.behind]) {
        const form = { grant_type: EXCHANGE, subject_token: token, subject_token_type: ACCESS_TOKEN };
        const { status } = await post(`${at}${TOKEN}`, form, 'shop');
        assert.ok([400, 401].includes(status), `${at}: ${status}`);
      }
    }
  });

  test('refusals are Keycloak\'s', async () => {
    await assert.rejects(oidc.refreshTokenGrant(portal, 'no-such-token'), { error: 'invalid_grant' });
    await assert.rejects(oidc.genericGrantRequest(portal, 'password', { username: 'agent-1', password: 'x' }), { error: 'unauthorized_client' });
  });

  after(() => {
    const seen = exchanged.filter(({ url }) => !url.pathname.includes('.well-known') && !url.pathname.endsWith('/certs'));
    assert.ok(seen.length >= 8, `only ${seen.length} requests were observed`);
    for (const { url, sent, response, body } of seen) {
      const passed = all.recorder.passed.find((each) => each.path === url.pathname && each.sent.equals(sent) && each.body.equals(body));
      assert.ok(passed, `${url.pathname}: Keycloak has sent other bytes than\n${body}\nor got others than\n${sent}`);
      assert.equal(response.status, passed.status);
      for (const name of ['content-type', 'cache-control', 'www-authenticate', 'pragma']) {
        // Envoy joins fields of one name without a space.
        const list = (text) => text?.split(/, */);
        assert.deepEqual(list(response.headers.get(name) ?? undefined), list(passed.headers[name]), name);
      }
    }
  });
});
