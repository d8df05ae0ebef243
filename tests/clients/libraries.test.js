// Client libraries as their users find them: only settings that their documentation asks for. Each
// reads discovery, exchanges, introspects the token, revokes it, and introspects it again.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import * as oauth from 'oauth4webapi';
import * as oidc from 'openid-client';
import { ROOT } from '../../stack/envoy.js';
import { stopAll } from '../../stack/process.js';
import { EXCHANGE, parties, SECRETS } from './client.js';
import { startStack } from './stack.js';

const PORTAL = ['support-portal', SECRETS.supportPortal];
const AUTHLIB = fileURLToPath(new URL('authlib-client.py', import.meta.url));

let shipped; // envoy.yaml as it is
let byForm; // with the one line that lets the portal send its secret in the form

before(async () => {
  const start = async (edit) => {
    const { origin } = await startStack(edit);
    return { origin, ...(await parties(origin)) };
  };
  const line = /# (authentication: client_secret_post)/;
  [shipped, byForm] = await Promise.all([
    start(),
    start((yaml) => {
      assert.match(yaml, line);
      return yaml.replace(line, '$1');
    }),
  ]);
});

after(stopAll);

test('openid-client with its default: the secret in the form', async () => {
  // The gateway accepts this, and so does the filter from a client that is configured for it.
  assert.deepEqual(await playOpenidClient(byForm, undefined), FLOW);
});

test('openid-client with Basic', async () => {
  assert.deepEqual(await playOpenidClient(shipped, oidc.ClientSecretBasic(PORTAL[1])), FLOW);
});

test('a client that sends its secret in the form is told what to do', async () => {
  const refusal = await playOpenidClient(shipped, undefined).then(() => assert.fail('not refused'), (error) => error);
  assert.equal(refusal.status, 401);
  assert.match(refusal.response.headers.get('www-authenticate'), /^Basic /);
  const { error, error_description: description } = await refusal.response.json();
  assert.equal(error, 'invalid_client');
  assert.match(description, /Authorization header \(Basic\).*client_secret_post/);
});

test('oauth4webapi with each way to authenticate', async () => {
  assert.deepEqual(await playOauth4webapi(shipped, oauth.ClientSecretBasic(PORTAL[1])), FLOW);
  assert.deepEqual(await playOauth4webapi(byForm, oauth.ClientSecretPost(PORTAL[1])), FLOW);
  // A public client may not introspect.
  assert.deepEqual(await playOauth4webapi(shipped, oauth.None(), 'support-console'), { ...FLOW, live: undefined, ended: undefined });
});

test('Authlib with its default: Basic', async () => {
  assert.deepEqual(await playAuthlib(shipped, 'default'), FLOW);
  assert.deepEqual(await playAuthlib(byForm, 'client_secret_post'), FLOW);
});

/** The results of the flow, the same for every library. */
const FLOW = { scope: 'orders:read', type: 'bearer', live: true, ended: false };

async function playOpenidClient({ origin, exchange }, authentication) {
  const [id, secret] = PORTAL;
  const config = await oidc.discovery(new URL(`${origin}/oidc`), id, secret, authentication, {
    execute: [oidc.allowInsecureRequests],
  });
  const granted = await oidc.genericGrantRequest(config, EXCHANGE, await exchange());
  const { active: live } = await oidc.tokenIntrospection(config, granted.access_token);
  await oidc.tokenRevocation(config, granted.access_token);
  const { active: ended } = await oidc.tokenIntrospection(config, granted.access_token);
  return { scope: granted.scope, type: granted.token_type, live, ended };
}

async function playOauth4webapi({ origin, exchange }, authentication, clientId = PORTAL[0]) {
  const options = { [oauth.allowInsecureRequests]: true };
  const issuer = new URL(`${origin}/oidc`);
  const server = await oauth.processDiscoveryResponse(issuer, await oauth.discoveryRequest(issuer, options));
  const client = { client_id: clientId };
  const answer = await oauth.genericTokenEndpointRequest(server, client, authentication, EXCHANGE, await exchange(), options);
  const granted = await oauth.processGenericTokenEndpointResponse(server, client, answer);
  const isActive = async () => {
    if (clientId !== PORTAL[0]) return undefined;
    const asked = await oauth.introspectionRequest(server, client, authentication, granted.access_token, options);
    return (await oauth.processIntrospectionResponse(server, client, asked)).active;
  };
  const live = await isActive();
  await oauth.processRevocationResponse(await oauth.revocationRequest(server, client, authentication, granted.access_token, options));
  return { scope: granted.scope, type: granted.token_type, live, ended: await isActive() };
}

async function playAuthlib({ origin, exchange }, method) {
  const parameters = JSON.stringify({ issuer: `${origin}/oidc`, client: PORTAL, method, exchange: await exchange() });
  const { stdout } = await promisify(execFile)(`${ROOT}scripts/authlib`, [AUTHLIB, parameters]);
  return JSON.parse(stdout);
}
