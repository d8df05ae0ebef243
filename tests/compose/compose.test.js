// docker-compose.yml and Dockerfile: read where there is a Docker client, and brought up where there is an engine. It
// needs port 10000, as the README's curl lines do.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pasteable, showFlow } from '../../demo/flow.js';
import { assignments } from '../../demo/http.js';
import { poll, ROOT } from '../harness/envoy.js';

const ORIGIN = 'http://127.0.0.1:10000';
const MINUTES = 60_000;

const compose = [['docker', 'compose'], ['docker-compose']].find((words) => runs([...words, 'version']));
const engine = runs(['docker', 'info']);

test('the file is valid', { skip: !compose && 'no docker compose' }, () => {
  run('config', '--quiet');
  run('--profile', 'observability', 'config', '--quiet');
});

test('the Dockerfile copies what Cargo needs to read the manifest', { skip: !runs(['cargo', '--version']) && 'no cargo' }, () => {
  const [, stage] = /AS module\n([^]*?)RUN make build/.exec(readFileSync(`${ROOT}Dockerfile`, 'utf8'));
  const folder = mkdtempSync(join(tmpdir(), 'image-'));
  try {
    for (const [, sources, target] of stage.matchAll(/^COPY (.+) (\S+)$/gm)) {
      for (const source of sources.split(' ')) {
        cpSync(join(ROOT, source), join(folder, target === './' ? source : target), { recursive: true });
      }
    }
    execFileSync('cargo', ['fetch', '--locked', '--target', 'wasm32-wasip1'], { cwd: folder, stdio: 'pipe' });
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('the flow works, and so do the lines that the demo prints', {
  skip: !(compose && engine) && 'no Docker engine',
  timeout: 30 * MINUTES,
}, async (context) => {
  context.after(() => run('down', '--volumes', '--remove-orphans'));
  run('up', '--build', '--detach');
  try {
    await poll(async () => (await fetch(`${ORIGIN}/oidc/jwks`).catch(() => undefined))?.ok, { timeout: 2 * MINUTES, interval: 200 });
    const lines = await pasteable(await showFlow(ORIGIN));
    const script = [...assignments(), lines.exchange].join('\n');
    const answer = JSON.parse(execFileSync('sh', ['-c', script], { encoding: 'utf8' }));
    assert.equal(answer.token_type, 'Bearer');
  } catch (error) {
    run('logs', '--tail', '50');
    throw error;
  }
  // Nothing but the public listener is published.
  await assert.rejects(fetch('http://127.0.0.1:9901/ready'));
  await assert.rejects(fetch('http://127.0.0.1:9902/stats/prometheus'));
  await assert.rejects(fetch('http://127.0.0.1:9000/oidc/jwks'));
});

/** A project name of its own, so that it meets no other stack of the same folder. */
function run(...args) {
  const [command, ...words] = compose;
  execFileSync(command, [...words, '--project-name', 'impersonation-filter-test', ...args], {
    cwd: ROOT, stdio: 'inherit',
  });
}

function runs([command, ...args]) {
  return spawnSync(command, args).status === 0;
}
