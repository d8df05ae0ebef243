// The client libraries and verifiers of tests/js/clients, with Keycloak's documents.
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import * as jose from 'jose';
import * as oauth from 'oauth4webapi';
import * as oidc from 'openid-client';
import { client } from '../stack/names.js';
import { FLOW, playAuthlib, playOauth4webapi, playOpenidClient } from '../clients/plays.js';
import { verifiedByAuthlib, verifiedByPyjwt, withExpressApi } from '../clients/verifiers.js';
import { everything, signInAs } from './parties.js';
import { USERS } from './stack.js';

const PORTAL = client('support-portal');

let all;
let party;
let tokens; // name → [access token, its claim `act.sub`]

before(async () => {
  all = await everything();
  party = { issuer: all.issuer, client: PORTAL, exchange: all.exchange };
  tokens = {
    ordinary: [(await signInAs(all.shop, 'user-42', { scope: 'openid orders:read' })).access_token, undefined],
    impersonation: [await all.impersonate(), USERS['agent-1'].id],
  };
  // The tokens are signed with different keys: otherwise these tests would show nothing.
  const kids = Object.values(tokens).map(([token]) => jose.decodeProtectedHeader(token).kid);
  assert.notEqual(kids[0], kids[1]);
});

describe('clients play the flow', () => {
  test('openid-client', async () => {
    assert.deepEqual(await playOpenidClient(party, oidc.ClientSecretBasic(PORTAL[1])), FLOW);
  });

  test('oauth4webapi, as a confidential and as a public client', async () => {
    assert.deepEqual(await playOauth4webapi(party, oauth.ClientSecretBasic(PORTAL[1])), FLOW);
    const asPublic = { ...party, client: ['support-console'] };
    assert.deepEqual(await playOauth4webapi(asPublic, oauth.None()), { ...FLOW, live: undefined, ended: undefined });
  });

  test('Authlib', async () => {
    assert.deepEqual(await playAuthlib(party, 'default'), FLOW);
  });
});

describe('APIs verify the tokens of Keycloak and of an impersonation', () => {
  for (const strict of [false, true]) {
    test(`express-oauth2-jwt-bearer, ${strict ? 'strict, by RFC 9068' : 'as it is'}`, () => (
      withExpressApi({ issuer: all.issuer, audience: `${all.origin}/orders`, strict }, async (callApi) => {
        for (const [name, [token, act]] of Object.entries(tokens)) {
          const response = await callApi(token);
          assert.equal(response.status, 200, `${name}: ${response.headers.get('www-authenticate')}`);
          const claims = await response.json();
          assert.deepEqual([claims.sub, claims.act?.sub], [USERS['user-42'].id, act], name);
        }
      })
    ));
  }

  for (const [name, verify] of [['the validator of Authlib', verifiedByAuthlib], ['PyJWT', verifiedByPyjwt]]) {
    test(name, async () => {
      const verified = await verify({
        issuer: all.issuer,
        audience: `${all.origin}/orders`,
        scope: 'orders:read',
        algorithms: ['RS256'],
        tokens: Object.values(tokens).map(([token]) => token),
      });
      assert.deepEqual(verified.map(({ sub, act }) => [sub, act?.sub]), Object.values(tokens).map(([, act]) => [USERS['user-42'].id, act]));
    });
  }
});
