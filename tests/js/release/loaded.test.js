// What users do with a release: they load the images from a registry, or its files, without
// anything of this repository, into a real Envoy.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { configOn, poll, ROOT, startEnvoy } from '../stack/envoy.js';
import { showFlow } from '../stack/flow.js';
import { startGateway } from '../stack/gateway.js';
import { freePorts, start, stopAll } from '../stack/process.js';
import { digests, FILES, IMAGES, LAYOUTS, MODULES, VERSION } from './files.js';

const LOGS = `${ROOT}target/release-test`;
mkdirSync(LOGS, { recursive: true });
const folders = [];

after(async () => {
  await stopAll();
  for (const folder of folders) rmSync(folder, { recursive: true });
});

const run = (command, args, options) => execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], ...options });

/** Returns a new folder outside of the repository. */
function fresh() {
  folders.push(mkdtempSync(join(tmpdir(), 'release-')));
  return folders.at(-1);
}

/**
 * Starts Envoy in a folder with the modules and the release's envoy.yaml, before the gateway.
 * Returns the address, and how long Envoy took to be ready.
 */
async function load(folder, name) {
  const [public_, admin, metrics, gateway] = await freePorts(4);
  const origin = `http://127.0.0.1:${public_}`;
  await startGateway({ port: gateway, origin, log: `${LOGS}/gateway-${name}.log` });
  const yaml = readFileSync(`${FILES}/envoy.yaml`, 'utf8');
  writeFileSync(`${folder}/envoy.yaml`, configOn({ public: public_, admin, metrics, gateway }, yaml));
  const began = performance.now();
  await startEnvoy({ config: 'envoy.yaml', cwd: folder, admin, log: `${LOGS}/envoy-${name}.log` });
  return { origin, milliseconds: performance.now() - began };
}

test('the modules and envoy.yaml of a release work without anything else', async () => {
  const folder = fresh();
  for (const module of MODULES) cpSync(`${FILES}/${module}.wasm`, `${folder}/${module}.wasm`);
  const { origin } = await load(folder, 'files');
  await showFlow(origin);
});

test('the images come back from a registry unchanged, and Envoy loads the modules in them', async (context) => {
  const registry = await startRegistry();
  const [pulled, modules] = [fresh(), fresh()];
  for (const name of Object.keys(IMAGES)) {
    run(`${ROOT}scripts/skopeo`, ['copy', '--insecure-policy', '--all', '--preserve-digests', '--dest-tls-verify=false',
      `oci:${LAYOUTS}/${name}:${VERSION}`, `docker://${registry}/${name}:${VERSION}`]);
  }
  const began = performance.now();
  for (const module of MODULES) {
    const name = module.replace('_', '-');
    // Meshes name an image by its digest.
    const [image] = JSON.parse(readFileSync(`${LAYOUTS}/${name}/index.json`)).manifests;
    run(`${ROOT}scripts/oras`, ['-c', PULL, `${registry}/${name}@${image.digest}`, `${pulled}/${name}`]);
    assert.deepEqual(Object.keys(digests(`${pulled}/${name}`)), ['plugin.wasm']);
    cpSync(`${pulled}/${name}/plugin.wasm`, `${modules}/${module}.wasm`);
    assert.ok(readFileSync(`${modules}/${module}.wasm`).equals(readFileSync(`${FILES}/${module}.wasm`)), name);
  }
  const pulledAfter = performance.now() - began;
  const { origin, milliseconds } = await load(modules, 'registry');
  context.diagnostic(`pulled after ${Math.round(pulledAfter)} ms, and Envoy ready ${Math.round(milliseconds)} ms after its start`);
  await showFlow(origin);

  // skopeo compares each digest on the way.
  const { companion } = Object.fromEntries(Object.keys(IMAGES).map((name) => [name, `${pulled}/${name}-again`]));
  run(`${ROOT}scripts/skopeo`, ['copy', '--insecure-policy', '--all', '--preserve-digests', '--src-tls-verify=false',
    `docker://${registry}/companion:${VERSION}`, `oci:${companion}:${VERSION}`]);
  const blobs = (layout) => Object.keys(digests(layout)).filter((name) => name.startsWith('blobs/'));
  assert.deepEqual(blobs(companion), blobs(`${LAYOUTS}/companion`));
});

test('the lines of the README work in a folder with the files of a release', () => {
  const [, lines] = /<!-- The tests run these lines on the files of a release\. -->\n```sh\n([^]*?)```/.exec(readFileSync(`${ROOT}README.md`, 'utf8'));
  const [folder, tools] = [fresh(), fresh()];
  cpSync(FILES, folder, { recursive: true });
  symlinkSync(run(`${ROOT}scripts/envoy`, ['--path']).trim(), `${tools}/envoy`);
  const { status, stdout, stderr } = spawnSync('sh', ['-e', '-c', lines], { cwd: folder, encoding: 'utf8', env: { PATH: `${tools}:${process.env.PATH}` } });
  assert.equal(status, 0, `${stdout}\n${stderr}`);
  assert.match(stdout, /^envoy\.yaml: valid\b/m);
  assert.match(stdout, /^configuration '.*envoy\.yaml' OK$/m);
});

/** Pulls an image with another client than the one that pushed it. */
const PULL = `
import oras.client, sys
oras.client.OrasClient(insecure=True, tls_verify=False).pull(target=sys.argv[1], outdir=sys.argv[2])
`;

/** Starts a registry and returns its address. */
async function startRegistry() {
  const [port] = await freePorts(1);
  const folder = fresh();
  writeFileSync(`${folder}/config.yml`, JSON.stringify({
    version: '0.1',
    log: { level: 'info' },
    storage: { filesystem: { rootdirectory: `${folder}/images` } },
    http: { addr: `127.0.0.1:${port}` },
  }));
  const programs = run(`${ROOT}scripts/registry`, []).trim();
  await start('the registry', `${programs}/docker-registry`, ['serve', `${folder}/config.yml`], { ready: /listening on/, log: `${LOGS}/registry.log` });
  await poll(async () => (await fetch(`http://127.0.0.1:${port}/v2/`).catch(() => undefined))?.ok);
  return `127.0.0.1:${port}`;
}
