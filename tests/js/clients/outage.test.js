// The gateway is not there yet, or dies and comes back while requests flow. Requests that need it
// fail at once with 503, others succeed, and afterwards all succeed without a restart of Envoy.
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { poll, withoutActors } from '../stack/envoy.js';
import { startGateway } from '../stack/gateway.js';
import { ACCESS_TOKEN, client, EXCHANGE } from '../stack/names.js';
import { stopAll } from '../stack/process.js';
import { send } from '../stack/requests.js';
import { newPorts, startEnvoyOn } from '../stack/shipped.js';

const RATE = 50; // requests a second
const PHASE_MS = 3000; // the least time in which the gateway works, is dead, and works again
const BLUR_MS = 1000; // a request within this time after a change may see either state
const BOUND_MS = 15_000; // the time of one request on a busy machine: a callout gives up after 10 s
const CUT_OFF = 'cut off'; // a body that breaks off when the gateway dies
const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const KEY = JSON.stringify({ ...privateKey.export({ format: 'jwk' }), kid: 'kept', alg: 'ES256', use: 'sig' });

let ports;
let origin;
let envoy;
let gateway;
let backendToken;
let apiToken;

before(async () => {
  ports = await newPorts();
  origin = `http://127.0.0.1:${ports.public}`;
});

after(stopAll);

/** The gateway with the same key each time, so that its tokens stay valid. */
function startSameGateway() {
  return startGateway({ port: ports.gateway, origin, env: { GATEWAY_SIGNING_KEY: KEY } });
}

/**
 * The kinds of requests: what each needs beforehand, and its status with and without the gateway.
 */
const KINDS = {
  mint: { alive: 201, dead: 503, send: () => mint() }, // asks whether the user exists
  exchange: { alive: 200, dead: 200, prepare: subjectToken, send: (token) => exchange(token) },
  // Whether a key set stands in depends on when the filter could last fetch it: see
  // tests/envoy/faults.
  'key set': { alive: 200, dead: undefined, send: () => send({ url: `${origin}/oidc/jwks` }) },
  client_credentials: { alive: 200, dead: 503, send: () => clientCredentials() },
  API: { alive: 200, dead: 503, send: () => send({ url: `${origin}/orders/1`, bearer: apiToken }) },
};

test('Envoy starts without the gateway, and asks callers who need its keys to retry', async () => {
  gateway = await startSameGateway();
  const behind = `http://127.0.0.1:${ports.gateway}`;
  const granted = await clientCredentials(behind, { scope: 'impersonate users:read', resource: `${origin}/api` });
  ({ access_token: backendToken } = granted.json);
  await gateway.stop();

  ({ envoy } = await startEnvoyOn(ports, withoutActors));
  const answer = await mint();
  assert.equal(answer.status, 503);
  assert.ok(Number(answer.headers.get('retry-after')) > 0);
  assert.equal(answer.json.error, 'temporarily_unavailable');

  gateway = await startSameGateway();
  await poll(async () => (await mint()).status === 201, { interval: 200 });
});

test('requests that fail while the gateway is dead succeed when it is back', async (context) => {
  apiToken = (await exchange(await subjectToken())).json.access_token;
  await poll(async () => (await KINDS.API.send()).status === 200);

  const requests = [];
  for (let n = 0; n < (RATE * 3 * PHASE_MS) / 1000; n += 1) {
    const [name, kind] = Object.entries(KINDS)[n % Object.keys(KINDS).length];
    requests.push({ name, kind, prepared: await kind.prepare?.() });
  }
  const reloads = await counted('wasm.*vm_reload');
  const began = Date.now();
  const since = () => Date.now() - began;
  const outage = (async () => {
    await pause(PHASE_MS);
    const dies = since();
    await gateway.stop();
    const dead = since();
    await pause(PHASE_MS);
    const returns = since();
    gateway = await startSameGateway();
    return { dies, dead, returns, back: since() };
  })();
  await Promise.all(requests.map(async (request, n) => {
    await pause((n * 1000) / RATE);
    request.sent = since();
    request.status = await request.kind.send(request.prepared).then(({ status }) => status, () => CUT_OFF);
    request.took = since() - request.sent;
  }));
  const turns = await outage;

  // Failures by half second.
  const failed = requests.filter(({ kind, status }) => status !== kind.alive);
  context.diagnostic(`dead from ${turns.dead} ms to ${turns.returns} ms; ${failed.length} of ${requests.length} failed`);
  const lines = failed.map(({ name, sent, status }) => `${Math.floor(sent / 500) / 2} s ${name}: ${status}`);
  for (const line of new Set(lines)) context.diagnostic(`${line}, ${lines.filter((other) => other === line).length} times`);

  for (const { name, kind, sent, took, status } of requests) {
    const request = `${name} at ${sent} ms: ${status} after ${took} ms`;
    assert.ok(took < BOUND_MS, request);
    // A request in progress at a change may have met either state.
    const alive = sent + took < turns.dies || sent > turns.back + BLUR_MS;
    const dead = sent > turns.dead + BLUR_MS && sent + took < turns.returns;
    if (alive) assert.equal(status, kind.alive, request);
    else if (dead && kind.dead) assert.equal(status, kind.dead, request);
    else assert.ok([kind.alive, 502, 503, CUT_OFF].includes(status), request);
  }
  // No request was lost: the very same requests succeed now.
  for (const { name, kind, prepared } of failed) assert.equal((await kind.send(prepared)).status, kind.alive, name);
  for (const kind of Object.values(KINDS)) {
    assert.equal((await kind.send(await kind.prepare?.())).status, kind.alive);
  }
  assert.ok((await counted('impersonation_callout_failures_total.upstream.user_lookup')) > 0);
  assert.equal(await counted('wasm.*vm_reload'), reloads);
  process.kill(envoy.pid, 0); // Envoy still runs
});

function mint() {
  return send({ url: `${origin}/api/subject-tokens`, bearer: backendToken, json: { userId: 'user-42' } });
}

async function subjectToken() {
  return (await mint()).json.subjectToken;
}

function exchange(token) {
  return send({
    url: `${origin}/oidc/token`,
    form: {
      grant_type: EXCHANGE,
      client_id: 'support-console',
      scope: 'orders:read',
      subject_token: token,
      subject_token_type: ACCESS_TOKEN,
      resource: `${origin}/orders`,
    },
  });
}

function clientCredentials(at = origin, parameters = { scope: 'users:read' }) {
  return send({ url: `${at}/oidc/token`, basic: client('integrator-backend'), form: { grant_type: 'client_credentials', ...parameters } });
}

/** Returns the sum of Envoy's counters with names like this. */
async function counted(name) {
  const text = await (await fetch(`http://127.0.0.1:${ports.admin}/stats?filter=${name}`)).text();
  return text.trim().split('\n').reduce((sum, line) => sum + Number(line.split(': ')[1] ?? 0), 0);
}
