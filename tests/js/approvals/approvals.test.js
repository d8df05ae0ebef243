// Approvals, consent and break glass in a real Envoy with its usual number of workers, and in two
// Envoys with etcd. The rules themselves are tested natively, in every interleaving.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { poll } from '../stack/envoy.js';
import { startEtcd } from '../stack/etcd.js';
import { stopAll } from '../stack/process.js';
import { actor, approvals, approver, backend, configuration, decide, exchange, FILES, mint, send, startFilter, user } from './world.js';

/** How many tokens are contested in each store. */
const CONTESTED = Number(process.env.CONTESTED ?? 300);
const members = { approvals: approvals({ required: 1, break_glass: { required_context: ['incident'] } }) };

after(stopAll);

const list = async (filter, token) => (await send(filter, 'GET', '/api/approvals?limit=200', { token })).body.approvals;

describe('one Envoy', () => {
  let filter;

  before(async () => {
    filter = await startFilter(configuration(members));
  });

  test('a colleague approves, and the token is exchanged once', async () => {
    const { status, token, id } = await mint(filter, { actorId: 'agent-1' });
    assert.equal(status, 201);
    const agent = await actor('agent-1');
    const waiting = await exchange(filter, token, agent);
    assert.deepEqual([waiting.status, waiting.body.error], [400, 'authorization_pending']);
    const [row] = (await list(filter, await approver('dana'))).filter((one) => one.id === id);
    assert.deepEqual([row.userId, row.actorId, row.needed, row.state, row.context], ['u-1', 'agent-1', 1, 'pending', { ticketId: 'T-1' }]);
    assert.equal((await decide(filter, await approver('agent-1'), id, 'approve')).status, 403);
    const decided = await decide(filter, await approver('dana'), id, 'approve', 'I know the ticket');
    assert.deepEqual([decided.status, decided.body.state], [200, 'approved']);
    assert.equal((await exchange(filter, token, agent)).status, 200);
    assert.equal((await exchange(filter, token, agent)).body.error, 'invalid_request');
    const shown = await send(filter, 'GET', `/api/subject-tokens/${id}`, { token: await backend() });
    assert.deepEqual([shown.status, shown.body.state, shown.body.approvals.map(({ by }) => by)], [200, 'exchanged', ['dana']]);
    await poll(() => readFileSync(filter.log, 'utf8').includes('"approved_by":["dana"]'));
  });

  test('one denial ends a token', async () => {
    const { token, id } = await mint(filter);
    assert.equal((await decide(filter, await approver('dana'), id, 'deny')).body.state, 'denied');
    const refused = await exchange(filter, token);
    assert.deepEqual([refused.status, refused.body.error], [400, 'access_denied']);
    assert.equal((await decide(filter, await approver('eli'), id, 'approve')).status, 409);
  });

  test('the user consents without a scope', async () => {
    const { token, id } = await mint(filter, { userId: 'u-consent', consent: true });
    assert.equal((await send(filter, 'GET', '/api/approvals', { token: await user('nobody') })).status, 403);
    assert.deepEqual((await list(filter, await user('u-consent'))).map((row) => row.id), [id]);
    assert.equal((await decide(filter, await approver('dana'), id, 'approve')).body.state, 'pending');
    assert.equal((await decide(filter, await user('u-consent'), id, 'approve')).body.state, 'approved');
    assert.equal((await exchange(filter, token)).status, 200);
  });

  test('break glass raises the alarm', async () => {
    assert.equal((await mint(filter, { breakGlass: true })).status, 403);
    const { status, token, id } = await mint(filter, { breakGlass: true, context: { incident: 'I-1' } });
    assert.equal(status, 201);
    assert.equal((await exchange(filter, token)).status, 200);
    const log = () => readFileSync(filter.log, 'utf8');
    await poll(() => log().includes(`{"alarm":"break_glass.used","subject_token_id":"${id}"`));
    assert.ok(log().includes('"event":"break_glass.used"'));
    const metrics = await (await fetch(`${filter.admin}/stats?filter=impersonation_break_glass_total`)).text();
    assert.match(metrics, /: 1$/m);
  });

  test('a context of 4 KiB with markup and control characters comes back as it was', async () => {
    const odd = `<script>alert(1)</script>\u0000\u001b[2J\u202e${'x'.repeat(3900)}`;
    const { id } = await mint(filter, { context: { odd } });
    const [row] = (await list(filter, await approver('dana'))).filter((one) => one.id === id);
    assert.equal(row.context.odd, odd);
  });

  test('of simultaneous exchanges, approvals and denials at most one exchange succeeds', async (context) => {
    context.diagnostic(JSON.stringify(await contest([filter])));
  });
});

describe('two Envoys and etcd', () => {
  test('of simultaneous exchanges, approvals and denials at most one exchange succeeds', async (context) => {
    const { nodes } = await startEtcd(1, { logs: FILES });
    const store = { etcd: { cluster: 'etcd', prefix: '/impersonation/' } };
    const start = () => startFilter(configuration({ ...members, store }), { etcd: nodes.map(({ clients }) => clients) });
    const filters = [await start(), await start()];
    await poll(async () => (await mint(filters[1])).status === 201);
    context.diagnostic(JSON.stringify(await contest(filters)));
  });
});

/** Contests tokens: for each, two approve, one denies and four exchange, all at once. */
async function contest(filters) {
  const people = await Promise.all(['dana', 'eli', 'fay'].map((name) => approver(name)));
  // A caller holds a thousand tokens at the most, and a denied token is held until it expires.
  const callers = await Promise.all(Array.from({ length: Math.ceil(CONTESTED / 400) }, (_, number) => backend(`backend-${number}`)));
  const through = (index) => filters[index % filters.length];
  const outcomes = {};
  let done = 0;
  const one = async (index) => {
    const { status, token, id } = await mint(through(index), { approvals: 2 }, callers[index % callers.length]);
    assert.equal(status, 201);
    // In one half of the races nobody denies.
    const denies = index % 2 === 0;
    const asked = [
      () => decide(through(index), people[0], id, 'approve'),
      () => decide(through(index + 1), people[1], id, 'approve'),
      ...(denies ? [() => decide(through(index), people[2], id, 'deny')] : []),
      ...[0, 1, 2, 3].map((number) => () => exchange(through(index + number), token)),
    ];
    const rotated = asked.map((_, place) => asked[(place + index) % asked.length]);
    const answers = await Promise.all(rotated.map((ask) => ask()));
    const won = answers.filter(({ body }) => body.access_token).length;
    const denied = answers.some(({ status: told, body }) => told === 200 && body.state === 'denied');
    const approved = answers.some(({ status: told, body }) => told === 200 && body.state === 'approved');
    assert.ok(!(denied && approved), 'approved and denied');
    assert.ok(won === 0 || (won === 1 && !denied), `${won} exchanges succeeded, denied: ${denied}`);
    const last = await exchange(through(index), token);
    if (denied) assert.equal(last.body.error, 'access_denied');
    else if (won === 1) assert.equal(last.body.error, 'invalid_request');
    else assert.equal(last.status, 200, JSON.stringify(answers.map(({ status: told, body }) => [told, body.state ?? body.error])));
    const outcome = denied ? 'denied' : won ? 'exchanged in the race' : 'exchanged after it';
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
  };
  await Promise.all(Array.from({ length: 8 }, async () => {
    while (done < CONTESTED) await one((done += 1));
  }));
  return outcomes;
}
