// Mint and exchange with Keycloak's tokens.
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import * as jose from 'jose';
import * as oidc from 'openid-client';
import { ACCESS_TOKEN, EXCHANGE } from '../stack/names.js';
import { everything, exchangeAt, mint, signInAs } from './parties.js';
import { USERS } from './stack.js';

const USER = USERS['user-42'].id;
const AGENT = USERS['agent-1'].id;

let all;
let origin;

before(async () => {
  all = await everything();
  ({ origin } = all);
});

describe('the tokens of Keycloak', () => {
  test('a service account has the client in `client_id` and `azp`, and the audience of the filter', () => {
    const claims = jose.decodeJwt(all.backendToken);
    const { aud, azp, client_id: clientId, scope, iss, typ } = claims;
    assert.deepEqual(
      { aud, azp, clientId, scope, iss, typ },
      { aud: 'impersonation-filter', azp: 'integrator-backend', clientId: 'integrator-backend', scope: 'impersonate', iss: all.issuer, typ: 'Bearer' },
    );
    const { alg, typ: type } = jose.decodeProtectedHeader(all.backendToken);
    assert.deepEqual({ alg, type }, { alg: 'RS256', type: 'JWT' });
  });

  test('an agent has no `client_id`, the scope `openid`, and the user\'s id as `sub`', () => {
    const { aud, azp, client_id: clientId, scope, sub } = jose.decodeJwt(all.agent.access_token);
    assert.deepEqual({ aud, azp, clientId, sub }, { aud: 'impersonation-filter', azp: 'support-portal', clientId: undefined, sub: AGENT });
    assert.ok(scope.split(' ').includes('openid'));
  });
});

describe('the flow', () => {
  test('a service account mints, and a client exchanges with the agent\'s access token', async () => {
    const granted = await oidc.genericGrantRequest(all.portal, EXCHANGE, await all.exchange());
    const keys = jose.createRemoteJWKSet(new URL(all.portal.serverMetadata().jwks_uri));
    const { payload, protectedHeader } = await jose.jwtVerify(granted.access_token, keys, {
      issuer: all.issuer, audience: `${origin}/orders`, typ: 'at+jwt',
    });
    assert.equal(protectedHeader.alg, 'RS256');
    const { sid, acr } = jose.decodeJwt(all.agent.access_token);
    assert.deepEqual([payload.sub, payload.client_id, payload.act], [USER, 'support-portal', { sub: AGENT, sid, acr }]);
  });

  for (const [way, path] of [['introspection', 'token/introspect'], ['userinfo', 'userinfo']]) {
    test(`the same if Keycloak is asked by ${way}`, async () => {
      const at = all[way].origin;
      const parameters = await all.exchange({}, at);
      all.recorder.passed.length = 0;
      // Keycloak's answers are remembered for a moment: this agent is new.
      const agent = await signInAs(all.portal, 'agent-1');
      const { status, json } = await exchangeAt(at, { ...parameters, actor_token: agent.access_token });
      assert.equal(status, 200, JSON.stringify(json));
      // Userinfo does not name the session.
      const { sid, acr } = jose.decodeJwt(agent.access_token);
      const named = way === 'userinfo' ? {} : { sid, acr };
      assert.deepEqual(jose.decodeJwt(json.access_token).act, { sub: AGENT, ...named });
      assert.ok(all.recorder.passed.some((each) => each.path.endsWith(path)));
    });
  }

  test('a subject token can be exchanged once', async () => {
    const parameters = await all.exchange();
    assert.equal((await exchangeAt(origin, parameters)).status, 200);
    const { status, json } = await exchangeAt(origin, parameters);
    assert.deepEqual([status, json.error], [400, 'invalid_request']);
  });
});

describe('who may mint', () => {
  test('a user who does not exist gets no subject token, nor does a user name', async () => {
    for (const userId of ['7c5e2f8a-7a61-4d14-9a0e-1d5f0c1effff', 'user-42', '../groups']) {
      const { status, json } = await mint(origin, all.backendToken, { userId });
      assert.deepEqual([status, json.error], [404, 'user_not_found'], userId);
    }
  });

  test('a service account without the scope may not, nor may another client or an agent', async () => {
    const refusals = [
      [await all.machineToken(all.backend), 403, 'insufficient_scope'],
      [await all.machineToken(all.operations, 'impersonations:read'), 401, 'invalid_token'],
      [all.agent.access_token, 401, 'invalid_token'],
      [all.agent.id_token, 401, 'invalid_token'],
      [all.agent.refresh_token, 401, 'invalid_token'],
    ];
    for (const [token, status, error] of refusals) {
      const answer = await mint(origin, token, { userId: USER });
      assert.deepEqual([answer.status, answer.json.error], [status, error], JSON.stringify(jose.decodeJwt(token)));
    }
  });
});

describe('who may act', () => {
  let shopper; // signed in at another client

  before(async () => {
    shopper = await signInAs(all.shop, 'user-43');
  });

  test('ID tokens, refresh tokens, service accounts and tokens for another audience do not show who acts', async () => {
    const refused = {
      'an ID token': all.agent.id_token,
      'a refresh token': all.agent.refresh_token,
      'a service account': all.backendToken,
      'another audience': shopper.access_token,
    };
    for (const [name, token] of Object.entries(refused)) {
      const parameters = { ...(await all.exchange()), actor_token: token };
      const { status, json } = await exchangeAt(origin, parameters);
      assert.deepEqual([status, json.error], [400, 'invalid_request'], name);
    }
  });

  test('userinfo accepts a token for another audience, and introspection does not', async () => {
    for (const [way, expected] of [['introspection', 400], ['userinfo', 200]]) {
      const at = all[way].origin;
      const { status, text } = await exchangeAt(at, { ...(await all.exchange({}, at)), actor_token: shopper.access_token });
      assert.equal(status, expected, `${way}: ${text}`);
    }
  });

  test('a lightweight access token shows who acts by introspection only', async () => {
    const { access_token: token } = await signInAs(await all.client('lightweight'), 'agent-1');
    assert.equal(jose.decodeJwt(token).sub, undefined);
    for (const [way, expected] of [['introspection', 200], ['userinfo', 400], ['main', 400]]) {
      const at = all[way].origin;
      const { status, text } = await exchangeAt(at, { ...(await all.exchange({}, at)), actor_token: token });
      assert.equal(status, expected, `${way}: ${text}`);
    }
  });

  test('a signed-out agent acts no longer, if Keycloak is asked', async () => {
    for (const way of ['introspection', 'userinfo']) {
      const agent = await signInAs(all.portal, 'agent-1');
      await oidc.tokenRevocation(all.portal, agent.refresh_token);
      const at = all[way].origin;
      const { status, json } = await exchangeAt(at, { ...(await all.exchange({}, at)), actor_token: agent.access_token });
      assert.deepEqual([status, json.error], [400, 'invalid_request'], way);
    }
  });

  test('an impersonation neither mints nor acts', async () => {
    const token = await all.impersonate();
    for (const at of [origin, all.introspection.origin, all.userinfo.origin]) {
      assert.equal((await mint(at, token, { userId: USER })).status, 401);
      const answer = await exchangeAt(at, { ...(await all.exchange({}, at)), actor_token: token, actor_token_type: ACCESS_TOKEN });
      assert.deepEqual([answer.status, answer.json.error], [400, 'invalid_request']);
    }
  });
});
