// Envoy with the repository's envoy.yaml, on its own ports or on others.
import { execFileSync } from 'node:child_process';
import { appendFileSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { setTimeout as pause } from 'node:timers/promises';
import { SECRETS } from './names.js';
import { start } from './process.js';
import { newSigningKey } from './signing-key.js';

export const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
export const CONFIG = `${ROOT}envoy.yaml`;
/** The companion that `make companion` built. */
export const COMPANION = `${ROOT}target/companion/impersonation-filter`;

/** The ports that envoy.yaml names. */
export const PORTS = { public: 10000, admin: 9901, metrics: 9902, gateway: 9000, apis: 9001, sessions: 10080, shop: 9002, console: 3000 };

/**
 * Returns envoy.yaml with other ports, wherever one occurs: issuer and resources are addresses,
 * too. A missing port is replaced by any free one, that of the APIs by the gateway's, and that of
 * the shop by the APIs'. That of the support console stays. `listener` is for one of several Envoys
 * with the same address.
 * Callouts get more time: on a busy machine the gateway is slow, and that is not what a test is
 * about.
 */
export function configOn(ports, yaml = readFileSync(CONFIG, 'utf8')) {
  if (ports.listener) yaml = yaml.replaceAll(`port_value: ${PORTS.public}}`, `port_value: ${ports.listener}}`);
  for (const [name, port] of Object.entries(PORTS)) {
    const other = ports[name] ?? { apis: ports.gateway, shop: ports.apis ?? ports.gateway, console: port }[name] ?? 0;
    yaml = yaml.replaceAll(new RegExp(`(127\\.0\\.0\\.1|\\blocalhost):${port}\\b`, 'g'), `$1:${other}`);
    yaml = yaml.replaceAll(`port_value: ${port}}`, `port_value: ${other}}`);
  }
  return yaml.replaceAll(', timeout: 2s}', ', timeout: 10s}');
}

/** Returns the file with the one place that matches `pattern` replaced. Fails if there is none. */
export function replacedOnce(yaml, pattern, text) {
  if (!pattern.test(yaml)) throw new Error(`envoy.yaml has no ${pattern}`);
  return yaml.replace(pattern, text);
}

/** Returns envoy.yaml without required actor tokens, so that no service is asked about them. */
export function withoutActors(yaml) {
  return yaml.replace('required: true', 'required: false');
}

/** Returns the variables that envoy.yaml reads, with a new key. */
export function environment(alg = 'ES256') {
  return { IMPERSONATION_SIGNING_KEY: JSON.stringify(newSigningKey(alg)), INTROSPECTION_SECRET: SECRETS['impersonation-filter'] };
}

/** Fails if Envoy does not accept the configuration that its arguments name. */
export function validate(...args) {
  execFileSync(`${ROOT}scripts/envoy`, ['--mode', 'validate', ...args], { cwd: ROOT, env: { ...process.env, ...environment() }, stdio: 'pipe' });
}

/**
 * Starts Envoy and waits until its workers accept connections. `env` replaces variables of
 * [`environment`]. Without `workers` Envoy has one for each processor.
 */
export async function startEnvoy({ config = CONFIG, admin = PORTS.admin, env = {}, workers = undefined, ...options }) {
  const envoy = execFileSync(`${ROOT}scripts/envoy`, ['--path'], { encoding: 'utf8' }).trim();
  // `make test` counts the starts.
  if (process.env.ENVOYS_STARTED) appendFileSync(process.env.ENVOYS_STARTED, 'stack\n');
  const args = ['-c', config, '--disable-hot-restart', '--file-flush-interval-msec', '50'];
  if (workers) args.push('--concurrency', `${workers}`);
  const running = await start('Envoy', envoy, args, {
    ready: /starting workers/, // logged just before they start: hence the gauge below
    cwd: ROOT,
    env: { ...process.env, ...environment(), ...env },
    ...options,
  });
  try {
    const started = `http://127.0.0.1:${admin}/stats?filter=^listener_manager.workers_started$`;
    await poll(async () => (await (await fetch(started)).text()).includes(': 1'));
  } catch (error) {
    await running.stop();
    throw error;
  }
  return running;
}

/** Asks again and again until the condition is true, for changes that are not announced. */
export async function poll(condition, { timeout = 60_000, interval = 20 } = {}) {
  const deadline = Date.now() + timeout;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`not so after ${timeout} ms: ${condition}`);
    await pause(interval);
  }
}
