// `make demo-cluster`, as somebody runs it.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { start, stopAll } from '../stack/process.js';

const DEMO = fileURLToPath(new URL('cluster.js', import.meta.url));

after(stopAll);

test('two Envoys exchange each other\'s tokens once, and go on without the leader of etcd', async () => {
  const demo = await start('the demo', process.execPath, [DEMO], { ready: /^One truth in two Envoys/, timeout: 300_000 });
  assert.match(demo.tail(Infinity), /temporarily_unavailable, Retry-After: 1$/m);
  assert.equal(await demo.closed, 'stopped (status 0)');
});
