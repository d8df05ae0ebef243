import { fileURLToPath } from 'node:url';
import { start } from './process.js';

const SERVER = fileURLToPath(new URL('../shop/server.js', import.meta.url));
const READY = /^ready on (\d+) and (\d+)$/;

/** Starts the demo's shop and support console. `env` is described in shop/server.js. */
export async function startShop({ env = {}, ...options } = {}) {
  const service = await start('the shop', process.execPath, [SERVER], { ready: READY, env: { ...process.env, ...env }, ...options });
  const [, shop, support] = READY.exec(await service.printed(READY)).map(Number);
  return { ...service, ports: { shop, console: support } };
}
