// Runs `make demo-cluster` as a reader of the documentation does.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { start, stopAll } from '../tests/js/stack/process.js';

const DEMO = fileURLToPath(new URL('cluster.js', import.meta.url));

after(stopAll);

test('two Envoys exchange each other\'s tokens once, end each other\'s impersonations, and go on without the leader of etcd', async () => {
  const demo = await start('the demo', process.execPath, [DEMO], { ready: /^Both Envoys agreed/, timeout: 300_000 });
  const printed = demo.tail(Infinity);
  assert.match(printed, /temporarily_unavailable, Retry-After: 1$/m);
  const [, first, after, second] = /^(http:\S+)\/orders\/1 refuses it (\d+) ms after (http:\S+) had answered, \d+ ms after it was asked\.$/m.exec(printed);
  assert.notEqual(first, second);
  // A guard asks etcd four times a second what was revoked. The bound is wide, for a busy machine.
  assert.ok(Number(after) < 10_000, after);
  // The probe sees each of the two end what began at either.
  for (const envoy of [first, second]) assert.match(printed, new RegExp(`^holds  ${envoy}  an ended impersonation is refused +2 of 2 `, 'm'));
  assert.match(printed, /^\d+ checks hold, 0 fail, /m);
  assert.equal(await demo.closed, 'stopped (status 0)');
});
