// openid-client as its documentation uses it, for the clients of tests/js/gateway.
import * as oidc from 'openid-client';
import { followTo } from './browser.js';
import { poll } from './envoy.js';
import { operatorRequest } from './flow.js';
import { ACCESS_TOKEN, REDIRECT_URI, SECRETS } from './names.js';
import { send } from './requests.js';

export function discover(origin, clientId, secret = SECRETS[clientId], authentication = undefined) {
  return discoverAt(`${origin}/oidc`, clientId, secret, authentication);
}

/** `fetch` takes the place of the global function. */
export function discoverAt(issuer, clientId, secret, authentication = oidc.ClientSecretBasic(secret), fetch = undefined) {
  return oidc.discovery(new URL(issuer), clientId, undefined, authentication, {
    execute: [oidc.allowInsecureRequests],
    ...(fetch && { [oidc.customFetch]: fetch }),
  });
}

/**
 * The authorization code flow, in which `user` signs in: with `fields`, if there is a form.
 * `cookies` are those of the user's browser.
 */
export async function signIn(config, user, parameters = {}, fields = undefined, cookies = new Map()) {
  const verifier = oidc.randomPKCECodeVerifier();
  const state = oidc.randomState();
  const callback = await followTo(REDIRECT_URI, oidc.buildAuthorizationUrl(config, {
    redirect_uri: REDIRECT_URI,
    scope: 'openid',
    login_hint: user,
    state,
    code_challenge: await oidc.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
    ...parameters,
  }), fields, cookies);
  return oidc.authorizationCodeGrant(config, callback, { pkceCodeVerifier: verifier, expectedState: state });
}

/**
 * The parties of an impersonation. Waits until the filter has the gateway's keys: until then it
 * asks minters to retry.
 */
export async function parties(origin) {
  const backend = await discover(origin, 'integrator-backend');
  const portal = await discover(origin, 'support-portal');
  const { access_token: agentToken } = await signIn(portal, 'agent-1');
  const { access_token: backendToken } = await oidc.clientCredentialsGrant(backend, {
    scope: 'impersonate users:read', resource: `${origin}/api`,
  });
  const mint = (userId) => send({ url: `${origin}/api/subject-tokens`, bearer: backendToken, json: { userId } });
  await poll(async () => (await mint('user-42')).status !== 503);
  const subjectToken = async (userId = 'user-42') => (await mint(userId)).json.subjectToken;
  /**
   * The parameters of a token exchange: a fresh subject token for orders, and an agent who acts.
   */
  const exchange = async () => ({
    scope: 'orders:read',
    subject_token: await subjectToken(),
    subject_token_type: ACCESS_TOKEN,
    resource: `${origin}/orders`,
    actor_token: agentToken,
    actor_token_type: ACCESS_TOKEN,
  });
  return { portal, agentToken, backendToken, subjectToken, exchange };
}

/** The access tokens that a probe needs: of the backend, of the agent, and of an operator. */
export async function credentials(origin) {
  const { backendToken, agentToken } = await parties(origin);
  const { json: { access_token: operator } } = await send(operatorRequest(origin));
  return { caller: backendToken, actor: agentToken, operator };
}
