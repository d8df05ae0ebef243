// Browser sessions as people have them: the shipped envoy.yaml with filter, guard and the listener
// of sessions, the demo's shop and support console, and pages of strangers.
import { readFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { once } from 'node:events';
import { parties, signIn } from '../stack/client.js';
import { replacedOnce } from '../stack/envoy.js';
import { operatorRequest } from '../stack/flow.js';
import { startGateway } from '../stack/gateway.js';
import { ACCESS_TOKEN, EXCHANGE } from '../stack/names.js';
import { freePorts } from '../stack/process.js';
import { send } from '../stack/requests.js';
import { serve } from '../stack/server.js';
import { newPorts, startEnvoyOn } from '../stack/shipped.js';
import { startShop, withOrdinaryShop } from '../stack/shop.js';

/** agent-1 may do everything. Other agents only read, as with the shipped file. */
const RULES = `
                    rules:
                    - {path_prefix: /, methods: [POST, CONNECT], actors: [agent-1], action: allow}`;

/** Scopes with which a token becomes as long as one likes. */
export const SCOPES = Array.from({ length: 600 }, (_, number) => `s${String(number).padStart(3, '0')}`);

/**
 * Starts everything. `pages` are those of strangers, `wire` is what reaches the shop, and `begin`
 * opens a session in a tab, without the support console.
 */
export async function startSessions() {
  const [apis, sessions, shopPort, consolePort] = await freePorts(4);
  const wire = await startWire(shopPort);
  const pages = await startPages();
  const { port: users } = await serve((request, response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
  });
  const ports = { ...(await newPorts()), apis, sessions, shop: wire.port, console: consolePort };
  const origin = `http://127.0.0.1:${ports.public}`;
  const support = `http://localhost:${consolePort}`;
  const domain = `as-user.localhost:${sessions}`;
  const begun = `http://console.localhost:${pages.port}`;
  const gateway = await startGateway({ port: ports.gateway, apis, origin, env: { CONSOLE_ORIGIN: support } });
  const shop = await startShop({
    env: { SHOP_PORT: `${shopPort}`, CONSOLE_PORT: `${consolePort}`, GATEWAY_ORIGIN: origin, SESSIONS_ORIGIN: `http://${domain}` },
  });
  const edit = (yaml) => [
    [/begin_from: \[[^\]]*/, `$&, "${begun}"`],
    [/scopes: \[shop:use/, `$&, ${SCOPES.join(', ')}`],
    [/^ +browser_session: .*/m, `$&${RULES}`],
    [/# context: \[ticketId, reason\].*/, 'context: [ticketId, reason]'],
    // Says of each name that it is a user's, of strange ones too.
    [/api\/users\/\{userId\}", cluster: identity_gateway/, 'api/users/{userId}", cluster: users'],
    [/^ {2}clusters:\n/m, `$&  - name: users
    connect_timeout: 1s
    load_assignment:
      cluster_name: users
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: ${users}}}}
`],
  ].reduce((edited, [pattern, text]) => replacedOnce(edited, pattern, text), withOrdinaryShop(yaml));
  const { log } = await startEnvoyOn(ports, edit);
  const { portal, backendToken } = await parties(origin);
  const { json: { access_token: operator } } = await send(operatorRequest(origin));
  const agents = new Map();
  const resource = `http://${domain}/`;
  const hostOf = (id) => `http://${id}.${domain}`;

  /** Mints for agent-1. Returns the id, the session's origin, and the fields of the form. */
  const mint = async ({ userId = 'user-42', actor = 'agent-1', landing = '/orders', ...bounds } = {}) => {
    const { status, text, headers, json } = await send({
      url: `${origin}/api/subject-tokens`, bearer: backendToken,
      json: { userId, actorId: actor, clientId: 'support-console', resource, scope: 'shop:use', context: { ticketId: 'T-1001' }, ...bounds },
    });
    if (status !== 201) throw new Error(`the mint was answered with ${status}: ${text}`);
    if (!agents.has(actor)) agents.set(actor, (await signIn(portal, actor)).access_token);
    const id = headers.get('location').split('/').at(-1);
    const fields = {
      grant_type: EXCHANGE, client_id: 'support-console', resource, scope: 'shop:use', landing,
      subject_token: json.subjectToken, subject_token_type: ACCESS_TOKEN, actor_token: agents.get(actor), actor_token_type: ACCESS_TOKEN,
    };
    return { id, host: hostOf(id), fields, begin: `${hostOf(id)}/.impersonation/begin` };
  };

  return {
    origin, support, ports, domain, wire, pages, mint, hostOf,
    shopOrigin: `http://shop.localhost:${ports.public}`,
    /** All that was logged by programs that ran. */
    logs: () => [readFileSync(log, 'utf8'), gateway.tail(Infinity), shop.tail(Infinity)].join('\n'),
    /** The lines of the access log about a path of a session. */
    logged: (path) => readFileSync(log, 'utf8').split('\n').filter((line) => line.startsWith('{') && line.includes(`"path":"${path}"`)).map((line) => JSON.parse(line)),
    /** Ends an impersonation as the person on call does. */
    kill: (id) => send({ url: `${origin}/api/impersonations/${id}`, method: 'DELETE', bearer: operator }),
    list: async () => (await send({ url: `${origin}/api/impersonations`, bearer: operator })).json,
    /** Posts the form of a minted session, from a page that may begin sessions. */
    post: async (tab, minted) => {
      await tab.open(pages.at('console', formOf(minted.begin, minted.fields)));
      await tab.clickOn("document.querySelector('button')");
    },
  };
}

/** A page with a form of these fields. */
export function formOf(action, fields, attributes = '') {
  const quoted = (value) => value.replaceAll('&', '&amp;').replaceAll('"', '&quot;');
  const inputs = Object.entries(fields).map(([name, value]) => `<input type="hidden" name="${name}" value="${quoted(value)}">`);
  return `<form method="post" action="${action}" ${attributes}>${inputs.join('')}<button>Go on</button></form>`;
}

/** Pages on any host below `localhost`. `at` returns the address of a new one. */
async function startPages() {
  const pages = [];
  const { port } = await serve((request, response) => {
    const page = pages[Number(request.url.slice(1))];
    response.writeHead(page === undefined ? 404 : 200, { 'content-type': 'text/html; charset=utf-8' });
    response.end(page ?? '');
  });
  const at = (host, html) => {
    pages.push(`<!doctype html><html lang="en"><link rel="icon" href="data:,"><title>A page</title>${html}`);
    return `http://${host}.localhost:${port}/${pages.length - 1}`;
  };
  return { port, at };
}

/**
 * Stands between Envoy and the shop, and remembers what Envoy sends. While it is held, nothing
 * reaches the shop.
 */
async function startWire(shop) {
  const sent = [];
  const wire = {};
  let held;
  let release;
  const server = createServer((socket) => {
    const upstream = connect(shop, '127.0.0.1');
    socket.on('data', async (chunk) => {
      sent.push(chunk.toString('latin1'));
      if (wire.answers) return socket.write(wire.answers);
      await held;
      if (!socket.destroyed) upstream.write(chunk);
      return undefined;
    });
    upstream.pipe(socket);
    for (const [one, other] of [[socket, upstream], [upstream, socket]]) {
      one.on('error', () => other.destroy());
      one.on('close', () => other.destroy());
    }
  });
  server.listen(0, '127.0.0.1').unref();
  await once(server, 'listening');
  return Object.assign(wire, {
    port: server.address().port,
    /** If it is there, each request gets this answer, and does not reach the shop. */
    answers: undefined,
    bytes: () => sent.join(''),
    forget: () => sent.splice(0),
    requests: () => [...sent.join('\n').matchAll(/^(GET|HEAD|POST|PUT|DELETE|OPTIONS) (\S+) HTTP\/1\.1\r$/gm)].map(([, method, path]) => `${method} ${path}`),
    hold() {
      held = new Promise((resolve) => { release = resolve; });
    },
    release: () => release(),
  });
}
