// The flow in three steps through Envoy, and its early ends: each step is shown and checked.
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRemoteJWKSet, jwtVerify } from 'jose';
import { followTo } from './browser.js';
import { poll } from './envoy.js';
import { curl, keep, send } from './requests.js';
import { check, print, show, title } from './show.js';

const REDIRECT_URI = 'http://127.0.0.1/callback';
const SIGNED_OUT_URI = 'http://127.0.0.1/signed-out';
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';
const CONTEXT = { ticketId: 'T-1001', reason: 'The customer cannot see an order' };

/**
 * The parties. Their secrets are those of tests/gateway and of envoy.yaml: for trying things out.
 */
const BACKEND = ['integrator-backend', 'demo-only-integrator-backend'];
const OPERATIONS = ['operations', 'demo-only-operations'];
const PORTAL = ['support-portal', 'demo-only-support-portal'];
export const AGENT = 'agent-1';
const CUSTOMER = 'user-42';

/** Shows everything. `log` is the file of Envoy's log, if its audit lines are to be shown. */
export async function showFlow(origin, { log } = {}) {
  const orders = `${origin}/orders`;

  const { backendToken, agentToken, browser } = await beforeTheFlow(origin);

  title(`Step 1: ${AGENT} asks the integrator's backend to act as ${CUSTOMER}`);
  console.log('The endpoint is the integrator\'s own, and checks that the agent may do so. Here it allows it.');

  title(`Step 2: the backend asks for a subject token for ${CUSTOMER}`);
  const mint = mintRequest(origin, backendToken);
  const minted = await show(mint, 201);
  const subjectToken = keep('SUBJECT_TOKEN', minted.subjectToken);

  title('Step 3: the support portal exchanges it, showing who is acting, for a token bound to one API');
  const exchange = exchangeRequest(origin, subjectToken, agentToken);
  const granted = await show(exchange, 200);
  const accessToken = keep('ACCESS_TOKEN', granted.access_token);
  check(granted.token_type === 'Bearer' && granted.issued_token_type === ACCESS_TOKEN, 'wrong type of token');
  check(granted.scope === 'orders:read', 'the scope is not the requested one');
  check(!('refresh_token' in granted), 'a refresh token came with it');

  title('The token, verified with the key set that the issuer publishes');
  const discovery = await send({ url: `${origin}/oidc/.well-known/openid-configuration` });
  check(discovery.json?.grant_types_supported?.includes(exchange.form.grant_type), 'discovery does not name the grant');
  const keys = createRemoteJWKSet(new URL(discovery.json.jwks_uri));
  const { protectedHeader, payload } = await jwtVerify(accessToken, keys, {
    issuer: discovery.json.issuer,
    audience: orders,
    typ: 'at+jwt',
  });
  print(protectedHeader);
  print(payload);
  check(payload.sub === CUSTOMER, `sub is not ${CUSTOMER}`);
  check(payload.act?.sub === AGENT, `act does not name ${AGENT}`);

  title('The API accepts the token that is bound to it. Envoy verifies the token and passes its claims on');
  const use = { url: `${orders}/1`, bearer: accessToken };
  await show(use, 200);

  title('The token may read. The guard refuses writes, unless a rule of yours allows them');
  const write = await show({ ...use, json: { quantity: 1000 } }, 403);
  check(write.error === 'insufficient_scope', 'the error is not insufficient_scope');

  title('No other API accepts the token');
  await show({ url: `${origin}/invoices/1`, bearer: accessToken }, 403);

  title('A subject token can be exchanged once: step 3 again is refused');
  const replay = await show(exchange, 400);
  check(replay.error === 'invalid_request', 'the error is not invalid_request');

  title('A replay may mean that the token was stolen: so the impersonation has ended');
  await showEnded(use);

  const flow = { origin, mint, exchange, use };
  const kill = await showKill(flow);
  await showLogout(flow, { browser, log });
  return { ...flow, ...kill };
}

/** Begins another impersonation. Returns a request with its access token. */
async function beginAnother({ mint, exchange, use }) {
  title(`${AGENT} begins another impersonation, as before: steps 1 to 3`);
  const { status, json } = await send(withSubjectToken(exchange, await freshSubjectToken(mint)));
  check(status === 200, `the exchange was answered with ${status}`);
  use = { ...use, bearer: keep('ACCESS_TOKEN', json.access_token) };
  await show(use, 200);
  return use;
}

/** Shows the kill: an operator lists and ends an impersonation. */
async function showKill(flow) {
  const { origin } = flow;
  const use = await beginAnother(flow);

  title('Then the agent\'s laptop is stolen. An operator\'s access token may list and end impersonations');
  const { access_token: operatorToken } = await show(operatorRequest(origin), 200);
  keep('OPERATOR_TOKEN', operatorToken);

  title('The operator lists who impersonates whom');
  const list = { url: `${origin}/api/impersonations?actorId=${AGENT}`, bearer: operatorToken };
  const { impersonations, complete } = await show(list, 200);
  const [listed] = impersonations;
  check(complete && impersonations.length === 1, 'the list is not this one impersonation');
  check(listed.userId === CUSTOMER && listed.actorId === AGENT && listed.caller === BACKEND[0], 'the list names somebody else');

  title(`The operator ends all impersonations by ${AGENT}`);
  const revoke = { url: `${origin}/api/impersonations/revocations`, bearer: operatorToken, json: { actorId: AGENT } };
  await show(revoke, 201);

  title('The next request is refused, and the list is empty');
  await showEnded(use);
  const left = await show(list, 200);
  check(left.impersonations.length === 0, 'the list is not empty');

  return { list, revoke };
}

