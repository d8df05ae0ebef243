// The sign-in: authorization code with PKCE, as a public client (RFC 9700, 2.1.1).
//
// The token stays in memory, so that nothing else can use it and nothing is left of it when the
// page closes. For the seconds at the identity gateway, and only then, the tab's session storage
// has what the answer is compared with; that is no secret afterwards. The answer takes it away.
import * as oauth from 'oauth4webapi';
import { ADDRESS, configuration } from './configuration.js';

const PENDING = 'sign-in';
const client = { client_id: configuration.clientId };
// oauth4webapi refuses http. The page allows it only if it came by http itself: to this machine, or
// else the browser has no cryptography for it.
const options = { [oauth.allowInsecureRequests]: location.protocol === 'http:' };

/** The sign-in failed. The message is for the person. */
export class SignInFailed extends Error {}

async function gateway() {
  const response = await fetch(configuration.discovery, { redirect: 'error' }).catch(() => {
    throw new SignInFailed('The identity gateway does not answer. Try again in a moment.');
  });
  if (!response.ok) throw new SignInFailed(`The identity gateway does not say how to sign in: its discovery document was answered with ${response.status}.`);
  const server = await oauth.processDiscoveryResponse(new URL(configuration.issuer), response);
  const { origin } = new URL(server.token_endpoint);
  if (origin !== location.origin) throw new SignInFailed(`Nobody can sign in at this address. Open the page at ${origin}${location.pathname}.`);
  return server;
}

/** Leaves the page for the identity gateway. `prompt` lets another person sign in. */
export async function signIn({ prompt } = {}) {
  if (!window.isSecureContext) throw new SignInFailed('The browser lets nobody sign in over http. Open the page with https.');
  const server = await gateway();
  const pending = {
    verifier: oauth.generateRandomCodeVerifier(),
    state: oauth.generateRandomState(),
    nonce: oauth.generateRandomNonce(),
    view: location.hash,
  };
  const url = new URL(server.authorization_endpoint);
  for (const [name, value] of Object.entries({
    client_id: configuration.clientId,
    redirect_uri: ADDRESS,
    response_type: 'code',
    scope: configuration.scopes.join(' '),
    resource: configuration.resource,
    state: pending.state,
    nonce: pending.nonce,
    code_challenge: await oauth.calculatePKCECodeChallenge(pending.verifier),
    code_challenge_method: 'S256',
    prompt,
  })) if (value !== undefined) url.searchParams.set(name, value);
  sessionStorage.setItem(PENDING, JSON.stringify(pending));
  location.assign(url);
}

/**
 * Takes the identity gateway's answer out of the address, if there is one, and restores the view.
 * Returns the session; undefined if nobody has signed in.
 */
export async function answer() {
  const pending = JSON.parse(sessionStorage.getItem(PENDING));
  sessionStorage.removeItem(PENDING);
  const url = new URL(location);
  if (!url.searchParams.has('state')) return undefined;
  history.replaceState(null, '', ADDRESS + (pending?.view ?? url.hash));
  if (pending === null) throw new SignInFailed('This sign-in was begun in another tab, or long ago. Sign in again.');
  const server = await gateway();
  try {
    const parameters = oauth.validateAuthResponse(server, client, url, pending.state);
    const response = await oauth.authorizationCodeGrantRequest(
      server, client, oauth.None(), parameters, ADDRESS, pending.verifier,
      { ...options, ...(configuration.resource && { additionalParameters: { resource: configuration.resource } }) },
    );
    const tokens = await oauth.processAuthorizationCodeResponse(server, client, response, {
      expectedNonce: configuration.scopes.includes('openid') ? pending.nonce : undefined,
    });
    const person = oauth.getValidatedIdTokenClaims(tokens);
    return {
      token: tokens.access_token,
      // A gateway that says nothing has granted what was asked for (RFC 6749, 5.1).
      scopes: tokens.scope?.split(' ') ?? configuration.scopes,
      person: person?.preferred_username ?? person?.email ?? person?.sub,
    };
  } catch (error) {
    const { error: code = error.message, error_description: why = '' } = error;
    throw new SignInFailed(`The identity gateway let nobody in: ${code}${why && `, ${why}`}.`);
  }
}

// The browser may restore the page as it was before the sign-in, if the person goes back.
addEventListener('pageshow', ({ persisted }) => persisted && sessionStorage.removeItem(PENDING));
