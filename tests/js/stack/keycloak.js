// Keycloak on loopback, with its data in memory. It ends with this program.
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ROOT } from './envoy.js';
import { start } from './process.js';

/** The administrator of every Keycloak that is started here. */
export const ADMIN = ['admin', 'demo-only-admin'];

// As in Keycloak's bin/kc.sh. That script would run Java as its child, which a SIGKILL to the
// script would leave behind.
const OPENED = ['java.util', 'java.util.concurrent', 'java.security', 'java.lang'].map((name) => `--add-opens=java.base/${name}=ALL-UNNAMED`);

/**
 * Starts Keycloak and waits until it has imported `realm`. `options` are those of `kc.sh start`,
 * `java` are further options of Java. Returns the process with `home`, the folder of the programs.
 */
export async function startKeycloak({ options, realm, log, variant = 'standard', java = [] }) {
  const home = execFileSync(`${ROOT}scripts/keycloak`, [variant], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] }).trim();
  // Each run has a folder of its own for what it imports and writes.
  const folder = mkdtempSync(join(tmpdir(), 'keycloak-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  for (const part of ['conf', 'lib', 'providers', 'themes', 'version.txt']) symlinkSync(join(home, part), join(folder, part));
  mkdirSync(join(folder, 'data', 'import'), { recursive: true });
  writeFileSync(join(folder, 'data', 'import', `${realm.realm}.json`), JSON.stringify(realm));
  const program = process.env.JAVA_HOME ? join(process.env.JAVA_HOME, 'bin', 'java') : 'java';
  const running = await start('Keycloak', program, [
    ...java, '-Xmx512m', `-Dkc.home.dir=${folder}`, '-Djava.util.logging.manager=org.jboss.logmanager.LogManager', ...OPENED,
    '-cp', join(folder, 'lib', 'quarkus-run.jar'), 'io.quarkus.bootstrap.runner.QuarkusEntryPoint',
    'start', '--optimized', '--import-realm', '--cache=local', '--http-host=127.0.0.1', ...options,
  ], {
    ready: /Bootstrap completed/,
    log,
    timeout: 600_000,
    cwd: folder,
    env: { ...process.env, KC_BOOTSTRAP_ADMIN_USERNAME: ADMIN[0], KC_BOOTSTRAP_ADMIN_PASSWORD: ADMIN[1] },
  });
  return Object.assign(running, { home });
}
