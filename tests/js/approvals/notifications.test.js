// Notifications, as a receiver with the Standard Webhooks library and the CloudEvents SDK sees
// them.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { HTTP } from 'cloudevents';
import { Webhook } from 'standardwebhooks';
import { poll } from '../stack/envoy.js';
import { stopAll } from '../stack/process.js';
import { approvals, approver, backend, configuration, decide, exchange, mint, send, serve, startFilter } from './world.js';

const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';

after(stopAll);

/** A hook that verifies what it gets, and then answers with `hook.status`. */
async function startHook() {
  const hook = { status: 204, told: [], tries: [], secrets: [] };
  Object.assign(hook, await serve((request, body, response) => {
    new Webhook(SECRET).verify(body, request.headers);
    const event = HTTP.toEvent({ headers: request.headers, body });
    event.validate();
    assert.equal(event.id, request.headers['webhook-id']);
    hook.secrets.forEach((secret) => assert.ok(!body.includes(secret), 'no token is told'));
    hook.tries.push(event);
    if (hook.status < 300) hook.told.push(event);
    response.writeHead(hook.status).end();
  }));
  return hook;
}

const withHook = (required) => configuration({
  approvals: approvals({ required: 1, break_glass: {} }),
  notifications: [{
    http_uri: { uri: 'https://hooks.example.com/told', cluster: 'hooks', timeout: '10s' }, required, secret: { inline_string: SECRET },
  }],
});

const types = (events) => events.map(({ type }) => type);

test('hooks are told who impersonates whom, what for and until when', async () => {
  const hook = await startHook();
  const filter = await startFilter(withHook(false), { hooks: [hook.port] });
  const { token, id } = await mint(filter);
  hook.secrets.push(token, token.slice(4));
  assert.equal((await decide(filter, await approver('dana'), id, 'approve', 'fine')).status, 200);
  const { body } = await exchange(filter, token);
  hook.secrets.push(body.access_token);
  assert.equal((await send(filter, 'DELETE', `/api/subject-tokens/${id}`, { token: await backend() })).status, 204);
  assert.equal((await mint(filter, { breakGlass: true })).status, 201);
  await poll(() => hook.told.length === 5);
  assert.deepEqual(types(hook.told).sort(), [
    'approval.given.v1', 'approval.requested.v1', 'break_glass.used.v1', 'impersonation.began.v1', 'impersonation.ended.v1',
  ]);
  const told = (type) => hook.told.find((event) => event.type === `${type}.v1`);
  assert.deepEqual([told('approval.requested').subject, told('approval.requested').data.userId], [id, 'u-1']);
  assert.deepEqual([told('approval.given').data.decidedBy, told('approval.given').data.reason], ['dana', 'fine']);
  const { data } = told('impersonation.began');
  assert.deepEqual([data.id, data.userId, data.clientId, data.caller, data.context], [id, 'u-1', 'portal', 'backend', { ticketId: 'T-1' }]);
  assert.ok(Date.parse(data.expiresAt) > Date.now());
  assert.equal(told('impersonation.ended').data.jti, data.jti);
});

test('what a required hook cannot be told does not happen', async () => {
  const hook = await startHook();
  const filter = await startFilter(withHook(true), { hooks: [hook.port] });
  hook.status = 500;
  const refused = await mint(filter);
  assert.deepEqual([refused.status, refused.body.error], [503, 'temporarily_unavailable']);
  assert.equal(hook.tries.length, 3);
  assert.equal(new Set(hook.tries.map((event) => event.id)).size, 1, 'the id is the same in each try');
  const dana = await approver('dana');
  assert.deepEqual((await send(filter, 'GET', '/api/approvals', { token: dana })).body.approvals, []);
  hook.status = 204;
  const { token, id } = await mint(filter);
  hook.status = 500;
  assert.equal((await decide(filter, dana, id, 'approve')).status, 503);
  hook.status = 204;
  assert.equal((await decide(filter, dana, id, 'approve')).status, 200);
  hook.status = 500;
  assert.equal((await exchange(filter, token)).status, 503);
  hook.status = 204;
  await poll(() => types(hook.told).includes('impersonation.not_begun.v1'));
  assert.equal((await exchange(filter, token)).status, 200, 'the token is unspent');
  // An ending waits for nobody.
  hook.status = 500;
  assert.equal((await send(filter, 'DELETE', `/api/subject-tokens/${id}`, { token: await backend() })).status, 204);
  await poll(() => readFileSync(filter.log, 'utf8').includes('notification failed: impersonation.ended of '));
});

test('a required hook that is slow, down or lying lets nothing happen', async () => {
  let answer;
  const stub = await serve((request, body, response) => answer(response));
  const value = withHook(true);
  value.notifications[0].http_uri.timeout = '300ms';
  const filter = await startFilter(value, { hooks: [stub.port] }, { workers: 1 });
  const good = (response) => response.writeHead(204).end();
  answer = good;
  const { token, id } = await mint(filter);
  const dana = await approver('dana');
  // The hook says by its status alone if it was told: a body is no answer.
  const cases = {
    'no answer': () => {},
    'a reset': (response) => response.socket.destroy(),
    'a redirect': (response) => response.writeHead(302, { location: '/elsewhere' }).end(),
    'a page of an error': (response) => response.writeHead(500, { 'content-type': 'text/html' }).end('<html>{"ok":true}'),
    'a refusal': (response) => response.writeHead(401).end(),
  };
  for (const [name, bad] of Object.entries(cases)) {
    answer = bad;
    for (const refused of [await mint(filter), await decide(filter, dana, id, 'approve'), await mint(filter, { breakGlass: true })]) {
      assert.deepEqual([refused.status, refused.body.error], [503, 'temporarily_unavailable'], name);
    }
  }
  // Nothing has changed: one token waits, and nobody has decided about it.
  const { body } = await send(filter, 'GET', '/api/approvals', { token: dana });
  assert.deepEqual(body.approvals.map((row) => [row.id, row.needed]), [[id, 1]]);
  answer = good;
  assert.equal((await decide(filter, dana, id, 'approve')).status, 200);
  for (const [name, bad] of Object.entries(cases)) {
    answer = bad;
    assert.equal((await exchange(filter, token)).status, 503, name);
  }
  // An exchange that is under way when the hook goes down leaves the token unspent, too.
  stub.stop();
  assert.equal((await exchange(filter, token)).status, 503, 'down');
  const shown = await send(filter, 'GET', `/api/subject-tokens/${id}`, { token: await backend() });
  assert.equal(shown.body.state, 'approved');
});

test('a hook that is not required delays and prevents nothing, however slow or wrong it is', async () => {
  let answer;
  const stub = await serve((request, body, response) => answer(response));
  const filter = await startFilter(withHook(false), { hooks: [stub.port] }, { workers: 1 });
  const cases = {
    'no answer': () => {},
    'a reset': (response) => response.socket.destroy(),
    'an error': (response) => response.writeHead(500).end(),
  };
  for (const [name, bad] of Object.entries(cases)) {
    answer = bad;
    const { status, token, id } = await mint(filter);
    assert.equal(status, 201, name);
    assert.equal((await decide(filter, await approver('dana'), id, 'approve')).status, 200, name);
    assert.equal((await exchange(filter, token)).status, 200, name);
  }
  stub.stop();
  assert.equal((await mint(filter)).status, 201, 'down');
});
