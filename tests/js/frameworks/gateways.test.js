// The gateways of docs/gateways/more.md behind Envoy, with the lines of docs/gateway.md and of that
// page.
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import * as jose from 'jose';
import * as oidc from 'openid-client';
import * as YAML from 'yaml';
import { followTo } from '../stack/browser.js';
import { configOn, environment, poll, startEnvoy } from '../stack/envoy.js';
import { ACCESS_TOKEN, EXCHANGE, client } from '../stack/names.js';
import { freePorts, stopAll } from '../stack/process.js';
import { send } from '../stack/requests.js';
import { discoverAt, signIn } from '../stack/client.js';
import { FLOW } from '../clients/plays.js';
import { startApi } from '../gateways/api.js';
import { check, knownGateways, moved } from '../gateways/moved.js';
import { block } from '../gateways/page.js';
import { dex, hydra, SIGNED_OUT_URI, spring, zitadel } from './gateways.js';
import { FILES, startJava } from './programs.js';

const USER = 'user-42';
const CLIENT = client('support-portal');

let runInJava;

before(async () => {
  runInJava = await startJava();
});

after(stopAll);

/** Starts a gateway, and Envoy before it. `members` replace those of the filter's configuration. */
async function startBefore(gateway, members) {
  const [public_, admin, port, apis] = await freePorts(4);
  const ports = { public: public_, admin, gateway: port, apis };
  const origin = `http://127.0.0.1:${public_}`;
  const paths = knownGateways()[gateway.name];
  mkdirSync(FILES, { recursive: true });
  const file = `${FILES}/${gateway.name.replace(/\W+/g, '-')}.yaml`;
  writeFileSync(file, withMembers(configOn(ports, moved(paths)), YAML.parse(configOn(ports, members))));
  await Promise.all([
    gateway.start({ port, origin, runInJava }),
    startApi(apis),
  ]);
  const env = { ...environment('RS256'), INTROSPECTION_SECRET: gateway.introspection ?? 'unused' };
  await startEnvoy({ config: file, log: file.replace(/yaml$/, 'log'), admin, env, workers: 1 });
  return { origin, behind: `http://127.0.0.1:${port}`, paths, file };
}

function withMembers(yaml, members) {
  const config = YAML.parse(yaml);
  const [{ filters: [{ typed_config: { http_filters: filters } }] }] = config.static_resources.listeners[0].filter_chains;
  Object.assign(filters.at(-2).typed_config.config.configuration.value, members);
  return YAML.stringify(config, { aliasDuplicateObjects: false });
}

/** Starts everything, and gets the tokens of the machine and of the agent through Envoy. */
async function everything(gateway, members) {
  const all = await startBefore(gateway, members);
  const { origin, paths } = all;
  all.portal = await discoverAt(origin, ...CLIENT);
  all.cookies = new Map();
  const audience = gateway.audience && { audience: gateway.audience };
  all.agent = await signIn(all.portal, gateway.agent, { ...audience }, gateway.fields, all.cookies);
  all.machine = gateway.token;
  if (gateway.machine) {
    const form = { grant_type: 'client_credentials', scope: gateway.scope ?? 'impersonate', ...audience };
    const machine = await send({ url: origin + paths.token, basic: gateway.machine, form });
    assert.equal(machine.status, 200, machine.text);
    all.machine = machine.json.access_token;
  }
  all.mint = () => send({ url: `${origin}/api/subject-tokens`, bearer: all.machine, json: { userId: USER } });
  await poll(async () => (await all.mint()).status !== 503);
  all.exchange = async () => {
    const minted = await all.mint();
    assert.equal(minted.status, 201, minted.text);
    return {
      scope: 'orders:read', resource: `${origin}/orders`,
      subject_token: minted.json.subjectToken, subject_token_type: ACCESS_TOKEN,
      actor_token: all.agent.access_token, actor_token_type: ACCESS_TOKEN,
    };
  };
  all.keys = jose.createRemoteJWKSet(new URL(origin + paths.jwks));
  all.order = async (bearer, json) => (await send({ url: `${origin}/orders/1`, bearer, json })).status;
  return all;
}

