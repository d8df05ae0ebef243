// The flow in three steps through Envoy, and its early ends: each step is shown and checked.
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRemoteJWKSet, exportJWK, generateKeyPair, jwtVerify, SignJWT } from 'jose';
import { followTo } from './browser.js';
import { poll } from './envoy.js';
import { ACCESS_TOKEN, EXCHANGE, REDIRECT_URI, client } from './names.js';
import { curl, keep, mention, send } from './requests.js';
import { check, print, show, title } from './show.js';

const SIGNED_OUT_URI = 'http://127.0.0.1/signed-out';
const CONTEXT = { ticketId: 'T-1001', reason: 'The customer cannot see an order' };

/** The parties. */
const BACKEND = client('integrator-backend');
const OPERATIONS = client('operations');
const PORTAL = client('support-portal');
const CONSOLE = 'support-console';
export const AGENT = 'agent-1';
export const COLLEAGUE = 'agent-2';
const CUSTOMER = 'user-42';

/**
 * Shows everything. `log` is the file of Envoy's log, if its audit lines are to be shown, and
 * `hook` is the one that Envoy tells what happens, if there is one.
 */
export async function showFlow(origin, { log, hook } = {}) {
  const orders = `${origin}/orders`;

  const { backendToken, agentToken, browser } = await beforeTheFlow(origin);

  title(`Step 1: ${AGENT} asks the integrator's backend to act as ${CUSTOMER}`);
  console.log('The endpoint is the integrator\'s own, and checks that the agent may do so. Here it allows it.');

  title(`Step 2: the backend asks for a subject token for ${CUSTOMER}, which a second person must approve`);
  const mint = mintRequest(origin, backendToken);
  const minted = await show({ ...mint, json: { ...mint.json, approvals: 1 } }, 201);
  const subjectToken = keep('SUBJECT_TOKEN', minted.subjectToken);

  title('The agent waits: nobody has approved it yet');
  const exchange = exchangeRequest(origin, subjectToken, agentToken);
  const early = await show(exchange, 400);
  check(early.error === 'authorization_pending', 'the error is not authorization_pending');

  title(`${COLLEAGUE}, a colleague, approves: here by curl, else by \`impersonation-filter approvals\` or on the page`);
  const approved = await showApproval(origin);

  title('Step 3: the support portal exchanges it, showing who is acting, for a token bound to one API');
  const granted = await show(exchange, 200);
  const accessToken = keep('ACCESS_TOKEN', granted.access_token);
  check(granted.token_type === 'Bearer' && granted.issued_token_type === ACCESS_TOKEN, 'wrong type of token');
  check(granted.scope === 'orders:read', 'the scope is not the requested one');
  check(!('refresh_token' in granted), 'a refresh token came with it');

  if (hook) {
    title(`${CUSTOMER} is told: the filter has sent a signed notice to a hook, which writes to the user`);
    const { data } = await hook.told('impersonation.began.v1', approved.id);
    console.log(`To ${data.userId}: ${data.actorId} sees your account until ${data.expiresAt}. ${data.context.reason} (${data.context.ticketId}).`);
  }

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
  await showBound(flow);
  await showLogout(flow, { browser, log });
  return { ...flow, ...kill };
}

/** A colleague approves the one impersonation that waits. Returns its row. */
async function showApproval(origin) {
  const { json: { access_token: token } } = await send(await approverRequest(origin, COLLEAGUE));
  keep('COLLEAGUE_TOKEN', token);
  const { json: { approvals: [row] } } = await send({ url: `${origin}/api/approvals`, bearer: token });
  const decision = { decision: 'approve', reason: `I know ${CONTEXT.ticketId}` };
  const decided = await show({ url: `${origin}/api/approvals/${row.id}`, bearer: token, json: decision }, 200);
  check(decided.state === 'approved', 'the state is not approved');
  check(decided.userId === CUSTOMER && decided.actorId === AGENT, 'somebody else was approved');
  return decided;
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

/**
 * Shows a token that is bound to a key of the client's, and that it is worth nothing without it.
 */
async function showBound({ origin, mint, exchange, use }) {
  title('The support console runs in a browser. It has a key that cannot be copied, and binds its token to it');
  const key = await newKey();
  const { basic, ...theirs } = exchange;
  const subject_token = await freshSubjectToken({ ...mint, json: { ...mint.json, clientId: CONSOLE } });
  const request = {
    ...theirs,
    proof: mention('PROOF', await proofOf(key, 'POST', theirs.url)),
    form: { ...theirs.form, client_id: CONSOLE, subject_token: mention('ANOTHER_SUBJECT_TOKEN', subject_token) },
  };
  const { access_token: token, token_type: type } = await show(request, 200);
  check(type === 'DPoP', 'the token is not bound');
  mention('BOUND_TOKEN', token);

  title('With a proof by the key, the token opens the API');
  const called = { url: use.url, bound: token };
  await show({ ...called, proof: mention('PROOF', await proofOf(key, 'GET', use.url, token)) }, 200);

  title('A thief has the token and no key: neither alone nor with a proof by another key does it open anything');
  await showEnded({ url: use.url, bearer: token });
  await showEnded({ ...called, proof: mention('PROOF_BY_ANOTHER_KEY', await proofOf(await newKey(), 'GET', use.url, token)) });
}

/** A key pair of which only the public half can be read. */
const newKey = () => generateKeyPair('ES256', { extractable: false });

/** Signs a proof of the key for one request (RFC 9449), of an access token if there is one yet. */
async function proofOf({ publicKey, privateKey }, htm, htu, token) {
  const ath = token && createHash('sha256').update(token).digest('base64url');
  const claims = { htm, htu, jti: randomUUID(), ...(ath && { ath }) };
  return new SignJWT(claims).setIssuedAt()
    .setProtectedHeader({ typ: 'dpop+jwt', alg: 'ES256', jwk: await exportJWK(publicKey) })
    .sign(privateKey);
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
      grant_type: EXCHANGE,
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

/** An agent signs in. Returns the request that redeems the code. */
export async function signIn(origin, browser = new Map(), agent = AGENT) {
  const asked = { client_id: PORTAL[0], scope: 'openid', redirect_uri: REDIRECT_URI, login_hint: agent };
  return { basic: PORTAL, ...(await codeRequest(origin, asked, browser)) };
}

/** Somebody signs in at the page's client, which has no secret. */
export async function approverRequest(origin, person) {
  const resource = `${origin}/api`;
  const asked = {
    client_id: 'oncall', scope: 'openid impersonations:approve', resource, redirect_uri: `${origin}/impersonations/`, login_hint: person,
  };
  const { url, form } = await codeRequest(origin, asked);
  return { url, form: { ...form, client_id: asked.client_id, resource } };
}

/**
 * Somebody signs in, in a browser with these cookies. Returns the request that redeems the code.
 */
async function codeRequest(origin, asked, browser = new Map()) {
  const verifier = randomBytes(32).toString('base64url');
  const callback = await followTo(asked.redirect_uri, `${origin}/oidc/auth?${new URLSearchParams({
    ...asked,
    response_type: 'code',
    code_challenge: createHash('sha256').update(verifier).digest('base64url'),
    code_challenge_method: 'S256',
  })}`, undefined, browser);
  return {
    url: `${origin}/oidc/token`,
    form: {
      grant_type: 'authorization_code',
      code: callback.searchParams.get('code'),
      redirect_uri: asked.redirect_uri,
      code_verifier: verifier,
    },
  };
}
