// What the README and the pages show is what happens.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { poll } from '../../stack/envoy.js';
import { pasteFlow, pasteReadme, shown } from '../../stack/readme.js';
import { stopAll } from '../../stack/process.js';
import { startStack } from './stack.js';

let origin;
let printed;

before(async () => {
  ({ origin } = await startStack());
  // Until the filter has the gateway's keys it asks whoever mints to come back.
  await poll(async () => (printed = await pasteFlow(origin)).startsWith('{'));
});

after(stopAll);

test('the curl lines of the flow work as they are printed', () => {
  const end = printed.lastIndexOf('}') + 1;
  const [orders, invoices] = [printed.slice(0, end), printed.slice(end).trim()];
  const { resource, claims } = JSON.parse(orders);
  assert.deepEqual([resource, claims.sub, claims.aud, claims.scope], ['orders', 'user-42', `${origin}/orders`, 'orders:read']);
  assert.deepEqual(claims.act, { sub: 'agent-1' });
  assert.equal(invoices, 'Audiences in Jwt are not allowed');
});

test('an operator sees and ends impersonations as the README shows it', async () => {
  const expected = shown('README.md', 'text').trim().split('\n');
  const others = await pasteReadme(origin);
  // The one of the test before is listed, too, until all have ended.
  const rows = others.trim().replaceAll(origin, 'http://127.0.0.1:10000').split('\n');
  const [title, row, , told, refused] = expected;
  const masked = (line) => line
    .replaceAll(/\d+ (s|min) left/g, 'LEFT').replaceAll(/[0-9a-f]{28}/g, 'ID').replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, 'TIME').replaceAll(/ +/g, ' ');
  assert.equal(rows[0].replaceAll(/ +/g, ' '), title.replaceAll(/ +/g, ' '));
  assert.equal(masked(rows[1]), masked(row));
  assert.match(rows.at(-3), /^\d+ impersonations? (is|are) live\.$/);
  assert.equal(masked(rows.at(-2)), masked(told));
  assert.equal(rows.at(-1), refused);
});
