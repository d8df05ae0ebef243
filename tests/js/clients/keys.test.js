// Keys instead of secrets, with libraries that know nothing of the filter: DPoP at the exchange and
// at the guard, and private_key_jwt at every endpoint.
import assert from 'node:assert/strict';
import { constants, generateKeyPairSync, randomUUID, sign } from 'node:crypto';
import { after, before, test } from 'node:test';
import * as jose from 'jose';
import * as oauth from 'oauth4webapi';
import * as oidc from 'openid-client';
import { replacedOnce } from '../stack/envoy.js';
import { EXCHANGE } from '../stack/names.js';
import { stopAll } from '../stack/process.js';
import { withBinding } from '../stack/binding.js';
import { parties } from '../stack/client.js';
import { FLOW, playAuthlib, playOauth4webapi, playOpenidClient } from './plays.js';
import { startStack } from '../stack/shipped.js';

const INSECURE = { [oauth.allowInsecureRequests]: true };

let origin;
let issuer;
let exchange;
let signer; // the key pair of the client `signer`

/**
 * envoy.yaml, where the support console must bind its tokens, proofs need nonces, and a client has
 * a key.
 */
function withKeys(jwks) {
  const client = [
    '- client_id: signer',
    '  type: traditional_web',
    '  authentication: private_key_jwt',
    `  local_jwks: {inline_string: '${JSON.stringify(jwks)}'}`,
  ];
  return (yaml) => {
    yaml = withBinding(yaml, { nonce: true });
    return replacedOnce(yaml, /( +)(- client_id: support-console)/, (_, indent, rest) => (
      `${client.map((line) => `${indent}${line}\n`).join('')}${indent}${rest}`
    ));
  };
}

before(async () => {
  signer = await oauth.generateKeyPair('ES256', { extractable: true });
  const jwk = { ...await jose.exportJWK(signer.publicKey), kid: 'signer-1', alg: 'ES256', use: 'sig' };
  ({ origin } = await startStack(withKeys({ keys: [jwk] })));
  issuer = `${origin}/oidc`;
  ({ exchange } = await parties(origin));
});

after(stopAll);

test('openid-client with private_key_jwt', async () => {
  const authentication = oidc.PrivateKeyJwt({ key: signer.privateKey, kid: 'signer-1' });
  assert.deepEqual(await playOpenidClient({ issuer, client: ['signer'], exchange }, authentication), FLOW);
});

test('oauth4webapi with private_key_jwt', async () => {
  const authentication = oauth.PrivateKeyJwt({ key: signer.privateKey, kid: 'signer-1' });
  assert.deepEqual(await playOauth4webapi({ issuer, client: ['signer', 'a key'], exchange }, authentication), FLOW);
});

test('Authlib with private_key_jwt', async () => {
  const pem = await jose.exportPKCS8(signer.privateKey);
  assert.deepEqual(await playAuthlib({ issuer, client: ['signer', pem], exchange }, 'private_key_jwt'), FLOW);
});

test('openid-client with DPoP reaches the API with its key, and not without', async () => {
  const config = await oidc.discovery(new URL(issuer), 'support-console', undefined, oidc.None(), {
    execute: [oidc.allowInsecureRequests],
  });
  const DPoP = oidc.getDPoPHandle(config, await oidc.randomDPoPKeyPair('ES256'));
  const granted = await oidc.genericGrantRequest(config, EXCHANGE, await exchange(), { DPoP });
  assert.equal(granted.token_type, 'dpop');
  const orders = new URL(`${origin}/orders`);
  const answer = await oidc.fetchProtectedResource(config, granted.access_token, orders, 'GET', undefined, undefined, { DPoP });
  assert.equal(answer.status, 200, await answer.text());
  for (const scheme of ['Bearer', 'DPoP']) {
    const stolen = await fetch(orders, { headers: { authorization: `${scheme} ${granted.access_token}` } });
    assert.equal(stolen.status, 401, scheme);
  }
  const thief = oidc.getDPoPHandle(config, await oidc.randomDPoPKeyPair('ES256'));
  await assert.rejects(
    oidc.fetchProtectedResource(config, granted.access_token, orders, 'GET', undefined, undefined, { DPoP: thief }),
    (error) => error.status === 401,
  );
});

