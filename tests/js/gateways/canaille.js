// Canaille as docs/gateways/canaille.md sets it up, and Envoy before it with that page's lines.
import { execFile, execFileSync } from 'node:child_process';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { COMPANION, configOn, replacedOnce, ROOT, startEnvoy } from '../stack/envoy.js';
import { start } from '../stack/process.js';
import { block } from './page.js';

const PAGE = 'canaille.md';
const FILES = `${ROOT}target/gateways`;
const CANAILLE = `${ROOT}scripts/canaille`;

export const password = (user) => `change-me-${user}`;

const clients = JSON.parse(block(PAGE, 'clients'));

/** A client of the page, as [name, secret]. */
export function client(name) {
  const { client_id: id, client_secret: secret } = clients.client.find(({ client_id: id }) => id === name);
  return [id, secret];
}

/** The id that Canaille itself gives a user: another name for the same one. */
export const idOf = (user) => `id-of-${user}`;

/** Starts Canaille with the page's settings and clients, and with these users. */
export async function startCanaille(ports, users) {
  const folder = mkdtempSync(join(tmpdir(), 'canaille-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(FILES, { recursive: true });
  writeFileSync(join(folder, 'canaille.toml'), configOn(ports, block(PAGE, 'settings')));
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const env = {
    ...process.env,
    CANAILLE_CONFIG: 'canaille.toml',
    SECRET_KEY: randomBytes(16).toString('hex'),
    CANAILLE_OIDC__ACTIVE_JWKS: JSON.stringify([privateKey.export({ type: 'pkcs8', format: 'pem' })]),
  };
  const options = { cwd: folder, env };
  execFileSync(CANAILLE, ['--version'], { stdio: 'ignore' }); // fetches it, which may take a while
  const canaille = await start('Canaille', CANAILLE, ['run', '--workers', '0'], {
    ready: /Running on/, log: `${FILES}/canaille.log`, ...options,
  });
  const user = users.map((name) => ({
    id: idOf(name), user_name: name, formatted_name: name, family_name: name, emails: [`${name}@acme.example`], password: password(name),
  }));
  const restoring = promisify(execFile)(CANAILLE, ['restore'], options);
  restoring.child.stdin.end(JSON.stringify({ ...clients, user }));
  await restoring;
  return canaille;
}

/** Returns envoy.yaml after the edits that the page describes. `api` is the port of the API. */
function editedConfig(ports) {
  const sed = block(PAGE, 'routes');
  const moved = execFileSync('sh', ['-e', '-c', sed], { cwd: ROOT, encoding: 'utf8' });
  const indented = (text, by) => text.replace(/^(?=.)/gm, ' '.repeat(by));
  const edits = [
    // The filter's `value` is everything up to the router.
    [/(^ {18}value:\n)(?: {20}.*\n|\n)+(?= {10}- name: envoy\.filters\.http\.router)/m, (_, value) => `${value}${indented(block(PAGE, 'configuration'), 20)}\n`],
    [/(cluster_name: apis\n[^]*?port_value: )\d+/, (_, before) => `${before}${ports.api}`],
  ];
  return edits.reduce((yaml, [place, text]) => replacedOnce(yaml, place, text), moved);
}

/** Starts Envoy before Canaille and the API. Returns the file that it runs with. */
export async function startEnvoyBeforeCanaille(ports) {
  mkdirSync(FILES, { recursive: true });
  const config = `${FILES}/envoy-canaille.yaml`;
  writeFileSync(config, configOn(ports, editedConfig(ports)));
  const key = execFileSync(COMPANION, ['keygen', '--alg', 'RS256'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  await startEnvoy({
    config,
    log: `${FILES}/envoy-canaille.log`,
    admin: ports.admin,
    env: { IMPERSONATION_SIGNING_KEY: key, INTROSPECTION_SECRET: client('impersonation-filter')[1] },
  });
  return config;
}
