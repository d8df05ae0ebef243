// The page in a real browser, before a real Envoy with the filter, the guard and a gateway.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, readFileSync } from 'node:fs';
import { request } from 'node:http';
import { createRequire } from 'node:module';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { buffer } from 'node:stream/consumers';
import { gunzipSync } from 'node:zlib';
import { poll, ROOT } from '../stack/envoy.js';
import { startEtcd } from '../stack/etcd.js';
import { stopAll } from '../stack/process.js';
import { startFirefox } from './firefox.js';
import { enter, operator, PAGE, startBrowser, SHOWN_API, startConsole, STRANGE } from './stack.js';

/** UPDATE_DOCS=1 makes the pictures of docs/console.md anew. */
const PICTURES = process.env.UPDATE_DOCS ? `${ROOT}docs/console-` : `${ROOT}target/console/`;

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

let stack;
let browser;
let origin;
let page;

before(async () => {
  mkdirSync(`${ROOT}target/console`, { recursive: true });
  stack = await startConsole();
  ({ origin } = stack);
  browser = await startBrowser(origin);
});

after(async () => {
  await browser?.browser.close();
  await stopAll();
});

beforeEach(async () => {
  await stack.takeBack();
  const token = await operator(origin);
  await poll(async () => (await fetch(`${origin}/api/impersonations/revocations`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: '{"all": true}',
  })).status === 201);
  page = await open();
});

/** Opens a tab that notes each request with an access token. */
async function open(options) {
  const tab = await browser.open(options);
  tab.on('request', (sent) => {
    const { pathname, search } = new URL(sent.url());
    if (sent.headers().authorization && pathname !== '/oidc/token') made.add(`${sent.method()} ${pathname}${search}`);
  });
  return tab;
}

/** Each test ends with these, and may say which errors it has caused. */
async function nothingWrong(expected = /$^/) {
  assert.deepEqual(page.wrong.filter((line) => !expected.test(line)), []);
  const kept = await page.evaluate(async () => ({
    local: { ...localStorage }, session: { ...sessionStorage }, name: window.name,
    databases: (await indexedDB.databases()).length, caches: (await caches.keys()).length,
    workers: (await navigator.serviceWorker.getRegistrations()).length,
  }));
  assert.deepEqual(kept, { local: {}, session: {}, name: '', databases: 0, caches: 0, workers: 0 });
}

afterEach(() => page.context().close());

const read = async (token) => (await fetch(`${origin}/orders/1`, { headers: { authorization: `Bearer ${token}` } })).status;
const rows = (table = 'Live impersonations', tab = page) => tab.getByRole('table', { name: table }).getByRole('row').filter({ has: tab.getByRole('cell') });
const row = (text) => rows().filter({ hasText: text });
const waiting = (text = '', tab = page) => rows('Waiting for approval', tab).filter({ hasText: text });
/** The part of the page with the live list. The other part uses the same words. */
const list = () => page.getByRole('region', { name: 'The list' });
const button = (name) => page.getByRole('button', { name });

