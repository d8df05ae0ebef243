// What the rules do as agents, users and operators, and in a browser.
import * as jose from 'jose';
import * as oidc from 'openid-client';
import { discover, parties, signIn } from '../stack/client.js';
import { operatorRequest, approverRequest } from '../stack/flow.js';
import { ACCESS_TOKEN, client, EXCHANGE } from '../stack/names.js';
import { send } from '../stack/requests.js';
import { startBrowser } from '../console/stack.js';

/** Signs people in, mints and exchanges at this stack. */
export async function startPeople(stack) {
  const { origin, console, sessions, key } = stack;
  const backendAudience = `${console}/impersonations`;
  const publicClient = await discover(origin, 'support-console', undefined, oidc.None());
  const people = await parties(origin);
  const machine = await discover(origin, 'integrator-backend');
  const operatorToken = async () => (await send(operatorRequest(origin))).json.access_token;
  const agents = new Map();

  /** An agent's tokens: for the exchange, and for the backend. */
  const agent = async (name) => {
    if (!agents.has(name)) {
      const granted = await signIn(publicClient, name, { scope: 'openid support:ask', resource: backendAudience });
      const second = await oidc.refreshTokenGrant(publicClient, granted.refresh_token, { resource: backendAudience });
      agents.set(name, { token: granted.access_token, idToken: granted.id_token, forBackend: second.access_token });
    }
    return agents.get(name);
  };
  /** A request to the example's backend. */
  const ask = async (name, json, { method = 'POST', id = '', token } = {}) => send({
    url: `${backendAudience}${id && `/${id}`}`, method, json, bearer: token ?? (await agent(name)).forBackend,
  });
  const WANTED = { userId: 'user-42', ticketId: 'T-1001', reason: 'An order is missing', use: 'api' };
  const wanted = (members) => ({ ...WANTED, ...members });
  /** An exchange by curl, so to say. */
  const exchange = async (subjectToken, { as = 'agent-1', portal = false, ...members } = {}) => send({
    url: `${origin}/oidc/token`,
    ...(portal && { basic: client('support-portal') }),
    form: {
      grant_type: EXCHANGE, ...(!portal && { client_id: 'support-console' }), scope: 'orders:read', resource: `${origin}/orders`,
      subject_token: subjectToken, subject_token_type: ACCESS_TOKEN,
      ...(as && { actor_token: (await agent(as)).token, actor_token_type: ACCESS_TOKEN }), ...members,
    },
  });
  /** An access token that acts as user-42, from another backend than the example's. */
  const impersonation = async (members) => {
    // A fresh one: it lives for ten minutes, and a busy machine needs longer for all languages.
    const { access_token: bearer } = await oidc.clientCredentialsGrant(machine, { scope: 'impersonate users:read', resource: `${origin}/api` });
    const { json: { subjectToken } } = await send({
      url: `${origin}/api/subject-tokens`, bearer, json: { userId: 'user-42', context: { ticketId: 'T-1', reason: 'a test' } },
    });
    const { json, text } = await exchange(subjectToken, { portal: true, ...members });
    if (!json.access_token) throw new Error(text);
    return json.access_token;
  };
  /** A user's own token for this resource. */
  const ownToken = async (user, resource, scope) => {
    const granted = await signIn(people.portal, user, { resource, scope: `openid ${scope}` });
    const { access_token: token } = await oidc.refreshTokenGrant(people.portal, granted.refresh_token, { resource });
    return { token, idToken: granted.id_token };
  };
  /**
   * Access tokens by the filter's own key, each wrong in one way. An API that accepts one of them
   * does not check it.
   */
  const wrongTokens = async (audience) => {
    const own = { key, typ: 'at+jwt', iss: `${origin}/oidc`, aud: audience, exp: '5m' };
    const stranger = await jose.exportJWK((await jose.generateKeyPair('ES256', { extractable: true })).privateKey);
    const sign = async ({ key: by, typ, iss, aud, exp }) => new jose.SignJWT({ client_id: 'support-console', scope: 'orders:read support:ask', jti: '1' })
      .setProtectedHeader({ alg: 'ES256', typ, kid: await jose.calculateJwkThumbprint(key) })
      .setIssuer(iss).setSubject('agent-1').setAudience(aud).setIssuedAt().setExpirationTime(exp).sign(await jose.importJWK(by, 'ES256'));
    const wrong = { key: stranger, typ: 'JWT', iss: 'https://elsewhere.example', aud: `${origin}/invoices`, exp: '5 minutes ago' };
    const signed = Object.entries(wrong).map(async ([name, value]) => [name, await sign({ ...own, [name]: value })]);
    return { none: '', right: await sign(own), ...Object.fromEntries(await Promise.all(signed)) };
  };
  const approve = async (id) => {
    const { json: { access_token: bearer } } = await send(await approverRequest(origin, 'approver-1'));
    return send({ url: `${origin}/api/approvals/${id}`, bearer, json: { decision: 'approve', reason: 'I know it' } });
  };
  const listed = async () => (await send({ url: `${origin}/api/impersonations`, bearer: await operatorToken() })).json.impersonations;
  const endAll = async () => send({ url: `${origin}/api/impersonations/revocations`, bearer: await operatorToken(), json: { all: true } });
  return { origin, console, sessions, agent, ask, wanted, exchange, impersonation, ownToken, wrongTokens, approve, listed, endAll };
}

/** Chromium, and the steps of an agent in the console. */
export async function startAgent({ origin, console, patience = 60_000 }) {
  const { browser, open } = await startBrowser(origin);
  const opened = [];
  const tab = async () => {
    const page = await open();
    page.context().setDefaultTimeout(patience);
    page.setDefaultTimeout(patience);
    opened.push(page.context());
    return page;
  };
  /** A profile of its own, in which an agent has signed in. `init` runs in each page first. */
  const enter = async (who = 'agent-1', init = undefined) => {
    const page = await tab();
    if (init) await page.addInitScript(init);
    await page.goto(console);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('button', { name: who }).click();
    await page.getByText(`Signed in as ${who}`).waitFor();
    return page;
  };
  const ask = async (page, userId = 'user-42', use = 'Use the API') => {
    await page.getByLabel('User').fill(userId);
    await page.getByRole('button', { name: use }).click();
  };
  const says = async (page, text) => page.getByRole('status').filter({ hasText: text }).waitFor();
  const acts = async (page, user = 'user-42') => page.getByRole('heading', { name: `agent-1 acts as ${user}` }).waitFor();
  const closeTabs = () => Promise.all(opened.splice(0).map((context) => context.close()));
  return { open: tab, enter, ask, says, acts, closeTabs, close: () => browser.close() };
}
