// A Keycloak that transmits security events (Shared Signals Framework 1.0), and the companion that
// registers the stream. When an agent signs out, or an administrator signs the agent out, the
// agent's impersonations end.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import * as oidc from 'openid-client';
import { discoverAt } from '../stack/client.js';
import { COMPANION, poll } from '../stack/envoy.js';
import { ADMIN } from '../stack/keycloak.js';
import { ACCESS_TOKEN, REDIRECT_URI } from '../stack/names.js';
import { stopAll } from '../stack/process.js';
import { call, exchangeAt, mint, SECRETS, signInAs } from './parties.js';
import { FILES, startEnvoyBefore, startStack, USERS } from './stack.js';

const RECEIVER = 'impersonation-filter-events';
const HEADER = 'Bearer demo-only-push';
const AGENT = USERS['agent-1'].id;
const USER = USERS['user-42'].id;

/**
 * Keycloak sends to a private address, and at once: what it does otherwise is not what is tested.
 */
const TRANSMITTER = [
  '--spi-ssf-transmitter--default--allow-insecure-push-targets=true',
  '--spi-ssf-transmitter--default--min-verification-interval-seconds=1',
  '--spi-ssf-transmitter--default--outbox-drainer-interval=1s',
];

let stack;
let envoy;
let portal;
let backendToken;
let endpoint;

before(async () => {
  stack = await startStack({
    variant: 'ssf',
    recorded: false,
    java: ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xms256m'],
    more: TRANSMITTER,
    realm: { accessTokenLifespan: 3600, attributes: { 'ssf.transmitterEnabled': 'true' } },
  });
  endpoint = `${stack.origin}/api/security-events`;
  await administer('clients', 'POST', {
    clientId: RECEIVER,
    secret: 'demo-only-receiver',
    standardFlowEnabled: false,
    serviceAccountsEnabled: true,
    defaultClientScopes: ['basic', 'service_account'],
    optionalClientScopes: ['ssf.read', 'ssf.manage'],
    attributes: { 'ssf.enabled': 'true', 'ssf.defaultSubjects': 'ALL', 'ssf.validPushUrls': `${stack.origin}/api/*` },
  });
  writeFileSync(`${FILES}/push.header`, `${HEADER}\n`);
  envoy = await startEnvoyBefore(stack);
});

after(stopAll);

/** Asks Keycloak's admin API, behind Envoy. */
async function administer(path, method, body) {
  const [username, password] = ADMIN;
  const form = new URLSearchParams({ grant_type: 'password', client_id: 'admin-cli', username, password });
  const granted = await fetch(`${stack.behind}/realms/master/protocol/openid-connect/token`, { method: 'POST', body: form });
  const { access_token: token } = await granted.json();
  const response = await fetch(`${stack.behind}/admin/realms/acme/${path}`, {
    method,
    headers: { authorization: `Bearer ${token}`, ...(body && { 'content-type': 'application/json' }) },
    body: body && JSON.stringify(body),
  });
  assert.ok(response.ok, `${path}: ${response.status} ${await response.text()}`);
}

/** Runs `impersonation-filter events`. Returns its report and its exit status. */
async function events(...more) {
  const basic = Buffer.from(`${RECEIVER}:demo-only-receiver`).toString('base64');
  const granted = await fetch(`${stack.issuer}/protocol/openid-connect/token`, {
    method: 'POST',
    headers: { authorization: `Basic ${basic}` },
    body: new URLSearchParams({ grant_type: 'client_credentials', scope: 'ssf.read ssf.manage' }),
  });
  const { access_token: token } = await granted.json();
  const args = ['events', ...more, '--issuer', stack.issuer, '--json'];
  return new Promise((resolve, reject) => {
    execFile(COMPANION, args, { env: { TRANSMITTER_TOKEN: token } }, (error, stdout, stderr) => {
      for (const secret of [token, HEADER]) {
        if (`${stdout}${stderr}`.includes(secret)) reject(new Error('the companion prints a secret'));
      }
      const report = stdout.startsWith('{') ? JSON.parse(stdout) : undefined;
      resolve({ code: error?.code ?? 0, report, stderr });
    });
  });
}

function register(...more) {
  return events('register', '--endpoint', endpoint, '--authorization-file', `${FILES}/push.header`, ...more);
}

