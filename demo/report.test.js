// Plays the demo's flow, and compares what `impersonation-filter report` finds in the log with what
// Envoy has counted: each request is in the report exactly once.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { configOn, poll, ROOT, startEnvoy } from '../stack/envoy.js';
import { AGENT, showFlow } from '../stack/flow.js';
import { startGateway } from '../stack/gateway.js';
import { freePorts, stopAll } from '../stack/process.js';
import { newSigningKey } from '../stack/signing-key.js';

const FOLDER = `${ROOT}target/demo/report`;
const COMPANION = `${ROOT}target/companion/impersonation-filter`;

after(stopAll);

test('the report on the demo has each request once, as the metrics have', async () => {
  const [public_, admin, gateway] = await freePorts(3);
  const ports = { public: public_, admin, gateway };
  const origin = `http://127.0.0.1:${ports.public}`;
  const log = `${FOLDER}/envoy-${ports.public}.log`;
  const config = `${FOLDER}/envoy-${ports.public}.yaml`;
  mkdirSync(FOLDER, { recursive: true });
  writeFileSync(config, configOn(ports));
  await startGateway({ port: ports.gateway, origin });
  await startEnvoy({
    config,
    log,
    admin: ports.admin,
    env: {
      IMPERSONATION_SIGNING_KEY: JSON.stringify(newSigningKey()),
      INTROSPECTION_SECRET: 'demo-only-impersonation-filter',
    },
  });
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