/** The tests that are the same for each gateway. */
function behaves(all) {
  test('check finds no problem in the file', () => {
    for (const line of check(all().file).trim().split('\n').slice(0, -1)) assert.match(line, /: warning: .*(demo's|client_ids|audiences)/);
  });

  test('the documents are the gateway\'s, with the filter\'s members added', async () => {
    const { origin, behind, paths } = all();
    const [ours, theirs] = await Promise.all([origin, behind].map(async (at) => ({
      discovery: (await send({ url: at + paths.discovery })).json, keys: (await send({ url: at + paths.jwks })).json.keys,
    })));
    assert.ok(theirs.keys.length > 0);
    // Hydra gives its keys in any order.
    const kids = (keys) => keys.map(({ kid }) => kid);
    assert.equal(ours.keys.length, theirs.keys.length + 1);
    assert.deepEqual(kids(theirs.keys).filter((kid) => !kids(ours.keys).includes(kid)), []);
    assert.ok(ours.discovery.grant_types_supported.includes(EXCHANGE));
    const { issuer, token_endpoint: token, jwks_uri: jwks, userinfo_endpoint: userinfo } = ours.discovery;
    assert.deepEqual([issuer, token, jwks, userinfo], [origin, origin + paths.token, origin + paths.jwks, origin + paths.userinfo]);
    assert.deepEqual(Object.keys(theirs.discovery).filter((name) => !(name in ours.discovery)), []);
  });
}

function impersonates(all, agent) {
  test('a machine mints by its token of client credentials, and the agent acts', async () => {
    const { portal, exchange, keys, order, origin } = all();
    const granted = await oidc.genericGrantRequest(portal, EXCHANGE, await exchange());
    const { payload } = await jose.jwtVerify(granted.access_token, keys, { issuer: origin, audience: `${origin}/orders` });
    assert.deepEqual([payload.sub, payload.act.sub, payload.client_id], [USER, agent, 'support-portal']);
    assert.deepEqual([await order(granted.access_token), await order(granted.access_token, {})], [200, 403]);
    // One endpoint revokes the gateway's tokens and the filter's.
    await oidc.tokenRevocation(portal, granted.access_token);
    assert.equal(await order(granted.access_token), 401);
    await oidc.tokenRevocation(portal, all().agent.access_token);
  });
}

describe(spring.name, () => {
  let all;
  before(async () => { all = await everything(spring, block('more.md', 'spring')); });

  behaves(() => all);

  test('the scopes of its tokens are a list, and Spring Security\'s client says that the actor\'s is a JWT', async () => {
    assert.deepEqual(jose.decodeJwt(all.machine).scope, ['impersonate']);
    const { token: _, ...played } = await runInJava('spring-client', {
      issuer: all.origin, client: CLIENT, exchange: await all.exchange(), decoded: true,
    });
    assert.deepEqual(played, FLOW);
  });

  impersonates(() => all, spring.agent);
});

describe(zitadel.name, () => {
  let all;
  before(async () => { all = await everything(zitadel, block('more.md', 'zitadel')); });

  behaves(() => all);
  impersonates(() => all, zitadel.agent);
});

describe(hydra.name, () => {
  let all;
  before(async () => { all = await everything(hydra, block('more.md', 'hydra')); });

  behaves(() => all);

  test('when the agent logs out, a logout token without exp ends the agent\'s impersonations', async () => {
    const { access_token: token } = await oidc.genericGrantRequest(all.portal, EXCHANGE, await all.exchange());
    assert.equal(await all.order(token), 200);
    const url = oidc.buildEndSessionUrl(all.portal, { id_token_hint: all.agent.id_token, post_logout_redirect_uri: SIGNED_OUT_URI });
    await followTo(SIGNED_OUT_URI, url, undefined, all.cookies);
    // Hydra sends the logout beside its answer.
    await poll(async () => (await all.order(token)) === 401);
    all.agent = await signIn(all.portal, hydra.agent, { audience: hydra.audience }, undefined, all.cookies);
  });

  impersonates(() => all, hydra.agent);
});

describe(dex.name, () => {
  let all;

  before(async () => {
    // Dex has no grant for machines, so the backend has its token from elsewhere.
    const { publicKey, privateKey } = await jose.generateKeyPair('ES256');
    const machines = 'https://machines.example.com';
    const key = { ...await jose.exportJWK(publicKey), alg: 'ES256' };
    const machine = await new jose.SignJWT({ scope: 'impersonate' }).setProtectedHeader({ alg: 'ES256', typ: 'at+jwt' })
      .setIssuer(machines).setSubject('backend').setAudience('filter').setIssuedAt().setExpirationTime('1h').sign(privateKey);
    all = await everything({ ...dex, token: machine }, YAML.stringify({
      subject_tokens: {
        authentication: { jwt: [{ issuer: machines, audiences: ['filter'], required_scopes: ['impersonate'], local_jwks: { inline_string: JSON.stringify({ keys: [key] }) } }] },
      },
      actor_tokens: {
        required: true,
        userinfo: { http_uri: { uri: 'http://127.0.0.1:10000/userinfo', cluster: 'identity_gateway', timeout: '2s' } },
      },
    }));
  });

  behaves(() => all);

  test('an access token of Dex is made as an ID token is, so no agent of Dex acts', async () => {
    const { agent, origin, portal, exchange } = all;
    for (const token of [agent.access_token, agent.id_token]) {
      assert.equal((await send({ url: `${origin}/userinfo`, bearer: token })).status, 200, 'Dex takes the one for the other');
      await assert.rejects(oidc.genericGrantRequest(portal, EXCHANGE, { ...await exchange(), actor_token: token }), { status: 400, error: 'invalid_request' });
    }
  });
});
