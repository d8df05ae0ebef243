// docs/evidence.md: the log of a run of envoy.yaml as a SIEM gets it, by `export` and by the
// shippers of deploy/siem, and what the detections find in it.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { COMPANION, poll, replacedOnce, ROOT } from '../stack/envoy.js';
import {
  AGENT, approverRequest, COLLEAGUE, beforeTheFlow, exchangeRequest, mintRequest, operatorRequest, showFlow, signIn,
} from '../stack/flow.js';
import { SECRETS } from '../stack/names.js';
import { freePorts, start, stopAll } from '../stack/process.js';
import { send } from '../stack/requests.js';
import { startStack } from '../stack/shipped.js';
import { ECS, leaves, TYPES } from './ecs.js';

const FILES = `${ROOT}target/evidence`;
const SIEM = `${ROOT}deploy/siem`;

/** The whole log, and the part of it in which nobody did anything unusual. */
const LOGS = { loud: `${FILES}/loud.log`, quiet: `${FILES}/quiet.log`, everything: `${FILES}/everything.log` };
/** The spans and log records that Envoy has sent. */
const OTLP = `${FILES}/otlp.log`;
/** Envoy's own access log in ECS. */
const ECS_LOG = `${FILES}/ecs.log`;
/** The tokens that were issued, none of which may be in any output. */
const tokens = [];

const run = (command, args, options) => execFileSync(command, args, { encoding: 'utf8', maxBuffer: 1 << 26, ...options });
const exported = (format, log) => run(COMPANION, ['export', '--format', format, log]);
const parsed = (text) => text.trim().split('\n').map((line) => JSON.parse(line));
const python = (script, args, input) => JSON.parse(run(`${ROOT}scripts/siem`, [`${import.meta.dirname}/${script}`, ...args], { input }));

before(async () => {
  rmSync(FILES, { recursive: true, force: true });
  mkdirSync(FILES, { recursive: true });
  const [port] = await freePorts(1);
  await start('the receiver of OTLP', `${ROOT}scripts/siem`, [`${import.meta.dirname}/otlp.py`, `${port}`], { ready: /^ready$/, log: OTLP });
  const { origin, log } = await startStack((yaml) => withEcs(withTraces(withSettings(yaml), port)));
  const answers = async (request) => {
    const { json } = await send(request);
    tokens.push(...Object.entries(json ?? {}).flatMap(([name, value]) => (/token$/i.test(name) ? [value] : [])));
    return json;
  };
  const { backendToken, agentToken } = await beforeTheFlow(origin);
  tokens.push(backendToken, agentToken);
  const mint = (members = {}) => answers({ ...mintRequest(origin, backendToken), json: { ...mintRequest(origin, backendToken).json, ...members } });
  const begin = async (members, actor = agentToken) => {
    const { subjectToken } = await mint(members);
    return (await answers(exchangeRequest(origin, subjectToken, actor))).access_token;
  };
  const call = (bearer, json) => send({ url: `${origin}/orders/1`, bearer, json });

  // The quiet part.
  const quiet = await begin();
  await call(quiet);
  await call(quiet, { quantity: 1 });
  const { access_token: operator } = await answers(operatorRequest(origin));
  const revoke = (json) => send({ url: `${origin}/api/impersonations/revocations`, bearer: operator, json });
  await revoke({ actorId: AGENT });
  await copied(log, LOGS.quiet, (text) => text.includes('"event":"impersonation.revoked"'));

  // Everything that a detection looks for. The demo has the replay.
  await showFlow(origin);
  const { json: { access_token: fresh } } = await send(await signIn(origin));
  tokens.push(fresh);
  await mint({ breakGlass: true, context: { incident: 'INC-7' } });
  for (let user = 0; user < 10; user += 1) await begin({ userId: `user-${user}` }, fresh);
  const writes = await begin({}, fresh);
  for (let write = 0; write < 5; write += 1) await call(writes, { quantity: write });
  // The colleague has approved the demo's first. Now the colleague acts, and approves that.
  const { json: { access_token: colleague } } = await send(await signIn(origin, new Map(), COLLEAGUE));
  tokens.push(colleague);
  await begin({ actorId: COLLEAGUE }, colleague);
  await mint({ actorId: COLLEAGUE, approvals: 1 });
  const { access_token: approver } = await answers(await approverRequest(origin, COLLEAGUE));
  const { approvals: [row] } = await answers({ url: `${origin}/api/approvals`, bearer: approver });
  await send({ url: `${origin}/api/approvals/${row.id}`, bearer: approver, json: { decision: 'approve', reason: 'forged"}\n{"x' } });
  await revoke({ all: true });
  await copied(log, LOGS.loud, (text) => text.includes('"all":true'));
  writeFileSync(LOGS.everything, everything());
});

