// `make example-NAME`: starts Envoy, the identity gateway, and the backend and the API of one
// language, until Ctrl-C.
import { PORTS } from '../stack/envoy.js';
import { isFree, stopAll } from '../stack/process.js';
import { startParts, startStack } from './world.js';

const [language] = process.argv.slice(2);
const ports = { ...PORTS };
delete ports.shop; // the API is the application, too

const interrupted = new Promise((resolve) => {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, resolve);
});
let failed = false;
try {
  for (const [use, port] of Object.entries(ports)) {
    if (!(await isFree(port))) throw new Error(`port ${port} (${use}) is in use: stop what listens there`);
  }
  const stack = await startStack(ports);
  const { backend, api } = await startParts(language, stack);
  console.log(`
Open ${stack.console} and sign in as agent-1. Act as user-42; as vip-1, whom agent-2 or oncall-1 must
approve on ${stack.origin}/impersonations/; and try auditor-1, who may not act at all.
The programs are those of examples/${language}, their logs are in target/examples. Ctrl-C ends all.`);
  const ended = [backend, api].map(async ({ name, closed }) => { throw new Error(`${name} ${await closed}`); });
  await Promise.race([interrupted, ...ended]);
} catch (error) {
  failed = true;
  console.error(error.message);
}
await stopAll();
process.exit(failed ? 1 : 0);
