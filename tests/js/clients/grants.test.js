// The gateway's own grants, by a real client library: the same through Envoy as without it.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { decodeJwt, decodeProtectedHeader } from 'jose';
import * as oidc from 'openid-client';
import { startGateway } from '../stack/gateway.js';
import { freePorts, stopAll } from '../stack/process.js';
import { discover, signIn } from '../stack/client.js';
import { startStack } from '../stack/shipped.js';

let stack;
let bare; // a gateway without Envoy

before(async () => {
  stack = await startStack();
  const [port] = await freePorts(1);
  bare = `http://127.0.0.1:${port}`;
  await startGateway({ port, origin: bare });
});

after(stopAll);

test('client_credentials', () => sameAsWithout(async (origin) => {
  const config = await discover(origin, 'integrator-backend');
  const granted = await oidc.clientCredentialsGrant(config, {
    scope: 'impersonate users:read',
    resource: `${origin}/api`,
  });
  return { granted, header: decodeProtectedHeader(granted.access_token), claims: decodeJwt(granted.access_token) };
}));

test('authorization_code with PKCE, its ID token verified, then userinfo and refresh_token', () => (
  sameAsWithout(async (origin) => {
    const config = await discover(origin, 'support-portal');
    oidc.enableNonRepudiationChecks(config);
    const granted = await signIn(config, 'agent-1');
    const refreshed = await oidc.refreshTokenGrant(config, granted.refresh_token);
    return {
      granted,
      identity: granted.claims(),
      userinfo: await oidc.fetchUserInfo(config, granted.access_token, 'agent-1'),
      refreshed,
      again: await oidc.fetchUserInfo(config, refreshed.access_token, 'agent-1'),
    };
  })
));

test('authorization_code of a public client', () => sameAsWithout(async (origin) => {
  const config = await discover(origin, 'support-console', undefined, oidc.None());
  const granted = await signIn(config, 'user-42');
  return { granted, userinfo: await oidc.fetchUserInfo(config, granted.access_token, 'user-42') };
}));

test('introspection', () => sameAsWithout(async (origin) => {
  const machine = await discover(origin, 'integrator-backend');
  const { access_token: token } = await oidc.clientCredentialsGrant(machine, { scope: 'impersonate' });
  const filter = await discover(origin, 'impersonation-filter');
  return oidc.tokenIntrospection(filter, token);
}));

test('refusals are the gateway\'s own', () => sameAsWithout(async (origin) => {
  const form = (parameters, headers = {}) => fetch(`${origin}/oidc/token`, {
    method: 'POST',
    headers,
    body: new URLSearchParams(parameters),
  });
  const answers = await Promise.all([
    form({ grant_type: 'client_credentials', client_id: 'nobody' }),
    form({ grant_type: 'authorization_code', client_id: 'support-console', code: 'spent' }),
    form({ grant_type: 'password', client_id: 'support-console' }),
    form({}),
    fetch(`${origin}/oidc/token`, { method: 'POST', body: '{"grant_type":"client_credentials"}' }),
    fetch(`${origin}/oidc/token`),
  ]);
  return Promise.all(answers.map(async (answer) => ({
    status: answer.status,
    authenticate: answer.headers.get('www-authenticate'),
    cache: answer.headers.get('cache-control'),
    type: answer.headers.get('content-type'),
    body: await answer.text(),
  })));
}));

/**
 * Runs `scenario` at both addresses. The results may differ only in values that are new each time.
 */
async function sameAsWithout(scenario) {
  const [through, without] = [await scenario(stack.origin), await scenario(bare)];
  assert.deepEqual(comparable(through, stack.origin), comparable(without, bare));
}

function comparable(value, origin) {
  const volatile = /^(access_token|refresh_token|id_token|jti|kid|sid|iat|exp|nbf|auth_time|at_hash|expires_in)$/;
  return JSON.parse(JSON.stringify(value, (name, member) => {
    if (volatile.test(name)) return typeof member;
    return typeof member === 'string' ? member.replaceAll(origin, 'ORIGIN') : member;
  }));
}
