// The operator's tools: the metrics of a real run of envoy.yaml, the rules and the dashboard that
// use them, and docs/operations.md, which explains them.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { generateKeyPairSync, sign } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { ACCESS_TOKEN, EXCHANGE, client } from '../stack/names.js';
import { send } from '../stack/requests.js';
import { poll, replacedOnce, ROOT, withoutActors } from '../stack/envoy.js';
import { startEtcd } from '../stack/etcd.js';
import { startGateway } from '../stack/gateway.js';
import { freePorts, start, stopAll } from '../stack/process.js';
import { startEnvoyOn } from '../stack/shipped.js';
import { draw } from './picture.js';

const FILES = `${ROOT}target/observability`;
const RULES = `${ROOT}deploy/prometheus/rules.yml`;

/** A transmitter of security events. */
const TRANSMITTER = 'https://transmitter.example.com';
const transmitterKey = generateKeyPairSync('ec', { namedCurve: 'P-256' });

const read = (path) => readFileSync(`${ROOT}${path}`, 'utf8');
const dashboard = JSON.parse(read('deploy/grafana/dashboard.json'));
const operations = read('docs/operations.md');

const found = spawnSync(`${ROOT}scripts/prometheus`, { encoding: 'utf8' });
const tools = found.status === 0 && found.stdout.trim();
const skip = !tools && `NOT TESTED: ${found.stderr.trim()}`;
if (skip) console.error(`\n*** The rules and the dashboard are ${skip} ***\n`);

let ports;
let origin;
let log;
let exchange;
let scrape;
/** An Envoy with its tokens in etcd has metrics of its own. */
let portsOfEtcd;
let scrapeOfEtcd;

before(async () => {
  rmSync(FILES, { recursive: true, force: true });
  mkdirSync(FILES, { recursive: true });
  const [public_, admin, metrics, gateway] = await freePorts(4);
  ports = { public: public_, admin, metrics, gateway };
  origin = `http://127.0.0.1:${public_}`;
  const behind = await startGateway({ port: gateway, origin, log: `${FILES}/gateway.log` });
  ({ log } = await startEnvoyOn(ports, (yaml) => withTransmitter(withoutActors(yaml))));
  await withEtcd(gateway);
  await traffic(behind);
  // Gauges are set on a tick of the filter, histograms every five seconds.
  await metricsWith('impersonation_exchange_duration_microseconds_count 1');
  scrape = await metricsWith('impersonation_subject_tokens_outstanding 1');
  scrapeOfEtcd = await metricsWith('impersonation_store_duration_microseconds_count{operation="spend"} 1', portsOfEtcd);
  writeFileSync(`${FILES}/scrape.txt`, scrape);
});

after(stopAll);

/** Starts another Envoy before the same gateway, which mints and exchanges a token in etcd. */
async function withEtcd(gateway) {
  const etcd = await startEtcd(1, { logs: FILES });
  const [public_, admin, metrics] = await freePorts(3);
  portsOfEtcd = { public: public_, admin, metrics, gateway };
  const yaml = execFileSync(`${ROOT}scripts/envoy-in-cluster`, etcd.addresses, { encoding: 'utf8' });
  const { origin: there } = await startEnvoyOn({ ...portsOfEtcd, public: ports.public, listener: public_ }, withoutActors, yaml);
  const mint = await mintRequest(there);
  await poll(async () => (await send(mint)).status === 201);
  const { subjectToken } = (await send(mint)).json;
  assert.equal((await send({ ...exchangeOf(subjectToken), url: `${there}/oidc/token` })).status, 200);
}

async function mintRequest(at) {
  const backend = (await send({
    url: `${origin}/oidc/token`,
    basic: client('integrator-backend'),
    form: { grant_type: 'client_credentials', scope: 'impersonate users:read', resource: `${origin}/api` },
  })).json.access_token;
  return { url: `${at}/api/subject-tokens`, bearer: backend, json: { userId: 'user-42' } };
}

function exchangeOf(subjectToken) {
  return {
    url: `${origin}/oidc/token`,
    form: {
      grant_type: EXCHANGE,
      client_id: 'support-console',
      scope: 'orders:read',
      subject_token: subjectToken,
      subject_token_type: ACCESS_TOKEN,
      resource: `${origin}/orders`,
    },
  };
}