/** Returns what axe-core calls serious or critical. */
async function serious() {
  // The driver evaluates it, so that the page's policy can stay as strict as it is.
  await page.evaluate(`(() => { ${AXE} })()`);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  return violations.filter(({ impact }) => ['serious', 'critical'].includes(impact)).map(({ id, nodes }) => [id, nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`)]);
}

/** The requests of the page: for each a pattern of its path, and one such request. */
const REQUESTS = [
  ['GET', /^\/api\/impersonations\?limit=1000(&cursor=[^&]+)?$/, () => '/api/impersonations?limit=1000'],
  ['DELETE', /^\/api\/impersonations\/[0-9a-f]+$/, (id) => `/api/impersonations/${id}`],
  ['POST', /^\/api\/impersonations\/revocations$/, () => '/api/impersonations/revocations', { actorId: 'agent-1' }],
  ['POST', /^\/api\/impersonations\/revocations$/, () => '/api/impersonations/revocations', { all: true }],
  ['GET', /^\/api\/approvals\?limit=200(&cursor=[^&]+)?$/, () => '/api/approvals?limit=200'],
  ['POST', /^\/api\/approvals\/[0-9a-f]+$/, (_, waits) => `/api/approvals/${waits}`, { decision: 'approve', reason: 'a test' }],
  ['POST', /^\/api\/approvals\/[0-9a-f]+$/, (_, waits) => `/api/approvals/${waits}`, { decision: 'deny' }],
];
/** The requests that the page has made with an access token, in all tests so far. */
const made = new Set();

/** The answers to requests of the page with this value of `Authorization`. Some are left out. */
async function answersTo(authorization, requests, ...ids) {
  const answers = [];
  for (const request of requests) {
    if (request === undefined) {
      answers.push(undefined);
      continue;
    }
    const [method, , path, json] = request;
    const headers = { ...(authorization && { authorization }), 'content-type': 'application/json' };
    const response = await fetch(`${origin}${path(...ids)}`, { method, body: json && JSON.stringify(json), headers });
    answers.push(response.status);
  }
  return answers;
}

/** A morning's work of a support team. */
async function someWork(resource = `${origin}/orders`) {
  const work = [
    ['agent-1', 'user-42', 'T-1001', 'The customer cannot see an order', 'orders:read'],
    ['agent-1', 'user-43', 'T-1002', 'Refund was not booked', 'orders:read orders:write'],
    ['agent-2', 'user-42', 'T-1003', 'Address is wrong on the last three deliveries; the customer called twice about it', 'orders:read'],
    ['agent-2', 'user-1207', 'T-1004', 'Order is stuck', 'orders:read'],
    [undefined, 'user-77', 'T-0998', 'Nightly repair of carts', 'orders:read orders:write'],
  ];
  const tokens = [];
  for (const [actor, userId, ticketId, reason, scope] of work) tokens.push(await stack.begin({ actor, userId, scope, resource, context: { ticketId, reason } }));
  return tokens;
}

/** Asks for the page as it is sent: fetch would decompress it. */
async function ask({ method = 'GET', path = PAGE, headers = {} } = {}) {
  const [response] = await once(request(`${origin}${path}`, { method, headers }).end(), 'response');
  return { status: response.statusCode, headers: response.headers, body: await buffer(response) };
}

/** The header fields that Envoy or the connection adds. */
const OF_ENVOY = ['date', 'server', 'content-length', 'connection', 'keep-alive', 'x-envoy-upstream-service-time', 'x-request-id'];

test('the page has its header fields, and a policy with the hashes of its script and style', async () => {
  const page = await ask({ headers: { 'accept-encoding': 'gzip' } });
  assert.equal(page.status, 200);
  // Also compares the checksum and the length.
  const html = gunzipSync(page.body).toString();
  console.log(`${page.body.length} bytes over the wire, ${html.length} in the browser`);
  assert.ok(page.body.length <= 45_000);
  const inside = (tag) => {
    const elements = [...html.matchAll(new RegExp(`<${tag}>([^]*?)</${tag.split(' ')[0]}>`, 'g'))];
    assert.equal(elements.length, 1, tag);
    return elements[0][1];
  };
  const hash = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
  const fields = Object.entries(page.headers).filter(([name]) => !OF_ENVOY.includes(name));
  assert.deepEqual(Object.fromEntries(fields), {
    'content-type': 'text/html; charset=utf-8',
    'content-encoding': 'gzip',
    vary: 'accept-encoding',
    'cache-control': 'no-store',
    'content-security-policy': [
      "default-src 'none'",
      `script-src ${hash(inside('script type="module"'))}`,
      `style-src ${hash(inside('style'))}`,
      "connect-src 'self'",
      'img-src data:',
      "base-uri 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
      "require-trusted-types-for 'script'",
      "trusted-types 'none'",
    ].join('; '),
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-resource-policy': 'same-origin',
    'referrer-policy': 'no-referrer',
    'x-content-type-options': 'nosniff',
  });
  // The browser runs nothing else: no other script, no handler, no other document.
  assert.equal(html.match(/<script/g).length, 2);
  const markup = html.replace(inside('script type="module"'), '').replace(inside('style'), '');
  assert.doesNotMatch(markup, /\son\w+=|javascript:|<(iframe|object|embed|base|form|img)\b|(src|href)="(?!data:)/i);
  assert.deepEqual(JSON.parse(inside('script type="application/json" id="configuration"')), {
    issuer: `${origin}/oidc`,
    discovery: '/oidc/.well-known/openid-configuration',
    clientId: 'oncall',
    scopes: ['openid', 'impersonations:read', 'impersonations:revoke', 'impersonations:approve'],
    resource: `${origin}/api`,
    impersonations: '/api/impersonations',
    approvals: '/api/approvals',
  });
});

test('the page is for GET and HEAD, and for readers of gzip', async () => {
  const page = await ask();
  const head = await ask({ method: 'HEAD' });
  assert.deepEqual([head.status, head.body.length, head.headers['content-length']], [200, 0, String(page.body.length)]);
  assert.equal(head.headers['content-security-policy'], page.headers['content-security-policy']);
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
    const refused = await ask({ method, headers: { origin: 'https://elsewhere.example', 'access-control-request-method': 'POST' } });
    assert.deepEqual([refused.status, refused.headers.allow], [405, 'GET, HEAD'], method);
  }
  for (const coding of ['identity', 'br, gzip;q=0']) {
    const refused = await ask({ headers: { 'accept-encoding': coding } });
    assert.deepEqual([refused.status, refused.headers['content-type'], refused.headers.vary], [406, 'application/json', 'accept-encoding'], coding);
  }
});

test('a person signs in, sees, searches, ends one, and the API refuses its next request', async () => {
  const [token, other] = await someWork();
  await enter(page, origin);
  await row('T-1001').waitFor();
  assert.equal(await rows().count(), 5);
  assert.match(await row('T-1001').innerText(), /agent-1\s[^]*user-42\s[^]*support-portal[^]*orders:read[^]*The customer cannot see an order/);
  assert.match(await row('T-0998').innerText(), /not named/);
  const timeLeft = async () => /\b(\d+):(\d\d)\n/.exec(`${await row('T-1001').getByRole('cell').nth(6).innerText()}\n`).slice(1).reduce((minutes, seconds) => minutes * 60 + Number(seconds));
  const before = await timeLeft();
  await poll(async () => (await timeLeft()) < before);

  await page.getByRole('searchbox', { name: 'Search' }).fill('cannot order');
  await poll(async () => (await rows().count()) === 1);
  assert.equal(new URL(page.url()).hash, '#search=cannot+order');

  assert.deepEqual([await read(token), await read(other)], [200, 200]);
  await button('End: agent-1 as user-42').click();
  await page.getByRole('dialog', { name: 'End this impersonation?' }).waitFor();
  await page.screenshot({ path: `${ROOT}target/console/question.png` });
  const clicked = Date.now();
  const refused = poll(async () => (await read(token)) === 401, { interval: 1 });
  await button('End 1 impersonation').click();
  await refused;
  console.log(`from the click to the refused request: ${Date.now() - clicked} ms`);
  await page.getByText('Ended: agent-1 as user-42.').waitFor();
  assert.deepEqual([await read(token), await read(other)], [401, 200]);
  await page.getByText('Nothing matches.').waitFor();
  await button('Show all').click();
  await poll(async () => (await rows().count()) === 4);
  await nothingWrong();
});

test('a person ends all of an actor, after a question that says how many', async () => {
  const [token, , other] = await someWork();
  await enter(page, origin);
  await row('T-1001').getByRole('button', { name: 'agent-1', exact: true }).click();
  await poll(async () => (await rows().count()) === 2);
  assert.equal(new URL(page.url()).hash, '#actorId=agent-1');
  await button('End many…').click();
  const question = page.getByRole('dialog', { name: 'End many?' });
  assert.equal(await question.getByLabel('Actor').inputValue(), 'agent-1');
  await question.getByText('2 impersonations of 5 in the list').waitFor();
  await button('End 2 impersonations').click();
  await page.getByText(/^2 impersonations of actor agent-1 ended\. What was issued until .* is refused/).waitFor();
  assert.deepEqual([await read(token), await read(other)], [401, 200]);
  await page.getByText('Nothing matches. 3 impersonations are live.').waitFor();

  // A name that nobody has.
  await button('End many…').click();
  await question.getByLabel('Actor').fill('agent-9');
  await button('End what matches').click();
  await page.getByText('No live impersonation of actor agent-9 was found.').waitFor();
  await nothingWrong();
});

test('everything ends only after its words', async () => {
  const [token] = await someWork();
  await enter(page, origin);
  await row('T-1001').waitFor();
  await button('End everything…').click();
  const question = page.getByRole('dialog', { name: 'End everything?' });
  await question.getByText('5 impersonations that are live').waitFor();
  const go = question.getByRole('button', { name: 'End everything' });
  assert.equal(await go.isDisabled(), true);
  await question.getByRole('textbox').fill('end everythin');
  assert.equal(await go.isDisabled(), true);
  await page.keyboard.press('Enter');
  assert.equal(await read(token), 200);
  await question.getByRole('textbox').fill('end everything');
  await go.click();
  await page.getByText('5 impersonations of everybody ended.').waitFor();
  await page.getByText('Nobody impersonates anybody.').waitFor();
  assert.equal(await read(token), 401);
  await nothingWrong();
});

test('who may only look is told so, and has no button that ends', async () => {
  await someWork();
  await enter(page, origin, 'auditor-1');
  await row('T-1001').waitFor();
  await page.getByText('You may look, but not end.').waitFor();
  assert.equal(await button(/^End/).count(), 0);
  assert.deepEqual(await serious(), []);
  await page.getByText('Nothing waits for you.').waitFor();
  assert.equal(await button(/^(Approve|Deny)/).count(), 0);
  await nothingWrong(/status of 403/);
});

test('who may not look is told so, and can sign in as somebody else', async () => {
  await enter(page, origin, 'user-42');
  await page.getByText('You may not see this list').waitFor();
  await button('Sign in as somebody else').click();
  await button('oncall-1').click();
  await page.getByText('Nobody impersonates anybody.').waitFor();
  await nothingWrong(/status of 403/);
});

test('the server decides about every request of the page, whoever sends it', async () => {
  const [token] = await someWork();
  const operations = await operator(origin);
  const { impersonations: [{ id }] } = await (await fetch(`${origin}/api/impersonations?actorId=agent-1`, { headers: { authorization: `Bearer ${operations}` } })).json();
  const tokenOf = async (who) => {
    const tab = await browser.open();
    const sent = tab.waitForRequest(/api.impersonations/);
    await enter(tab, origin, who);
    const { authorization } = await (await sent).allHeaders();
    await tab.context().close();
    return authorization;
  };
  const { id: waits, subjectToken } = await stack.mint({ userId: 'user-1207', approvals: 2 });
  const { id: own } = await stack.mint({ userId: 'user-42', consent: true });
  const [nobody, stranger] = [Array(7).fill(401), Array(7).fill(403)];
  const lesser = [
    ['nobody', undefined, nobody],
    ['a stranger', 'Bearer made-up', nobody],
    ['a person without a scope', await tokenOf('user-43'), stranger],
    ['a user, about somebody else', await tokenOf('user-42'), [403, 403, 403, 403, 200, 403, 403]],
    ['a person who may only look', await tokenOf('auditor-1'), [200, ...Array(6).fill(403)]],
    ['a person who may only approve', await tokenOf('approver-1'), [403, 403, 403, 403, 200, 200, undefined]],
    ['an agent', `Bearer ${stack.people.agentToken}`, nobody],
    ['the backend, which may mint', `Bearer ${stack.people.backendToken}`, nobody],
    ['the operator\'s program', `Bearer ${operations}`, [200, undefined, undefined, undefined, 401, 401, 401]],
    ['the impersonation itself', `Bearer ${token}`, nobody],
  ];
  for (const [who, authorization, expected] of lesser) {
    const allowed = REQUESTS.map((request, index) => (expected[index] === undefined ? undefined : request));
    assert.deepEqual(await answersTo(authorization, allowed, id, waits), expected, who);
  }
  assert.equal(await read(token), 200);
  assert.equal((await stack.exchange(subjectToken)).body.error, 'authorization_pending');
  assert.deepEqual(await answersTo(await tokenOf('user-42'), REQUESTS.slice(5), id, own), [200, 409]);
  // The decisions come first: what has ended waits for nobody.
  const oncall = await tokenOf('oncall-1');
  assert.deepEqual(await answersTo(oncall, REQUESTS.slice(4), id, waits), [200, 200, 409]);
  assert.deepEqual(await answersTo(oncall, REQUESTS, id, waits), [200, 204, 201, 201, 200, 404, 404]);
  assert.equal(await read(token), 401);
});

/** Opens a question about what waits. */
async function question(decision, who, tab = page) {
  await tab.getByRole('button', { name: `${decision}: ${who}` }).click();
  const dialog = tab.getByRole('dialog', { name: `${decision} this impersonation?` });
  await dialog.waitFor();
  return dialog;
}
const decide = (dialog, decision) => dialog.getByRole('button', { name: decision, exact: true }).click();

test('a person approves, after a question that shows the whole context, and the impersonation can begin', async () => {
  const context = { ticketId: 'T-2001', reason: 'Cancel the second order', channel: 'phone', language: 'de', supervisor: 'eve', queue: 'returns' };
  const { subjectToken } = await stack.mint({ userId: 'user-42', actorId: 'agent-1', clientId: 'support-portal', scope: 'orders:read orders:write', approvals: 1, context });
  assert.equal((await stack.exchange(subjectToken, { actor: 'agent-1' })).body.error, 'authorization_pending');
  await enter(page, origin);
  await waiting('T-2001').waitFor();
  await poll(async () => (await page.title()) === '0 live impersonations, 1 to decide');
  assert.match(await waiting('T-2001').innerText(), /agent-1\s[^]*user-42\s[^]*support-portal[^]*minted by integrator-backend[^]*orders:read orders:write[^]*Cancel the second order[^]*and 2 more[^]*1 approval missing[^]*\d+:\d\d/);
  const dialog = await question('Approve', 'agent-1 as user-42');
  for (const word of Object.entries(context).flat()) assert.ok((await dialog.innerText()).includes(word), word);
  await page.screenshot({ path: `${ROOT}target/console/approve.png` });
  assert.deepEqual(await serious(), []);
  await dialog.getByLabel(/^Reason/).fill('I know the customer');
  await decide(dialog, 'Approve');
  await page.getByText('Approved: agent-1 as user-42. The impersonation can begin.').waitFor();
  await poll(() => page.evaluate(() => document.activeElement.textContent.startsWith('Approved: agent-1')));
  await page.getByText('Nothing waits for approval.').waitFor();
  assert.equal((await stack.exchange(subjectToken, { actor: 'agent-1' })).status, 200);
  await row('agent-1').waitFor();
  await poll(() => readFileSync(stack.log, 'utf8').includes('"decision_reason":"I know the customer"'));
  await nothingWrong();
});

test('two people approve, and who may only approve sees nothing else', async () => {
  const { subjectToken } = await stack.mint({ approvals: 2, context: { ticketId: 'T-2002' } });
  await enter(page, origin);
  await decide(await question('Approve', 'any actor as user-42'), 'Approve');
  await page.getByText('Your approval counts: any actor as user-42. Still missing: 1 approval.').waitFor();
  await waiting('approved by oncall-1').waitFor();
  assert.equal((await stack.exchange(subjectToken)).body.error, 'authorization_pending');

  const other = await open();
  await enter(other, origin, 'approver-1');
  await other.getByText('You may not see this list').waitFor();
  assert.equal(await other.getByRole('button', { name: /^End/ }).count(), 0);
  await waiting('approved by oncall-1', other).waitFor();
  await decide(await question('Approve', 'any actor as user-42', other), 'Approve');
  await other.getByText('Approved: any actor as user-42. The impersonation can begin.').waitFor();
  assert.deepEqual(other.wrong.filter((line) => !/status of 403/.test(line)), []);
  await other.context().close();
  await page.getByText('Nothing waits for approval.').waitFor();
  assert.equal((await stack.exchange(subjectToken)).status, 200);
  await nothingWrong();
});

test('one denial is the end, and who was slower is told so', async () => {
  const { subjectToken } = await stack.mint({ approvals: 2, context: { ticketId: 'T-2003' } });
  await enter(page, origin, 'approver-1');
  const late = await question('Approve', 'any actor as user-42');
  const other = await open();
  await enter(other, origin);
  await decide(await question('Deny', 'any actor as user-42', other), 'Deny');
  await other.getByText('Denied: any actor as user-42. The impersonation cannot begin.').waitFor();
  await other.context().close();
  await late.getByText('This does not wait any more').waitFor();
  await decide(late, 'Approve');
  await late.getByText('Your decision does not count. The filter says: the impersonation is decided already.').waitFor();
  assert.deepEqual(await serious(), []);
  await button('Cancel').click();
  await page.getByText('Nothing waits for approval.').waitFor();
  assert.equal((await stack.exchange(subjectToken)).body.error, 'access_denied');
  await nothingWrong(/status of (403|409)/);
});

test('nobody is offered a decision that is not theirs, and what was taken back is not decided', async () => {
  await stack.mint({ userId: 'user-41', actorId: 'oncall-1', approvals: 1 });
  await stack.mint({ userId: 'user-40', consent: true });
  await stack.mint({ userId: 'user-39', approvals: 1, consent: true });
  const { id } = await stack.mint({ userId: 'user-43', approvals: 1 });
  await enter(page, origin);
  // Nobody approves for themselves, consents for the user, or approves twice.
  await waiting('user-41').waitFor();
  await decide(await question('Approve', 'any actor as user-39'), 'Approve');
  await waiting('approved by oncall-1').waitFor();
  for (const who of ['oncall-1 as user-41', 'any actor as user-40', 'any actor as user-39']) {
    await poll(async () => await button(`Approve: ${who}`).count() === 0 && await button(`Deny: ${who}`).count() === 1);
  }
  const gone = await question('Approve', 'any actor as user-43');
  await stack.takeBack(id);
  await decide(gone, 'Approve');
  await page.getByText('Nothing was decided. This does not wait any more: any actor as user-43.').waitFor();
  await nothingWrong(/status of (403|404)/);
});

test('a user without any scope sees what concerns them, and consents', async () => {
  await stack.mint({ userId: 'user-43', approvals: 1 });
  const { subjectToken } = await stack.mint({ userId: 'user-42', actorId: 'agent-1', consent: true, context: { ticketId: 'T-2004' } });
  await enter(page, origin, 'user-42');
  await waiting('consent of user-42 missing').waitFor();
  await page.getByText('You may not see this list').waitFor();
  assert.equal(await waiting().count(), 1);
  assert.deepEqual(await serious(), []);
  const dialog = await question('Approve', 'agent-1 as user-42');
  await dialog.getByText('If you are user-42, this is your consent.').waitFor();
  await decide(dialog, 'Approve');
  await page.getByText('Approved: agent-1 as user-42. The impersonation can begin.').waitFor();
  await page.getByText('Nothing waits for you.').waitFor();
  await poll(() => page.evaluate(() => document.activeElement.textContent.startsWith('Approved: agent-1')));
  assert.equal((await stack.exchange(subjectToken, { actor: 'agent-1' })).status, 200);
  // Another question comes, and the person looks again.
  await stack.mint({ userId: 'user-42', consent: true, context: { ticketId: 'T-2005' } });
  await button('Read again').click();
  await waiting('T-2005').waitFor();
  await decide(await question('Deny', 'any actor as user-42'), 'Deny');
  await page.getByText('Denied: any actor as user-42.').waitFor();
  await nothingWrong(/status of 403/);
});

test('strange contexts that wait, and strange reasons, are shown and kept as text', async () => {
  for (const strange of STRANGE) await stack.mint({ userId: strange, approvals: 1, context: { [strange]: strange, nested: { '<b>': [strange] } } });
  await enter(page, origin);
  await poll(async () => (await waiting().count()) === STRANGE.length);
  const text = await page.getByRole('table', { name: 'Waiting for approval' }).innerText();
  for (const strange of STRANGE) assert.ok(text.includes(strange), strange);
  await page.screenshot({ path: `${ROOT}target/console/strange-approvals.png` });
  for (const strange of STRANGE) {
    const dialog = await question('Deny', `any actor as ${strange}`);
    assert.ok((await dialog.innerText()).includes(JSON.stringify({ '<b>': [strange] })), strange);
    assert.equal(await page.locator('table img, table script, table b, dialog img, dialog script, dialog b').count(), 0);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
    await dialog.getByLabel(/^Reason/).fill(strange);
    await decide(dialog, 'Deny');
    await page.getByText(`Denied: any actor as ${strange}. The impersonation cannot begin.`, { exact: true }).waitFor();
    await poll(() => readFileSync(stack.log, 'utf8').split('\n').some((line) => reasonIn(line) === strange));
  }
  await poll(async () => (await page.title()) === '0 live impersonations');
  await nothingWrong();
});

/** The reason of the decision in a line of Envoy's log; undefined if it has none. */
function reasonIn(line) {
  const json = line.indexOf('{"event":"approval.denied"');
  return json < 0 ? undefined : JSON.parse(line.slice(json)).decision_reason;
}

test('a view in the address survives the sign-in, and a cancelled one', async () => {
  await someWork();
  await page.goto(`${origin}${PAGE}#userId=user-42&search=twice`);
  await button('Sign in').click();
  await button('Cancel').waitFor(); // of the gateway's form, which has the same origin here
  // While the person is away, nothing but the comparison's values is kept.
  const kept = await page.evaluate(() => Object.entries({ ...sessionStorage }));
  assert.deepEqual(kept.map(([name, value]) => [name, Object.keys(JSON.parse(value)).sort()]), [['sign-in', ['nonce', 'state', 'verifier', 'view']]]);
  await button('Cancel').click();
  await page.getByText(/The identity gateway let nobody in: access_denied/).waitFor();
  assert.equal(page.url(), `${origin}${PAGE}#userId=user-42&search=twice`);
  await button('Sign in').click();
  await button('oncall-1').click();
  await poll(async () => (await rows().count()) === 1);
  assert.equal(page.url(), `${origin}${PAGE}#userId=user-42&search=twice`);
  await nothingWrong();
});

test('an answer that nobody asked for signs nobody in', async () => {
  await page.goto(`${origin}${PAGE}?code=stolen&state=guessed`);
  await page.getByText('This sign-in was begun in another tab, or long ago. Sign in again.').waitFor();
  assert.equal(page.url(), `${origin}${PAGE}`);
  await nothingWrong();
});

test('whose access token no list has accepted is told so, and not that a session is over', async () => {
  await page.route('**/api/{impersonations,approvals}?**', async (route) => route.continue({ headers: { ...(await route.request().allHeaders()), authorization: 'Bearer unaccepted' } }));
  await page.goto(`${origin}${PAGE}`);
  await button('Sign in').click();
  await button('oncall-1').click();
  await page.getByText('The filter does not accept the access token that the identity gateway gave you.').waitFor();
  assert.equal(await page.getByText('Your session is over').count(), 0);
  await nothingWrong(/status of 401/);
});

test('a session that is over empties the page, and ends nothing', async () => {
  const [token] = await someWork();
  await enter(page, origin);
  await row('T-1001').waitFor();
  await page.route('**/api/{impersonations,approvals}?**', async (route) => route.continue({ headers: { ...(await route.request().allHeaders()), authorization: 'Bearer over' } }));
  await page.getByText('Your session is over. Sign in again to go on: the view stays.').waitFor();
  assert.equal(await page.getByText('T-1001').count(), 0);
  await page.unroute('**/api/{impersonations,approvals}?**');
  await button('Sign in').click();
  await row('T-1001').waitFor();

  await row('T-1001').getByRole('button', { name: /^End/ }).click();
  await page.route('**/api/impersonations/*', async (route) => route.continue({ headers: { ...(await route.request().allHeaders()), authorization: 'Bearer over' } }));
  await button('End 1 impersonation').click();
  await page.getByText('Your session is over, and nothing was ended. Sign in again and repeat it.').waitFor();
  assert.equal(await read(token), 200);
  await nothingWrong(/status of 401/);
});

test('strange names and contexts are shown as text', async () => {
  for (const strange of STRANGE) await stack.begin({ userId: strange, context: { ticketId: { nested: ['<b>'] }, reason: strange } });
  await enter(page, origin);
  await poll(async () => (await rows().count()) === STRANGE.length);
  const text = await page.getByRole('table', { name: 'Live impersonations' }).innerText();
  for (const strange of STRANGE) {
    assert.ok(text.includes(strange), strange);
    // Once as the user, once in the context, which the list cuts.
    assert.equal(text.split(strange.slice(0, 128)).length, 3, strange);
  }
  assert.ok(text.includes('{"nested":["<b>"]}'));
  assert.equal(await page.locator('table img, table script, table b').count(), 0);
  await poll(async () => (await page.title()) === '4 live impersonations');
  await page.screenshot({ path: `${ROOT}target/console/strange.png` });
  // One of them is found, and ended, by its name.
  await page.getByRole('button', { name: STRANGE[1], exact: true }).click();
  await poll(async () => (await rows().count()) === 1);
  await button('End many…').click();
  await button('End 1 impersonation').click();
  await page.getByText(/^1 impersonation of user /).waitFor();
  await page.setViewportSize({ width: 390, height: 844 });
  await button(/^Remove the filter user/).click();
  await poll(async () => (await rows().count()) === 3);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  await nothingWrong();
});

test('all of it works by keyboard alone', async () => {
  const [token] = await someWork();
  const { subjectToken } = await stack.mint({ userId: 'user-43', approvals: 1 });
  await page.goto(`${origin}${PAGE}`);
  /** Presses Tab until the focus is on what has this name. */
  const focus = async (name) => {
    for (let presses = 0; presses < 80; presses += 1) {
      await page.keyboard.press('Tab');
      const focused = await page.evaluate(() => {
        const { activeElement: element } = document;
        return element.ariaLabel ?? (element.labels?.[0] ?? element).textContent;
      });
      if (focused?.trim().startsWith(name)) return;
    }
    assert.fail(`no Tab leads to ${name}`);
  };
  await button('Sign in').waitFor();
  await focus('Sign in');
  await page.keyboard.press('Enter');
  await button('oncall-1').waitFor();
  await focus('oncall-1');
  await page.keyboard.press('Enter');
  await row('T-1001').waitFor();
  await focus('Deny: any actor as user-43');
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Escape');
  await page.locator('dialog').waitFor({ state: 'detached' }); // a closed dialog has no role, and is there for a moment
  await page.keyboard.press('Shift+Tab'); // the focus was back on the button; before it stands the other
  await page.keyboard.press('Enter');
  await page.getByRole('dialog', { name: 'Approve this impersonation?' }).waitFor();
  await page.keyboard.type('I know the customer'); // the focus is on the reason
  await page.keyboard.press('Enter');
  await page.getByText('Approved: any actor as user-43.').waitFor();
  assert.equal((await stack.exchange(subjectToken)).status, 200);
  await focus('Search');
  await page.keyboard.type('T-1001');
  await poll(async () => (await rows().count()) === 1);
  await focus('End: agent-1 as user-42');
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Escape');
  await page.locator('dialog').waitFor({ state: 'detached' }); // a closed dialog has no role, and is there for a moment
  assert.equal(await read(token), 200);
  await page.keyboard.press('Enter'); // the focus is back on the button
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Enter'); // and here on the answer
  await page.getByText('Ended: agent-1 as user-42.').waitFor();
  assert.equal(await read(token), 401);
  await poll(() => page.evaluate(() => document.activeElement.textContent.startsWith('Ended: agent-1')));
  await nothingWrong();
});

test('on a phone nothing is cut off, and in the dark all can be read', async () => {
  await someWork();
  await stack.mint({ actorId: 'agent-2', approvals: 1, context: { ticketId: 'T-1006', reason: 'Refund' } });
  await page.context().close();
  page = await open({ viewport: { width: 390, height: 844 }, colorScheme: 'dark', deviceScaleFactor: 1.5, hasTouch: true });
  await enter(page, origin);
  await row('T-1001').waitFor();
  await waiting('T-1006').waitFor();
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  assert.deepEqual(await serious(), []);
  await page.screenshot({ path: `${ROOT}target/console/phone.png`, fullPage: true });
  await button('Approve: agent-2 as user-42').tap();
  await page.getByRole('dialog').waitFor();
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  assert.deepEqual(await serious(), []);
  await button('Cancel').tap();
  await row('T-1001').getByRole('button', { name: /^End/ }).tap();
  await page.getByRole('dialog').waitFor();
  assert.deepEqual(await serious(), []);
  await button('Cancel').tap();
  await nothingWrong();
});

test('on a laptop the work of a morning fits, in the light and in the dark', async () => {
  await someWork(SHOWN_API);
  await stack.begin({ actor: 'agent-1', userId: 'user-8', resource: SHOWN_API, context: { ticketId: 'T-1005', reason: 'The voucher is refused' }, expiresIn: 115 });
  const wanted = { clientId: 'support-portal', resource: SHOWN_API, scope: 'orders:read orders:write' };
  await stack.mint({ ...wanted, userId: 'user-1207', actorId: 'agent-2', approvals: 2, context: { ticketId: 'T-1006', reason: 'Cancel the second order; the customer asks for it' } });
  await stack.mint({ ...wanted, userId: 'user-7', actorId: 'agent-1', consent: true, scope: 'orders:read', context: { ticketId: 'T-1007', reason: 'Look at the invoice together' } });
  const other = await open();
  await enter(other, origin, 'approver-1');
  await decide(await question('Approve', 'agent-2 as user-1207', other), 'Approve');
  await other.getByText('Your approval counts: agent-2 as user-1207.').waitFor();
  await other.context().close();
  await page.context().close();
  page = await open({ viewport: { width: 1440, height: 920 }, deviceScaleFactor: 1.25 });
  await enter(page, origin);
  await row('T-1001').waitFor();
  await waiting('approved by approver-1').waitFor();
  assert.deepEqual([await rows().count(), await waiting().count()], [6, 2]);
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    assert.deepEqual(await serious(), [], colorScheme);
    assert.deepEqual(await page.evaluate(() => [scrollX, scrollY, document.documentElement.scrollWidth <= innerWidth]), [0, 0, true]);
    await page.screenshot({ path: `${PICTURES}${colorScheme}.png` });
  }
  await nothingWrong();
});