test('oauth4webapi with DPoP learns the nonce, and reaches the API with its key', async () => {
  const url = new URL(issuer);
  const server = await oauth.processDiscoveryResponse(url, await oauth.discoveryRequest(url, INSECURE));
  assert.ok(server.dpop_signing_alg_values_supported.includes('ES256'));
  assert.ok(server.token_endpoint_auth_methods_supported.includes('private_key_jwt'));
  const client = { client_id: 'support-console' };
  const DPoP = oauth.DPoP(client, await oauth.generateKeyPair('ES256'));
  const parameters = await exchange();
  const ask = async () => oauth.processGenericTokenEndpointResponse(server, client, await oauth.genericTokenEndpointRequest(
    server, client, oauth.None(), EXCHANGE, parameters, { ...INSECURE, DPoP },
  ));
  const refusal = await ask().then(() => assert.fail('no nonce was needed'), (error) => error);
  assert.ok(oauth.isDPoPNonceError(refusal), refusal);
  const granted = await ask();
  assert.equal(granted.token_type, 'dpop');
  const answer = await oauth.protectedResourceRequest(
    granted.access_token, 'GET', new URL(`${origin}/orders`), undefined, undefined, { ...INSECURE, DPoP },
  );
  assert.equal(answer.status, 200, await answer.text());
});

test('a client that must prove a key is told so', async () => {
  const parameters = new URLSearchParams({ ...await exchange(), grant_type: EXCHANGE, client_id: 'support-console' });
  const answer = await fetch(`${issuer}/token`, { method: 'POST', body: parameters });
  assert.equal(answer.status, 400);
  assert.equal((await answer.json()).error, 'invalid_dpop_proof');
});

// The libraries refuse to sign with a small key.
test('an RSA key proves possession only if it is large', async () => {
  const url = `${issuer}/token`;
  const parameters = new URLSearchParams({ ...await exchange(), grant_type: EXCHANGE, client_id: 'support-console' });
  const ask = (proof) => fetch(url, { method: 'POST', body: parameters, headers: { DPoP: proof } });
  const proofsBy = (modulusLength) => {
    const { privateKey: key, publicKey } = generateKeyPairSync('rsa', { modulusLength });
    const part = (members) => Buffer.from(JSON.stringify(members)).toString('base64url');
    const header = part({ typ: 'dpop+jwt', alg: 'PS256', jwk: publicKey.export({ format: 'jwk' }) });
    return (nonce) => {
      const claims = { jti: randomUUID(), htm: 'POST', htu: url, iat: Math.floor(Date.now() / 1000), nonce };
      const signed = `${header}.${part(claims)}`;
      const signature = sign('sha256', Buffer.from(signed), { key, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: 32 });
      return `${signed}.${signature.toString('base64url')}`;
    };
  };
  const [large, small] = [2048, 1024].map(proofsBy);
  const nonce = (await ask(large())).headers.get('dpop-nonce');
  const refused = await ask(small(nonce));
  assert.deepEqual([refused.status, (await refused.json()).error], [400, 'invalid_dpop_proof']);
  const granted = await ask(large(nonce));
  assert.deepEqual([granted.status, (await granted.json()).token_type], [200, 'DPoP']);
});

test('oauth4webapi learns who issues the tokens of an API, and how its proofs are signed', async () => {
  for (const api of ['orders', 'invoices']) {
    const resource = new URL(`${origin}/${api}`);
    const answer = await oauth.resourceDiscoveryRequest(resource, INSECURE);
    const metadata = await oauth.processResourceDiscoveryResponse(resource, answer);
    assert.deepEqual(metadata.authorization_servers, [issuer]);
    assert.deepEqual(metadata.dpop_signing_alg_values_supported, ['ES256', 'ES384'], 'those of the guard');
  }
});