/** Adds a transmitter of security events to the filter's configuration. */
function withTransmitter(yaml) {
  const keys = JSON.stringify({ keys: [{ ...transmitterKey.publicKey.export({ format: 'jwk' }), alg: 'ES256', kid: 't' }] });
  const sender = `{issuer: ${TRANSMITTER}, audiences: [filter], local_jwks: {inline_string: '${keys}'}}`;
  return replacedOnce(yaml, /^( +)impersonations:\n/m, `$1impersonations:\n$1  security_events: [${sender}]\n`);
}

/** Pushes a verification event, as the transmitter does. Returns the status of the answer. */
async function pushEvent(claims = {}) {
  const event = {
    iss: TRANSMITTER, aud: 'filter', iat: Math.floor(Date.now() / 1000), jti: 'one',
    sub_id: { format: 'opaque', id: 'stream' },
    events: { 'https://schemas.openid.net/secevent/ssf/event-type/verification': {} }, ...claims,
  };
  const parts = [{ alg: 'ES256', kid: 't', typ: 'secevent+jwt' }, event];
  const signed = parts.map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.');
  const signature = sign('sha256', Buffer.from(signed), { key: transmitterKey.privateKey, dsaEncoding: 'ieee-p1363' });
  const { status } = await fetch(`${origin}/api/security-events`, {
    method: 'POST',
    headers: { 'content-type': 'application/secevent+jwt' },
    body: `${signed}.${signature.toString('base64url')}`,
  });
  return status;
}

/**
 * Sends two mints, one exchange, a replay, two more refusals, two events, and a callout that fails.
 */
async function traffic(gateway) {
  const mint = await mintRequest(origin);
  await poll(async () => (await send(mint)).status === 201); // once the filter has the key set
  const { subjectToken } = (await send(mint)).json;
  exchange = exchangeOf(subjectToken);
  assert.equal((await send(exchange)).status, 200);
  assert.equal((await send(exchange)).status, 400);
  assert.equal((await send({ ...exchange, basic: ['support-portal', 'wrong'] })).status, 401);
  assert.equal((await send({ ...mint, bearer: undefined })).status, 401);
  assert.equal(await pushEvent(), 202);
  assert.equal(await pushEvent({ aud: 'another', jti: 'two' }), 400);
  await gateway.stop();
  assert.equal((await send(mint)).status, 503);
}

/** Returns the metrics once they contain this line. Prometheus scrapes the same address. */
async function metricsWith(line, { metrics } = ports) {
  let text;
  await poll(async () => {
    text = await (await fetch(`http://127.0.0.1:${metrics}/stats/prometheus`)).text();
    return text.replaceAll('{}', '').split('\n').includes(line);
  });
  return text;
}