test('axe-core finds nothing serious, signed out and signed in, in each question', async () => {
  await page.goto(`${origin}${PAGE}`);
  await button('Sign in').waitFor();
  console.log(`${Math.round(await page.evaluate(() => performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd))} ms until the page can be used`);
  assert.deepEqual(await serious(), []);
  await page.screenshot({ path: `${ROOT}target/console/signed-out.png` });
  await someWork();
  await enter(page, origin);
  await row('T-1001').getByRole('button', { name: 'agent-1', exact: true }).click();
  assert.deepEqual(await serious(), []);
  for (const name of ['End many…', 'End everything…']) {
    await button(name).click();
    await page.getByRole('dialog').waitFor();
    assert.deepEqual(await serious(), [], name);
    await page.screenshot({ path: `${ROOT}target/console/${name.startsWith('End many') ? 'many' : 'everything'}.png` });
    await button('Cancel').click();
  }
  await nothingWrong();
});

/** Answers for the filter: a list of this length takes minutes to begin. */
async function answerList(answer) {
  await page.route(/\/api\/impersonations\?/, (route) => answer(route, new URL(route.request().url()).searchParams));
}

test('65 536 impersonations are read in parts, and do not freeze the page', async () => {
  const TOTAL = 65_536;
  const began = Date.now();
  const entry = (index) => ({
    id: index.toString(16).padStart(28, '0'), userId: `user-${index}`, actorId: `agent-${index % 97}`, clientId: 'support-portal', caller: 'integrator-backend',
    resource: `${origin}/orders`, scope: 'orders:read', jti: `jti-${index}`,
    issuedAt: new Date(began - index * 10).toISOString(), expiresAt: new Date(began + 900_000 + index * 10).toISOString(),
    context: { ticketId: `T-${index}`, reason: 'The customer cannot see an order' },
  });
  await answerList((route, query) => {
    const from = Number(query.get('cursor') ?? 0);
    const to = Math.min(TOTAL, from + Number(query.get('limit')));
    const impersonations = Array.from({ length: to - from }, (_, index) => entry(from + index));
    return route.fulfill({ json: { impersonations, cursor: to < TOTAL ? String(to) : null, complete: true } });
  });
  // The longest time for which the page would not have reacted.
  await page.addInitScript(() => {
    globalThis.longest = 0;
    if (!PerformanceObserver.supportedEntryTypes.includes('longtask')) throw new Error('the browser does not measure long tasks');
    new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) globalThis.longest = Math.max(globalThis.longest, duration);
    }).observe({ type: 'longtask', buffered: true });
  });
  await enter(page, origin);
  await page.getByText('65,536 live').waitFor();
  await poll(async () => (await page.title()) === '65536 live impersonations'); // all of it is read
  assert.equal(await rows().count(), 50);
  const search = page.getByRole('searchbox', { name: 'Search' });
  const typing = Date.now();
  await search.fill('T-65535');
  await row('user-65535').waitFor();
  console.log(`a search among ${TOTAL} took ${Date.now() - typing} ms; the longest task took ${Math.round(await page.evaluate(() => globalThis.longest))} ms`);
  await search.fill('');
  await button('Next').click();
  await page.getByText('51 to 100 of 65,536').waitFor();
  await nothingWrong();
});