after(stopAll);

/** Adds what the demo does without: break glass, and users whom the gateway does not know. */
function withSettings(yaml) {
  const text = replacedOnce(yaml, /^ +user_lookup:\n +http_uri: .*\n/m, '');
  return replacedOnce(text, /^( +)approvals:\n(?=\1 {2}authentication)/m, '$&$1  break_glass: {required_context: [incident]}\n');
}

/** Adds the settings that docs/evidence.md shows, and sends all to this port. */
function withTraces(yaml, port) {
  const section = readFileSync(`${ROOT}docs/evidence.md`, 'utf8').split('\n## Traces\n')[1];
  const [tracing, accessLog] = [...section.matchAll(/```yaml\n(.*?)```/gs)].map(([, text]) => text);
  const indented = (text, by) => text.trimEnd().replaceAll(/^(?=.)/gm, by);
  const logged = `- ${indented(accessLog, '  ').slice(2)}`;
  let text = replacedOnce(yaml, /^( +)stat_prefix: public\n/m, `$&${indented(tracing, ' '.repeat(10))}\n`);
  text = replacedOnce(text, /^( +)access_log: &access_log\n/m, `$&${indented(logged, ' '.repeat(10))}\n`);
  const http2 = '{"@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions, explicit_http_config: {http2_protocol_options: {}}}';
  return replacedOnce(text, /^  clusters:\n/m, `$&  - name: otlp
    typed_extension_protocol_options: {envoy.extensions.upstreams.http.v3.HttpProtocolOptions: ${http2}}
    load_assignment: {cluster_name: otlp, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: ${port}}}}}]}]}
`);
}

/** Adds the access log of deploy/siem, in a file of its own. */
function withEcs(yaml) {
  const entries = readFileSync(`${SIEM}/envoy-access-log.yaml`, 'utf8')
    .replaceAll('envoy.access_loggers.stdout', 'envoy.access_loggers.file')
    .replaceAll('stream.v3.StdoutAccessLog', `file.v3.FileAccessLog\n    path: ${ECS_LOG}`);
  return replacedOnce(yaml, /^( +)access_log: &access_log\n/m, `$&${entries.trimEnd().replaceAll(/^(?=.)/gm, ' '.repeat(10))}\n`);
}

/**
 * Copies the log once it has what is awaited, and both lines of each request that has an audit
 * line. Envoy writes its access log a moment later.
 */
async function copied(log, copy, isWhole) {
  let text;
  await poll(() => {
    text = readFileSync(log, 'utf8');
    const lines = text.split('\n').slice(0, -1);
    const ids = (chosen) => chosen.flatMap((line) => /"request_id":"([^"]+)"/.exec(line)?.[1] ?? []);
    const accessed = new Set(ids(lines.filter((line) => line.startsWith('{'))));
    return isWhole(text) && ids(lines.filter((line) => line.includes('{"event":'))).every((id) => accessed.has(id));
  });
  writeFileSync(copy, text);
}

