// The rules that every backend, support client, API and page must hold, in each language. The ten
// questions are the checklist of docs/integrate.md: each names the attack that it prevents. A rule
// is a function of the world (examples.test.js), and fails if its lines are taken out of the
// example (mutations.js).
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import * as jose from 'jose';
import { poll } from '../stack/envoy.js';
import { send } from '../stack/requests.js';

export const QUESTIONS = [
  ['backend', 'Does it verify that the agent\'s token was issued for the backend?', 'A token that the agent gave to any other service can mint.'],
  ['backend', 'Does one function decide who may act as whom, before the mint?', 'The filter trusts the backend: any agent could act as any user.'],
  ['backend', 'Does the agent come from the verified token, for the mint and for what follows?', 'An agent acts in a colleague\'s name, or ends a colleague\'s work.'],
  ['backend', 'Is each mint for one agent, one client, one API, few scopes and some minutes?', 'A copied subject token opens all that the user may do.'],
  ['backend', 'Does it keep the machine\'s token, and keep it to itself?', 'Whoever has this token mints for everybody; and each mint would load the provider.'],
  ['client', 'Does it bind its token to a key, and keep all tokens in memory?', 'A copied token, or a script in another tab, acts as the user.'],
  ['client', 'Does it exchange once, wait for approvals, and forget the user at the end?', 'A second try ends the first impersonation; the user\'s data stays on the screen.'],
  ['API', 'Does it verify signature, issuer, audience, type, expiry and scope, and read no bare header field?', 'Whoever reaches its port, or has a token for another API, is anybody.'],
  ['API', 'Does it tell by `txn` that somebody is used, refuse what only the user may do, and log both people?', 'An agent changes the password and keeps the account, and the log says that the user did it.'],
  ['page', 'Does it say who is looking, and leave out what is only for the user?', 'Agents forget in whose account they are, and the user sees an agent\'s work as their own.'],
];