test('in Firefox a person signs in, sees, searches, ends one, and the API refuses its next request', async () => {
  const [token, other] = await someWork();
  const firefox = await startFirefox(origin);
  try {
    await firefox.open(`${origin}${PAGE}#search=order`);
    console.log(await firefox.evaluate('navigator.userAgent'));
    await firefox.press('Sign in');
    await firefox.press('oncall-1 (Olga Oncall)');
    await firefox.sees('Signed in as oncall-1');
    await firefox.eventually("document.querySelectorAll('tbody tr').length === 5");
    await firefox.press('agent-1');
    await firefox.eventually("document.querySelectorAll('tbody tr').length === 2");
    assert.equal(await firefox.evaluate('location.hash'), '#actorId=agent-1&search=order');
    await firefox.press('End: agent-1 as user-42');
    await firefox.sees('End this impersonation?');
    await firefox.press('End 1 impersonation');
    await firefox.sees('Ended: agent-1 as user-42.');
    assert.deepEqual([await read(token), await read(other)], [401, 200]);
    assert.deepEqual(await firefox.evaluate('[localStorage.length, sessionStorage.length]'), [0, 0]);
    assert.deepEqual(firefox.wrong, []);
  } finally {
    await firefox.close();
  }
});

test('the tests know every request that the page makes with its access token', () => {
  assert.ok(made.size > REQUESTS.length, [...made].join('\n'));
  for (const sent of made) {
    const [method, path] = sent.split(' ');
    assert.ok(REQUESTS.some(([known, pattern]) => known === method && pattern.test(path)), sent);
  }
});

