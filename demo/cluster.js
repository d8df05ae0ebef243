// `make demo-cluster`: two Envoys and three nodes of etcd on this machine. A subject token of one
// Envoy is exchanged through the other, once. An impersonation is ended through the other Envoy,
// and the demo prints how long that took. The leader of etcd is killed, and the flow goes on.
// Without a majority mint and exchange answer 503. Nothing outlives this program, which ends with
// status 0 only if every step did what it should.
import { existsSync } from 'node:fs';
import { startCluster } from '../tests/js/stack/cluster.js';
import { poll, ROOT } from '../tests/js/stack/envoy.js';
import { AGENT, beforeTheFlow, exchangeRequest, mintRequest, operatorRequest } from '../tests/js/stack/flow.js';
import { ProcessError, stopAll, tails } from '../tests/js/stack/process.js';
import { probe } from '../tests/js/stack/probe.js';
import { keep, send } from '../tests/js/stack/requests.js';
import { check, show, title } from '../tests/js/stack/show.js';

const MODULE = 'target/wasm32-wasip1/release/impersonation_filter.wasm';

let worked = false;
const interrupted = new Promise((resolve) => {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, resolve);
});
try {
  await Promise.race([demonstrate(), interrupted]);
} catch (error) {
  console.error(`\nThe demo failed: ${error.message}${error.cause ? ` (${error.cause.message})` : ''}`);
  if (!(error instanceof ProcessError)) console.error(`\n${tails()}`);
}
await stopAll();
process.exit(worked ? 0 : 1);

async function demonstrate() {
  if (!existsSync(`${ROOT}${MODULE}`)) throw new Error(`${MODULE} is missing: make build`);
  const { etcd, origin, origins: [first, second] } = await startCluster({ logs: `${ROOT}target/demo-cluster` });
  console.log(`Two Envoys listen on ${first} and ${second}, with three nodes of etcd. Logs: target/demo-cluster`);
  const { backendToken, agentToken } = await beforeTheFlow(origin);

  // Each Envoy has its own address, but tokens have one audience.
  const through = (envoy, request) => ({ ...request, url: request.url.replace(origin, envoy) });
  const mint = async (envoy) => keep('SUBJECT_TOKEN', (await show(through(envoy, mintRequest(origin, backendToken)), 201)).subjectToken);
  const exchange = (envoy, token) => through(envoy, exchangeRequest(origin, token, agentToken));
  const replayed = async (envoy, token) => {
    const { error } = await show(exchange(envoy, token), 400);
    check(error === 'invalid_request', 'the error is not invalid_request');
  };

  // The operator reaches another Envoy than the one before the API.
  let operatorToken;
  const showEnd = async () => {
    const { access_token: bearer } = await show(exchange(first, await mint(first)), 200);
    const use = { url: `${first}/orders/1`, bearer };
    await show(use, 200);
    const { access_token: operator } = await show(operatorRequest(origin), 200);
    const end = { url: `${second}/api/impersonations/revocations`, bearer: operator, json: { actorId: AGENT } };
    const began = performance.now();
    const { ended } = await show(end, 201);
    const answered = performance.now();
    check(ended === 1, 'the count of ended impersonations is not 1');
    let answer;
    await poll(async () => (answer = await send(use)).status !== 200, { interval: 5 });
    const refused = performance.now();
    check(answer.status === 401 && answer.json?.error === 'invalid_token', 'it was not refused as one that has ended');
    operatorToken = operator;
    const ms = (from, to) => `${Math.round(to - from)} ms`;
    console.log(`${use.url} refuses it ${ms(answered, refused)} after ${second} had answered, ${ms(began, refused)} after it was asked.`);
  };

  title('Minted through the first Envoy, exchanged through the second');
  const token = await mint(first);
  await show(exchange(second, token), 200);

  title('Neither Envoy exchanges it again');
  await replayed(first, token);
  await replayed(second, token);

  title('An impersonation that began through one Envoy is ended through the other');
  await showEnd();

  title('A probe tries every way around both filters and both guards, and measures the end through each');
  const { status: proved, printed } = await probe({
    origin,
    filters: [first, second],
    tokens: { caller: backendToken, actor: agentToken, operator: operatorToken },
  });
  console.log(printed);
  check(proved === 0, 'the probe did not pass');

  title('Minted through the second; then the leader of etcd is killed');
  const survivor = await mint(second);
  const leader = await etcd.leader();
  await etcd.kill(leader);
  console.log(`${leader.name} is gone. ${(await etcd.leader()).name} was elected.`);

  title('The flow goes on: the token from before is exchanged, once, and new tokens are minted');
  await show(exchange(first, survivor), 200);
  await replayed(second, survivor);
  await show(exchange(second, await mint(first)), 200);
  const kept = await mint(first);

  title('Without a majority no Envoy can know whether a token was spent: mint and exchange ask to retry');
  const [another] = etcd.nodes.filter(({ service }) => service);
  await etcd.kill(another);
  console.log(`${another.name} is gone, too.`);
  for (const request of [through(first, mintRequest(origin, backendToken)), exchange(second, kept)]) {
    const { status, json, headers } = await send(request);
    console.log(`${request.url}: ${status} ${json.error}, Retry-After: ${headers.get('retry-after')}`);
    check(status === 503 && json.error === 'temporarily_unavailable' && headers.has('retry-after'), 'expected 503 with Retry-After');
  }
  const { status } = await send({ url: `${second}/oidc/jwks` });
  console.log(`${second}/oidc/jwks: ${status}`);
  check(status === 200, 'the documents need no etcd');

  title('With a majority all works again, and no Envoy was restarted');
  await etcd.restart(another);
  await poll(async () => (await send(through(first, mintRequest(origin, backendToken)))).status === 201);
  await show(exchange(second, kept), 200);
  await replayed(first, kept);

  console.log('\nBoth Envoys agreed, whatever happened to etcd.');
  worked = true;
}
