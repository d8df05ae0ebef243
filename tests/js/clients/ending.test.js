// Runs docs/ending-an-impersonation.md as an operator pastes it at night: after its commands
// everything that the agent began has ended, and the log has what the report needs.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { poll } from '../stack/envoy.js';
import { lines, namedLines, paste, pasteFlow } from '../stack/readme.js';
import { stopAll } from '../stack/process.js';
import { startStack } from '../stack/shipped.js';

const PAGE = 'docs/ending-an-impersonation.md';
const steps = namedLines(PAGE);
const READ = 'curl -s -w " %{http_code}" http://127.0.0.1:10000/orders/1 -H "Authorization: Bearer $ACCESS_TOKEN"\n';
const ENDED = /"error":"invalid_token".* 401$/;

let origin;
let log;

before(async () => {
  ({ origin, log } = await startStack());
  // Until the filter has the gateway's keys, it asks minters to retry.
  await poll(async () => (await pasteFlow(origin)).startsWith('{'));
});

after(stopAll);

/** Begins an impersonation, then pastes these lines. Returns what each part printed. */
async function night(...parts) {
  const [, ...printed] = await paste([...lines('docs/flow.md'), ...parts], { origin });
  return printed.map((text) => text.trim());
}

test('the companion ends the impersonation', async () => {
  const [token, ready, live, revoked, ended, again, away] = await night(
    steps.token, steps.ready, READ, steps.revoke, READ, steps.again, `${steps.away}ls`,
  );
  assert.equal(token, '');
  assert.match(ready, /^ACTOR [^]*\nagent-1 [^]*\nready$/);
  assert.match(live, /"act":\{"sub":"agent-1"\}.* 200$/);
  assert.match(revoked, /^\d+ live impersonations? of actor agent-1 ha(s|ve) ended\. What was issued until [\d-]+T[\d:.]+Z is refused/);
  assert.match(ended, ENDED);
  assert.match(again, /^No live impersonation of actor agent-1 was found\..*\nNo impersonation is live\.$/);
  assert.equal(away, '');
});

test('curl ends the impersonation', async () => {
  const [, live, revoked, ended, again] = await night(
    steps.token, READ, steps['revoke with curl'], READ, steps['again with curl'],
  );
  assert.match(live, / 200$/);
  assert.match(revoked, /^\{"revokedBefore":"[\d-]+T[\d:.]+Z","ended":\d+\}$/);
  assert.match(ended, ENDED);
  assert.equal(again, '{"impersonations":[],"cursor":null,"complete":true}');
});

test('the log says who acted as whom, which requests they sent, and who ended it', async () => {
  // Envoy writes its logs a moment later.
  await poll(async () => {
    const [printed] = await paste([steps.evidence], { changed: { 'target/demo/envoy.log': log } });
    return [
      /^\{"event":"impersonation\.revoked".*"requested_by":"operations"/m,
      /^\{"event":"token_exchange\.succeeded".*"user_id":"user-42".*"actor_id":"agent-1"/m,
      /"path":"\/orders\/1".*"status":200.*|"status":200.*"path":"\/orders\/1"/m,
      /"guard":"allowed: default"/m,
      /"guard":"refused: /m,
    ].every((line) => line.test(printed));
  });
});

test('every step of the page was tried', () => {
  assert.deepEqual(
    Object.keys(steps).sort(),
    ['again', 'again with curl', 'away', 'evidence', 'ready', 'revoke', 'revoke with curl', 'token'],
  );
});
