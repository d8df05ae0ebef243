// Runs the lines of docs/flow.md. demo/demo.test.js runs the README's own lines, with `make run`.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { poll, ROOT } from '../stack/envoy.js';
import { lines, pasteFlow } from '../stack/readme.js';
import { stopAll } from '../stack/process.js';
import { startStack } from '../stack/shipped.js';

let origin;
let printed;

before(async () => {
  ({ origin } = await startStack());
  // Until the filter has the gateway's keys, it asks minters to retry.
  await poll(async () => (printed = await pasteFlow(origin)).startsWith('{'));
});

after(stopAll);

test('the curl lines of docs/flow.md work as printed', () => {
  const end = printed.lastIndexOf('}') + 1;
  const [orders, invoices] = [printed.slice(0, end), printed.slice(end).trim()];
  const { resource, claims } = JSON.parse(orders);
  assert.deepEqual([resource, claims.sub, claims.aud, claims.scope], ['orders', 'user-42', `${origin}/orders`, 'orders:read']);
  assert.deepEqual(claims.act, { sub: 'agent-1' });
  assert.equal(invoices, 'Audiences in Jwt are not allowed');
});

test('demo/begin.sh has the lines of docs/flow.md, up to the access token', () => {
  const [flow] = lines('docs/flow.md');
  const [beginning] = flow.split('\n# It opens that API');
  assert.ok(beginning.length > 1000 && readFileSync(`${ROOT}demo/begin.sh`, 'utf8').includes(beginning));
});
