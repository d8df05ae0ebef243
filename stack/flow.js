// The flow in three steps through Envoy, and its early end: each step is shown and checked.
import { createHash, randomBytes } from 'node:crypto';
import { createRemoteJWKSet, jwtVerify } from 'jose';
import { followTo } from './browser.js';
import { curl, keep, send } from './requests.js';
import { check, print, show, title } from './show.js';

const REDIRECT_URI = 'http://127.0.0.1/callback';
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

export async function showFlow(origin) {
  const orders = `${origin}/orders`;

  const { backendToken, agentToken } = await beforeTheFlow(origin);

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

  return { mint, exchange, use, ...(await showKill(origin, { mint, exchange, use })) };
}

/** Shows the kill: another impersonation begins, and an operator lists and ends it. */
async function showKill(origin, { mint, exchange, use }) {
  title(`${AGENT} begins another impersonation, as before: steps 1 to 3`);
  exchange = { ...exchange, form: { ...exchange.form, subject_token: await freshSubjectToken(mint) } };
  const { status, json } = await send(exchange);
  check(status === 200, `the exchange was answered with ${status}`);
  use = { ...use, bearer: keep('ACCESS_TOKEN', json.access_token) };
  await show(use, 200);

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

async function showEnded(use) {
  const ended = await show(use, 401);
  check(ended.error === 'invalid_token', 'the error is not invalid_token');
}

/** Gets the access tokens of the backend and of the agent. The agent signs in. */
export async function beforeTheFlow(origin) {
  title('Before the flow: the backend gets a machine\'s access token from the identity gateway');
  const machine = await show({
    url: `${origin}/oidc/token`,
    basic: BACKEND,
    form: { grant_type: 'client_credentials', scope: 'impersonate users:read', resource: `${origin}/api` },
  }, 200);
  const backendToken = keep('BACKEND_TOKEN', machine.access_token);

  title(`Before the flow: ${AGENT} signs in at the support portal (scripted here: no page, no password)`);
  return { backendToken, agentToken: keep('AGENT_TOKEN', await signIn(origin)) };
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

/** Returns the same requests with fresh tokens, for pasting into another shell. */
export async function pasteable({ mint, exchange, use, list, revoke }) {
  exchange.form.subject_token = await freshSubjectToken(mint);
  use.bearer = keep('ACCESS_TOKEN', (await send(exchange)).json.access_token);
  exchange.form.subject_token = keep('SUBJECT_TOKEN', await freshSubjectToken(mint));
  return { mint: curl(mint), exchange: curl(exchange), use: curl(use), list: curl(list), revoke: curl(revoke) };
}

async function freshSubjectToken(mint) {
  const { status, json } = await send(mint);
  check(status === 201, `the mint was answered with ${status}`);
  return json.subjectToken;
}

async function signIn(origin) {
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
  })}`);
  const tokens = await show({
    url: `${origin}/oidc/token`,
    basic: PORTAL,
    form: {
      grant_type: 'authorization_code',
      code: callback.searchParams.get('code'),
      redirect_uri: REDIRECT_URI,
      code_verifier: verifier,
    },
  }, 200);
  return tokens.access_token;
}
