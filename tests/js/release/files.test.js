// The files of a release: they are what they say, and another folder yields the same bytes.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { ROOT } from '../stack/envoy.js';
import { digests, FILES, IMAGES, LAYOUTS, MODULES, sha256, VERSION } from './files.js';

const MINUTES = 60_000;
const ARCHITECTURES = process.env.ARCHITECTURES?.split(' ') ?? ['amd64', 'arm64'];
/** Rust's names of the architectures, and their numbers in ELF. */
const TARGETS = {
  amd64: { triple: 'x86_64-unknown-linux-musl', machine: 0x3e },
  arm64: { triple: 'aarch64-unknown-linux-musl', machine: 0xb7 },
};
const companion = (architecture) => `${FILES}/impersonation-filter-${VERSION}-linux-${architecture}.tar.gz`;

const run = (command, args, options) => execFileSync(command, args, { encoding: 'utf8', maxBuffer: 1 << 28, ...options });
const json = (file) => JSON.parse(readFileSync(file, 'utf8'));

test('SHA256SUMS lists every file of the release', () => {
  run('sha256sum', ['--check', '--strict', '--quiet', 'SHA256SUMS'], { cwd: FILES });
  const { SHA256SUMS, ...others } = digests(FILES);
  const lines = readFileSync(`${FILES}/SHA256SUMS`, 'utf8').trim().split('\n').map((line) => line.split('  ').toReversed());
  assert.deepEqual(Object.fromEntries(lines), others);
});

for (const [name, content] of Object.entries(IMAGES)) {
  test(`the image ${name} is a valid OCI layout`, () => {
    const layout = `${LAYOUTS}/${name}`;
    const found = digests(layout);
    const used = new Set();
    const blob = ({ digest, size, mediaType }, type) => {
      const path = `blobs/${digest.replace(':', '/')}`;
      const bytes = readFileSync(`${layout}/${path}`);
      assert.equal(found[path], digest.replace('sha256:', ''));
      assert.equal(size, bytes.length);
      assert.equal(mediaType, `application/vnd.oci.image.${type}`);
      used.add(path);
      return bytes;
    };
    assert.deepEqual(json(`${layout}/oci-layout`), { imageLayoutVersion: '1.0.0' });
    const index = json(`${layout}/index.json`);
    assert.equal(index.schemaVersion, 2);
    const [whole, ...none] = index.manifests;
    assert.deepEqual(none, []);
    assert.equal(whole.annotations['org.opencontainers.image.ref.name'], VERSION);
    assert.ok(readFileSync(`${FILES}/images.txt`, 'utf8').includes(`:${VERSION}@${whole.digest}\n`));

    const images = whole.mediaType.endsWith('index.v1+json') ? JSON.parse(blob(whole, 'index.v1+json')).manifests : [whole];
    assert.deepEqual(images.map(({ platform }) => platform.architecture), name === 'companion' ? ARCHITECTURES : ['amd64']);
    for (const image of images) {
      const manifest = JSON.parse(blob(image, 'manifest.v1+json'));
      assert.equal(manifest.mediaType, image.mediaType);
      assert.equal(manifest.annotations['org.opencontainers.image.version'], VERSION);
      assert.equal(manifest.annotations['org.opencontainers.image.licenses'], 'Apache-2.0');
      assert.equal(manifest.layers.length, 1, 'Istio demands exactly one layer');
      const layer = blob(manifest.layers[0], 'layer.v1.tar+gzip');
      const config = JSON.parse(blob(manifest.config, 'config.v1+json'));
      assert.deepEqual({ os: config.os, architecture: config.architecture }, image.platform);
      assert.deepEqual(config.rootfs, { type: 'layers', diff_ids: [`sha256:${sha256(gunzipSync(layer))}`] });
      assert.deepEqual(listed(layer), content);
    }
    const blobs = Object.keys(found).filter((path) => path.startsWith('blobs/'));
    assert.deepEqual(blobs.filter((path) => !used.has(path)), [], 'blobs that no manifest names');
  });
}

test('the images of the modules have the modules of the release', () => {
  for (const module of MODULES) {
    const layout = `${LAYOUTS}/${module.replace('_', '-')}`;
    const [image] = json(`${layout}/index.json`).manifests;
    const [layer] = json(`${layout}/blobs/${image.digest.replace(':', '/')}`).layers;
    const plugin = run('tar', ['xzO', 'plugin.wasm'], { input: readFileSync(`${layout}/blobs/${layer.digest.replace(':', '/')}`), encoding: 'buffer' });
    assert.ok(plugin.equals(readFileSync(`${FILES}/${module}.wasm`)), module);
  }
});

test('each list of components is that of its program', () => {
  const programs = [
    ...MODULES.map((module) => [module, readFileSync(`${FILES}/${module}.wasm`), module.replace('_', '-'), 'wasm32-wasip1']),
    ...ARCHITECTURES.map((architecture) => [
      `impersonation-filter-${VERSION}-linux-${architecture}`, unpacked(architecture), 'impersonation-filter-cli', TARGETS[architecture].triple,
    ]),
  ];
  const lock = readFileSync(`${ROOT}Cargo.lock`, 'utf8');
  for (const [name, program, crate, target] of programs) {
    const { metadata, components } = json(`${FILES}/${name}.cdx.json`);
    assert.equal(metadata.component.hashes[0].content, sha256(program), name);
    const all = [metadata.component, ...components].filter(({ purl }) => purl.startsWith('pkg:cargo/'));
    const tree = run('cargo', ['tree', '--locked', '--prefix', 'none', '--format', '{p}', '--package', crate, '--target', target, '--edges', 'normal,no-proc-macro'], { cwd: ROOT });
    const expected = new Set(tree.trim().split('\n').map((line) => line.split(' ').slice(0, 2).join('@').replace('@v', '@')));
    assert.deepEqual(all.map((one) => `${one.name}@${one.version}`).toSorted(), [...expected].toSorted(), name);
    for (const one of all) assert.ok(lock.includes(`name = "${one.name}"\nversion = "${one.version}"\n`), one.purl);
  }
});

