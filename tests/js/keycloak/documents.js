// The key set and both discovery documents: Keycloak's, with the filter's members added.
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { EXCHANGE } from '../stack/names.js';
import { call, everything } from './parties.js';

const OIDC = '/realms/acme/protocol/openid-connect';

let all;

before(async () => {
  all = await everything();
});

async function both(path) {
  const answers = await Promise.all([all.origin, all.behind].map((origin) => call(`${origin}${path}`)));
  for (const { status } of answers) assert.equal(status, 200);
  return answers.map(({ json }) => json);
}

test('the key set is Keycloak\'s, with the filter\'s public key added to it', async () => {
  const [ours, own] = await both(`${OIDC}/certs`);
  const kept = ours.keys.filter(({ kid }) => own.keys.some((key) => key.kid === kid));
  assert.deepEqual(kept, own.keys);
  const added = ours.keys.filter((key) => !kept.includes(key));
  assert.deepEqual(added.map(({ kty, alg, use, d }) => ({ kty, alg, use, d })), [{ kty: 'RSA', alg: 'RS256', use: 'sig', d: undefined }]);
});

for (const path of ['/realms/acme/.well-known/openid-configuration', '/.well-known/oauth-authorization-server/realms/acme']) {
  test(`${path}: Keycloak's, which names the grant already, with the filter's public clients`, async () => {
    const [ours, own] = await both(path);
    assert.ok(own.grant_types_supported.includes(EXCHANGE));
    const withPublic = (name) => ({ [name]: [...own[name], 'none'] });
    assert.deepEqual(ours, {
      ...own,
      ...withPublic('token_endpoint_auth_methods_supported'),
      ...withPublic('revocation_endpoint_auth_methods_supported'),
    });
    assert.equal(ours.token_endpoint, `${all.origin}${OIDC}/token`);
  });
}
