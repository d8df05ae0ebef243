import { fileURLToPath } from 'node:url';
import { start } from './process.js';

const SERVER = fileURLToPath(new URL('../gateway/server.js', import.meta.url));

/**
 * The identity gateway on `port`, whose public address is `origin`. Its APIs are on `apis`, or
 * there too.
 */
export function startGateway({ port, apis = '', origin, env = {}, ...options }) {
  return start('the identity gateway', process.execPath, [SERVER], {
    ready: /^ready on \d+$/,
    env: { ...process.env, ...env, PORT: String(port), API_PORT: String(apis), ISSUER: `${origin}/oidc` },
    ...options,
  });
}