test('the companion is static, and works where there is nothing else', (context) => {
  for (const architecture of ARCHITECTURES) {
    const elf = unpacked(architecture);
    assert.equal(elf.readUInt16LE(18), TARGETS[architecture].machine, architecture);
    const [start, size, count] = [Number(elf.readBigUInt64LE(32)), elf.readUInt16LE(54), elf.readUInt16LE(56)];
    const types = Array.from({ length: count }, (_, index) => elf.readUInt32LE(start + index * size));
    assert.ok(!types.includes(3), 'a program that needs an interpreter is not static');
  }
  const folder = mkdtempSync(join(tmpdir(), 'empty-'));
  context.after(() => rmSync(folder, { recursive: true }));
  run('tar', ['xzf', companion('amd64'), '--directory', folder]);
  cpSync(`${FILES}/envoy.yaml`, `${folder}/envoy.yaml`);
  // Only root may change the root folder.
  const [command, before] = process.getuid() === 0 ? ['chroot', [folder, '/impersonation-filter']] : [`${folder}/impersonation-filter`, []];
  const inside = (...args) => run(command, [...before, ...args], { cwd: folder, env: { PATH: process.env.PATH } });
  assert.match(inside('--version'), new RegExp(`^impersonation-filter ${VERSION.replaceAll('.', '\\.')}( \\([0-9a-f]{40}\\))?\n$`));
  assert.match(inside('check', '--assume-environment', 'envoy.yaml'), /^envoy\.yaml: valid\b/m);
});

test('another folder yields the same bytes', { timeout: 90 * MINUTES }, (context) => {
  const elsewhere = mkdtempSync(join(tmpdir(), 'a-folder-with-another-and-longer-name-'));
  context.after(() => rmSync(elsewhere, { recursive: true, force: true }));
  const tree = `${elsewhere}/tree`;
  const tracked = run('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], { cwd: ROOT }).split('\0').filter(Boolean);
  for (const name of tracked) {
    mkdirSync(dirname(`${tree}/${name}`), { recursive: true });
    cpSync(`${ROOT}${name}`, `${tree}/${name}`, { verbatimSymlinks: true });
  }
  // The compilers and the sources of the crates are the same, in another folder.
  mkdirSync(`${tree}/target`);
  for (const tool of ['zig', 'binaryen'].filter((tool) => existsSync(`${ROOT}target/${tool}`))) symlinkSync(`${ROOT}target/${tool}`, `${tree}/target/${tool}`);
  const home = process.env.CARGO_HOME ?? `${homedir()}/.cargo`;
  mkdirSync(`${elsewhere}/crates`);
  for (const name of ['registry', 'config.toml'].filter((name) => existsSync(`${home}/${name}`))) symlinkSync(`${home}/${name}`, `${elsewhere}/crates/${name}`);

  const [image] = json(`${LAYOUTS}/impersonation-filter/index.json`).manifests;
  const { annotations } = json(`${LAYOUTS}/impersonation-filter/blobs/${image.digest.replace(':', '/')}`);
  const { MAKEFLAGS, MAKELEVEL, CARGO_TARGET_DIR, ...outer } = process.env;
  run('make', ['release'], {
    cwd: tree,
    stdio: ['ignore', 'ignore', 'inherit'],
    env: {
      ...outer,
      CARGO_HOME: `${elsewhere}/crates`,
      RUSTUP_HOME: process.env.RUSTUP_HOME ?? `${homedir()}/.rustup`,
      REVISION: annotations['org.opencontainers.image.revision'] ?? '',
      SOURCE: annotations['org.opencontainers.image.source'] ?? '',
      SOURCE_DATE_EPOCH: String(Date.parse(annotations['org.opencontainers.image.created']) / 1000),
    },
  });
  assert.deepEqual(digests(`${tree}/target/release-files`), digests(FILES));
  assert.deepEqual(digests(`${tree}/target/oci`), digests(LAYOUTS));
});

/** Returns the companion in the release's archive. */
function unpacked(architecture) {
  return run('tar', ['xzOf', companion(architecture), 'impersonation-filter'], { encoding: 'buffer' });
}

/** Returns the names in a layer. Each file belongs to root and has no time. */
function listed(layer) {
  const lines = run('tar', ['tvz', '--numeric-owner', '--full-time'], { input: layer, env: { ...process.env, TZ: 'UTC' } }).trim().split('\n');
  return lines.map((line) => {
    const [, mode, name] = /^(\S+) 0\/0 +\d+ 1970-01-01 00:00:00 (.*)$/.exec(line) ?? assert.fail(line);
    assert.equal(mode, name === 'impersonation-filter' ? '-rwxr-xr-x' : '-rw-r--r--');
    return name;
  });
}