// The tests from here on end with another Envoy, so what was begun before has ended.
test('Envoy goes and comes back, with another configuration', async () => {
  await someWork();
  await enter(page, origin);
  await row('T-1001').waitFor();
  await page.getByText('Nothing waits for approval.').waitFor();
  await stack.envoy.stop();
  await page.getByText('Envoy does not answer.').waitFor();
  await row('T-1001').getByRole('button', { name: /^End/ }).click();
  await button('End 1 impersonation').click();
  await page.getByText('There was no answer: it is not known whether anything was ended.').waitFor();
  await button('Cancel').click();
  // The list has room for one, and nobody may approve any more.
  stack.envoy = (await stack.restartEnvoy({ capacity: 1 })).envoy;
  await page.getByText(/^Envoy answers again\. It did not answer since \d/).waitFor();
  await page.getByText('Nobody impersonates anybody.').waitFor();
  await page.getByText('There is no list of approvals here.').waitFor();
  assert.deepEqual(await serious(), []);
  await nothingWrong(/ERR_CONNECTION|status of (404|50[23])/);
});

test('without approvals the page says nothing of them, and asks for nothing', async () => {
  const asked = [];
  page.on('request', (sent) => asked.push(new URL(sent.url()).pathname));
  await enter(page, origin, 'auditor-1');
  await page.getByText('Nobody impersonates anybody.').waitFor();
  assert.equal(await page.getByText(/approv/i).count(), 0);
  assert.ok(asked.includes('/api/impersonations'));
  assert.ok(!asked.includes('/api/approvals'));
  await nothingWrong();
});

