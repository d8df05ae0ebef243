// The backend of the support console: it decides who may act as whom, and asks the filter for it.
import express from 'express';
import { auth } from 'express-oauth2-jwt-bearer';
import * as oidc from 'openid-client';

const { ISSUER, FILTER, AUDIENCE, API, APPLICATION, CLIENT_ID, CLIENT_SECRET, CONSOLE, PORT } = process.env;
const AGENTS = ['agent-1', 'agent-2'];
const USES = { api: { resource: API, scope: 'orders:read' }, application: { resource: APPLICATION, scope: 'shop:use' } };

/** Yours: returns the bounds within which the agent may act as the user, or undefined. */
function decide(agent, { ticketId, reason, use }) {
  if (!AGENTS.includes(agent) || !ticketId || !reason) return undefined;
  return USES[use] && { ...USES[use], expiresIn: 300, accessTokenExpiresIn: 600 };
}

const provider = await oidc.discovery(new URL(ISSUER), CLIENT_ID, undefined, oidc.ClientSecretBasic(CLIENT_SECRET), {
  execute: ISSUER.startsWith('http:') ? [oidc.allowInsecureRequests] : [], // on this machine alone
});
let machine;

/** One token of the machine's for all mints, until a minute before it expires. */
async function machineToken() {
  if (machine && Date.now() < machine.until) return machine.token;
  const granted = await oidc.clientCredentialsGrant(provider, { scope: 'impersonate users:read', resource: `${FILTER}/api` });
  machine = { token: granted.access_token, until: Date.now() + (granted.expiresIn() - 60) * 1000 };
  return machine.token;
}

async function filter(method, path, body) {
  return fetch(`${FILTER}/api/subject-tokens${path}`, {
    method,
    headers: { authorization: `Bearer ${await machineToken()}`, 'content-type': 'application/json' },
    body: body && JSON.stringify(body),
  });
}

/** Passes on what the agent can act on. A 401 is about the machine's token, not the agent's. */
async function refuse(response, answer) {
  const status = [400, 403, 404, 429, 503].includes(answer.status) ? answer.status : 502;
  response.status(status).json(status === 502 ? { error: 'server_error' } : await answer.json());
}

/** The row of a subject token that this agent asked for. Another agent's does not exist. */
async function rowOf(agent, id) {
  const answer = await filter('GET', `/${encodeURIComponent(id)}`);
  const row = answer.ok ? await answer.json() : undefined;
  return row?.actorId === agent ? row : undefined;
}

const app = express();
app.use(express.static(CONSOLE));
app.use('/impersonations', auth({ issuerBaseURL: ISSUER, audience: AUDIENCE, strict: true }), express.json());

app.post('/impersonations', async ({ auth: { payload: { sub: agent } }, body }, response) => {
  const bounds = decide(agent, body);
  if (!bounds) return response.status(403).json({ error: 'access_denied', error_description: `${agent} may not act as this user` });
  const { userId, ticketId, reason } = body;
  const answer = await filter('POST', '', {
    userId,
    context: { ticketId, reason },
    actorId: agent, // who has signed in, and nobody whom the body names
    clientId: 'support-console',
    ...bounds,
  });
  if (answer.status !== 201) return refuse(response, answer);
  const id = answer.headers.get('location').split('/').at(-1);
  const { resource, scope } = bounds;
  return response.status(201).set('cache-control', 'no-store').json({ id, ...await answer.json(), resource, scope });
});

app.get('/impersonations/:id', async ({ auth: { payload: { sub: agent } }, params: { id } }, response) => {
  const row = await rowOf(agent, id);
  return row ? response.json({ state: row.state }) : response.status(404).json({ error: 'not_found' });
});

app.delete('/impersonations/:id', async ({ auth: { payload: { sub: agent } }, params: { id } }, response) => {
  if (!await rowOf(agent, id)) return response.status(404).json({ error: 'not_found' });
  const answer = await filter('DELETE', `/${encodeURIComponent(id)}`);
  return answer.status === 204 ? response.status(204).end() : refuse(response, answer);
});

app.listen(PORT, '127.0.0.1', () => console.log('ready'));
