// `make demo` and `make run`: starts the identity gateway, a shop with its support console, and
// Envoy with envoy.yaml and the hook that is commented there, and shows the flow through them.
// `--stay` keeps them until Ctrl-C. Nothing outlives this program, which ends with status 0 only if
// every step did what it should.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { CONFIG, PORTS, ROOT, startEnvoy } from '../tests/js/stack/envoy.js';
import { startGateway } from '../tests/js/stack/gateway.js';
import { startHook, withHook } from '../tests/js/stack/hook.js';
import { isFree, ProcessError, stopAll, tails } from '../tests/js/stack/process.js';
import { pasteable, showFlow } from '../tests/js/stack/flow.js';
import { assignments } from '../tests/js/stack/requests.js';
import { startShop, withOrdinaryShop } from '../tests/js/stack/shop.js';

const ORIGIN = `http://127.0.0.1:${PORTS.public}`;
const MODULE = 'target/wasm32-wasip1/release/impersonation_filter.wasm';
const LOGS = `${ROOT}target/demo`;
const stay = process.argv.includes('--stay');

let worked = false;
const interrupted = new Promise((resolve) => {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, resolve);
});

try {
  await Promise.race([demonstrate(), interrupted]);
} catch (error) {
  worked = false;
  console.error(`\nThe demo failed: ${error.message}${error.cause ? ` (${error.cause.message})` : ''}`);
  if (!(error instanceof ProcessError)) console.error(`\n${tails()}`);
}
await stopAll();
process.exit(worked ? 0 : 1);

async function demonstrate() {
  if (!existsSync(`${ROOT}${MODULE}`)) throw new Error(`${MODULE} is missing: make build`);
  for (const [use, port] of Object.entries(PORTS)) {
    if (!(await isFree(port))) throw new Error(`port ${port} (${use}) is in use: stop what listens there`);
  }

  mkdirSync(LOGS, { recursive: true });
  const gateway = await startGateway({ port: PORTS.gateway, apis: PORTS.apis, origin: ORIGIN, log: `${LOGS}/gateway.log` });
  const shop = await startShop({ log: `${LOGS}/shop.log` });
  const hook = await startHook();
  const config = `${LOGS}/envoy.yaml`;
  writeFileSync(config, withOrdinaryShop(withHook(readFileSync(CONFIG, 'utf8'), hook)));
  const envoy = await startEnvoy({ config, env: { HOOK_SECRET: hook.secret }, log: `${LOGS}/envoy.log` });
  console.log(`Envoy listens on ${ORIGIN}, the identity gateway is behind it. Logs: target/demo`);

  const flow = await showFlow(ORIGIN, { log: `${LOGS}/envoy.log`, hook });
  console.log('\nThe flow works.');
  worked = true;
  if (!stay) return;

  const lines = await pasteable(flow);
  console.log(`
See who acts as whom, and end it, on the page ${ORIGIN}/impersonations/
There sign in as oncall-1, who may end and approve impersonations, as agent-2, who may approve them,
or as auditor-1, who may only look. Nobody acts as vip-1 without an approval.

Open a shop as its user: sign in as agent-1 at the support console http://localhost:${PORTS.console}/
The user signs in at the shop's ordinary host, http://shop.localhost:${PORTS.public}/

Paste this into another shell to try it yourself: the tokens are fresh, the subject token is unspent.

${assignments().join('\n')}

# exchange the subject token (once), use an access token, get another subject token
${lines.exchange}
${lines.use}
${lines.mint}

# see who impersonates whom, end it, and use the access token again
${lines.list}
${lines.revoke}
${lines.use}

Envoy stays up until Ctrl-C; its admin interface is on http://127.0.0.1:${PORTS.admin}.`);
  throw new Error(await Promise.race([gateway, shop, envoy].map(async ({ name, closed }) => `${name} ${await closed}`)));
}
