// Client libraries and verifiers of Java and Go with the shipped envoy.yaml, before the gateway of
// tests/js/gateway. Each has its defaults, or the line that docs/gateway.md names for it.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import * as jose from 'jose';
import * as oidc from 'openid-client';
import { replacedOnce, ROOT } from '../stack/envoy.js';
import { EXCHANGE, client } from '../stack/names.js';
import { freePorts, stopAll } from '../stack/process.js';
import { parties, signIn } from '../stack/client.js';
import { FLOW } from '../clients/plays.js';
import { startStack } from '../stack/shipped.js';
import { runInGo, startJava } from './programs.js';

const CLIENT = client('support-portal');

let issuer;
let runInJava;
let flow; // of the parties, through the shipped file
let tokens; // by name: of an ordinary user, of an impersonation, and of one whose resource has the typ JWT

/**
 * The two lines that envoy.yaml needs: zitadel/oidc revokes by form, and one API accepts only JWTs.
 */
function edited(yaml) {
  const byForm = replacedOnce(yaml, /# authentication: .*client_secret_post.*/, 'authentication: [client_secret_basic, client_secret_post]');
  return replacedOnce(byForm, /(- indicator: .*\/invoices\n( *)scopes: \[invoices:read)\]/, '$1, orders:read]\n$2access_token_typ: JWT');
}

before(async () => {
  let origin;
  [runInJava, { origin }] = await Promise.all([startJava(), startStack(edited)]);
  issuer = `${origin}/oidc`;
  const { portal, exchange } = await parties(origin);
  flow = async () => ({ issuer, client: CLIENT, exchange: await exchange() });
  const signedIn = await signIn(portal, 'user-42', { resource: `${origin}/orders`, scope: 'openid orders:read' });
  const granted = async (more) => (await oidc.genericGrantRequest(portal, EXCHANGE, { ...await exchange(), ...more })).access_token;
  tokens = {
    ordinary: (await oidc.refreshTokenGrant(portal, signedIn.refresh_token, { resource: `${origin}/orders` })).access_token,
    impersonation: await granted(),
    asJwt: await granted({ resource: `${origin}/invoices` }),
  };
});

after(stopAll);

test('a resource\'s `access_token_typ` is the `typ` of its tokens', () => {
  const types = Object.values(tokens).map((token) => jose.decodeProtectedHeader(token).typ);
  assert.deepEqual(types, ['at+jwt', 'at+jwt', 'JWT']);
});

for (const [name, task] of [['Spring Security', 'spring-client'], ['Nimbus', 'nimbus-client']]) {
  test(`the client of ${name} exchanges with its defaults`, async () => {
    const { token: _, ...played } = await runInJava(task, await flow());
    assert.deepEqual(played, FLOW);
  });
}

for (const [name, task] of [['golang.org/x/oauth2', 'x-oauth2'], ['zitadel/oidc', 'zitadel']]) {
  test(`the client of ${name} exchanges with its defaults`, async () => {
    assert.deepEqual(await runInGo(task, await flow()), FLOW);
  });
}

/** Starts an API of Spring Security. Returns the function that calls it with a token. */
async function api(task, resource) {
  const [port] = await freePorts(1);
  await runInJava(task, {
    'server.port': port,
    'server.address': '127.0.0.1',
    'spring.security.oauth2.resourceserver.jwt.issuer-uri': issuer,
    'spring.security.oauth2.resourceserver.jwt.audiences': audience(resource),
  });
  return async (token) => {
    const response = await fetch(`http://127.0.0.1:${port}/orders`, { headers: { authorization: `Bearer ${token}` } });
    return [response.status, response.status === 200 ? await response.json() : response.headers.get('www-authenticate')];
  };
}

const audience = (resource) => `${issuer.replace('/oidc', '')}/${resource}`;
const ACTOR = { sub: 'agent-1' };

test('an API of Spring Security as Spring Boot sets it up accepts an impersonation with `typ: JWT` only', async () => {
  const [orders, invoices] = [await api('api', 'orders'), await api('api', 'invoices')];
  const [accepted, claims] = await invoices(tokens.asJwt);
  assert.equal(accepted, 200, claims);
  assert.deepEqual([claims.sub, claims.act], ['user-42', ACTOR]);
  const [refused, challenge] = await orders(tokens.impersonation);
  assert.equal(refused, 401);
  assert.match(challenge, /the given typ value needs to be one of \[JWT\]/);
});

test('with one more bean, an API of Spring Security accepts the tokens of users and of impersonations', async () => {
  const orders = await api('api-of-access-tokens', 'orders');
  for (const [name, act] of [['ordinary', undefined], ['impersonation', ACTOR]]) {
    const [status, claims] = await orders(tokens[name]);
    assert.equal(status, 200, `${name}: ${claims}`);
    assert.deepEqual([claims.sub, claims.act], ['user-42', act], name);
  }
  assert.equal((await orders(tokens.asJwt))[0], 401, 'for another API');
});

test('the processor of Nimbus refuses the typ of RFC 9068, until it is told about it', async () => {
  const verify = (name, resource, types) => runInJava('nimbus-verifier', {
    issuer, token: tokens[name], audience: audience(resource), algorithm: 'ES256', ...(types && { types }),
  });
  assert.match((await verify('impersonation', 'orders')).refused, /JOSE header typ .*at\+jwt.* not allowed/);
  assert.deepEqual((await verify('asJwt', 'invoices')).act, ACTOR);
  for (const [name, act] of [['ordinary', undefined], ['impersonation', ACTOR]]) {
    const { refused, sub, act: actor } = await verify(name, 'orders', true);
    assert.deepEqual([refused, sub, actor], [undefined, 'user-42', act], name);
  }
});

for (const [name, task] of [['go-oidc', 'go-oidc'], ['zitadel/oidc', 'zitadel-verifier']]) {
  test(`the verifier of ${name} accepts the tokens of users and of impersonations`, async () => {
    for (const [token, act] of [['ordinary', undefined], ['impersonation', ACTOR]]) {
      const claims = await runInGo(task, { issuer, audience: audience('orders'), token: tokens[token] });
      assert.deepEqual([claims.sub, claims.act ?? undefined], ['user-42', act], token);
    }
    await assert.rejects(runInGo(task, { issuer, audience: audience('orders'), token: tokens.asJwt }), /audience/);
  });
}

test('docs/gateway.md has the lines that these APIs have', () => {
  const page = readFileSync(`${ROOT}docs/gateway.md`, 'utf8');
  const [, table] = /<!-- The tests read this table: frameworks -->\n([^]*?)\n\n/.exec(page);
  const lines = [...table.matchAll(/`([^`]*\(.*\).*)`/g)].map(([, line]) => line);
  const sources = ['java/src/main/java/frameworks/ApiOfAccessTokens.java', 'java/src/main/java/frameworks/NimbusVerifier.java', 'go/clients/main.go']
    .map((file) => readFileSync(`${ROOT}tests/js/frameworks/${file}`, 'utf8')).join('\n');
  assert.ok(lines.length >= 4, table);
  for (const line of lines) assert.ok(sources.includes(line), line);
});
