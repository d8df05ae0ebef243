// Runs `make run` as a reader of the documentation does: the flow is shown, the printed lines and
// those of the documentation can be pasted into another shell, and Ctrl-C ends all of it.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { PORTS, ROOT } from '../tests/js/stack/envoy.js';
import { ask } from '../tests/js/stack/http.js';
import { isFree, start, stopAll } from '../tests/js/stack/process.js';
import { pasteFlow, pasteReadme, shown } from '../tests/js/stack/readme.js';

const DEMO = fileURLToPath(new URL('demo.js', import.meta.url));

after(stopAll);

test('the demo shows the flow, prints lines that can be pasted, and leaves nothing behind', async () => {
  const demo = await start('the demo', process.execPath, [DEMO, '--stay'], { ready: /^Envoy stays up until Ctrl-C/, timeout: 120_000 });
  const printed = demo.tail(Infinity);
  assert.match(printed, /^The flow works\.$/m);
  assert.match(printed, /^  "error": "authorization_pending",$[^]*^      "by": "agent-2",$[^]*^  "state": "approved",$/m);
  assert.match(printed, /^To user-42: agent-1 sees your account until \S+Z\. The customer cannot see an order \(T-1001\)\.$/m);
  assert.match(printed, /^  "token_type": "DPoP",$[^]*"the access token was presented without the key[^]*"the access token is bound to another key"$/m);
  const [, ended] = /^# The audit log says what ended the impersonation\n([^]*?\n\})$/m.exec(printed);
  const { event, actor_id: actor, sender, event_type: type, outcome } = JSON.parse(ended);
  assert.deepEqual(
    { event, actor, sender, type, outcome },
    { event: 'impersonations.ended', actor: 'agent-1', sender: 'http://127.0.0.1:10000/oidc', type: 'http://schemas.openid.net/event/backchannel-logout', outcome: 'ended' },
  );
  const [, lines] = /^Paste this .*\n([^]*)^Envoy stays up/m.exec(printed);
  const answers = execFileSync('sh', ['-c', lines], { encoding: 'utf8' });
  for (const answer of [/"token_type":"Bearer"/, /"act":{"sub":"agent-1"}/, /"subjectToken":"sub_/, /"actorId":"agent-1"/, /"revokedBefore":/]) {
    assert.match(answers, answer);
  }
  assert.match(answers, /"error":"invalid_token"[^}]*\}$/, 'the access token is still good');

  const [kill, check] = await pasteReadme();
  assert.equal(masked(kill), masked(shown('README.md', 'text')));
  assert.match(check, /^envoy\.yaml: valid\b/m);
  const address = (words) => new URL(new RegExp(`${words} (http:\\S+)$`, 'm').exec(printed)[1]);
  for (const [words, path, page] of [['support console', '/', 'Support console'], ['ordinary host,', '/sign-in', 'Rainy Day Shop']]) {
    const { port, host } = address(words);
    assert.match((await ask({ port, host, path })).text, new RegExp(`<h1>${page}</h1>`));
  }

  assert.match(await pasteFlow(), /"sub":"user-42".*Audiences in Jwt are not allowed$/);

  process.kill(demo.pid, 'SIGINT');
  assert.equal(await demo.closed, 'stopped (status 0)');
  for (const port of Object.values(PORTS)) assert.ok(await isFree(port), String(port));
});

test('make run builds the programs that the README uses', () => {
  const env = { ...process.env, MAKEFLAGS: '', MAKELEVEL: '' };
  const steps = execFileSync('make', ['--dry-run', 'run'], { cwd: ROOT, encoding: 'utf8', env }).trim().split('\n');
  assert.equal(steps.at(-1), 'node demo/demo.js --stay');
  assert.ok(steps.includes('install -D target/debug/impersonation-filter target/companion/impersonation-filter'), steps.join('\n'));
});

/** Masks what differs each time: ids, times, and the spaces of a table with shorter cells. */
function masked(text) {
  return text.trim()
    .replaceAll(/\d+ (s|min) left/g, 'LEFT').replaceAll(/[0-9a-f]{25,28}/g, 'ID').replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, 'TIME').replaceAll(/ +/g, ' ');
}
