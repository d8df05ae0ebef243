// Revocation, introspection, the operators' endpoints, and paths that only look like these.
import assert from 'node:assert/strict';
import { get } from 'node:http';
import { before, describe, test } from 'node:test';
import * as oidc from 'openid-client';
import { call, everything, mint, post, signInAs } from './parties.js';
import { USERS } from './stack.js';

const OIDC = '/realms/acme/protocol/openid-connect';

let all;
let origin;

before(async () => {
  all = await everything();
  ({ origin } = all);
});

describe('introspection and revocation', () => {
  test('the filter answers for its own tokens', async () => {
    const token = await all.impersonate();
    const live = await oidc.tokenIntrospection(all.portal, token);
    assert.deepEqual([live.active, live.sub, live.act.sub], [true, USERS['user-42'].id, USERS['agent-1'].id]);
    await oidc.tokenRevocation(all.portal, token);
    assert.deepEqual(await oidc.tokenIntrospection(all.portal, token), { active: false });
  });

  test('Keycloak answers for its tokens', async () => {
    const agent = await signInAs(all.portal, 'agent-1');
    // Keycloak tells only clients that are in the token's audience.
    const filter = await all.client('impersonation-filter');
    const live = await oidc.tokenIntrospection(filter, agent.access_token);
    assert.deepEqual([live.active, live.username, live.azp], [true, 'agent-1', 'support-portal']);
    assert.deepEqual(await oidc.tokenIntrospection(all.portal, agent.access_token), { active: false });
    assert.equal((await oidc.fetchUserInfo(all.portal, agent.access_token, USERS['agent-1'].id)).preferred_username, 'agent-1');
    await oidc.tokenRevocation(all.portal, agent.refresh_token);
    assert.deepEqual(await oidc.tokenIntrospection(filter, agent.access_token), { active: false });
    await assert.rejects(oidc.refreshTokenGrant(all.portal, agent.refresh_token), { error: 'invalid_grant' });
  });

  test('a client of Keycloak that is none of the filter learns nothing of an impersonation', async () => {
    const token = await all.impersonate();
    const { status, json } = await post(`${origin}${OIDC}/token/introspect`, { token }, 'shop');
    assert.deepEqual([status, json.error], [401, 'invalid_client']);
  });
});

describe('operators', () => {
  test('an operator\'s token from Keycloak lists and ends impersonations', async () => {
    const token = await all.impersonate();
    const reader = await all.machineToken(all.operations, 'impersonations:read');
    const operator = await all.machineToken(all.operations, 'impersonations:read impersonations:revoke');
    const url = `${origin}/api/impersonations`;
    const { status, json } = await call(`${url}?actorId=${USERS['agent-1'].id}`, { token: reader });
    assert.equal(status, 200);
    const { jti } = JSON.parse(Buffer.from(token.split('.')[1], 'base64url'));
    const listed = json.impersonations.find((each) => each.jti === jti);
    assert.deepEqual([listed.userId, listed.caller], [USERS['user-42'].id, 'integrator-backend']);

    assert.equal((await call(`${url}/${listed.id}`, { token: reader, method: 'DELETE' })).status, 403);
    assert.equal((await call(`${origin}/orders/1`, { token })).status, 200);
    assert.equal((await call(`${url}/${listed.id}`, { token: operator, method: 'DELETE' })).status, 204);
    assert.equal((await call(`${origin}/orders/1`, { token })).status, 401);

    // The backend and the agent are no operators.
    for (const other of [all.backendToken, all.agent.access_token]) assert.equal((await call(url, { token: other })).status, 401);
  });

  test('a backend takes back what it minted', async () => {
    const { json } = await mint(origin, all.backendToken, { userId: USERS['user-42'].id });
    assert.match(json.subjectToken, /^sub_/);
    const response = await fetch(`${origin}/api/subject-tokens`, {
      method: 'POST',
      headers: { authorization: `Bearer ${all.backendToken}`, 'content-type': 'application/json' },
      body: JSON.stringify({ userId: USERS['user-42'].id }),
    });
    const { status } = await call(new URL(response.headers.get('location'), origin), { token: all.backendToken, method: 'DELETE' });
    assert.equal(status, 204);
  });
});

describe('look-alikes', () => {
  const status = (at, path) => new Promise((resolve, reject) => {
    const { hostname, port } = new URL(at);
    // A raw request, because fetch would normalise the path itself.
    get({ hostname, port, path }, (response) => {
      response.resume().on('end', () => resolve(response.statusCode));
    }).on('error', reject);
  });

  test('paths that Keycloak reads as one of the filter\'s get a 404', async () => {
    for (const path of [`${OIDC}/certs/`, '/realms/acme/.well-known/openid-configuration/']) {
      assert.equal(await status(all.behind, path), 200, `${path}: Keycloak reads this path otherwise now`);
    }
    for (const path of [
      `${OIDC}/certs/`, `${OIDC}/token/`, `${OIDC}/revoke/`, `${OIDC}/token/introspect/`, '/realms/acme/.well-known/openid-configuration/',
      '/.well-known/oauth-authorization-server/realms/acme/', `${OIDC}/certs;x`, '/realms/acme;x/protocol/openid-connect/certs', '/realms;x/acme/protocol/openid-connect/certs',
      '/realms/ACME/protocol/openid-connect/certs', '/Realms/acme/protocol/openid-connect/token', `${OIDC}/token%3bx`,
      '/api/subject-tokens/', '/API/impersonations', '/api/impersonations;x', '/Orders/1',
    ]) {
      assert.equal(await status(origin, path), 404, path);
    }
  });

  test('the admin API and console are not public', async () => {
    assert.notEqual(await status(all.behind, '/admin/master/console/'), 404);
    for (const path of ['/admin/master/console/', '/admin', '/ADMIN/realms/acme/users']) assert.equal(await status(origin, path), 404, path);
  });
});
