// openid-client as its documentation uses it, for the clients that tests/gateway knows.
import * as oidc from 'openid-client';
import { followTo } from '../../stack/browser.js';

export const SECRETS = {
  integratorBackend: 'demo-only-integrator-backend',
  supportPortal: 'demo-only-support-portal',
  introspection: 'demo-only-impersonation-filter',
};

const REDIRECT_URI = 'http://127.0.0.1/callback';

export function discover(origin, clientId, secret, authentication = oidc.ClientSecretBasic(secret)) {
  return oidc.discovery(new URL(`${origin}/oidc`), clientId, undefined, authentication, {
    execute: [oidc.allowInsecureRequests],
  });
}

/** The authorization code flow, with `user` as the one who signs in. */
export async function signIn(config, user, parameters = {}) {
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
  }));
  return oidc.authorizationCodeGrant(config, callback, { pkceCodeVerifier: verifier, expectedState: state });
}
