// The page as people see it: Debian's Chromium, Envoy with the filter and the guard, the identity
// gateway.
import { execFileSync } from 'node:child_process';
import { chromium } from 'playwright-core';
import { ROOT } from '../stack/envoy.js';
import { parties, signIn } from '../stack/client.js';
import { operatorRequest } from '../stack/flow.js';
import { ACCESS_TOKEN, client, EXCHANGE } from '../stack/names.js';
import { send } from '../stack/requests.js';
import { serve } from '../stack/server.js';
import { startEnvoyOn, startStack } from '../stack/shipped.js';

export const PAGE = '/impersonations/';

/** A name of each kind that pages get wrong. Each is one user, and one reason. */
export const STRANGE = [
  '<img src=x onerror="document.title=\'markup\'"><script>document.title="markup"</script>',
  '\u05e9\u05dc\u05d5\u05dd \u202egnp.exe 123',
  'x'.repeat(255),
  '👩🏽‍🚒 fire 🔥',
];

/** The API in the pictures. */
export const SHOWN_API = 'https://api.example.com/orders';

/**
 * Starts gateway and Envoy. `restartEnvoy` starts Envoy again at the same address, with another
 * configuration (see [`forTests`]).
 */
export async function startConsole() {
  // Says of each name that it is a user's, of the strange ones too.
  const { port: users } = await serve((request, response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
  });
  const edit = (options) => (yaml) => forTests(yaml, { ...options, users });
  const stack = await startStack(edit({ approvals: true }));
  const people = await parties(stack.origin);
  return { ...stack, people, ...actions(stack.origin, people), restartEnvoy: ({ etcd, ...options }) => startEnvoyOn(stack.ports, edit(options), etcd && withEtcd(etcd)) };
}

/** The shipped configuration with its store in etcd. */
const withEtcd = (addresses) => execFileSync(`${ROOT}scripts/envoy-in-cluster`, addresses, { encoding: 'utf8' });

/** The section of approvals in the shipped configuration. */
const APPROVALS = /^ {20}approvals:\n(?: {21,}.*\n)+/m;

/**
 * The shipped configuration, with a list that shows contexts, and users of any name. Without
 * `approvals` nobody can approve. `capacity` limits the list.
 */
function forTests(yaml, { users, approvals, capacity }) {
  const edits = [
    ['  - name: identity_gateway\n    connect_timeout', `  - name: users\n    connect_timeout: 1s\n    load_assignment:\n      cluster_name: users\n      endpoints:\n      - lb_endpoints:\n        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: ${users}}}}\n$&`],
    ['# context: [ticketId, reason] # Yours: members that the list shows', `context: [ticketId, reason]${capacity ? `\n                      capacity: ${capacity}` : ''}`],
    ['/api/users/{userId}", cluster: identity_gateway', '/api/users/{userId}", cluster: users'],
    // Some of the test's impersonations have no actor.
    ['required: true', 'required: false'],
    ['                    resources:\n', `$&                    - {indicator: "${SHOWN_API}", scopes: ["orders:read", "orders:write"]}\n`],
    ...approvals ? [] : [
      [APPROVALS.exec(yaml)?.[0] ?? 'approvals:', ''],
      [', impersonations:approve]', ']'],
    ],
  ];
  for (const [from, to] of edits) {
    if (!yaml.includes(from)) throw new Error(`envoy.yaml does not have: ${from}`);
    yaml = yaml.replace(from, () => to.replace('$&', () => from));
  }
  return yaml;
}

/**
 * What backend and agents do: `mint` answers with the subject token and its id, `exchange` with
 * status and body, `begin` does both and answers with the access token, and `takeBack` ends it.
 */
function actions(origin, { portal, backendToken }) {
  const actors = new Map();
  const minted = [];
  const mint = async ({ userId = 'user-42', context = {}, ...members }) => {
    const { status, headers, text, json } = await send({ url: `${origin}/api/subject-tokens`, bearer: backendToken, json: { userId, context, ...members } });
    if (status !== 201) throw new Error(`the mint was answered with ${status}: ${text}`);
    const id = headers.get('location').split('/').at(-1);
    minted.push(id);
    return { id, subjectToken: json.subjectToken };
  };
  const exchange = async (subjectToken, { actor, scope = 'orders:read', resource = `${origin}/orders` } = {}) => {
    if (actor && !actors.has(actor)) actors.set(actor, (await signIn(portal, actor)).access_token);
    const { status, json: body } = await send({
      url: `${origin}/oidc/token`,
      basic: client('support-portal'),
      form: {
        grant_type: EXCHANGE,
        scope,
        resource,
        subject_token: subjectToken,
        subject_token_type: ACCESS_TOKEN,
        ...(actor && { actor_token: actors.get(actor), actor_token_type: ACCESS_TOKEN }),
      },
    });
    return { status, body };
  };
  const begin = async ({ userId, context, expiresIn, ...exchanged }) => {
    const { subjectToken } = await mint({ userId, context, ...(expiresIn && { accessTokenExpiresIn: expiresIn }) });
    const { status, body } = await exchange(subjectToken, exchanged);
    if (status !== 200) throw new Error(`the exchange was answered with ${status}: ${JSON.stringify(body)}`);
    return body.access_token;
  };
  /** Takes back one subject token, or all that were minted. Those that were exchanged are over. */
  const takeBack = async (ids = minted.splice(0)) => {
    for (const id of [ids].flat()) await send({ url: `${origin}/api/subject-tokens/${id}`, method: 'DELETE', bearer: backendToken });
  };
  return { mint, exchange, begin, takeBack };
}

/** An access token that ends everything between two tests. */
export async function operator(origin) {
  return (await send(operatorRequest(origin))).json.access_token;
}

/**
 * Starts Chromium. `open` returns a tab with a profile of its own, which records what a page must
 * not do: errors on the console, requests elsewhere.
 */
export async function startBrowser(origin) {
  execFileSync(`${ROOT}scripts/chromium`, ['--version']); // fetches it
  const browser = await chromium.launch({
    executablePath: `${ROOT}scripts/chromium`,
    args: ['--no-sandbox', '--disable-quic', '--disable-background-networking'],
    timeout: 120_000,
  });
  const open = async (options = {}) => {
    const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, locale: 'en-GB', ...options });
    const page = await context.newPage();
    page.setDefaultTimeout(60_000);
    page.wrong = [];
    page.on('console', (message) => ['error', 'warning'].includes(message.type()) && page.wrong.push(`${message.type()}: ${message.text()}`));
    page.on('pageerror', (error) => page.wrong.push(`thrown: ${error.stack}`));
    page.on('request', (request) => {
      const url = new URL(request.url());
      if (url.protocol === 'data:') return;
      if (url.origin !== origin) page.wrong.push(`request elsewhere: ${url}`);
      // The page is one document: nothing of it is loaded besides.
      if (!['document', 'fetch'].includes(request.resourceType())) page.wrong.push(`a ${request.resourceType()} from ${url}`);
    });
    return page;
  };
  return { browser, open };
}

/** Opens the page and signs in as `who`, at the gateway's form. */
export async function enter(page, origin, who = 'oncall-1', view = '') {
  await page.goto(`${origin}${PAGE}${view}`);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('button', { name: who }).click();
  await page.getByText(`Signed in as ${who}`).waitFor();
}
