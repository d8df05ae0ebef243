// Checks docker-compose.yml and Dockerfile: against the files that they name, with Docker's own
// parser if there is a client, and by starting the services if there is an engine with the base
// images. Starting them needs port 10000, as the curl lines of docs/flow.md do.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { parse } from 'yaml';
import { pasteable, showFlow } from '../stack/flow.js';
import { assignments } from '../stack/requests.js';
import { poll, ROOT, validate } from '../stack/envoy.js';
import { pasteFlow } from '../stack/readme.js';

const ORIGIN = 'http://127.0.0.1:10000';
const MINUTES = 60_000;

const compose = [['docker', 'compose'], ['docker-compose']].find((words) => runs([...words, 'version']));
const engine = runs(['docker', 'info']);

const dockerfile = readFileSync(`${ROOT}Dockerfile`, 'utf8');
const { services } = parse(readFileSync(`${ROOT}docker-compose.yml`, 'utf8'), { merge: true });
/** The base images of the stages, without `scratch`, which is not an image. */
const [, envoyImage] = /^ARG ENVOY=(\S+)$/m.exec(dockerfile);
const bases = [...dockerfile.matchAll(/^FROM (\S+:\S+|\$\{ENVOY\}) AS /gm)].map(([, image]) => image.replace('${ENVOY}', envoyImage));

test('docker-compose.yml names existing stages and files, and images by version', () => {
  for (const [name, { build, image, volumes = [], ports = [] }] of Object.entries(services)) {
    if (build) assert.match(dockerfile, new RegExp(`^FROM .* AS ${build.target}$`, 'm'), name);
    else assert.match(image, /:v?\d+\.\d+\.\d+$/, name);
    for (const source of volumes.map((volume) => volume.split(':', 1)[0]).filter((path) => path.startsWith('.'))) {
      assert.ok(existsSync(join(ROOT, source)), `${name}: ${source}`);
    }
    for (const port of ports) assert.match(port, /^127\.0\.0\.1:/, name);
  }
  assert.equal(bases.length, 3);
});

test('an image with Envoy is built from a digest, or says that it is for trying things out', () => {
  const [, check] = /^FROM \$\{ENVOY\} AS envoy\nARG ENVOY\nARG TRIAL=no\nRUN (.+)$/m.exec(dockerfile);
  const status = (ENVOY, TRIAL) => spawnSync('sh', ['-c', check], { env: { ENVOY, TRIAL } }).status;
  const pinned = `${envoyImage}@sha256:${'0'.repeat(64)}`;
  assert.deepEqual([status(envoyImage, 'no'), status(envoyImage, 'yes'), status(pinned, 'no')], [1, 0, 0]);
  for (const { build } of Object.values(services)) {
    if (build?.target.startsWith('envoy')) assert.deepEqual(build.args, { TRIAL: 'yes' });
  }
});

test('docker-compose.yml is valid', { skip: !compose && 'no docker compose' }, () => {
  run('config', '--quiet');
  run('--profile', 'observability', 'config', '--quiet');
  run('--profile', 'cluster', 'config', '--quiet');
});

test('the image with Envoy listens for other machines where docker-compose.yml publishes a port', () => {
  const [, edit] = /^RUN sed -i ('[^']+') envoy\.yaml && /m.exec(dockerfile);
  const yaml = execFileSync('sh', ['-c', `sed ${edit} envoy.yaml`], { cwd: ROOT, encoding: 'utf8' });
  const open = parse(yaml, { merge: true }).static_resources.listeners
    .map(({ address }) => address.socket_address).filter(({ address }) => address === '0.0.0.0')
    .map(({ port_value: port }) => port);
  assert.deepEqual(open, [10000, 10080, 9902]);
  const published = services.envoy.ports.map((port) => Number(port.split(':').at(-1)));
  // 3000 is the console's, which listens in the same network.
  assert.deepEqual(published, [10000, 10080, 3000]);
});

