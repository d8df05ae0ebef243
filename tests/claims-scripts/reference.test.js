// Runs the scripts of this folder, which are like those of operators, in the engine that they were
// written for. The filter must give the same claims: crates/cli/tests/cli/claims.rs and
// tests/envoy/claims check that.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { createContext, runInContext } from 'node:vm';

const folder = new URL('.', import.meta.url);
const read = (name) => readFileSync(new URL(name, folder), 'utf8');
const names = readdirSync(folder).filter((name) => name.endsWith('.json')).map((name) => name.slice(0, -'.json'.length));

// The token of the exchanges in tests/envoy. The filter makes a new `jti` each time; here it is
// fixed.
const TOKEN = {
  iss: 'https://auth.example.com/oidc',
  sub: 'user_123',
  aud: 'https://api.example.com/orders',
  client_id: 'support-console',
  scope: 'orders:read',
  jti: 'a jti',
};
const GRANT = 'urn:ietf:params:oauth:grant-type:token-exchange';

test('every script has its expected claims beside it', () => {
  const scripts = readdirSync(folder).filter((name) => name.endsWith('.js') && !name.endsWith('.test.js'));
  assert.deepEqual(scripts, names.map((name) => `${name}.js`));
});

for (const name of names) {
  test(name, async () => {
    const { input, claims, denied } = JSON.parse(read(`${name}.json`));
    // A realm with JavaScript's own globals, without those of Node.js.
    const realm = createContext({ console: { log() {} }, queueMicrotask });
    const getCustomJwtClaims = runInContext(`${read(`${name}.js`)}\n;getCustomJwtClaims`, realm);
    const said = [];
    const api = {
      denyAccess(message) {
        said.push(message);
        throw new Error('denied');
      },
    };
    const token = { ...TOKEN, ...input.token };
    const payload = {
      token: { ...token, accountId: token.sub, clientId: token.client_id },
      context: { grant: { type: GRANT, subjectTokenContext: input.context?.grant?.subjectTokenContext ?? {} } },
      environmentVariables: input.environmentVariables ?? {},
    };
    realm.json = JSON.stringify(payload);
    const call = getCustomJwtClaims({ ...runInContext('JSON.parse(json)', realm), api });
    if (denied !== undefined) {
      await assert.rejects(async () => call, { message: 'denied' });
      assert.deepEqual(said.map((message) => message.replaceAll('"', "'")), [denied]);
    } else {
      const given = JSON.parse(JSON.stringify(await call));
      if (process.env.SHOW_CLAIMS) console.log(name, JSON.stringify(given));
      assert.deepEqual(given, claims);
    }
  });
}