/** Returns the filter's part of a scrape: values by series, and types by name. */
function ours(text) {
  const lines = text.replaceAll('{}', '').split('\n').filter((line) => line.includes('impersonation_'));
  const types = new Map(lines.map((line) => /^# TYPE (\w+) (\w+)$/.exec(line)).filter(Boolean).map(([, name, type]) => [name, type]));
  const series = new Map(lines.map((line) => /^(impersonation_\S+) (\S+)$/.exec(line)).filter(Boolean).map(([, name, value]) => [name, Number(value)]));
  return { types, series };
}

/** Returns every metric name in a text, with histograms as they are scraped. */
function named(text) {
  return [...new Set(text.match(/\b(envoy_wasm_)?impersonation_[a-z_]+[a-z]\b/g))].filter((name) => !/^impersonation_(event|\w+_id)$/.test(name));
}

/** Returns the names under which Prometheus has the scraped metrics. */
function scraped() {
  return [...ours(scrape + scrapeOfEtcd).types].flatMap(([name, type]) => (
    type === 'histogram' ? [`${name}_bucket`, `${name}_count`, `${name}_sum`] : [name]
  ));
}

test('labels are labels, names are Prometheus\'s', () => {
  const { types, series } = ours(scrape);
  for (const [name, type] of types) {
    if (name.startsWith('envoy_')) continue;
    assert.equal(type === 'counter', name.endsWith('_total'), `${name} is a ${type}`);
    assert.doesNotMatch(name, /_(endpoint|error|reason|upstream|kind|operation|outcome|module|version)(_|$)/, 'a label in a name');
  }
  const expected = {
    impersonation_subject_tokens_created_total: (value) => value >= 2,
    impersonation_subject_tokens_exchanged_total: 1,
    impersonation_subject_tokens_replayed_total: 1,
    impersonation_store_full_total: 0,
    impersonation_key_collisions_total: 0,
    'impersonation_refusals_total{endpoint="token",error="invalid_request",reason="subject_token_spent"}': 1,
    'impersonation_refusals_total{endpoint="token",error="invalid_client",reason="client_authentication"}': 1,
    'impersonation_refusals_total{endpoint="subject_tokens",error="invalid_token",reason="bearer_missing"}': 1,
    'impersonation_refusals_total{endpoint="subject_tokens",error="temporarily_unavailable",reason="callout_failed"}': (value) => value >= 1,
    'impersonation_refusals_total{endpoint="events",error="invalid_audience",reason="audience"}': 1,
    'impersonation_sender_events_total{kind="security_event",sender="0",outcome="verification"}': 1,
    'impersonation_sender_events_total{kind="security_event",sender="0",outcome="ended"}': 0,
    'impersonation_callout_failures_total{upstream="user_lookup"}': 1,
    'impersonation_callout_failures_total{upstream="introspection"}': 0,
    'impersonation_callout_failures_total{upstream="userinfo"}': 0,
    'impersonation_callout_failures_total{upstream="jwks"}': (value) => value >= 0,
    impersonation_store_capacity: 65536,
    'impersonation_build_info{module="filter",version="0.1.0"}': 1,
    'impersonation_build_info{module="guard",version="0.1.0"}': 1,
    impersonation_key_set_age_seconds: (value) => value < 300,
    impersonation_subject_token_oldest_age_seconds: (value) => value < 300,
    impersonation_exchange_duration_microseconds_count: 1,
    'impersonation_exchange_duration_microseconds_bucket{le="100"}': (value) => value <= 1,
    'impersonation_exchange_duration_microseconds_bucket{le="10000000"}': 1,
    'impersonation_exchange_duration_microseconds_bucket{le="+Inf"}': 1,
  };
  for (const [name, value] of Object.entries(expected)) {
    const got = series.get(name);
    assert.ok(typeof value === 'function' ? value(got) : got === value, `${name} is ${got}; there are:\n${[...series.keys()].join('\n')}`);
  }
});

test('the metrics listener serves the metrics and nothing else', async () => {
  const requests = [
    ['GET', '/'], ['GET', '/stats'], ['GET', '/config_dump'], ['GET', '/stats/prometheus/'],
    ['POST', '/stats/prometheus'], ['POST', '/quitquitquit'], ['GET', '/stats/prometheus/../../config_dump'],
  ];
  for (const [method, path] of requests) {
    const answer = await fetch(`http://127.0.0.1:${ports.metrics}${path}`, { method });
    assert.equal(answer.status, 404, `${method} ${path}`);
  }
  assert.equal((await fetch(`${origin}/stats/prometheus`)).status, 503, 'the public listener asks the gateway, which is gone');
});

test('the access log says who acted as whom, and why not', async () => {
  const lines = () => readFileSync(log, 'utf8').split('\n').filter((line) => line.startsWith('{')).map((line) => JSON.parse(line));
  await poll(() => lines().some(({ details }) => details === 'impersonation_callout_failed'));
  const succeeded = lines().find(({ impersonation }) => impersonation?.event === 'token_exchange.succeeded');
  const spent = lines().find(({ details }) => details === 'impersonation_subject_token_spent');
  const { subject_token_id, jti, ...facts } = succeeded.impersonation;
  assert.deepEqual(facts, {
    event: 'token_exchange.succeeded',
    user_id: 'user-42',
    client_id: 'support-console',
    caller: 'integrator-backend',
    resource: `${origin}/orders`,
    scope: 'orders:read',
  });
  assert.ok(subject_token_id && jti);
  assert.deepEqual(spent.impersonation, {
    event: 'token_exchange.refused',
    subject_token_id,
    client_id: 'support-console',
    caller: 'integrator-backend',
    error: 'invalid_request',
    reason: 'subject_token_spent',
  });
  // The log has the fields that the dashboard queries.
  const asked = JSON.stringify(dashboard).match(/\bimpersonation_(event|\w+_id)\b/g).map((name) => name.replace('impersonation_', ''));
  const access = read('envoy.yaml');
  for (const name of asked) assert.ok(access.includes(`${name}: "%FILTER_STATE(wasm.impersonation.${name}:PLAIN)%"`), name);
});

test('rules and dashboard name only existing metrics', () => {
  const there = scraped();
  const expressions = panels().flatMap(({ targets }) => targets.map(({ expr }) => expr));
  for (const [where, text] of [['the rules', rulesOnly()], ['the dashboard', expressions.join('\n')]]) {
    assert.ok(named(text).length >= 8, `${where} name hardly any metric`);
    for (const name of named(text)) assert.ok(there.includes(name), `${where}: no ${name} in the scrape`);
  }
});

test('docs/operations.md explains every metric and every alarm, and no others', () => {
  const rows = (title) => operations.split(`\n## ${title}\n`)[1].split('\n## ')[0];
  const explained = new Set([...rows('Metrics').matchAll(/^- `(impersonation_\w+)`/gm)].map(([, name]) => name));
  // Only a guard in `mode: report` has this one.
  explained.delete('impersonation_guard_reported_total');
  assert.deepEqual([...explained].toSorted(), [...ours(scrape + scrapeOfEtcd).types.keys()].filter((name) => !name.startsWith('envoy_')).toSorted());
  const alarms = [...read('deploy/prometheus/rules.yml').matchAll(/alert: (\w+)/g)].map(([, name]) => name);
  assert.deepEqual([...rows('Alarms').matchAll(/^### (\w+)$/gm)].map(([, name]) => name).toSorted(), alarms.toSorted());
  for (const name of alarms) assert.ok(read('deploy/prometheus/rules.yml').includes(`runbook: docs/operations.md#${name.toLowerCase()}\n`), name);
});

test('the rules are valid and fire when they should', { skip }, () => {
  promtool('check', 'config', '--lint=all', `${ROOT}deploy/prometheus/prometheus.yml`);
  promtool('check', 'rules', '--lint=all', RULES);
  promtool('test', 'rules', `${ROOT}deploy/prometheus/rules.test.yml`);
  const tested = read('deploy/prometheus/rules.test.yml');
  for (const [, name] of read('deploy/prometheus/rules.yml').matchAll(/alert: (\w+)/g)) {
    assert.match(tested, new RegExp(`alert(name="|name: )${name}\\b`), `no test has ${name} fire`);
  }
});

test('promtool accepts the names, except for a limit of Envoy', { skip }, () => {
  const lines = scrape.split('\n').filter((line) => /^(# TYPE )?impersonation_/.test(line)).join('\n');
  const { stdout, stderr } = spawnSync(`${tools}/promtool`, ['check', 'metrics'], { input: `${lines}\n`, encoding: 'utf8' });
  const faults = `${stdout}${stderr}`.split('\n').filter((line) => line && !line.endsWith('no help text'));
  // Envoy's histograms hold integers, so they cannot hold seconds.
  assert.deepEqual(faults, ['impersonation_exchange_duration_microseconds use base unit "seconds" instead of "microseconds"']);
});

test('Prometheus fills every panel and raises the alarm at a replay', { skip, timeout: 600_000 }, async () => {
  const [port] = await freePorts(1);
  const config = read('deploy/prometheus/prometheus.yml')
    .replace('"envoy:9902"', `"127.0.0.1:${ports.metrics}", "127.0.0.1:${portsOfEtcd.metrics}"`)
    .replaceAll('_interval: 15s', '_interval: 1s');
  writeFileSync(`${FILES}/prometheus.yml`, config);
  writeFileSync(`${FILES}/rules.yml`, read('deploy/prometheus/rules.yml'));
  await start('Prometheus', `${tools}/prometheus`, [
    `--config.file=${FILES}/prometheus.yml`,
    `--storage.tsdb.path=${FILES}/data`,
    `--web.listen-address=127.0.0.1:${port}`,
  ], { ready: /ready to receive web requests/, log: `${FILES}/prometheus.log` });
  const api = async (path) => (await (await fetch(`http://127.0.0.1:${port}/api/v1/${path}`)).json());
  const query = (expression) => api(`query?query=${encodeURIComponent(expression)}`);

  // Prometheus must have seen the counter before it grows.
  await poll(async () => (await query('count_over_time(impersonation_subject_tokens_replayed_total[1m])')).data.result[0]?.value[1] >= 2);
  assert.equal((await send(exchange)).status, 400);
  const fires = async (name) => (await api('alerts')).data.alerts.some(({ labels, state }) => labels.alertname === name && state === 'firing');
  await poll(() => fires('ImpersonationReplay'));

  // Some rates need two points. After that every panel has data.
  for (const { title, targets } of panels()) {
    for (const { expr } of targets) {
      const asked = expr.replaceAll('$instance', '.*').replace(/\$__(rate_interval|range)/g, '1m');
      await poll(async () => {
        const answer = await query(asked);
        assert.equal(answer.status, 'success', `${title}: ${asked}: ${answer.error}`);
        return answer.data.result.length > 0;
      }).catch((error) => assert.fail(`${title} is empty: ${asked}: ${error.message}`));
    }
  }
  const rules = (await api('rules')).data.groups.flatMap((group) => group.rules);
  for (const { name, health, lastError } of rules) assert.equal(health, 'ok', `${name}: ${lastError}`);
  for (const { name } of rules.filter(({ type }) => type === 'recording')) {
    await poll(async () => (await query(name)).data.result.length > 0).catch(() => assert.fail(`${name} records nothing`));
  }

  // UPDATE_DOCS=1 draws docs/dashboard.svg, from minutes of traffic.
  const now = () => Date.now() / 1000;
  let from = now() - 30;
  if (process.env.UPDATE_DOCS) {
    const gateway = await startGateway({ port: ports.gateway, origin });
    from = await busyMinutes(gateway);
  }
  const range = async (expression, begin, end) => {
    const answer = await api(`query_range?${new URLSearchParams({ query: expression, start: begin, end, step: Math.max(1, (end - begin) / 120) })}`);
    assert.equal(answer.status, 'success', `${expression}: ${answer.error}`);
    return answer.data.result;
  };
  const picture = await draw(dashboard, range, { from, to: now(), interval: '15s' });
  for (const { title } of panels()) assert.ok(picture.includes(`>${title.replace("'", '&#39;')}</text>`) || picture.includes(`>${title}</text>`), title);
  assert.doesNotMatch(picture, /NaN|undefined/);
  writeFileSync(process.env.UPDATE_DOCS ? `${ROOT}docs/dashboard.svg` : `${FILES}/dashboard.svg`, picture);
});

/**
 * The work of a team in four minutes, with some mistakes, a replay, and an end for everybody. Then
 * the gateway is away for a while. Returns the time at which it began, in seconds.
 */
async function busyMinutes(gateway) {
  const minute = 60_000;
  const mint = await mintRequest(origin);
  const operator = (await send({
    url: `${origin}/oidc/token`,
    basic: client('operations'),
    form: { grant_type: 'client_credentials', scope: 'impersonations:read impersonations:revoke', resource: `${origin}/api` },
  })).json.access_token;
  await poll(async () => (await send(mint)).status === 201);
  const began = Date.now();
  const past = () => (Date.now() - began) / minute;
  let ended = false;
  for (let turn = 0; past() < 3.2; turn += 1) {
    // Mornings are not even.
    await pause(60 + 50 * Math.sin(turn / 40) + 40 * Math.random());
    const at = turn % 3 === 0 ? `http://127.0.0.1:${portsOfEtcd.public}` : origin;
    const minted = await send({ ...mint, url: `${at}/api/subject-tokens` });
    if (minted.status !== 201 || turn % 7 === 0) continue;
    const form = { ...exchangeOf(minted.json.subjectToken), url: `${at}/oidc/token` };
    const exchanged = await send(form);
    const bearer = exchanged.json.access_token;
    for (let calls = turn % 4; calls > 0; calls -= 1) await send({ url: `${at}/orders/${calls}`, bearer });
    if (turn % 11 === 0) await send({ url: `${at}/orders/1`, bearer, json: {} });
    if (turn % 37 === 0) await send(form);
    if (turn % 23 === 0) await send({ ...form, basic: ['support-portal', 'wrong'] });
    if (turn % 29 === 0) await send({ ...mint, bearer: undefined });
    if (turn % 31 === 0) await pushEvent({ jti: `turn-${turn}` });
    if (past() > 2 && !ended) {
      ended = true;
      await send({ url: `${origin}/api/impersonations/revocations`, bearer: operator, json: { all: true } });
      await send({ url: `${origin}/orders/1`, bearer });
    }
  }
  await gateway.stop();
  while (past() < 3.7) {
    await pause(250);
    await send(mint);
  }
  return began / 1000;
}

test('the dashboard uses only provisioned data sources', () => {
  const sources = read('deploy/grafana/provisioning/datasources/datasources.yml');
  for (const panel of dashboard.panels.filter(({ type }) => type !== 'row')) {
    assert.ok(sources.includes(`type: ${panel.datasource.type}\n`), panel.title);
    assert.equal(panel.datasource.uid, `\${${panel.datasource.type}}`, panel.title);
  }
  const ids = dashboard.panels.map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length);
});

/** The panels that show data of Prometheus. */
function panels() {
  return dashboard.panels.filter(({ datasource }) => datasource?.type === 'prometheus');
}

/** The expressions of the rules, without annotations. */
function rulesOnly() {
  return read('deploy/prometheus/rules.yml').split('\n').filter((line) => !/^\s*(description|summary|#)/.test(line)).join('\n');
}

function promtool(...args) {
  execFileSync(`${tools}/promtool`, args, { stdio: 'pipe', encoding: 'utf8' });
}
