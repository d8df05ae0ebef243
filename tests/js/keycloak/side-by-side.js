// Impersonation by Keycloak's own token exchange and by the filter, side by side: the same machine,
// the same Keycloak, the same number of concurrent flows, in turns. Run by `make bench-keycloak`.
//
//   ALGORITHM=ES256      both sign with this (RS256, Keycloak's default)
//   FLOWS=16             concurrent flows
//   SECONDS=20           for each way
import { readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import * as jose from 'jose';
import * as oidc from 'openid-client';
import { discoverAt } from '../stack/client.js';
import { poll } from '../stack/envoy.js';
import { ACCESS_TOKEN, EXCHANGE } from '../stack/names.js';
import { stopAll } from '../stack/process.js';
import { SECRETS, signInAs } from './parties.js';
import { startEnvoyBefore, startStack, USERS } from './stack.js';

const ALGORITHM = process.env.ALGORITHM ?? 'RS256';
const FLOWS = Number(process.env.FLOWS ?? 16);
const SECONDS = Number(process.env.SECONDS ?? 20);
const ROUNDS = 4;
const TOKEN = '/realms/acme/protocol/openid-connect/token';
const agent = new Agent({ keepAlive: true, maxSockets: FLOWS });

try {
  await main();
} finally {
  await stopAll();
}

async function main() {
  // Keycloak lets only people with this role impersonate others.
  const impersonator = { ...USERS['agent-1'], clientRoles: { 'realm-management': ['impersonation'] } };
  const stack = await startStack({
    variant: 'legacy',
    recorded: false,
    users: { ...USERS, 'agent-1': impersonator },
    realm: { accessTokenLifespan: 3600, defaultSignatureAlgorithm: ALGORITHM },
  });
  const [asked, bare] = [
    await startEnvoyBefore(stack, { algorithm: ALGORITHM, unlimited: true }),
    await startEnvoyBefore(stack, { name: 'without-lookup', algorithm: ALGORITHM, unlimited: true, edit: withoutLookup }),
  ];
  const ways = await prepare(stack, asked, bare);

  const results = new Map(ways.map((way) => [way, { times: [], seconds: 0, cpu: way.processes.map(() => 0) }]));
  for (const way of ways) await run(way, 5); // until Java has compiled what is used
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const way of ways) {
      const { times, seconds, cpu } = await run(way, SECONDS / ROUNDS);
      const result = results.get(way);
      result.times.push(...times);
      result.seconds += seconds;
      result.cpu = result.cpu.map((sum, index) => sum + cpu[index]);
    }
  }
  print(results);
}

function withoutLookup(configuration) {
  const { user_lookup: _, ...others } = configuration.subject_tokens;
  return { ...configuration, subject_tokens: others };
}

