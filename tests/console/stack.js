// The page as people see it: Debian's Chromium, Envoy with the filter and the guard, the identity
// gateway.
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { chromium } from 'playwright-core';
import { ROOT } from '../../stack/envoy.js';
import { oidc, parties, SECRETS, signIn } from '../clients/client.js';
import { startEnvoyOn, startStack } from '../clients/stack.js';

export const PAGE = '/impersonations/';

/** A name of each kind that pages get wrong. Each is one user, and one reason. */
export const STRANGE = [
  '<img src=x onerror="document.title=\'markup\'"><script>document.title="markup"</script>',
  '\u05e9\u05dc\u05d5\u05dd \u202egnp.exe 123',
  'x'.repeat(255),
  '👩🏽‍🚒 fire 🔥',
];

export async function startConsole() {
  // Says of each name that it is a user's, of the strange ones too.
  const server = createServer((request, response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  server.unref();
  const edit = (yaml) => forTests(yaml, server.address().port);
  const stack = await startStack(edit);
  const people = await parties(stack.origin);
  return { ...stack, people, server, begin: begin(stack.origin, people), restartEnvoy: () => startEnvoyOn(stack.ports, edit) };
}

/** The shipped configuration, with a list that shows contexts, and users of any name. */
function forTests(yaml, port) {
  const edits = [
    ['  - name: identity_gateway\n    connect_timeout', `  - name: users\n    connect_timeout: 1s\n    load_assignment:\n      cluster_name: users\n      endpoints:\n      - lb_endpoints:\n        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: ${port}}}}\n$&`],
    ['# context: [ticketId, reason] # Yours: members that the list shows', 'context: [ticketId, reason]'],
    ['/api/users/{userId}", cluster: identity_gateway', '/api/users/{userId}", cluster: users'],
    // Some of the test's impersonations have no actor.
    ['required: true', 'required: false'],
  ];
  for (const [from, to] of edits) {
    if (!yaml.includes(from)) throw new Error(`envoy.yaml does not have: ${from}`);
    yaml = yaml.replace(from, to.replace('$&', () => from));
  }
  return yaml;
}

/** Returns a function that begins an impersonation, and returns its access token. */
function begin(origin, { portal, backendToken }) {
  const actors = new Map();
  return async ({ userId = 'user-42', actor, context = {}, scope = 'orders:read', expiresIn }) => {
    if (actor && !actors.has(actor)) actors.set(actor, (await signIn(portal, actor)).access_token);
    const minted = await fetch(`${origin}/api/subject-tokens`, {
      method: 'POST',
      headers: { authorization: `Bearer ${backendToken}`, 'content-type': 'application/json' },
      body: JSON.stringify({ userId, context, ...(expiresIn && { accessTokenExpiresIn: expiresIn }) }),
    });
    if (minted.status !== 201) throw new Error(`the mint was answered with ${minted.status}: ${await minted.text()}`);
    const { subjectToken } = await minted.json();
    const type = 'urn:ietf:params:oauth:token-type:access_token';
    const tokens = await oidc.genericGrantRequest(portal, 'urn:ietf:params:oauth:grant-type:token-exchange', {
      scope,
      resource: `${origin}/orders`,
      subject_token: subjectToken,
      subject_token_type: type,
      ...(actor && { actor_token: actors.get(actor), actor_token_type: type }),
    });
    return tokens.access_token;
  };
}

/** An access token that ends everything between two tests. */
export async function operator(origin) {
  const response = await fetch(`${origin}/oidc/token`, {
    method: 'POST',
    headers: { authorization: `Basic ${Buffer.from(`operations:${SECRETS.operations}`).toString('base64')}` },
    body: new URLSearchParams({ grant_type: 'client_credentials', scope: 'impersonations:read impersonations:revoke', resource: `${origin}/api` }),
  });
  return (await response.json()).access_token;
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
      if (url.protocol !== 'data:' && url.origin !== origin) page.wrong.push(`request elsewhere: ${url}`);
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
