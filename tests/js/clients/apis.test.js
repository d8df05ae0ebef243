// APIs that trust the gateway and do not know the filter: their libraries verify an impersonation's
// token as they verify the gateway's own, with the one key set that discovery names.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { decodeProtectedHeader } from 'jose';
import * as oidc from 'openid-client';
import { EXCHANGE } from '../stack/names.js';
import { stopAll } from '../stack/process.js';
import { parties, signIn } from '../stack/client.js';
import { startStack } from '../stack/shipped.js';
import { verifiedByAuthlib, verifiedByPyjwt, withExpressApi } from './verifiers.js';

let origin;
let tokens; // name → [access token, its claim `act`]

before(async () => {
  ({ origin } = await startStack());
  const { portal, exchange } = await parties(origin);
  const signedIn = await signIn(portal, 'user-42', { resource: `${origin}/orders`, scope: 'openid orders:read' });
  const ordinary = await oidc.refreshTokenGrant(portal, signedIn.refresh_token, { resource: `${origin}/orders` });
  const impersonation = await oidc.genericGrantRequest(portal, EXCHANGE, await exchange());
  tokens = {
    ordinary: [ordinary.access_token, undefined],
    impersonation: [impersonation.access_token, { sub: 'agent-1' }],
  };
  // The tokens are signed with different keys: otherwise this test would show nothing.
  const kids = Object.values(tokens).map(([token]) => decodeProtectedHeader(token).kid);
  assert.notEqual(kids[0], kids[1]);
});

after(stopAll);

for (const strict of [false, true]) {
  test(`express-oauth2-jwt-bearer, ${strict ? 'strict, by RFC 9068' : 'as it is'}`, () => (
    withExpressApi({ issuer: `${origin}/oidc`, audience: `${origin}/orders`, strict }, async (call) => {
      for (const [name, [token, act]] of Object.entries(tokens)) {
        const response = await call(token);
        assert.equal(response.status, 200, `${name}: ${response.headers.get('www-authenticate')}`);
        const claims = await response.json();
        assert.deepEqual([claims.sub, claims.act], ['user-42', act], name);
      }
      assert.equal((await call(`${tokens.impersonation[0].slice(0, -8)}AAAAAAAA`)).status, 401);
    })
  ));
}

for (const [name, verify] of [['the validator of Authlib', verifiedByAuthlib], ['PyJWT', verifiedByPyjwt]]) {
  test(name, async () => {
    const verified = await verify({
      issuer: `${origin}/oidc`,
      audience: `${origin}/orders`,
      scope: 'orders:read',
      algorithms: ['ES256'],
      tokens: Object.values(tokens).map(([token]) => token),
    });
    assert.deepEqual(verified.map(({ sub, act }) => [sub, act]), Object.values(tokens).map(([, act]) => ['user-42', act]));
  });
}