/** [question, rule, run]. */
export const RULES = [
  [1, 'the backend takes only access tokens that were issued for it', async ({ people }) => {
    const { token: opaque, idToken } = await people.agent('agent-1');
    const { right, ...wrong } = await people.wrongTokens(`${people.console}/impersonations`);
    const asked = (token, request = {}) => people.ask('agent-1', request.method ? undefined : people.wanted(), { token, ...request });
    assert.equal((await asked(right)).status, 201);
    for (const [name, token] of Object.entries({ ...wrong, opaque, 'an ID token': idToken })) {
      for (const request of [{}, { method: 'GET', id: '00' }, { method: 'DELETE', id: '00' }]) {
        assert.equal((await asked(token, request)).status, 401, name);
      }
    }
  }],
  [2, 'an agent who may not act is refused before anything is minted', async ({ people, log }) => {
    assert.equal((await people.ask('auditor-1', people.wanted({ userId: 'user-43' }))).status, 403);
    assert.equal((await people.ask('agent-1', people.wanted({ userId: 'user-43', reason: '' }))).status, 403);
    const { id } = await minted(people);
    await logged(log, id);
    assert.doesNotMatch(readFileSync(log, 'utf8'), /"subject_token\.(created|refused)".*"user-43"/);
  }],
  [2, 'the agent reads that a protected user is refused', async ({ agent }) => {
    const page = await agent.enter();
    await agent.ask(page, 'oncall-1');
    await agent.says(page, /Refused: this user must not be impersonated/);
  }],
  [3, 'the agent who signed in is the actor, whatever the body says', async ({ people }) => {
    const { subjectToken } = await minted(people, { actorId: 'agent-2', actor: 'agent-2', clientId: 'support-portal', scope: 'orders:write' });
    assert.equal((await people.exchange(subjectToken, { as: 'agent-2' })).status, 400);
    assert.equal((await people.exchange(subjectToken)).status, 200);
  }],
  [3, 'an agent sees and takes back only what that agent asked for', async ({ people }) => {
    const { id, approval } = await minted(people, { userId: 'vip-1' });
    assert.equal(approval, 'pending');
    for (const method of ['GET', 'DELETE']) assert.equal((await people.ask('agent-2', undefined, { method, id })).status, 404, method);
    assert.equal((await people.ask('agent-1', undefined, { method: 'GET', id })).json.state, 'pending');
    assert.equal((await people.ask('agent-1', undefined, { method: 'DELETE', id })).status, 204);
    assert.notEqual((await people.ask('agent-1', undefined, { method: 'GET', id })).json.state, 'pending');
  }],
  [4, 'a subject token is for one agent, one client, one API, few scopes and some minutes', async ({ people }) => {
    const { subjectToken, expiresIn } = await minted(people);
    assert.ok(expiresIn <= 300, `${expiresIn} s`);
    const { origin } = people;
    for (const [bound, members, error] of [
      ['clientId', { portal: true }, 'invalid_request'],
      ['actorId', { as: null }, 'invalid_request'],
      ['resource', { resource: `${origin}/invoices`, scope: 'invoices:read' }, 'invalid_target'],
      ['scope', { scope: 'orders:write' }, 'invalid_scope'],
    ]) assert.equal((await people.exchange(subjectToken, members)).json.error, error, bound);
    const { json } = await people.exchange(subjectToken);
    assert.ok(json.expires_in <= 600, `${json.expires_in} s`);
  }],
  [5, 'one token of the machine serves many mints, and is in no answer', async ({ people, log }) => {
    await minted(people);
    const { id, ...answer } = await minted(people);
    const { id: another } = await minted(people);
    // Two mints in the access log: Envoy writes its own log apart from it.
    const calls = () => readFileSync(log, 'utf8').split('\n').filter((line) => line.includes('"line_id"'));
    const mintOf = (token) => calls().findIndex((line) => line.includes(token));
    await poll(() => mintOf(another) !== -1);
    const between = calls().slice(mintOf(id), mintOf(another));
    assert.deepEqual(between.filter((line) => line.includes('"/oidc/token"')), []);
    assert.doesNotMatch(JSON.stringify(answer), /ey[\w-]+\.ey/);
  }],
  [6, 'the access token is bound to a key that cannot be copied', async ({ agent, people }) => {
    const page = await agent.enter('agent-1', () => {
      const { generateKey } = crypto.subtle;
      globalThis.extractable = [];
      crypto.subtle.generateKey = (...args) => { globalThis.extractable.push(args[1]); return generateKey.apply(crypto.subtle, args); };
    });
    const granted = exchanged(page);
    await agent.ask(page);
    await agent.acts(page);
    const { access_token: token } = await granted;
    assert.equal((await send({ url: `${people.origin}/me`, bearer: token })).status, 401);
    assert.deepEqual(await page.evaluate('extractable'), [false]);
  }],
  [6, 'no token is in storage, cookies, address or page', async ({ agent }) => {
    const page = await agent.enter();
    await agent.ask(page);
    await agent.acts(page);
    const kept = await page.evaluate('JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href, document.documentElement.outerHTML])');
    assert.doesNotMatch(kept, /ey[\w-]+\.ey|sub_\w|code=|verifier/);
  }],
  [6, 'the client finishes only a sign-in that it began', async ({ agent, console, origin }) => {
    const page = await agent.open();
    const sent = [];
    page.on('request', (request) => request.url() === `${origin}/oidc/token` && sent.push(request.url()));
    await page.goto(console);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('button', { name: 'agent-1' }).waitFor();
    await page.goto(`${console}/?code=stolen&state=theirs&iss=${encodeURIComponent(`${origin}/oidc`)}`);
    await agent.says(page, 'The sign-in failed');
    assert.deepEqual(sent, []);
  }],
  [7, 'the client waits for an approval, and begins after it', async ({ agent, people }) => {
    const page = await agent.enter();
    await agent.ask(page, 'vip-1');
    await agent.says(page, 'Waiting until somebody approves');
    const [id] = /[0-9a-f]{20,}/.exec(await page.getByRole('status').textContent());
    assert.equal((await people.approve(id)).status, 200);
    await agent.acts(page, 'vip-1');
  }],
  [7, 'the client says that a token was used, and does not try it again', async ({ agent, people }) => {
    const page = await agent.enter();
    await page.route('**/impersonations', async (route) => {
      const response = await route.fetch();
      const { subjectToken } = await response.json();
      assert.equal((await people.exchange(subjectToken)).status, 200); // by somebody who was faster
      await route.fulfill({ response });
    });
    const tries = [];
    page.on('request', (request) => request.postData()?.includes('token-exchange') && tries.push(request.url()));
    await agent.ask(page);
    await agent.says(page, /Refused: .*used/);
    assert.equal(tries.length, 1);
  }],
  [7, 'the client says that a write was refused', async ({ agent }) => {
    const page = await agent.enter();
    await agent.ask(page);
    await agent.acts(page);
    await page.getByRole('button', { name: 'Change the password' }).click();
    await agent.says(page, 'The API refused: 403');
  }],
  [7, 'at an end in the middle the client says so and forgets the user', async ({ agent, people }) => {
    const page = await agent.enter();
    await agent.ask(page);
    await agent.acts(page);
    await page.getByRole('button', { name: 'Read' }).click();
    await page.getByText('"user-42"').waitFor();
    await people.endAll();
    await page.getByRole('button', { name: 'Read' }).click();
    await agent.says(page, 'The impersonation has ended');
    assert.doesNotMatch(await page.locator('body').innerText(), /user-42/);
    assert.equal(await page.locator('#answer').textContent(), '');
  }],
  [7, 'Stop ends the impersonation', async ({ agent, people }) => {
    const page = await agent.enter();
    await agent.ask(page);
    await agent.acts(page);
    assert.equal((await people.listed()).length, 1);
    await page.getByRole('button', { name: 'Stop' }).click();
    await agent.says(page, 'Stopped');
    assert.deepEqual(await people.listed(), []);
  }],
  [8, 'the API verifies each token by itself, and believes no header field', async ({ people, api }) => {
    const claims = Buffer.from(JSON.stringify({ sub: 'user-42', aud: `${people.origin}/orders` })).toString('base64url');
    const headers = { 'x-jwt-payload': claims, 'x-impersonator': 'agent-1', 'x-impersonation-id': '00' };
    const bare = await fetch(`${api}/me`, { headers });
    assert.equal(bare.status, 401);
    const { idToken } = await people.ownToken('user-42', `${people.origin}/orders`, 'orders:read');
    const { right, ...wrong } = await people.wrongTokens(`${people.origin}/orders`);
    const me = async (bearer) => (await send({ url: `${api}/me`, bearer })).status;
    assert.equal(await me(right), 200);
    for (const [name, token] of Object.entries({ ...wrong, 'an ID token': idToken })) assert.equal(await me(token), 401, name);
    const written = await people.impersonation({ scope: 'orders:write' });
    assert.equal(await me(written), 403, 'without the scope');
  }],
  [9, 'GET /me names both people', async ({ people, api }) => {
    const { token } = await people.ownToken('user-42', `${people.origin}/orders`, 'orders:read');
    const { json: own } = await send({ url: `${api}/me`, bearer: token });
    assert.deepEqual([own.user, own.actor ?? undefined, own.impersonation ?? undefined], ['user-42', undefined, undefined]);
    const bearer = await people.impersonation();
    const { json: used } = await send({ url: `${api}/me`, bearer });
    assert.deepEqual(used, { user: 'user-42', actor: 'agent-1', impersonation: jose.decodeJwt(bearer).txn });
    // Without an actor, the client acts.
    const { json: alone } = await send({ url: `${api}/me`, bearer: await people.impersonation({ as: null }) });
    assert.equal(alone.actor, 'support-portal');
  }],
  [9, 'the API refuses what nobody may do for somebody else', async ({ people, api }) => {
    const change = async (bearer) => (await send({ url: `${api}/password`, method: 'POST', bearer })).status;
    assert.equal(await change(await people.impersonation()), 403);
    assert.equal(await change(await people.impersonation({ as: null })), 403, 'without act');
    assert.equal(await change((await people.ownToken('user-42', `${people.origin}/orders`, 'orders:read')).token), 204);
  }],
  [9, 'the API\'s log has both names, also of what it refused', async ({ people, api, parts, patience }) => {
    const bearer = await people.impersonation();
    const { txn } = jose.decodeJwt(bearer);
    await send({ url: `${api}/password`, method: 'POST', bearer });
    await parts.api.printed({ test: (line) => ['user-42', 'agent-1', txn, '/password', '403'].every((word) => line.includes(word)) }, patience);
  }],
  [10, 'the page says who is looking, and offers nothing that is only for the user', async ({ agent }) => {
    const tab = await application(agent);
    await tab.getByText('This is the account of user-42. agent-1 is looking at it.').waitFor();
    await tab.locator('impersonation-banner').waitFor({ state: 'attached' });
    await tab.locator('html[data-measured=no]').waitFor();
    assert.equal(await tab.getByRole('button', { name: 'Change the password' }).isVisible(), false);
  }],
  [10, 'when the session ends, the page goes', async ({ agent, people, console }) => {
    const tab = await application(agent);
    await tab.getByText('agent-1 is looking at it').waitFor();
    await people.endAll();
    await tab.waitForURL(`${console}/ended.html`);
    await tab.getByText('The session has ended').waitFor();
  }],
];

/** The application in a tab of its own, as user-42. */
async function application(agent) {
  const page = await agent.enter();
  const opened = page.context().waitForEvent('page');
  await agent.ask(page, 'user-42', 'Open the application');
  return opened;
}

/** The answer to the page's exchange. */
async function exchanged(page) {
  const response = await page.waitForResponse((one) => Boolean(one.request().postData()?.includes('token-exchange')));
  return response.json();
}

async function minted(people, members) {
  const { status, text, json } = await people.ask('agent-1', people.wanted(members));
  assert.equal(status, 201, text);
  return json;
}

/** Waits until Envoy's log has the mint. */
async function logged(log, id) {
  await poll(() => readFileSync(log, 'utf8').includes(id));
}
