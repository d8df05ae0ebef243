// APIs behind jwt_authn and the guard: they accept the tokens of Keycloak's users and
// impersonations.
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { everything, call, signInAs } from './parties.js';
import { USERS } from './stack.js';

let all;
let ordinary;

before(async () => {
  all = await everything();
  ordinary = (await signInAs(all.shop, 'user-42', { scope: 'openid orders:read' })).access_token;
});

test('an ordinary user reads and writes with Keycloak\'s token', async () => {
  for (const method of ['GET', 'POST']) {
    const { status, json } = await call(`${all.origin}/orders/1`, { token: ordinary, method });
    assert.equal(status, 200);
    assert.deepEqual([json.method, json.claims.sub, json.headers['x-impersonator']], [method, USERS['user-42'].id, undefined]);
  }
});

test('an impersonation reads, as the user, and the API is told who acts', async () => {
  const token = await all.impersonate();
  const { status, json } = await call(`${all.origin}/orders/1`, { token });
  assert.equal(status, 200);
  const { claims, headers } = json;
  assert.deepEqual([claims.sub, claims.act.sub, headers['x-impersonator']], [USERS['user-42'].id, USERS['agent-1'].id, USERS['agent-1'].id]);
  assert.equal(headers.authorization, undefined);
});

test('the guard refuses writes of an impersonation', async () => {
  const { status, json } = await call(`${all.origin}/orders/1`, { token: await all.impersonate(), method: 'POST' });
  assert.deepEqual([status, json.error], [403, 'insufficient_scope']);
});

test('no token passes at an API that it is not for', async () => {
  for (const token of [ordinary, await all.impersonate(), all.agent.access_token]) {
    assert.ok([401, 403].includes((await call(`${all.origin}/invoices/1`, { token })).status));
  }
  assert.equal((await call(`${all.origin}/orders/1`, { token: all.agent.access_token })).status, 403);
  assert.equal((await call(`${all.origin}/orders/1`)).status, 401);
});