test('Envoy accepts the configuration of the cluster', () => {
  const [, words] = /^RUN (scripts\/envoy-in-cluster[^]*?) > \/envoy\.yaml$/m.exec(dockerfile);
  const yaml = execFileSync('sh', ['-c', words], { cwd: ROOT, encoding: 'utf8' });
  const { listeners, clusters } = parse(yaml).static_resources;
  const endpoints = (name) => clusters.find((cluster) => cluster.name === name).load_assignment.endpoints[0].lb_endpoints
    .map(({ endpoint }) => endpoint.address.socket_address.address);
  assert.deepEqual(endpoints('identity_gateway'), ['cluster-gateway']);
  assert.deepEqual(endpoints('etcd'), ['etcd-1', 'etcd-2', 'etcd-3']);
  for (const name of [...endpoints('identity_gateway'), ...endpoints('etcd')]) assert.ok(services[name], name);
  assert.deepEqual(listeners[0].address.socket_address, { address: '0.0.0.0', port_value: 10010 });
  const balancer = services.cluster.command.at(-1);
  const [{ endpoints: [{ lb_endpoints: behind }] }] = parse(balancer).static_resources.clusters.map((cluster) => cluster.load_assignment);
  for (const { endpoint } of behind) assert.ok(services[endpoint.address.socket_address.address]);

  for (const config of [yaml, balancer]) validate('--config-yaml', config);
});

test('the Dockerfile copies every file that Cargo needs to read the manifest', { skip: !runs(['cargo', '--version']) && 'no cargo' }, () => {
  const [, stage] = /AS module\n([^]*?)RUN make build/.exec(dockerfile);
  const ignored = readFileSync(`${ROOT}.dockerignore`, 'utf8').split('\n');
  const folder = mkdtempSync(join(tmpdir(), 'image-'));
  try {
    for (const [, sources, target] of stage.matchAll(/^COPY (?!--from)(.+) (\S+)$/gm)) {
      for (const source of sources.split(' ')) {
        assert.ok(ignored.includes(`!${source}`), `.dockerignore leaves ${source} out`);
        cpSync(join(ROOT, source), join(folder, target === './' ? source : target), { recursive: true });
      }
    }
    // This file names the C compiler for wasm.
    assert.ok(existsSync(join(folder, '.cargo/config.toml')));
    execFileSync('cargo', ['fetch', '--locked', '--target', 'wasm32-wasip1'], { cwd: folder, stdio: 'pipe' });
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('the flow works, with the lines of the documentation and those that the demo prints', {
  skip: !(compose && engine) && 'no Docker engine',
  timeout: 30 * MINUTES,
}, async (context) => {
  const missing = bases.find((image) => !runs(['docker', 'image', 'inspect', image]) && !runs(['docker', 'pull', image]));
  if (missing) {
    context.skip(`${missing} is not here and cannot be pulled`);
    return;
  }
  context.after(() => run('--profile', 'cluster', 'down', '--volumes', '--remove-orphans'));
  run('up', '--build', '--detach');
  try {
    await poll(async () => (await fetch(`${ORIGIN}/oidc/jwks`).catch(() => undefined))?.ok, { timeout: 2 * MINUTES, interval: 200 });
    const lines = await pasteable(await showFlow(ORIGIN));
    const script = [...assignments(), lines.exchange].join('\n');
    const answer = JSON.parse(execFileSync('sh', ['-c', script], { encoding: 'utf8' }));
    assert.equal(answer.token_type, 'Bearer');
    assert.match(await pasteFlow(), /"sub":"user-42".*Audiences in Jwt are not allowed$/);
  } catch (error) {
    run('logs', '--tail', '50');
    throw error;
  }
  // Only the public listener is published.
  await assert.rejects(fetch('http://127.0.0.1:9901/ready'));
  await assert.rejects(fetch('http://127.0.0.1:9902/stats/prometheus'));
  await assert.rejects(fetch('http://127.0.0.1:9000/oidc/jwks'));

  // Starts the cluster too, if its image is available.
  const { image } = services['etcd-1'];
  if (!runs(['docker', 'image', 'inspect', image]) && !runs(['docker', 'pull', image])) {
    context.diagnostic(`NOT TESTED: ${image} is not here and cannot be pulled`);
    return;
  }
  run('--profile', 'cluster', 'up', '--build', '--detach');
  const address = 'http://127.0.0.1:10010';
  await poll(async () => (await fetch(`${address}/oidc/jwks`).catch(() => undefined))?.ok, { timeout: 2 * MINUTES, interval: 200 });
  await showFlow(address);
  run('kill', 'etcd-1');
  await showFlow(address);
});

/** Uses a project name of its own, apart from other stacks of the same folder. */
function run(...args) {
  const [command, ...words] = compose;
  execFileSync(command, [...words, '--project-name', 'impersonation-filter-test', ...args], {
    cwd: ROOT, stdio: 'inherit',
  });
}

function runs([command, ...args]) {
  return spawnSync(command, args).status === 0;
}
