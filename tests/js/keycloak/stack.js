// Keycloak, with Envoy in front of it: both as docs/gateways/keycloak.md says, on free ports.
import { execFile } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import * as YAML from 'yaml';
import { CONFIG, configOn, environment, replacedOnce, ROOT, startEnvoy } from '../stack/envoy.js';
import { startKeycloak } from '../stack/keycloak.js';
import { freePorts } from '../stack/process.js';
import { namedBlocks } from '../stack/readme.js';
import { serve } from '../stack/server.js';
import { startRecorder } from './recorder.js';

export const FILES = `${ROOT}target/keycloak/run`;
export const BLOCKS = namedBlocks('docs/gateways/keycloak.md');

/** The addresses that the page names: Envoy's and Keycloak's. */
const PAGE = { origin: 'http://127.0.0.1:10000', keycloak: 'http://127.0.0.1:9000' };

const ISSUER = '/realms/acme';

export const USERS = Object.fromEntries(['agent-1', 'user-42', 'user-43'].map((username, index) => [username, {
  id: `7c5e2f8a-7a61-4d14-9a0e-1d5f0c1e000${index}`,
  username,
  email: `${username}@example.com`,
  emailVerified: true,
  firstName: 'Given',
  lastName: 'Family',
  enabled: true,
  credentials: [{ type: 'password', value: `demo-only-${username}` }],
}]));

/** Runs a block of the page as a reader pastes it. */
async function paste(block, { cwd, env = {} }) {
  const options = { cwd, env: { ...process.env, ...env } };
  await promisify(execFile)('sh', ['-ec', block], options).catch(({ stderr }) => {
    throw new Error(`a block of the page has failed: ${stderr}`);
  });
}

/**
 * Starts Keycloak with the realm of the page, and the server of the APIs. `origin` is the public
 * address, at which Envoy will listen. `users` and `realm` are added to the realm, and `more` to
 * the options of Keycloak.
 */
export async function startStack({ users = USERS, realm = {}, recorded = true, more = [], ...keycloak } = {}) {
  mkdirSync(FILES, { recursive: true });
  const [public_, behind, management, apis] = await freePorts(4);
  const origin = `http://127.0.0.1:${public_}`;
  const ports = { public: public_, gateway: behind, apis };
  const stack = { origin, issuer: `${origin}${ISSUER}`, behind: `http://127.0.0.1:${behind}`, ports };
  if (recorded) {
    stack.recorder = await startRecorder(behind);
    ports.gateway = stack.recorder.port;
  }
  await startApis(apis);
  const options = BLOCKS.start.replaceAll('\\\n', ' ').split(/\s+/).filter((word) => word.startsWith('--'))
    .map((option) => option.replace(/^--http-port=.*/, `--http-port=${behind}`).replaceAll(PAGE.origin, origin));
  stack.keycloak = await startKeycloak({
    realm: { realm: 'acme', enabled: true, users: Object.values(users), ...realm },
    options: [...options, ...more, `--http-management-port=${management}`],
    log: `${FILES}/keycloak-${behind}.log`,
    ...keycloak,
  });
  await fillRealm(stack);
  return stack;
}

/** Runs the page's commands of kcadm. */
async function fillRealm({ keycloak, behind, origin }) {
  const home = mkdtempSync(join(tmpdir(), 'kcadm-'));
  try {
    const block = BLOCKS.realm.replaceAll(PAGE.keycloak, behind).replaceAll(PAGE.origin, origin);
    await paste(block, {
      cwd: home,
      env: {
        PATH: `${keycloak.home}/bin:${process.env.PATH}`,
        KC_OPTS: `-Duser.home=${home} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC`,
      },
    });
  } finally {
    rmSync(home, { recursive: true });
  }
}

/**
 * Starts an Envoy with the page's configuration, changed by `edit` if it is given. The `first` one
 * listens at the public address; others have ports of their own, and the same configuration.
 * `unlimited` lifts the rate limits.
 */
export async function startEnvoyBefore({ ports }, { name = 'first', edit, algorithm = 'RS256', unlimited = false } = {}) {
  const [admin, metrics, other] = await freePorts(3);
  const listener = name === 'first' ? ports.public : other;
  const config = `${FILES}/${name}-${ports.public}.yaml`;
  const used = { ...ports, admin, metrics, listener };
  const yaml = withApis(ports.apis, await envoyYaml(edit));
  writeFileSync(config, configOn(used, unlimited ? withoutLimits(yaml) : yaml));
  const env = environment(algorithm);
  const envoy = await startEnvoy({ config, log: config.replace(/yaml$/, 'log'), admin, env });
  return { envoy, config, env, origin: `http://127.0.0.1:${listener}`, metrics: `http://127.0.0.1:${metrics}` };
}

/** Edits envoy.yaml as the page says. */
async function envoyYaml(edit) {
  const folder = mkdtempSync(join(tmpdir(), 'keycloak-yaml-'));
  try {
    copyFileSync(CONFIG, join(folder, 'envoy.yaml'));
    await paste(BLOCKS.paths, { cwd: folder });
    const yaml = readFileSync(join(folder, 'keycloak.yaml'), 'utf8');
    const withRoutes = replaced(yaml, /^ *# These paths differ from a path above [^]*?\n\n/m, BLOCKS.routes);
    const configuration = edit === undefined ? BLOCKS.configuration : YAML.stringify(edit(YAML.parse(BLOCKS.configuration)));
    return replaced(withRoutes, /^ *# docs\/configuration\.md explains every member[^]*?identity_gateway: \{documents: merge, cluster: identity_gateway\}\n\n/m, configuration);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Puts a block in the place of the one part that `pattern` finds, with that part's indentation. */
function replaced(yaml, pattern, block) {
  const [part, ...others] = yaml.match(new RegExp(pattern, 'gm')) ?? [];
  if (part === undefined || others.length > 0) throw new Error(`envoy.yaml has not one part like ${pattern}`);
  const indentation = /^ */.exec(part)[0];
  const lines = block.trimEnd().split('\n').map((line) => (line ? indentation + line : line));
  return yaml.replace(part, () => `${lines.join('\n')}\n\n`);
}

/** Moves the APIs. */
function withApis(port, yaml) {
  return replacedOnce(yaml, /(- name: apis\n[^]*?port_value: )9001/, `$1${port}`);
}

function withoutLimits(yaml) {
  return yaml.replace(/max_tokens: \d+, tokens_per_fill: \d+/g, 'max_tokens: 1000000, tokens_per_fill: 1000000');
}

/** An API that tells what reached it. */
function startApis(port) {
  return serve((request, response) => {
    request.resume();
    const payload = request.headers['x-jwt-payload'];
    const claims = payload && JSON.parse(Buffer.from(payload, 'base64url'));
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ method: request.method, path: request.url, headers: request.headers, claims }));
  }, port);
}
