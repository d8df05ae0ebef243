// `make run`, as somebody uses it: the flow is shown, the lines that it prints and those of the documentation can be pasted
// into another shell, and Ctrl-C ends all of it.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { PORTS } from '../stack/envoy.js';
import { isFree, start, stopAll } from '../stack/process.js';
import { pasteFlow, pasteReadme } from '../stack/readme.js';

const DEMO = fileURLToPath(new URL('demo.js', import.meta.url));

after(stopAll);

test('the flow works, what is printed can be pasted, and nothing is left behind', async () => {
  const demo = await start('the demo', process.execPath, [DEMO, '--stay'], { ready: /^Envoy stays up until Ctrl-C/, timeout: 120_000 });
  const printed = demo.tail(Infinity);
  assert.match(printed, /^The flow works\.$/m);
  const [, lines] = /^Paste this .*\n([^]*)^Envoy stays up/m.exec(printed);
  const answers = execFileSync('sh', ['-c', lines], { encoding: 'utf8' });
  for (const answer of [/"token_type":"Bearer"/, /"act":{"sub":"agent-1"}/, /"subjectToken":"sub_/, /"actorId":"agent-1"/, /"revokedBefore":/]) {
    assert.match(answers, answer);
  }
  assert.match(answers, /"error":"invalid_token"[^}]*\}$/, 'the access token is still good');
  assert.match(await pasteFlow(), /"sub":"user-42".*Audiences in Jwt are not allowed$/);
  assert.match(await pasteReadme(), /"error":"invalid_token"[^}]*\}$/);

  process.kill(demo.pid, 'SIGINT');
  assert.equal(await demo.closed, 'stopped (status 0)');
  for (const port of Object.values(PORTS)) assert.ok(await isFree(port), String(port));
});