/**
 * Configures the filter with the stream, as the companion has reported it. Without logout tokens,
 * so that only a security event can end anything.
 */
function receiving({ issuer, audiences, authorization_sha256: digest }) {
  return (configuration) => {
    const { impersonations, actor_tokens: { jwt: [{ remote_jwks: keys }] } } = configuration;
    const sender = { issuer, audiences, authorization_sha256: [digest], remote_jwks: keys };
    const { back_channel_logout: _, ...others } = impersonations;
    return { ...configuration, impersonations: { ...others, security_events: [sender] } };
  };
}

/**
 * Signs the agent in, and begins an impersonation. Keycloak's times are in whole seconds, so a
 * sign-in in the second of an event is not later than the event: the agent then signs in once more.
 */
async function begin() {
  const minted = await mint(stack.origin, backendToken, { userId: USER });
  assert.equal(minted.status, 201, JSON.stringify(minted.json));
  let agent;
  let granted;
  await poll(async () => {
    agent = await signInAs(portal, 'agent-1');
    granted = await exchangeAt(stack.origin, {
      scope: 'orders:read',
      subject_token: minted.json.subjectToken,
      subject_token_type: ACCESS_TOKEN,
      resource: `${stack.origin}/orders`,
      actor_token: agent.access_token,
      actor_token_type: ACCESS_TOKEN,
    });
    return granted.status !== 400;
  });
  assert.equal(granted.status, 200, granted.text);
  const token = granted.json.access_token;
  const reads = async () => (await call(`${stack.origin}/orders/1`, { token })).status;
  assert.equal(await reads(), 200);
  return { agent, reads };
}

test('a verification event of Keycloak proves the stream', async () => {
  const registered = await register('--no-verification');
  assert.equal(registered.code, 0, registered.stderr);
  const { report } = registered;
  assert.deepEqual([report.status, report.audiences.length], ['enabled', 1]);
  assert.deepEqual(report.events_delivered.map((type) => type.split('/').at(-1)), ['session-revoked', 'credential-change']);
  const unready = await register('--metrics', envoy.metrics);
  assert.deepEqual([unready.code, unready.report], [2, undefined]);
  assert.match(unready.stderr, /the filter has no sender at place 0/);

  await envoy.envoy.stop();
  envoy = await startEnvoyBefore(stack, { edit: receiving(report) });
  const verified = await register('--metrics', envoy.metrics);
  assert.equal(verified.code, 0, `${verified.stderr} ${JSON.stringify(verified.report)}`);
  assert.equal(verified.report.stream_id, report.stream_id);
  assert.ok(verified.report.verified_after_milliseconds >= 0);
  const status = await events('status', '--metrics', envoy.metrics);
  assert.equal(status.code, 0, status.stderr);
  assert.ok(status.report.filters[0].events.verification >= 1);
});

test('an agent who signs out, or is signed out, has no impersonation left, and can begin again', async () => {
  portal = await discoverAt(stack.issuer, 'support-portal', SECRETS['support-portal']);
  const backend = await discoverAt(stack.issuer, 'integrator-backend', SECRETS['integrator-backend']);
  backendToken = (await oidc.clientCredentialsGrant(backend, { scope: 'impersonate' })).access_token;
  // Until the filter has Keycloak's keys, it asks minters to retry.
  await poll(async () => (await mint(stack.origin, backendToken, { userId: USER })).status !== 503);

  const other = await begin();
  const { agent, reads } = await begin();
  // Without the address Keycloak 26.7.3 fails to make an event of the sign-out.
  const parameters = new URLSearchParams({ id_token_hint: agent.id_token, post_logout_redirect_uri: REDIRECT_URI });
  const signedOut = await fetch(`${stack.issuer}/protocol/openid-connect/logout?${parameters}`, { redirect: 'manual' });
  assert.equal(signedOut.status, 302, await signedOut.text());
  await poll(async () => await reads() === 401);
  assert.equal(await other.reads(), 200, 'the agent\'s other session goes on');

  const third = await begin();
  await administer(`users/${AGENT}/logout`, 'POST');
  for (const each of [other, third]) await poll(async () => await each.reads() === 401);
  await begin();
});