/** Shows that impersonations end by themselves, when the agent logs out. */
async function showLogout(flow, { browser, log }) {
  const { origin, mint, exchange } = flow;
  const use = await beginAnother(flow);

  title(`${AGENT} logs out at the identity gateway (scripted here: no page). The gateway tells the filter`);
  const parameters = { client_id: PORTAL[0], post_logout_redirect_uri: SIGNED_OUT_URI };
  const url = `${origin}/oidc/session/end?${new URLSearchParams(parameters)}`;
  console.log(`The agent's browser opens ${url}`);
  await followTo(SIGNED_OUT_URI, url, { logout: 'yes' }, browser);

  title('The next request is refused: nobody had to end the impersonation');
  // With many Envoys, the gateway may have told another one than this request reaches.
  await poll(async () => (await send(use)).status === 401);
  await showEnded(use);

  title('The agent\'s own token begins no other impersonation');
  const subjectToken = keep('SUBJECT_TOKEN', await freshSubjectToken(mint));
  const refused = await show(withSubjectToken(exchange, subjectToken), 400);
  check(refused.error === 'invalid_request', 'the error is not invalid_request');

  if (log === undefined) return;
  title('The audit log says what ended the impersonation');
  let line;
  // Envoy writes its log a moment later.
  await poll(() => {
    [line] = /\{"event":"impersonations\.ended".*\}/.exec(readFileSync(log, 'utf8')) ?? [];
    return line !== undefined;
  });
  const event = JSON.parse(line);
  print(event);
  check(event.actor_id === AGENT && event.sender === `${origin}/oidc`, 'the audit log names somebody else');
}

async function showEnded(use) {
  const ended = await show(use, 401);
  check(ended.error === 'invalid_token', 'the error is not invalid_token');
}

/**
 * Gets the access tokens of the backend and of the agent. The agent signs in; `browser` has the
 * cookies of that session.
 */
export async function beforeTheFlow(origin) {
  title('Before the flow: the backend gets a machine\'s access token from the identity gateway');
  const machine = await show({
    url: `${origin}/oidc/token`,
    basic: BACKEND,
    form: { grant_type: 'client_credentials', scope: 'impersonate users:read', resource: `${origin}/api` },
  }, 200);
  const backendToken = keep('BACKEND_TOKEN', machine.access_token);

  title(`Before the flow: ${AGENT} signs in at the support portal (scripted here: no page, no password)`);
  const browser = new Map();
  const { access_token: agentToken } = await show(await signIn(origin, browser), 200);
  return { backendToken, agentToken: keep('AGENT_TOKEN', agentToken), browser };
}

/** The request by which an operator gets an access token that may list and end impersonations. */
export function operatorRequest(origin) {
  return {
    url: `${origin}/oidc/token`,
    basic: OPERATIONS,
    form: { grant_type: 'client_credentials', scope: 'impersonations:read impersonations:revoke', resource: `${origin}/api` },
  };
}

/** Step 2, with the backend's access token. */
export function mintRequest(origin, token) {
  return {
    url: `${origin}/api/subject-tokens`,
    bearer: token,
    // Bounds: one agent, one client and one API, for five minutes. A copy of the token is worth
    // little.
    json: {
      userId: CUSTOMER,
      context: CONTEXT,
      expiresIn: 300,
      clientId: PORTAL[0],
      resource: `${origin}/orders`,
      scope: 'orders:read',
      actorId: AGENT,
      accessTokenExpiresIn: 300,
    },
  };
}

/** Step 3. */
export function exchangeRequest(origin, subjectToken, agentToken) {
  return {
    url: `${origin}/oidc/token`,
    basic: PORTAL,
    form: {
      grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
      client_id: PORTAL[0],
      scope: 'orders:read',
      subject_token: subjectToken,
      subject_token_type: ACCESS_TOKEN,
      resource: `${origin}/orders`,
      actor_token: agentToken,
      actor_token_type: ACCESS_TOKEN,
    },
  };
}

/**
 * Returns the same requests with fresh tokens, for pasting into another shell. The agent has logged
 * out, and so signs in again.
 */
export async function pasteable({ origin, mint, exchange, use, list, revoke }) {
  const { json: { access_token: agentToken } } = await send(await signIn(origin));
  exchange.form.actor_token = keep('AGENT_TOKEN', agentToken);
  exchange.form.subject_token = await freshSubjectToken(mint);
  use.bearer = keep('ACCESS_TOKEN', (await send(exchange)).json.access_token);
  exchange.form.subject_token = keep('SUBJECT_TOKEN', await freshSubjectToken(mint));
  return { mint: curl(mint), exchange: curl(exchange), use: curl(use), list: curl(list), revoke: curl(revoke) };
}

function withSubjectToken(exchange, token) {
  return { ...exchange, form: { ...exchange.form, subject_token: token } };
}

async function freshSubjectToken(mint) {
  const { status, json } = await send(mint);
  check(status === 201, `the mint was answered with ${status}`);
  return json.subjectToken;
}

/** The agent signs in. Returns the request that redeems the code. */
async function signIn(origin, browser = new Map()) {
  const verifier = randomBytes(32).toString('base64url');
  const challenge = createHash('sha256').update(verifier).digest('base64url');
  const callback = await followTo(REDIRECT_URI, `${origin}/oidc/auth?${new URLSearchParams({
    client_id: PORTAL[0],
    response_type: 'code',
    scope: 'openid',
    redirect_uri: REDIRECT_URI,
    login_hint: AGENT,
    code_challenge: challenge,
    code_challenge_method: 'S256',
  })}`, undefined, browser);
  return {
    url: `${origin}/oidc/token`,
    basic: PORTAL,
    form: {
      grant_type: 'authorization_code',
      code: callback.searchParams.get('code'),
      redirect_uri: REDIRECT_URI,
      code_verifier: verifier,
    },
  };
}
