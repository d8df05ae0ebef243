// APIs that trust the gateway and do not know the filter: their libraries verify an impersonation's
// token as they verify the gateway's own, with the one key set that discovery names.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import express from 'express';
import { auth } from 'express-oauth2-jwt-bearer';
import { decodeProtectedHeader } from 'jose';
import * as oidc from 'openid-client';
import { ROOT } from '../../stack/envoy.js';
import { stopAll } from '../../stack/process.js';
import { EXCHANGE, parties, signIn } from './client.js';
import { startStack } from './stack.js';

const AUTHLIB = fileURLToPath(new URL('authlib-api.py', import.meta.url));

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
  test(`express-oauth2-jwt-bearer, ${strict ? 'strict, by RFC 9068' : 'as it is'}`, async () => {
    const app = express();
    app.use(auth({ issuerBaseURL: `${origin}/oidc`, audience: `${origin}/orders`, strict }));
    app.get('/orders', (request, response) => response.json(request.auth.payload));
    app.use((error, _request, response, _next) => response.status(error.status).set(error.headers).end());
    const server = app.listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      const call = (token) => fetch(`http://127.0.0.1:${server.address().port}/orders`, {
        headers: { authorization: `Bearer ${token}` },
      });
      for (const [name, [token, act]] of Object.entries(tokens)) {
        const response = await call(token);
        assert.equal(response.status, 200, `${name}: ${response.headers.get('www-authenticate')}`);
        const claims = await response.json();
        assert.deepEqual([claims.sub, claims.act], ['user-42', act], name);
      }
      assert.equal((await call(`${tokens.impersonation[0].slice(0, -8)}AAAAAAAA`)).status, 401);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });
}

test('the validator of Authlib', async () => {
  const parameters = JSON.stringify({
    issuer: `${origin}/oidc`, audience: `${origin}/orders`, scope: 'orders:read', tokens: Object.values(tokens).map(([token]) => token),
  });
  const { stdout } = await promisify(execFile)(`${ROOT}scripts/authlib`, [AUTHLIB, parameters]);
  const verified = JSON.parse(stdout);
  assert.deepEqual(verified.map(({ sub, act }) => [sub, act]), Object.values(tokens).map(([, act]) => ['user-42', act]));
});
