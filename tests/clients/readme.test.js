// What the README shows is what happens.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { poll } from '../../stack/envoy.js';
import { pasteReadme } from '../../stack/readme.js';
import { stopAll } from '../../stack/process.js';
import { startStack } from './stack.js';

after(stopAll);

test('the curl lines work as they are printed', async () => {
  const { origin } = await startStack();
  // Until the filter has the gateway's keys it asks whoever mints to come back.
  let printed;
  await poll(async () => (printed = await pasteReadme(origin)).startsWith('{'));
  const end = printed.lastIndexOf('}') + 1;
  const [orders, invoices] = [printed.slice(0, end), printed.slice(end)];
  const { resource, claims } = JSON.parse(orders);
  assert.deepEqual([resource, claims.sub, claims.aud, claims.scope], ['orders', 'user-42', `${origin}/orders`, 'orders:read']);
  assert.deepEqual(claims.act, { sub: 'agent-1' });
  assert.equal(invoices, 'Audiences in Jwt are not allowed');
});
