// The recipes of docs/approvals.md, as they are written there.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { poll, ROOT } from '../stack/envoy.js';
import { stopAll } from '../stack/process.js';
import { approvals, approver, configuration, decide, exchange, mint, send, serve, startFilter, user } from './world.js';

const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const page = readFileSync(`${ROOT}docs/approvals.md`, 'utf8');

/** Returns the block of this language below a heading. */
function block(heading, language) {
  const [, section] = page.split(`\n## ${heading}\n`);
  return section.split('\n## ')[0].split(`\`\`\`${language}\n`)[1].split('```')[0];
}

const users = { 'u-rich': { balance: 2_000_000 }, 'u-open': {}, 'u-closed': {}, 'u-1': {} };
let directory;

before(async () => {
  users['u-open'].supportConsentUntil = new Date(Date.now() + 3_600_000).toISOString();
  users['u-closed'].supportConsentUntil = new Date(Date.now() - 1000).toISOString();
  directory = await serve((request, body, response) => {
    const found = users[request.url.split('/').at(-1)];
    response.writeHead(found ? 200 : 404, { 'content-type': 'application/json' }).end(JSON.stringify(found ?? {}));
  });
});

after(stopAll);

/** Starts the filter with a function that knows the users. */
function withFunction(script) {
  const value = configuration({
    approvals: approvals({ required: 0 }),
    authorize_subject_token: { script, timeout: '1s' },
  });
  value.subject_tokens.user_lookup = { http_uri: { uri: 'https://auth.example.com/api/users/{userId}', cluster: 'directory', timeout: '10s' } };
  return startFilter(value, { directory: [directory.port] }, { workers: 1 });
}

test('four eyes: the function asks for two approvals', async () => {
  const filter = await withFunction(block('Four eyes', 'javascript'));
  assert.equal((await exchange(filter, (await mint(filter)).token)).status, 200);
  const { token, id } = await mint(filter, { userId: 'u-rich' });
  for (const name of ['dana', 'eli']) {
    assert.equal((await exchange(filter, token)).body.error, 'authorization_pending');
    assert.equal((await decide(filter, await approver(name), id, 'approve')).status, 200);
  }
  assert.equal((await exchange(filter, token)).status, 200);
});

test('a consent window: the user is asked outside of it', async () => {
  const filter = await withFunction(block('A consent window', 'javascript'));
  assert.equal((await exchange(filter, (await mint(filter, { userId: 'u-open' })).token)).status, 200);
  for (const userId of ['u-closed', 'u-1']) {
    const { token, id } = await mint(filter, { userId });
    assert.equal((await exchange(filter, token)).body.error, 'authorization_pending');
    assert.equal((await decide(filter, await user(userId), id, 'approve')).body.state, 'approved');
    assert.equal((await exchange(filter, token)).status, 200);
  }
});

test('a Slack approval: a click decides with the access token of the person who clicked', async () => {
  const folder = fileURLToPath(new URL('../node_modules/.recipes/', import.meta.url));
  mkdirSync(folder, { recursive: true });
  writeFileSync(`${folder}slack.mjs`, block('A Slack approval', 'javascript'));
  const { onHook, onClick } = await import(`${folder}slack.mjs`);
  const messages = [];
  const hook = await serve(async (request, body, response) => {
    await onHook(request.headers, body, { secret: SECRET, tell: (id, data) => messages.push([id, data]) });
    response.writeHead(204).end();
  });
  const filter = await startFilter(configuration({
    approvals: approvals({ required: 1 }),
    notifications: [{ http_uri: { uri: 'https://slack.example.com/', cluster: 'slack', timeout: '10s' }, secret: { inline_string: SECRET } }],
  }), { slack: [hook.port] }, { workers: 1 });
  const { token, id } = await mint(filter);
  await poll(() => messages.length > 0);
  assert.deepEqual([messages[0][0], messages[0][1].userId], [id, 'u-1']);
  const origin = `http://127.0.0.1:${filter.port}`;
  assert.equal(await onClick(id, 'approve', { origin, tokenOf: approver, person: 'backend' }), 'access_denied');
  assert.equal(await onClick(id, 'approve', { origin, tokenOf: approver, person: 'dana' }), 'approved');
  assert.equal((await exchange(filter, token)).status, 200);
  assert.equal((await send(filter, 'GET', '/api/approvals', { token: await approver('dana') })).body.approvals.length, 0);
});