/** Returns the ways to a token, each with the processes that work for it. */
async function prepare(stack, asked, bare) {
  const { issuer, behind, keycloak } = stack;
  const client = (id) => discoverAt(issuer, id, SECRETS[id]);
  const agentToken = (await signInAs(await client('support-portal'), 'agent-1')).access_token;
  const userToken = (await signInAs(await client('shop'), 'user-42', { scope: 'openid orders:read' })).access_token;
  const { access_token: backendToken } = await oidc.clientCredentialsGrant(await client('integrator-backend'), { scope: 'impersonate' });

  const user = USERS['user-42'].id;
  const ownExchange = async (id, parameters) => (
    post(`${behind}${TOKEN}`, { grant_type: EXCHANGE, subject_token_type: ACCESS_TOKEN, ...parameters }, basic(id))
  );
  const byFilter = async (origin) => {
    const { subjectToken } = await send(`${origin}/api/subject-tokens`, JSON.stringify({ userId: user }), {
      authorization: `Bearer ${backendToken}`, 'content-type': 'application/json',
    });
    return post(`${origin}${TOKEN}`, {
      grant_type: EXCHANGE,
      scope: 'orders:read',
      subject_token: subjectToken,
      subject_token_type: ACCESS_TOKEN,
      resource: `${stack.origin}/orders`,
      actor_token: agentToken,
      actor_token_type: ACCESS_TOKEN,
    }, basic('support-portal'));
  };
  const ways = [
    {
      name: 'Keycloak, impersonation (preview): requested_subject, one request',
      flow: () => ownExchange('support-portal', { subject_token: agentToken, requested_subject: 'user-42' }),
      sub: user,
      processes: [keycloak],
    },
    {
      name: 'Keycloak, standard exchange: the user\'s own token, one request',
      flow: () => ownExchange('shop', { subject_token: userToken, scope: 'orders:read' }),
      sub: user,
      processes: [keycloak],
    },
    { name: 'the filter, as on the page: mint with user_lookup, exchange', flow: () => byFilter(asked.origin), sub: user, processes: [keycloak, asked.envoy] },
    { name: 'the filter without user_lookup: mint, exchange', flow: () => byFilter(bare.origin), sub: user, processes: [keycloak, bare.envoy] },
  ];
  for (const way of ways) {
    // Until the filter has Keycloak's keys, it asks minters to retry.
    let granted;
    await poll(async () => {
      granted = await way.flow().catch((error) => (error.status === 503 ? undefined : Promise.reject(error)));
      return granted !== undefined;
    });
    const { sub } = jose.decodeJwt(granted.access_token);
    const { alg } = jose.decodeProtectedHeader(granted.access_token);
    if (sub !== way.sub || alg !== ALGORITHM) throw new Error(`${way.name}: a token for ${sub}, signed by ${alg}`);
  }
  return ways;
}

/**
 * Runs flows for some seconds. Returns the time of each flow, and the processor time of each
 * process.
 */
async function run({ flow, processes }, seconds) {
  const times = [];
  const cpuBefore = processes.map(cpuOf);
  const begun = performance.now();
  const end = begun + seconds * 1000;
  await Promise.all(Array.from({ length: FLOWS }, async () => {
    while (performance.now() < end) {
      const before = performance.now();
      await flow();
      times.push(performance.now() - before);
    }
  }));
  return { times, seconds: (performance.now() - begun) / 1000, cpu: processes.map((each, index) => cpuOf(each) - cpuBefore[index]) };
}

/** The processor time that a process has used, in milliseconds. */
function cpuOf({ pid }) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) * 10; // a tick is 10 ms
}

function print(results) {
  console.log(`${FLOWS} concurrent flows, ${SECONDS} s for each way in ${ROUNDS} turns, ${ALGORITHM}`);
  console.log('flows/s         p50         p99  times the first  CPU a flow: Keycloak, Envoy');
  let first;
  for (const [{ name }, { times, seconds, cpu }] of results) {
    times.sort((a, b) => a - b);
    const rate = times.length / seconds;
    first ??= rate;
    const at = (share) => `${times[Math.floor(share * (times.length - 1))].toFixed(1)} ms`.padStart(12);
    const [ofKeycloak, ofEnvoy] = [cpu[0], cpu[1] ?? 0].map((all) => `${(all / times.length).toFixed(2)} ms`.padStart(12));
    console.log(`${rate.toFixed(0).padStart(7)}${at(0.5)}${at(0.99)}${(rate / first).toFixed(1).padStart(17)}${ofKeycloak}${ofEnvoy}   ${name}`);
  }
}

function basic(id) {
  return { authorization: `Basic ${Buffer.from(`${id}:${SECRETS[id]}`).toString('base64')}` };
}

function post(url, form, headers) {
  return send(url, new URLSearchParams(form).toString(), { ...headers, 'content-type': 'application/x-www-form-urlencoded' });
}

function send(url, body, headers) {
  return new Promise((resolve, reject) => {
    const asked = request(url, { method: 'POST', agent, headers: { ...headers, 'content-length': Buffer.byteLength(body) } }, (response) => {
      const pieces = [];
      response.on('data', (piece) => pieces.push(piece));
      response.on('end', () => {
        const text = Buffer.concat(pieces).toString();
        if (response.statusCode < 300) resolve(JSON.parse(text));
        else reject(Object.assign(new Error(`${url}: ${response.statusCode} ${text}`), { status: response.statusCode }));
      });
    });
    asked.on('error', reject);
    asked.end(body);
  });
}
