// Plays the demo's flow, and compares what `impersonation-filter report` finds in the log with what
// Envoy has counted: each request is in the report exactly once.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { COMPANION, poll, replacedOnce } from '../tests/js/stack/envoy.js';
import { AGENT, beforeTheFlow, exchangeRequest, mintRequest, showFlow } from '../tests/js/stack/flow.js';
import { stopAll } from '../tests/js/stack/process.js';
import { send } from '../tests/js/stack/requests.js';
import { startStack } from '../tests/js/stack/shipped.js';

after(stopAll);

test('the report on the demo has each request once, as the metrics have', async () => {
  const { origin, log, ports } = await startStack();
  await showFlow(origin);
  // Requests that are refused before they belong to an impersonation.
  for (const path of ['/api/subject-tokens', '/oidc/token/revocation', '/api/impersonations/revocations']) {
    await fetch(`${origin}${path}`, { method: 'POST', headers: { authorization: 'Bearer wrong' } });
  }

  const report = (...arguments_) => execFileSync(COMPANION, ['report', ...arguments_, log], { encoding: 'utf8' });
  let reported;
  let counted;
  // Envoy writes its log, and the guard its counters, a moment later.
  await poll(async () => {
    reported = fromReport(JSON.parse(report('--json')));
    counted = await fromMetrics(ports.admin);
    return JSON.stringify(reported) === JSON.stringify(counted);
  }).catch(() => assert.deepEqual(reported, counted));
  // The flow has these, so the comparison is not one of zeros.
  for (const [name, least] of Object.entries({ mints: 3, exchanges: 3, calls: 7, refusedCalls: 4, replays: 1, approvals: 1, revoked: 1, endedByEvents: 1, listed: 2 })) {
    assert.ok(reported[name] >= least, `${name}: ${reported[name]}`);
  }

  const { impersonations, lines, totals: { events } } = JSON.parse(report('--json', '--actor', AGENT));
  // The agent's last attempt began nothing, so there is nothing to end.
  const ends = impersonations.flatMap(({ ended }) => ended ?? []);
  assert.deepEqual(ends.map(({ cause }) => cause), ['replayed', 'revoked', 'event', 'event']);
  assert.deepEqual(ends.slice(1).map(({ by }) => by), ['operations', `${origin}/oidc`, `${origin}/oidc`]);
  // A colleague has approved the first.
  assert.equal(events['approval.requested'], 1);
  assert.equal(lines.broken, 0);
  // The access log alone, without audit lines, says who ended it, too.
  const access = readFileSync(log, 'utf8').split('\n').filter((line) => line.startsWith('{"'));
  const ofAccess = execFileSync(COMPANION, ['report', '--json', '--actor', AGENT], { encoding: 'utf8', input: access.join('\n') });
  assert.equal(JSON.parse(ofAccess).impersonations[1].ended.by, 'operations');
  const page = report('--html', '--user', 'user-42');
  assert.match(page, /<td>GET \/orders\/1<\/td>/);
  assert.doesNotMatch(report('--user-facing', '--user', 'user-42'), /agent-1|support-portal|integrator-backend|operations|oidc/);
});

test('each call with one request id is in the report', async () => {
  const { origin, log } = await startStack((yaml) => replacedOnce(yaml, /^( +)use_remote_address: true$/m, '$&\n$1preserve_external_request_id: true'));
  const { backendToken, agentToken } = await beforeTheFlow(origin);
  const { json: { subjectToken } } = await send(mintRequest(origin, backendToken));
  const { json: { access_token: token } } = await send(exchangeRequest(origin, subjectToken, agentToken));
  const headers = { authorization: `Bearer ${token}`, 'x-request-id': 'chosen-by-the-caller' };
  const answers = await Promise.all(Array.from({ length: 120 }, () => fetch(`${origin}/orders/1`, { headers })));
  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);

  const logged = () => readFileSync(log, 'utf8').split('\n').filter((line) => line.includes('"request_id":"chosen-by-the-caller"'));
  await poll(async () => logged().length === 120);
  const report = (...logs) => JSON.parse(execFileSync(COMPANION, ['report', '--json', ...logs], { encoding: 'utf8' }));
  const steps = ({ impersonations: [{ steps }] }) => steps.filter(({ what }) => what === 'call');
  assert.equal(report(log).totals.calls, 120);
  assert.deepEqual(steps(report(log)).filter(({ repetition }) => repetition), []);
  // A log that was copied while it was rotated, as two files and as one.
  const copy = `${log}.1`;
  const twice = `${log}.2`;
  writeFileSync(copy, readFileSync(log));
  writeFileSync(twice, Buffer.concat([readFileSync(log), readFileSync(log)]));
  for (const logs of [[log, copy], [twice]]) {
    const copied = report(...logs);
    assert.equal(copied.totals.calls, 120);
    assert.deepEqual([copied.totals.mints, copied.totals.exchanges], [1, 1]);
    assert.deepEqual([...new Set(steps(copied).map(({ repetition }) => repetition))], ['its line is 2 times in the logs']);
  }

  // Lines of an access log without Envoy's id of the line: equal ones may be calls of their own.
  const older = `${log}.older`;
  const olderCopy = `${log}.older.1`;
  for (const file of [older, olderCopy]) writeFileSync(file, readFileSync(log, 'utf8').replaceAll(/"line_id":"[^"]*",/g, ''));
  assert.equal(report(older).totals.calls, 120);
  const both = report(older, olderCopy);
  assert.ok(both.totals.calls >= 120, `${both.totals.calls} calls`);
  assert.ok(steps(both).every(({ repetition }) => /^one of \d+ equal lines$/.test(repetition)));
});

function fromReport({ totals }) {
  const { events } = totals;
  return {
    mints: totals.mints,
    exchanges: totals.exchanges,
    calls: totals.calls,
    refusedCalls: totals.refusedCalls,
    replays: totals.replays,
    approvals: events['approval.given'] ?? 0,
    refusedMints: events['subject_token.refused'] ?? 0,
    refusedExchanges: events['token_exchange.refused'] ?? 0,
    cancelled: events['subject_token.cancelled'] ?? 0,
    revoked: events['impersonation.revoked'] ?? 0,
    endedByEvents: events['impersonations.ended'] ?? 0,
    refusedRevocations: events['impersonation.revocation_refused'] ?? 0,
    listed: events['impersonations.listed'] ?? 0,
    introspected: events['token.introspected'] ?? 0,
  };
}

async function fromMetrics(admin) {
  const stats = await (await fetch(`http://127.0.0.1:${admin}/stats?filter=wasmcustom`)).text();
  const lines = [...stats.matchAll(/^wasmcustom\.impersonation_(\S+): (\d+)$/gm)];
  const sum = (begin) => lines.filter(([, name]) => name.startsWith(begin)).reduce((all, [, , count]) => all + Number(count), 0);
  return {
    mints: sum('subject_tokens_created_total'),
    exchanges: sum('subject_tokens_exchanged_total'),
    calls: sum('guard_requests_total'),
    refusedCalls: sum('guard_refusals_total.'),
    replays: sum('subject_tokens_replayed_total'),
    approvals: sum('approvals_total'),
    refusedMints: sum('refusals_total.endpoint.subject_tokens.'),
    refusedExchanges: sum('refusals_total.endpoint.token.'),
    cancelled: sum('subject_tokens_cancelled_total'),
    revoked: sum('revocations_total'),
    endedByEvents: sum('events_ended_total'),
    refusedRevocations: sum('refusals_total.endpoint.revocation.'),
    listed: sum('lists_total'),
    introspected: sum('introspections_total'),
  };
}
