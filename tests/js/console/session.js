// A fake of a session's host, for the banner: the application's pages, and what the filter answers
// at `me`, `end` and `banner.js`. The filter itself is not here. Tests that have it begin a session
// through Envoy.
import { readFileSync } from 'node:fs';
import { ROOT } from '../stack/envoy.js';
import { serve } from '../stack/server.js';

const BANNER = readFileSync(`${ROOT}target/console/banner.js`);

/** The strictest policy with which the banner must work. */
const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; frame-src 'self'; "
  + "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HEAD = '<!doctype html><link rel="icon" href="data:,">';

const STYLES = {
  plain: 'h1 { margin: 0 } main { min-height: 1600px }',
  full: 'html, body { margin: 0; height: 100%; overflow: hidden } body { display: flex; flex-direction: column } main { flex: 1 }',
  hostile: `html * { display: none !important; visibility: hidden !important; opacity: 0 !important; clip-path: circle(0) !important;
    transform: scale(0) !important; filter: opacity(0) !important; pointer-events: none !important; inset: 100% !important;
    width: 0 !important; height: 0 !important; z-index: -1 !important; transition: all 1000s !important; content-visibility: hidden !important }
    impersonation-banner { all: unset !important } body, main { display: block !important }`,
};

/** Starts the host. Tests change `me`, its answer. `asked` counts by method and path. */
export async function startSession() {
  const state = {
    me: {},
    status: 200,
    end: 200,
    /** With 204 a tab stays where it is, so that a test sees it covered. */
    ended: 200,
    asked: new Map(),
    count: (what) => state.asked.get(what) ?? 0,
    /** Makes a new session. */
    renew(members = {}) {
      const now = Date.now();
      Object.assign(state, { status: 200, end: 200, ended: 200 });
      state.asked.clear();
      state.me = {
        id: 'b41'.padEnd(28, '0'), userId: 'user-42', actorId: 'agent-1', clientId: 'support-desk', scope: 'shop', resource: `${state.origin}/`,
        readOnly: true, context: { ticketId: 'T-1001' }, issuedAt: new Date(now).toISOString(), expiresAt: new Date(now + 900_000).toISOString(),
        ended: `${state.origin}/ended`, ...members,
      };
    },
  };
  const answers = {
    'GET /.impersonation/me': () => (typeof state.status === 'number'
      ? [state.status, { 'content-type': 'application/json' }, JSON.stringify(state.status === 200 ? state.me : { error: 'x' })]
      : state.status),
    'POST /.impersonation/end': () => [state.end, { 'content-type': 'application/json' }, JSON.stringify({ location: `${state.origin}/stopped` })],
    'GET /.impersonation/banner.js': () => [200, { 'content-type': 'text/javascript' }, BANNER],
    'GET /ended': () => [state.ended, { 'content-type': 'text/html' }, `${HEAD}<title>Ended</title>`],
    'GET /stopped': () => [200, { 'content-type': 'text/html' }, `${HEAD}<title>Stopped</title>`],
  };
  const { port, stop } = await serve((request, response) => {
    const url = new URL(request.url, 'http://host');
    const what = `${request.method} ${url.pathname}`;
    state.asked.set(what, state.count(what) + 1);
    if (state.status === 'gone' && url.pathname === '/.impersonation/me') return request.socket.destroy();
    const style = /^\/(\w+)\.css$/.exec(url.pathname)?.[1];
    const [status, headers, body] = answers[what]?.()
      ?? (style ? [200, { 'content-type': 'text/css' }, STYLES[style]] : [200, { 'content-type': 'text/html; charset=utf-8' }, page(url.searchParams)]);
    response.writeHead(status, { 'cache-control': 'no-store', 'content-security-policy': POLICY, ...headers }).end(body);
  });
  return Object.assign(state, { origin: `http://127.0.0.1:${port}`, stop });
}

/** A page of the application. The query has its language, its style and the banner's attributes. */
function page(query) {
  const { lang = 'en', dir = 'ltr', style = 'plain', frame, ...attributes } = Object.fromEntries(query);
  const quoted = (value) => value.replaceAll('&', '&amp;').replaceAll('"', '&quot;');
  const line = Object.entries(attributes).map(([name, value]) => ` data-${name}="${quoted(value)}"`).join('');
  return `<!doctype html>
<html lang="${lang}" dir="${dir}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Orders</title>
<link rel="icon" href="data:,"><link rel="stylesheet" href="/${style}.css">
<script type="module" src="/.impersonation/banner.js"${line}></script></head>
<body><main><h1>Orders</h1><button id="order">Order</button>${frame ? '<iframe title="Prices" src="/prices"></iframe>' : ''}
<dialog id="first" aria-label="First"><button>Yes</button></dialog><dialog id="second" aria-label="Second"><button>No</button></dialog>
<div id="above" popover>A menu</div></main>
<footer id="last">The last line</footer></body></html>`;
}
