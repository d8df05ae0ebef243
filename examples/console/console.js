// The support client: a page without a secret. All of its tokens are in this script's memory, and
// the one that acts as the user is bound to a key that cannot leave the browser.
import * as oauth from './oauth4webapi.js';
import { api, backend, insecure, issuer, resource, sessions } from './config.js';

const CLIENT = { client_id: 'support-console' };
const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';
const options = { [oauth.allowInsecureRequests]: insecure };
const byId = (id) => document.getElementById(id);
const say = (text) => { byId('said').textContent = text; };
const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

const provider = await oauth.processDiscoveryResponse(new URL(issuer), await oauth.discoveryRequest(new URL(issuer), options));
const key = oauth.DPoP(CLIENT, await oauth.generateKeyPair('ES256')); // the private half is not extractable
let agent; // { name, token, forBackend }
let acting; // { id, token }

byId('sign-in').addEventListener('click', async () => {
  const state = oauth.generateRandomState();
  const verifier = oauth.generateRandomCodeVerifier();
  sessionStorage.setItem('sign-in', JSON.stringify({ state, verifier })); // neither is a token
  location.assign(`${provider.authorization_endpoint}?${new URLSearchParams({
    ...CLIENT, response_type: 'code', redirect_uri: `${location.origin}/`, scope: 'openid support:ask', resource: backend,
    state, code_challenge: await oauth.calculatePKCECodeChallenge(verifier), code_challenge_method: 'S256',
  })}`);
});

async function finishSignIn() {
  const { state, verifier } = JSON.parse(sessionStorage.getItem('sign-in') ?? '{}');
  sessionStorage.removeItem('sign-in');
  const address = new URL(location.href);
  history.replaceState(null, '', '/'); // the code is of no use in the history
  const parameters = oauth.validateAuthResponse(provider, CLIENT, address, state ?? oauth.expectNoState);
  const granted = await oauth.processAuthorizationCodeResponse(provider, CLIENT, await oauth.authorizationCodeGrantRequest(
    provider, CLIENT, oauth.None(), parameters, `${location.origin}/`, verifier, options));
  // The exchange shows the first token; the backend gets another, which is for the backend alone.
  const second = await oauth.processRefreshTokenResponse(provider, CLIENT, await oauth.refreshTokenGrantRequest(
    provider, CLIENT, oauth.None(), granted.refresh_token, { ...options, additionalParameters: { resource: backend } }));
  agent = { name: oauth.getValidatedIdTokenClaims(granted).sub, token: granted.access_token, forBackend: second.access_token };
  byId('agent').textContent = `Signed in as ${agent.name}`;
  byId('ask').hidden = false;
}

/** Asks the backend. An answer of an error is thrown. */
async function ask(method, path = '', json = undefined) {
  const headers = { authorization: `Bearer ${agent.forBackend}`, ...(json && { 'content-type': 'application/json' }) };
  const response = await fetch(backend + path, { method, headers, body: json && JSON.stringify(json) });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error_description ?? answer.error ?? `the backend answered with ${response.status}`);
  return answer;
}

byId('ask').addEventListener('submit', async (event) => {
  event.preventDefault();
  const use = event.submitter.value;
  const { userId, ticketId, reason } = Object.fromEntries(new FormData(event.target));
  try {
    say('Asking …');
    const { id, subjectToken, approval, scope, resource: granted } = await ask('POST', '', { userId, ticketId, reason, use });
    if (approval === 'pending') {
      say(`Waiting until somebody approves ${id}.`);
      while ((await ask('GET', `/${id}`)).state === 'pending') await pause(1_000);
    }
    const exchange = {
      scope, resource: granted, subject_token: subjectToken, subject_token_type: ACCESS_TOKEN,
      actor_token: agent.token, actor_token_type: ACCESS_TOKEN,
    };
    if (use === 'application') open(id, exchange);
    else await begin(id, userId, exchange);
  } catch (error) {
    say(`Refused: ${error.error_description ?? error.message}`);
  }
});

/** Exchanges once. A second try of a used token would end what the first has begun. */
async function begin(id, userId, exchange) {
  const answer = await oauth.genericTokenEndpointRequest(provider, CLIENT, oauth.None(), EXCHANGE, exchange, { ...options, DPoP: key });
  const { access_token: token } = await oauth.processGenericTokenEndpointResponse(provider, CLIENT, answer);
  acting = { id, token };
  byId('acts').textContent = `${agent.name} acts as ${userId}`;
  byId('impersonation').hidden = false;
  say('');
}

/** Sends the exchange as a form in a tab of its own, whose cookie this page never sees. */
function open(id, exchange) {
  const form = Object.assign(document.createElement('form'), {
    method: 'post', target: '_blank', rel: 'noopener', action: `${sessions.replace('://', `://${id}.`)}/.impersonation/begin`,
  });
  for (const [name, value] of Object.entries({ grant_type: EXCHANGE, ...CLIENT, ...exchange, landing: '/' })) {
    form.append(Object.assign(document.createElement('input'), { type: 'hidden', name, value }));
  }
  document.body.append(form);
  form.submit();
  form.remove();
  say('The application is open in another tab.');
}

async function call(method, path) {
  const response = await oauth.protectedResourceRequest(acting.token, method, new URL(path, api), new Headers(), null, { ...options, DPoP: key })
    .catch((error) => error.response ?? Promise.reject(error));
  if (response.status === 401) return forget('The impersonation has ended.');
  byId('answer').textContent = response.ok ? await response.text() : '';
  return say(response.ok ? '' : `The API refused: ${response.status}`);
}

/** The user's data goes with the token. */
function forget(why) {
  acting = undefined;
  byId('impersonation').hidden = true;
  byId('answer').textContent = '';
  say(why);
}

byId('read').addEventListener('click', () => call('GET', '/me'));
byId('write').addEventListener('click', () => call('POST', '/password'));
byId('stop').addEventListener('click', async () => {
  await oauth.processRevocationResponse(await oauth.revocationRequest(provider, CLIENT, oauth.None(), acting.token, options));
  forget('Stopped.');
});

if (location.search) await finishSignIn().catch((error) => say(`The sign-in failed: ${error.message}`));
