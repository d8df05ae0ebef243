import { fileURLToPath } from 'node:url';
import { replacedOnce } from './envoy.js';
import { start } from './process.js';

const SERVER = fileURLToPath(new URL('../shop/server.js', import.meta.url));
const READY = /^ready on (\d+) and (\d+)$/;

/** Starts the demo's shop and support console. `env` is described in shop/server.js. */
export async function startShop({ env = {}, ...options } = {}) {
  const service = await start('the shop', process.execPath, [SERVER], { ready: READY, env: { ...process.env, ...env }, ...options });
  const [, shop, support] = READY.exec(await service.printed(READY)).map(Number);
  return { ...service, ports: { shop, console: support } };
}

/**
 * Returns envoy.yaml with the shop's ordinary host, `shop.localhost`, on the public listener. There
 * people sign in by themselves, so no guard stands before it. Header fields under the names of
 * Envoy's are removed.
 */
export function withOrdinaryShop(yaml) {
  const host = `            - name: shop
              domains: [shop.localhost]
              request_headers_to_remove: [x-jwt-payload, x-impersonation-id, x-impersonator]
              routes:
              - match: {prefix: /}
                route: {cluster: shop, timeout: 0s, upgrade_configs: [{upgrade_type: websocket}]}
`;
  return replacedOnce(yaml, /^ {12}- name: public\n/m, `${host}$&`);
}
