// The demo's shop and support console alone. The test sets the header fields that Envoy sets, and a
// fake plays the identity gateway and the mint.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, test } from 'node:test';
import WebSocket from 'ws';
import { ask } from '../stack/http.js';
import { stopAll } from '../stack/process.js';
import { serve } from '../stack/server.js';
import { startShop } from '../stack/shop.js';

const encoded = (json) => Buffer.from(JSON.stringify(json)).toString('base64url');
/** The header fields of Envoy for a request in a browser session. */
const asUser = (user) => ({ 'x-jwt-payload': encoded({ sub: user }), 'x-impersonation-id': 'b41', 'x-impersonator': 'agent-1' });

let ports;
let origin;
const minted = [];

before(async () => {
  const { port } = await serve(async (request, response) => {
    const { pathname } = new URL(request.url, 'http://host');
    const answer = (status, json, headers = {}) => response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(json));
    if (pathname === '/oidc/token') return answer(200, { access_token: 'a-token', id_token: `e30.${encoded({ sub: 'agent-1' })}.` });
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    minted.push(JSON.parse(Buffer.concat(chunks)));
    return answer(201, { subjectToken: 'sub_1' }, { location: '/api/subject-tokens/b41' });
  });
  ({ ports } = await startShop({ env: { SHOP_PORT: '0', CONSOLE_PORT: '0', GATEWAY_ORIGIN: `http://127.0.0.1:${port}` } }));
  origin = `http://localhost:${ports.console}`;
});

after(stopAll);

const shop = (path, options) => ask({ port: ports.shop, path, ...options });

test('the shop takes the user from the header fields of Envoy, and shows text as text', async () => {
  const headers = asUser('<b>user</b>');
  const posted = await shop('/orders', { headers, form: { item: '<img src=x>', quantity: '3' } });
  assert.equal(posted.status, 303);
  const { text } = await shop('/orders', { headers });
  assert.match(text, /&lt;b&gt;user&lt;\/b&gt;[^]*&lt;img src=x&gt;[^]*ordered by agent-1/);
  assert.doesNotMatch(text, /<img|<b>/);
  assert.match(text, /<script type="module" src="\/\.impersonation\/banner\.js"><\/script>/);
  const { json } = await shop('/orders.json', { headers });
  assert.deepEqual([json.user, json.actor, json.id, json.orders.length], ['<b>user</b>', 'agent-1', 'b41', 3]);
});

test('at its ordinary host the shop has a cookie of its own', async () => {
  assert.equal((await shop('/orders', { headers: { accept: 'text/html' } })).headers.location, '/sign-in');
  assert.equal((await shop('/orders.json')).status, 401);
  const { headers } = await shop('/sign-in', { form: { user: 'user-43' } });
  const cookie = headers['set-cookie'][0].split(';')[0];
  assert.equal((await shop('/orders.json', { headers: { cookie } })).json.user, 'user-43');
});

test('the shop has an upload, a download, events and a chat', async () => {
  const headers = asUser('user-42');
  const body = new FormData();
  body.append('photo', new Blob(['x']), 'boots.jpg');
  const address = `127.0.0.1:${ports.shop}`;
  const uploaded = await fetch(`http://${address}/photo`, { method: 'POST', headers, body, redirect: 'manual' });
  assert.equal(uploaded.status, 303);
  assert.match((await shop('/orders', { headers })).text, /photo: boots\.jpg/);
  const csv = await shop('/orders.csv', { headers });
  assert.match(csv.headers['content-disposition'], /^attachment/);
  assert.match(csv.text, /^1001,"Umbrella",1$/m);

  const events = (await fetch(`http://${address}/ticker`, { headers })).body.getReader();
  assert.match(Buffer.from((await events.read()).value).toString(), /^data: \{"user":"user-42"/);
  await events.cancel();

  const socket = new WebSocket(`ws://${address}/chat`, { headers });
  await once(socket, 'open');
  socket.send('Where are my boots?');
  assert.equal(String((await once(socket, 'message'))[0]), 'user-42: Where are my boots?');
  socket.close();
  await once(socket, 'close');
});

test('the console mints for the agent who signed in, and its tab posts the exchange to the session\'s host', async () => {
  const support = (path, options) => ask({ port: ports.console, host: `localhost:${ports.console}`, path, ...options });
  const begun = await support('/sign-in');
  const cookie = begun.headers['set-cookie'][0].split(';')[0];
  const { state, redirect_uri } = Object.fromEntries(new URL(begun.headers.location).searchParams);
  assert.equal(redirect_uri, `${origin}/callback`);
  const path = `/callback?${new URLSearchParams({ state, code: 'c' })}`;
  assert.equal((await support(path)).status, 500, 'another browser');
  const session = (await support(path, { headers: { cookie } })).headers['set-cookie'][0].split(';')[0];

  const form = { user: 'user-42', ticket: 'T-1', reason: '"><script>' };
  const elsewhere = await support('/open', { headers: { cookie: session, origin: 'http://elsewhere.example' }, form });
  assert.deepEqual([elsewhere.status, minted.length], [303, 0]);
  const { text, headers } = await support('/open', { headers: { cookie: session, origin }, form });
  assert.deepEqual(minted, [{
    userId: 'user-42', actorId: 'agent-1', clientId: 'support-console', resource: 'http://as-user.localhost:10080/', scope: 'shop:use',
    context: { ticketId: 'T-1', reason: '"><script>' },
  }]);
  assert.match(text, /<form method="post" action="http:\/\/b41\.as-user\.localhost:10080\/\.impersonation\/begin">/);
  const fields = Object.fromEntries([...text.matchAll(/name="(\w+)" value="([^"]*)"/g)].map(([, name, value]) => [name, value]));
  assert.deepEqual([fields.subject_token, fields.actor_token, fields.landing], ['sub_1', 'a-token', '/orders']);
  assert.match(headers['content-security-policy'], /form-action http:\/\/b41\.as-user\.localhost:10080;/);
});