/** Lines of every event, with all members, and lines that imitate one. */
function everything() {
  const names = [...readFileSync(`${SIEM}/vector.yaml`, 'utf8').matchAll(/^ +"([a-z_.:]+)": \{"category"/gm)].map(([, name]) => name);
  const members = {
    request_id: 'r-1', subject_token_id: '0123456789abcdef0123456789ab', user_id: 'user-42', actor_id: 'agent-1', client_id: 'support-portal',
    caller: 'backend', requested_by: 'dana', resource: 'https://api.example.com', scope: 'orders:read', jti: 'a-jti', bounds: { scope: 'x' },
    context: { ticketId: 'T-1' }, error: 'access_denied', reason: 'denied', approved_by: ['dana', 'erin'], decision_reason: 'I know',
    sender: 'https://idp.example.com', event_type: 'logout', session: 's-1', outcome: 'ended', all: true, ended: 3,
  };
  const start = '[2026-11-22 21:00:00.001][2622][info][wasm] [source/extensions/common/wasm/context.cc:1151] wasm log impersonation impersonation: ';
  const beginnings = [start, '2026-11-22T21:00:00.123Z stdout F ', `envoy-1 | ${start}`];
  const events = names.filter((name) => !/^impersonated_request\.(?!refused)/.test(name)).map((name, index) => {
    const [kind, event] = name.startsWith('alarm:') ? ['alarm', name.slice(6)] : ['event', name];
    return beginnings[index % 3] + JSON.stringify({ [kind]: event, ...members });
  });
  const access = (more) => JSON.stringify({
    time: '2026-11-22T21:00:02.003Z', line_id: 'x', request_id: 'r-9', method: 'GET', path: '/orders/1', status: 200, duration_ms: '12',
    client_address: '10.0.0.9', guard: 'allowed: default', token: { txn: 't-1', sub: 'user-42', act: 'agent-1', jti: 'j' }, ...more,
  });
  const refused = { event: 'impersonated_request.refused', subject_token_id: 't-1', user_id: 'user-42', error: 'insufficient_scope', reason: 'rule' };
  const evil = 'x","user":{"id":"root"},"@timestamp":"\n{"impersonation_checkpoint":"x"}';
  return `${[
    ...events,
    start + JSON.stringify({ event: 'impersonation.of_a_later_version', ...members }),
    access(),
    access({ guard: 'refused: rules[0]', status: 403, method: 'DELETE', impersonation: refused }),
    access({ guard: 'reported: rules[0]', impersonation: refused }),
    access({ client_address: '::1' }),
    access({ client_address: 'no address', status: '-' }),
    access({ guard: undefined, impersonation: { event: 'token_exchange.succeeded' } }),
    access({ token: { sub: 'user-1' } }),
    access({ path: evil, token: { txn: 't-2', sub: evil, act: '' } }),
    start + JSON.stringify({ event: 'subject_token.created', user_id: evil, context: { [evil]: evil } }),
    `[2026-11-22 21:00:00.001][1][debug][http] [x] headers: ${JSON.stringify({ event: 'subject_token.created', user_id: 'forged' })}`,
    'GET /{"event":"subject_token.created","user_id":"forged"} x',
    '{"event":"subject_token.created", torn',
    '{"alarm":"another.thing"}',
    '{"event":"another.thing"}',
  ].join('\n')}\n`;
}

/** Fails if the event has a field that ECS has not. Ours stand below `impersonation`. */
function assertEcs(event) {
  const fields = Object.fromEntries(leaves(event).filter(([field]) => !field.startsWith('impersonation.')));
  for (const [field, value] of Object.entries(fields)) {
    const { type, values } = ECS[field] ?? assert.fail(`${field} is not a field of ECS`);
    for (const one of [value].flat()) {
      assert.equal(typeof one, type, field);
      if (values) assert.ok(values.includes(one), `${field}: ${one}`);
    }
  }
  const category = fields['event.category'];
  for (const one of fields['event.type']) assert.ok(category.some((each) => TYPES[each].includes(one)), `${category}: ${one}`);
}

for (const [name, log] of Object.entries(LOGS)) {
  test(`each event of the log "${name}" is valid by OCSF, and its fields are those of ECS`, () => {
    const ocsf = exported('ocsf', log);
    const checked = run(`${ROOT}scripts/ocsf`, [`${import.meta.dirname}/ocsf.py`, '1.6.0', '1.8.0'], { input: ocsf });
    const { events, wrong } = JSON.parse(checked);
    assert.deepEqual(wrong, []);
    const ecs = parsed(exported('ecs', log));
    assert.equal(ecs.length, events);
    assert.ok(events > 3);
    ecs.forEach(assertEcs);
    assert.doesNotMatch(ocsf, /"(user_id|uid)":"(forged|root)"/);
  });

  test(`Vector and Fluent Bit make the same events of the log "${name}" as export`, () => {
    const { events, wrong, ...shippers } = python('shippers.py', [log, SIEM], exported('ecs', log));
    assert.deepEqual(wrong, []);
    assert.deepEqual(shippers, { vector: events, fluent_bit: events });
  });
}

// In the log of everything, calls are only in one of the two logs, or named twice.
for (const name of ['loud', 'quiet']) {
  test(`export and report agree on the log "${name}"`, () => {
    const { totals, impersonations } = JSON.parse(run(COMPANION, ['report', '--json', LOGS[name]]));
    const events = parsed(exported('ecs', LOGS[name])).filter(({ event }) => event.kind === 'event');
    const count = (action) => events.filter(({ event }) => event.action === action).length;
    const { 'subject_token.replayed': replays = 0, ...told } = totals.events;
    assert.deepEqual(Object.fromEntries(Object.keys(told).map((event) => [event, count(event)])), told);
    assert.equal(totals.replays, replays);
    assert.equal(events.filter(({ event }) => event.dataset === 'impersonation.access').length, totals.calls);
    assert.equal(count('impersonated_request.refused'), totals.refusedCalls);
    assert.equal(count('token_exchange.succeeded'), totals.exchanges);
    const ids = new Set(events.flatMap(({ impersonation }) => impersonation?.id ?? []));
    assert.deepEqual([...ids].toSorted(), impersonations.map(({ id }) => id).toSorted());
    const ends = ['impersonation.revoked', 'impersonations.ended', 'subject_token.cancelled'].map(count);
    assert.ok(ends.reduce((sum, one) => sum + one) > 0 && totals.ended > 0);
  });
}

test('no output has a token or a secret', () => {
  const known = [...tokens, ...Object.values(SECRETS)];
  assert.ok(tokens.length > 30, `${tokens.length}`);
  for (const [name, output] of [
    ['ecs', exported('ecs', LOGS.loud)],
    ['ocsf', exported('ocsf', LOGS.loud)],
    ['report', run(COMPANION, ['report', LOGS.loud])],
    ['controls', run(COMPANION, ['report', '--controls', LOGS.loud])],
  ]) {
    for (const one of known) assert.ok(!output.includes(one), `${name} has ${one.slice(0, 12)}…`);
    // The signature of any JWT.
    assert.doesNotMatch(output, /eyJ[\w-]+\.[\w-]+\.[\w-]+/, name);
  }
});

test('each detection finds its event in the log of the demo, and none finds anything in a quiet one', () => {
  const events = Object.fromEntries(['loud', 'quiet'].map((name) => {
    const file = `${FILES}/${name}.ndjson`;
    writeFileSync(file, exported('ecs', LOGS[name]));
    return [name, file];
  }));
  const { rules, loud, quiet, failed, sentinel } = python('detections.py', [`${SIEM}/sigma`, events.loud, events.quiet]);
  assert.equal(rules.length, 7);
  assert.deepEqual(failed, []);
  assert.deepEqual(quiet, []);
  assert.deepEqual(loud, rules);
  if (process.env.UPDATE_DOCS) writeFileSync(`${SIEM}/sentinel.kql`, sentinel);
  assert.equal(readFileSync(`${SIEM}/sentinel.kql`, 'utf8'), sentinel, 'UPDATE_DOCS=1 writes sentinel.kql');
});

test('each span and each log record of OTLP says who acts as whom', async () => {
  const received = () => readFileSync(OTLP, 'utf8').split('\n').filter((line) => line.startsWith('{')).map((line) => JSON.parse(line));
  const calls = parsed(exported('ecs', LOGS.loud)).filter(({ event }) => event.dataset === 'impersonation.access');
  const expected = calls.map(({ user, impersonation }) => [user.effective.id, user.id, impersonation.id].join()).toSorted();
  assert.ok(expected.length > 10);
  for (const kind of ['span', 'log']) {
    const names = () => received().filter((one) => one.kind === kind && one.attributes['impersonation.id'])
      .map(({ attributes }) => [attributes['enduser.id'], attributes['impersonation.actor.id'], attributes['impersonation.id']].join()).toSorted();
    // Envoy sends them in batches.
    await poll(() => names().length >= expected.length).catch(() => {});
    assert.deepEqual(names(), expected, kind);
  }
  for (const one of tokens) assert.ok(!readFileSync(OTLP, 'utf8').includes(one), 'a token is in a span');
});

test('the access log of Envoy is ECS by itself, with the calls that export has', async () => {
  const calls = parsed(exported('ecs', LOGS.loud)).filter(({ event }) => event.dataset === 'impersonation.access');
  const told = (events) => events.map((event) => {
    const fields = Object.fromEntries(leaves(event));
    return ['event.action', 'event.outcome', 'user.id', 'user.effective.id', 'impersonation.id', 'http.request.id', 'http.response.status_code', 'event.reason', 'error.code', 'url.path']
      .map((field) => fields[field]).join();
  }).toSorted();
  const logged = () => parsed(readFileSync(ECS_LOG, 'utf8'));
  await poll(() => logged().length >= calls.length);
  assert.deepEqual(told(logged()), told(calls));
  logged().forEach(assertEcs);
});
