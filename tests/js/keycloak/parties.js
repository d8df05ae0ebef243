// The one stack of all tests here, and its parties, by openid-client.
import assert from 'node:assert/strict';
import * as oidc from 'openid-client';
import * as YAML from 'yaml';
import { discoverAt, signIn } from '../stack/client.js';
import { poll } from '../stack/envoy.js';
import { ACCESS_TOKEN, EXCHANGE, REDIRECT_URI, SECRETS as OF_CLIENTS } from '../stack/names.js';
import { send } from '../stack/requests.js';
import { BLOCKS, startEnvoyBefore, startStack, USERS } from './stack.js';

export const SECRETS = {
  ...OF_CLIENTS,
  shop: 'demo-only-shop',
  lightweight: 'demo-only-lightweight',
};

/** A client whose access tokens have few claims. */
const LIGHTWEIGHT = {
  clientId: 'lightweight',
  secret: SECRETS.lightweight,
  redirectUris: [REDIRECT_URI],
  attributes: { 'client.use.lightweight.access.token.enabled': 'true' },
  protocolMappers: [{
    name: 'audience',
    protocol: 'openid-connect',
    protocolMapper: 'oidc-audience-mapper',
    config: { 'included.custom.audience': 'impersonation-filter', 'access.token.claim': 'true', 'introspection.token.claim': 'true' },
  }],
};

let started;

/** Starts everything, at the first call. */
export function everything() {
  started ??= startEverything();
  return started;
}

async function startEverything() {
  // Java compiles less, so that it starts faster. A figure would be wrong with this.
  const stack = await startStack({
    java: ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xms256m'],
    // The tokens of the parties must not expire while a slow machine runs the tests.
    realm: { clients: [LIGHTWEIGHT], accessTokenLifespan: 3600 },
  });
  const variant = (name) => startEnvoyBefore(stack, { name, edit: (configuration) => overridden(configuration, BLOCKS[name]) });
  const envoys = await Promise.all([startEnvoyBefore(stack), variant('introspection'), variant('userinfo')]);
  const [main, introspection, userinfo] = envoys;
  const { issuer, origin } = stack;
  const client = (id, fetch) => discoverAt(issuer, id, SECRETS[id], SECRETS[id] ? undefined : oidc.None(), fetch);
  const [backend, operations, portal, shop] = await Promise.all(['integrator-backend', 'operations', 'support-portal', 'shop'].map((id) => client(id)));
  const machineToken = async (config, scope) => (await oidc.clientCredentialsGrant(config, scope ? { scope } : {})).access_token;
  const backendToken = await machineToken(backend, 'impersonate');
  const agent = await signInAs(portal, 'agent-1');
  const all = { ...stack, main, introspection, userinfo, client, backend, operations, portal, shop, machineToken, backendToken, agent };
  // Until the filter has Keycloak's keys, it asks minters to retry.
  for (const { origin: at } of envoys) {
    await poll(async () => (await mint(at, backendToken, { userId: USERS['user-42'].id })).status !== 503);
  }
  /**
   * The parameters of a token exchange: a fresh subject token for orders, and an agent who acts.
   */
  all.exchange = async (body = {}, at = origin) => {
    const { status, json } = await mint(at, backendToken, { userId: USERS['user-42'].id, ...body });
    assert.equal(status, 201, JSON.stringify(json));
    return {
      scope: 'orders:read',
      subject_token: json.subjectToken,
      subject_token_type: ACCESS_TOKEN,
      resource: `${origin}/orders`,
      actor_token: agent.access_token,
      actor_token_type: ACCESS_TOKEN,
    };
  };
  all.impersonate = async (body) => (await oidc.genericGrantRequest(portal, EXCHANGE, await all.exchange(body))).access_token;
  return all;
}

/** The page's configuration with the members of another block in the place of its own. */
function overridden(configuration, block) {
  const { subject_tokens: { authentication = configuration.subject_tokens.authentication } = {}, ...others } = YAML.parse(block);
  return { ...configuration, subject_tokens: { ...configuration.subject_tokens, authentication }, ...others };
}

/** Signs in with the login form of Keycloak. */
export function signInAs(config, username, parameters, cookies) {
  const fields = { username, password: `demo-only-${username}`, credentialId: '' };
  return signIn(config, username, parameters, fields, cookies);
}

export function mint(origin, token, body) {
  return send({ url: `${origin}/api/subject-tokens`, bearer: token, json: body });
}

/** Exchanges at any Envoy, as the support portal. */
export function exchangeAt(origin, parameters) {
  return post(`${origin}/realms/acme/protocol/openid-connect/token`, { grant_type: EXCHANGE, ...parameters }, 'support-portal');
}

/** Posts a form as a confidential client. */
export function post(url, form, client) {
  return send({ url, basic: [client, SECRETS[client]], form });
}

export function call(url, { token, method } = {}) {
  return send({ url, method, bearer: token });
}
