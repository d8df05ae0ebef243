// The support console: an agent signs in, names a customer and a reason, and opens the shop as that
// customer in a tab of its own. The console mints by its backend; the tab's form is the exchange.
import { randomBytes, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { cookieOf, formOf, html, redirect, routed, sendPage } from './html.js';

const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';
const CUSTOMERS = [['user-42', 'Una User'], ['user-43', 'Uwe User']];
const file = (name) => readFileSync(new URL(name, import.meta.url));

/**
 * Returns the handler. `origin` is the console's own, `gateway` that of the identity gateway behind
 * Envoy, and `sessions` that of the sessions, without the label. `portal` signs agents in, and
 * `backend` mints; both are [id, secret]. `client` is the support client that exchanges.
 */
export function createConsole({ origin, gateway, sessions, portal, backend, client, scope }) {
  const agents = new Map();
  const signIns = new Set();
  const resource = `${sessions}/`;
  const { protocol, host } = new URL(sessions);

  /** Sends a form as a client. Returns the answer, which must have this status. */
  const post = async (url, { basic, bearer, form, json }, status) => {
    const authorization = bearer ? `Bearer ${bearer}` : `Basic ${Buffer.from(basic.join(':')).toString('base64')}`;
    const response = await fetch(url, {
      method: 'POST',
      headers: { authorization, ...(json && { 'content-type': 'application/json' }) },
      body: json ? JSON.stringify(json) : new URLSearchParams(form),
    });
    const body = await response.json();
    if (response.status !== status) throw new Error(body.error_description ?? `${url} answered with ${response.status}`);
    return { response, body };
  };
  const agentOf = (request) => agents.get(cookieOf(request, 'console'));

  return routed({
    'GET /style.css': (request, response) => response.writeHead(200, { 'content-type': 'text/css' }).end(file('style.css')),
    'GET /go.js': (request, response) => response.writeHead(200, { 'content-type': 'text/javascript' }).end('document.forms[0].submit();\n'),
    'GET /': (request, response) => {
      const agent = agentOf(request);
      sendPage(response, 'Support console', agent ? customersPage(agent) : html`<main><h1>Support console</h1><p><a href="/sign-in">Sign in</a></p></main>`);
    },
    'GET /sign-in': (request, response) => {
      const state = randomUUID();
      signIns.add(state);
      const asked = { client_id: portal[0], response_type: 'code', scope: 'openid', redirect_uri: `${origin}/callback`, state };
      redirect(response, `${gateway}/oidc/auth?${new URLSearchParams(asked)}`, { 'set-cookie': `state=${state}; Path=/; HttpOnly; SameSite=Lax` });
    },
    'GET /callback': async (request, response, { searchParams }) => {
      const state = searchParams.get('state');
      if (state !== cookieOf(request, 'state') || !signIns.delete(state)) throw new Error('this sign-in was begun in another browser');
      const form = { grant_type: 'authorization_code', code: searchParams.get('code') ?? '', redirect_uri: `${origin}/callback` };
      const { body } = await post(`${gateway}/oidc/token`, { basic: portal, form }, 200);
      const { sub } = JSON.parse(Buffer.from(body.id_token.split('.')[1], 'base64url'));
      const key = randomBytes(24).toString('base64url');
      agents.set(key, { id: sub, token: body.access_token });
      redirect(response, '/', { 'set-cookie': `console=${key}; Path=/; HttpOnly; SameSite=Lax` });
    },
    // The answer is in the new tab. Its form has the console's origin, which `begin` asks for.
    'POST /open': async (request, response) => {
      const agent = agentOf(request);
      if (!agent || request.headers.origin !== origin) return redirect(response, '/');
      const asked = await formOf(request);
      const machine = { grant_type: 'client_credentials', scope: 'impersonate users:read', resource: `${gateway}/api` };
      const { body: { access_token: bearer } } = await post(`${gateway}/oidc/token`, { basic: backend, form: machine }, 200);
      const { response: minted, body: { subjectToken } } = await post(`${gateway}/api/subject-tokens`, {
        bearer,
        json: {
          userId: asked.get('user'), actorId: agent.id, clientId: client, resource, scope,
          context: { ticketId: asked.get('ticket'), reason: asked.get('reason') },
        },
      }, 201);
      const txn = minted.headers.get('location').split('/').at(-1);
      const target = `${protocol}//${txn}.${host}`;
      const fields = {
        grant_type: EXCHANGE, client_id: client, resource, scope, landing: '/orders',
        subject_token: subjectToken, subject_token_type: ACCESS_TOKEN, actor_token: agent.token, actor_token_type: ACCESS_TOKEN,
      };
      return sendPage(response, 'Opening the shop', html`<main><h1>Opening the shop as <bdi>${asked.get('user')}</bdi> …</h1>
<form method="post" action="${target}/.impersonation/begin">${Object.entries(fields).map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`)}
<button>Go on</button></form></main>`, { head: html`<script type="module" src="/go.js"></script>`, forms: target });
    },
    'GET /ended': (request, response) => sendPage(response, 'Ended', html`<main><h1>The session has ended</h1>
<p>You can close this tab, or go <a href="/">back to the customers</a>.</p></main>`),
  });
}

/** The form has no `noreferrer`, with which `Origin` would be `null`. */
function customersPage({ id }) {
  return html`<header><strong>Support console</strong><span>Signed in as <bdi>${id}</bdi></span></header>
<main><h1>Customers</h1>${CUSTOMERS.map(([user, name]) => html`
<section aria-labelledby="${user}"><h2 id="${user}">${name} (${user})</h2>
<form method="post" action="/open" target="_blank" rel="noopener"><input type="hidden" name="user" value="${user}">
<label>Ticket <input name="ticket" value="T-1001" required></label> <label>Reason <input name="reason" value="The customer cannot see an order" required></label>
<button>Open the shop as ${name}</button></form></section>`)}</main>`;
}
