import { fileURLToPath } from 'node:url';
import { start } from './process.js';

const SERVER = fileURLToPath(new URL('../tests/gateway/server.js', import.meta.url));

/** The identity gateway on `port`, whose public address is `origin`. */
export function startGateway({ port, origin, env = {}, ...options }) {
  return start('the identity gateway', process.execPath, [SERVER], {
    ready: /^ready on \d+$/,
    env: { ...process.env, ...env, PORT: String(port), ISSUER: `${origin}/oidc` },
    ...options,
  });
}
