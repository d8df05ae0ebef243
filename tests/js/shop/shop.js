// The shop: an application with pages, as many have it. In a browser session an agent uses it as
// the user. All that it does for that: it takes the user from the header fields that Envoy sets,
// and has the banner's line in its pages.
//
// It believes these fields because nobody but Envoy reaches it, and Envoy removes what a browser
// sends under their names. On its ordinary host people sign in with a cookie of its own, which a
// session's host never gets: its domain is another.
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { bytesOf, cookieOf, formOf, html, redirect, routed, sendPage } from './html.js';
import { acceptWebSocket } from './websocket.js';

const file = (name) => readFileSync(new URL(name, import.meta.url));
const TICK_MS = 1_000;
const CUSTOMERS = ['user-42', 'user-43', 'vip-1', 'agent-1', 'agent-2'];

/** Returns the handlers of one shop, whose orders and sessions are its own. */
export function createShop() {
  const orders = new Map();
  const sessions = new Map();
  const visits = [];

  const ordersOf = (user) => {
    if (!orders.has(user)) orders.set(user, [{ id: '1001', item: 'Umbrella', quantity: 1, note: '' }, { id: '1002', item: 'Rubber boots', quantity: 2, note: '' }]);
    return orders.get(user);
  };

  /** The user of a request, and the agent who acts for the user, if one does. */
  const personOf = (request) => {
    const { 'x-jwt-payload': claims, 'x-impersonation-id': id, 'x-impersonator': actor } = request.headers;
    if (claims) return { user: JSON.parse(Buffer.from(claims, 'base64url')).sub, actor, id };
    return { user: sessions.get(cookieOf(request, 'shop')) };
  };

  const forCustomers = (handler) => (request, response, url) => {
    const person = personOf(request);
    if (person.user) return handler(request, response, { ...person, url });
    if (request.method === 'GET' && request.headers.accept?.includes('text/html')) return redirect(response, '/sign-in');
    response.writeHead(401).end();
    return undefined;
  };

  const answer = routed({
    'GET /': (request, response) => redirect(response, '/orders'),
    'GET /style.css': (request, response) => response.writeHead(200, { 'content-type': 'text/css' }).end(file('style.css')),
    'GET /shop.js': (request, response) => response.writeHead(200, { 'content-type': 'text/javascript' }).end(file('client.js')),
    // A shop for trying things out: it asks for no password.
    'GET /sign-in': (request, response) => sendPage(response, 'Sign in', html`<main><h1>Rainy Day Shop</h1><h2>Who are you?</h2>
      <form method="post" action="/sign-in">${CUSTOMERS.map((user) => html`<button name="user" value="${user}">${user}</button> `)}</form></main>`),
    'POST /sign-in': async (request, response) => {
      const user = (await formOf(request)).get('user');
      const key = randomUUID();
      if (CUSTOMERS.includes(user)) sessions.set(key, user);
      redirect(response, '/orders', { 'set-cookie': `shop=${key}; Path=/; HttpOnly; SameSite=Lax` });
    },
    'GET /orders': forCustomers((request, response, { user }) => sendPage(response, 'Your orders', shopPage(user, ordersOf(user)), {
      head: html`<script type="module" src="/shop.js"></script><script type="module" src="/.impersonation/banner.js"></script>`,
    })),
    'POST /orders': forCustomers(async (request, response, { user, actor }) => {
      const form = await formOf(request);
      const quantity = Math.max(1, Number(form.get('quantity')) || 1);
      ordersOf(user).push({ id: String(1001 + ordersOf(user).length), item: form.get('item'), quantity, note: actor ? `ordered by ${actor}` : '' });
      redirect(response, '/orders');
    }),
    'POST /photo': forCustomers(async (request, response, { user }) => {
      const name = /filename="([^"]*)"/.exec((await bytesOf(request)).toString('latin1'))?.[1] || 'a photo';
      ordersOf(user).at(-1).note = `photo: ${name}`;
      redirect(response, '/orders');
    }),
    'GET /orders.json': forCustomers((request, response, { user, actor, id }) => {
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ user, actor, id, orders: ordersOf(user) }));
    }),
    'GET /orders.csv': forCustomers((request, response, { user }) => {
      const lines = ordersOf(user).map(({ id, item, quantity }) => [id, JSON.stringify(item), quantity].join(','));
      response.writeHead(200, { 'content-type': 'text/csv; charset=utf-8', 'content-disposition': 'attachment; filename="orders.csv"' });
      response.end(['id,item,quantity', ...lines, ''].join('\n'));
    }),
    'GET /ticker': forCustomers((request, response, { user }) => {
      response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
      let minutes = 30;
      const tick = () => response.write(`data: ${JSON.stringify({ user, minutes: (minutes -= 1) })}\n\n`);
      tick();
      const timer = setInterval(tick, TICK_MS);
      response.on('close', () => clearInterval(timer));
    }),
    // Analytics counts the visits of users, and not those of agents.
    'POST /visits': forCustomers((request, response, { user, actor }) => {
      visits.push({ user, actor });
      response.writeHead(204).end();
    }),
  });

  const upgrade = (request, socket) => {
    const { user } = personOf(request);
    if (!user || request.url !== '/chat') return socket.end('HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n');
    return acceptWebSocket(request, socket, (text) => `${user}: ${text}`);
  };
  return { answer, upgrade, visits };
}

function shopPage(user, orders) {
  return html`<header><strong>Rainy Day Shop</strong><span>Signed in as <bdi id="user">${user}</bdi></span></header>
<main><h1>Your orders</h1>
<table><thead><tr><th scope="col">Number</th><th scope="col">Item</th><th scope="col">Quantity</th><th scope="col">Note</th></tr></thead>
<tbody>${orders.map(({ id, item, quantity, note }) => html`<tr><td>${id}</td><td><bdi>${item}</bdi></td><td>${quantity}</td><td>${note}</td></tr>`)}</tbody></table>
<p><a href="/orders.csv" download>Download as CSV</a> · <span>Your parcel is <output id="ticker">…</output> minutes away.</span></p>
<section aria-labelledby="new"><h2 id="new">Order something</h2>
<form method="post" action="/orders"><label>Item <input name="item" required></label> <label>Quantity <input name="quantity" type="number" min="1" value="1"></label> <button>Order</button></form></section>
<section aria-labelledby="broken"><h2 id="broken">Something arrived broken?</h2>
<form method="post" action="/photo" enctype="multipart/form-data"><label>Photo <input type="file" name="photo" required></label> <button>Send the photo</button></form></section>
<section aria-labelledby="talk"><h2 id="talk">Chat with us</h2>
<form id="chat"><label>Message <input name="text" maxlength="60" autocomplete="off"></label> <button name="send" disabled>Send</button></form><ul id="said" aria-live="polite"></ul></section></main>`;
}