test('half a list says so, and what it lacks can be ended by name', async () => {
  await stack.begin({ actor: 'agent-1', userId: 'user-43' });
  const token = await stack.begin({ actor: 'agent-1', userId: 'user-42' });
  await enter(page, origin);
  await page.getByText('This is not all.').waitFor();
  await page.getByText('incomplete').waitFor();
  assert.equal(await rows().count(), 1);
  assert.deepEqual(await serious(), []);
  await button('End many…').click();
  await page.getByRole('dialog').getByLabel('User').fill('user-42');
  await page.getByText('The list has none of these names.').waitFor();
  await button('End what matches').click();
  await page.getByText(/of user user-42/).waitFor();
  assert.equal(await read(token), 401);
  await nothingWrong();
});

test('loading, a store out of reach, and a list that grows stale have their own words', async () => {
  const etcd = await startEtcd(1, { logs: `${ROOT}target/console` });
  await stack.envoy.stop();
  stack.envoy = (await stack.restartEnvoy({ approvals: true, etcd: etcd.addresses })).envoy;
  const [{ service }] = etcd.nodes;
  await poll(async () => (await stack.mint({}).catch(() => undefined)) !== undefined);
  await someWork();
  await stack.mint({ approvals: 1, context: { ticketId: 'T-1006' } });

  // The words that were there, however short.
  await page.addInitScript(() => {
    globalThis.said = new Set();
    new MutationObserver(() => document.querySelectorAll('p, .badge').forEach((one) => globalThis.said.add(one.textContent.trim()))).observe(document, { subtree: true, childList: true, characterData: true });
  });
  process.kill(service.pid, 'SIGSTOP');
  try {
    await enter(page, origin);
    await page.getByText('The store is out of reach.').waitFor();
    const said = await page.evaluate(() => [...globalThis.said]);
    for (const words of ['Reading the list …', 'Reading what waits for approval …', 'loading', 'no list']) assert.ok(said.some((one) => one.startsWith(words)), words);
    assert.equal(await page.getByText('There is no list to show yet.').count(), 1);
    assert.equal(await page.getByText('It is not known what waits for approval.').count(), 1);
  } finally {
    process.kill(service.pid, 'SIGCONT');
  }
  await row('T-1001').waitFor();
  await waiting('T-1006').waitFor();
  await list().getByText('up to date', { exact: true }).waitFor();

  await etcd.kill(etcd.nodes[0]);
  await page.getByText('The store is out of reach.').waitFor();
  await list().getByText('stale', { exact: true }).waitFor();
  await page.getByRole('region', { name: 'Waiting for approval' }).getByText('stale', { exact: true }).waitFor();
  assert.deepEqual([await rows().count(), await waiting().count()], [5, 1]);
  assert.deepEqual(await serious(), []);
  await page.screenshot({ path: `${ROOT}target/console/stale.png` });
  await button('Deny: any actor as user-42').click();
  await page.getByRole('dialog').getByRole('button', { name: 'Deny' }).click();
  await page.getByText(/It is not known whether your decision counts: the store is out of reach/).waitFor();
  await button('Cancel').click();

  await etcd.restart(etcd.nodes[0]);
  await list().getByText('up to date', { exact: true }).waitFor();
  assert.equal(await page.getByText('The store is out of reach.').count(), 0);
  assert.deepEqual([await rows().count(), await waiting().count()], [5, 1]);
  await nothingWrong(/status of 50[34]/);
});
