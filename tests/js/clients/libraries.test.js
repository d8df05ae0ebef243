// The flow by client libraries, each with its ways to authenticate: see plays.js.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import * as oauth from 'oauth4webapi';
import * as oidc from 'openid-client';
import { client } from '../stack/names.js';
import { stopAll } from '../stack/process.js';
import { parties } from '../stack/client.js';
import { FLOW, playAuthlib, playOauth4webapi, playOpenidClient } from './plays.js';
import { startStack } from '../stack/shipped.js';

const PORTAL = client('support-portal');

let shipped; // envoy.yaml as it is
let byForm; // with the one line that lets the portal send its secret in the form

before(async () => {
  const start = async (edit) => {
    const { origin } = await startStack(edit);
    return { issuer: `${origin}/oidc`, client: PORTAL, exchange: (await parties(origin)).exchange };
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
  const asPublic = { ...shipped, client: ['support-console'] };
  assert.deepEqual(await playOauth4webapi(asPublic, oauth.None()), { ...FLOW, live: undefined, ended: undefined });
});

test('Authlib with its default: Basic', async () => {
  assert.deepEqual(await playAuthlib(shipped, 'default'), FLOW);
  assert.deepEqual(await playAuthlib(byForm, 'client_secret_post'), FLOW);
});
