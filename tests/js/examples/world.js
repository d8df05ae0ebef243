// The examples as a reader runs them: Envoy with envoy.yaml, the identity gateway, and the backend
// and the API of one language. `make example-NAME` and the tests share this file.
import { execFile } from 'node:child_process';
import { copyFileSync, cpSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { configOn, environment, poll, replacedOnce, ROOT, startEnvoy } from '../stack/envoy.js';
import { startGateway } from '../stack/gateway.js';
import { SECRETS } from '../stack/names.js';
import { freePorts, start } from '../stack/process.js';

const BUILT = `${ROOT}target/examples`;
const MODULES = `${ROOT}tests/js/node_modules`;

const JAVA_LIBRARIES = `${BUILT}/java/libraries`;

/** Each language: the preparation of a folder, and the command of a part in it. */
const LANGUAGES = {
  node: {
    prepare: (folder) => symlinkSync(MODULES, `${folder}/node_modules`),
    command: (folder, part) => [process.execPath, `${folder}/${part}.js`],
  },
  go: {
    // Nothing is optimised: a build would take longer than the tests.
    prepare: (folder) => promisify(execFile)('go', ['build', '-trimpath', "-gcflags=all=-N -l", '-ldflags=-s -w', '-o', 'bin/', './...'], { cwd: folder, env: { ...process.env, CGO_ENABLED: '0' } }),
    command: (folder, part) => [`${folder}/bin/${part}`],
  },
  java: {
    prepare: (folder) => promisify(execFile)('mvn', [
      '--quiet', '--batch-mode', '-Dstyle.color=never', 'compile', 'org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies',
      '-DincludeScope=runtime', `-DoutputDirectory=${JAVA_LIBRARIES}`,
    ], { cwd: folder }),
    // Java compiles less, so that it starts faster.
    command: (folder, part) => [
      process.env.JAVA_HOME ? `${process.env.JAVA_HOME}/bin/java` : 'java', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xmx256m',
      '-cp', `${folder}/target/classes:${JAVA_LIBRARIES}/*`, { backend: 'backend.Backend', api: 'api.Api' }[part],
    ],
  },
  python: {
    prepare: () => {},
    command: (folder, part) => [`${ROOT}scripts/python-with`, 'examples/venv', packages(`${folder}/requirements.txt`), `${folder}/${part}.py`],
  },
};
const packages = (file) => readFileSync(file, 'utf8').trim().replaceAll('\n', ' ');

/**
 * What an operator changes in envoy.yaml for the examples. The API verifies tokens by itself, so it
 * needs them, and their proofs.
 */
function forExamples(yaml, console) {
  const edits = [
    [/path_separated_prefix: \/orders\}/, "safe_regex: {regex: '/(me|password)'}}"],
    [/ *request_headers_to_remove: \[dpop\] # the guard .*\n/, ''],
    [/(providers:\n *orders:\n)( *)/, '$1$2forward: true\n$2'],
    [/(providers:\n *shop:\n)( *)/, '$1$2forward: true\n$2'],
    [/# (required_context: .*)/, '$1'],
    [/# protected_users: .*/, 'protected_users: ["oncall-*"]'],
  ];
  return edits.reduce((text, [from, to]) => replacedOnce(text, from, to), yaml)
    .replaceAll(`${console}/ended`, `${console}/ended.html`);
}

/** Free ports for a stack, and for the parts of one language at a time. */
export async function freeStackPorts() {
  const names = ['public', 'admin', 'metrics', 'gateway', 'apis', 'sessions', 'console'];
  const free = await freePorts(names.length);
  return Object.fromEntries(names.map((name, index) => [name, free[index]]));
}

/** Starts Envoy and the gateway on these ports. `edit` changes Envoy's configuration further. */
export async function startStack(ports, edit = (yaml) => yaml) {
  const logs = `${BUILT}/${ports.public}`;
  mkdirSync(logs, { recursive: true });
  const origin = `http://127.0.0.1:${ports.public}`;
  const console = `http://localhost:${ports.console}`;
  await startGateway({ port: ports.gateway, origin, env: { CONSOLE_ORIGIN: console }, log: `${logs}/gateway.log` });
  const config = `${logs}/envoy.yaml`;
  writeFileSync(config, edit(forExamples(configOn({ ...ports, shop: ports.apis }), console)));
  const env = environment();
  await startEnvoy({ config, env, log: `${logs}/envoy.log`, admin: ports.admin, workers: 1 });
  const sessions = `http://as-user.localhost:${ports.sessions}`;
  return { ports, logs, origin, console, sessions, api: `http://127.0.0.1:${ports.apis}`, log: `${logs}/envoy.log`, key: JSON.parse(env.IMPERSONATION_SIGNING_KEY) };
}

/**
 * Starts backend and API of a language, from a copy of its folder. `change` may change a file of
 * the copy. `stop` ends both.
 */
export async function startParts(language, stack, change = () => {}) {
  const { ports, logs, origin, sessions } = stack;
  const folder = `${logs}/${language}`;
  rmSync(folder, { recursive: true, force: true });
  for (const part of ['console', 'page', language]) cpSync(`${ROOT}examples/${part}`, `${folder}/${part}`, { recursive: true });
  copyFileSync(`${MODULES}/oauth4webapi/build/index.js`, `${folder}/console/oauth4webapi.js`);
  const config = `${folder}/console/config.js`;
  writeFileSync(config, readFileSync(config, 'utf8').replaceAll('127.0.0.1:10000', `127.0.0.1:${ports.public}`).replaceAll('localhost:10080', `localhost:${ports.sessions}`));
  change(folder);
  const { prepare, command } = LANGUAGES[language];
  await prepare(`${folder}/${language}`);
  const env = {
    ...process.env,
    ISSUER: `${origin}/oidc`, FILTER: origin, API: `${origin}/orders`, APPLICATION: `${sessions}/`, PAGE: `${folder}/page`,
    AUDIENCE: `${stack.console}/impersonations`, CONSOLE: `${folder}/console`,
    CLIENT_ID: 'integrator-backend', CLIENT_SECRET: SECRETS['integrator-backend'],
  };
  const run = async (part, port) => {
    const [program, ...args] = command(`${folder}/${language}`, part);
    const running = await start(`the ${part} (${language})`, program, args, { ready: /ready|Uvicorn running|Started /, cwd: `${folder}/${language}`, env: { ...env, PORT: `${port}` }, log: `${logs}/${language}-${part}.log` });
    await poll(() => fetch(`http://127.0.0.1:${port}/`).then(() => true, () => false));
    return running;
  };
  const parts = await Promise.all([run('backend', ports.console), run('api', ports.apis)]);
  const [backend, api] = parts;
  return { backend, api, stop: () => Promise.all(parts.map((part) => part.stop())) };
}

