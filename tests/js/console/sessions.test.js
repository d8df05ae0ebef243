// Browser sessions in Chromium and Firefox: the demo's shop and support console behind the shipped
// envoy.yaml. One Envoy serves both browsers.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, afterEach, before, describe, test } from 'node:test';
import { poll, ROOT } from '../stack/envoy.js';
import { stopAll } from '../stack/process.js';
import { formOf, SCOPES, startSessions } from './as-user.js';
import { enter, STRANGE } from './stack.js';
import { startTabs } from './tabs.js';

const FILE = `${ROOT}tests/js/shop/style.css`;
const AXE = readFileSync(new URL('../node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');
/** UPDATE_DOCS=1 makes the picture of docs/browser-sessions.md anew. */
const PICTURE = process.env.UPDATE_DOCS ? `${ROOT}docs/browser-session.png` : `${ROOT}target/console/browser-session.png`;

const bannerOf = (user) => `globalThis.banner?.querySelector('.who')?.textContent === ${JSON.stringify(`agent-1 acts as ${user}`)}`;
const BANNER = bannerOf('user-42');
const MARK = "globalThis.banner?.querySelector('.mark')?.textContent";
const STOP = "banner.querySelector('button')";
/** The banner asks at once, and not after five seconds. */
const ASK = "(dispatchEvent(new Event('pageshow')), 1)";
const button = (text) => `[...document.querySelectorAll('button')].find((one) => one.textContent.trim().startsWith(${JSON.stringify(text)}))`;
const isAt = (url) => `location.href === ${JSON.stringify(url)} && document.readyState === 'complete'`;

/** All that a page has and keeps, as text. */
const KEPT = `(async () => JSON.stringify([
  document.documentElement.outerHTML, location.href, document.referrer, document.cookie, { ...localStorage }, { ...sessionStorage }, name, history.state,
  await indexedDB.databases(), await caches.keys(), performance.getEntries().map(({ name }) => name),
  await fetch('/.impersonation/me').then((answer) => answer.text()),
]))()`;

/** Fails if a token is in one of these texts. */
function nowhere({ subject_token, actor_token, access_token }, texts) {
  for (const [what, token] of Object.entries({ subject_token, actor_token, access_token })) {
    for (const [where, text] of Object.entries(texts)) assert.ok(!token || !text.includes(token), `the ${what} is in: ${where}`);
  }
}

async function noFindings(tab, what) {
  await tab.evaluate(`(() => { ${AXE}; })()`);
  const found = await tab.evaluate('axe.run().then(({ violations }) => violations.map(({ id, nodes }) => [id, nodes.map(({ html, failureSummary }) => html + failureSummary)]))');
  assert.deepEqual(found, [], what);
}

/** Runs in a hostile page: posts a form. */
function submit(action, fields, target) {
  const form = Object.assign(document.createElement('form'), { method: 'post', action, target });
  for (const [name, value] of Object.entries(fields)) form.append(Object.assign(document.createElement('input'), { type: 'hidden', name, value }));
  document.body.append(form);
  form.submit();
  return 1;
}

/** The attacks whose requests have paths of their own. */
const ATTACKS = ['post', 'read', 'image', 'script', 'socket', 'events', 'beacon', 'frame', 'form'];

/**
 * Runs in a hostile page, with the function above. Resolves with the names of the attacks that have
 * got an answer. A post, a form, a frame and a beacon tell the page nothing.
 */
async function attack({ host, marker, begin, fields }, post) {
  const at = (kind) => `${host}/attack/${marker}/${kind}`;
  const read = (url, options) => fetch(url, { credentials: 'include', ...options }).then(() => true, () => false);
  const blind = (url, body) => fetch(url, { method: 'POST', mode: 'no-cors', credentials: 'include', body }).then(() => false, () => false);
  const loaded = (name, src) => new Promise((resolve) => {
    document.body.append(Object.assign(document.createElement(name), { src, onload: () => resolve(true), onerror: () => resolve(false) }));
  });
  const framed = (members) => document.body.append(Object.assign(document.createElement('iframe'), members));
  framed({ src: at('frame') });
  for (const [name, action] of Object.entries({ form: at('form'), begin })) {
    framed({ name });
    post(action, fields, name);
  }
  navigator.sendBeacon(at('beacon'), 'x');
  const results = {
    post: await blind(at('post'), new URLSearchParams({ item: 'x' })),
    read: await read(at('read')),
    image: await loaded('img', at('image')),
    script: await loaded('script', at('script')),
    socket: await new Promise((resolve) => {
      const socket = new WebSocket(at('socket').replace('http', 'ws'));
      Object.assign(socket, { onopen: () => resolve(true), onclose: () => resolve(false) });
    }),
    events: await new Promise((resolve) => {
      const events = new EventSource(at('events'), { withCredentials: true });
      Object.assign(events, { onopen: () => resolve(true), onerror: () => resolve((events.close(), false)) });
    }),
    me: await read(`${host}/.impersonation/me`),
    end: await read(`${host}/.impersonation/end`, { method: 'POST' }),
    endBlindly: await blind(`${host}/.impersonation/end`),
    begin: await blind(begin, new URLSearchParams(fields)),
  };
  return Object.keys(results).filter((kind) => results[kind]);
}

let stack;
before(async () => {
  stack = await startSessions();
});
after(stopAll);

for (const name of ['Chromium', 'Firefox']) {
  describe(name, () => {
    let browser;
    let profile;
    /** A session that expires while other tests run. */
    let expiring;
    before(async () => {
      browser = await startTabs(name);
      expiring = { ...await begun({ accessTokenExpiresIn: 30 }), profile };
      profile = undefined;
      await watch(expiring);
    });
    after(() => browser?.close());
    afterEach(async () => {
      await profile?.close();
      profile = undefined;
    });

    /** Opens a session in a tab of this profile, at `landing`. */
    async function begun(bounds, tab = undefined) {
      profile ??= await browser.profile();
      const minted = await stack.mint(bounds);
      tab ??= await profile.open();
      await stack.post(tab, minted);
      await tab.eventually(isAt(`${minted.host}${bounds?.landing ?? '/orders'}`));
      return { tab, ...minted };
    }
    /** Notes what happens to a session in two of its tabs. */
    async function watch(session) {
      // A page without the banner stays, so its stream is ended by the guard alone.
      const bare = session.bare = await session.profile.open(`${session.host}/orders.json`);
      await bare.evaluate(`(globalThis.stream = fetch('/ticker').then(async ({ body }) => {
        const reader = body.getReader();
        for (let read = {}; !read.done; read = await reader.read()) globalThis.ticks = (globalThis.ticks ?? 0) + 1;
      }).catch(() => 1).then(() => 'ended'), 1)`);
      await bare.eventually('globalThis.ticks > 1');
      await session.tab.eventually(BANNER);
      // The tab leaves at once, so the words go to a path that the access log has.
      await session.tab.evaluate(`(new MutationObserver(() => {
        const text = banner.querySelector('dialog p').textContent;
        fetch('/said/' + text.replaceAll(' ', '-') + '/${name}', { keepalive: true });
      }).observe(banner.querySelector('dialog'), { attributeFilter: ['open'] }), 1)`);
    }
    const ended = (tab) => tab.eventually(isAt(`${stack.support}/ended`));
    const orders = "fetch('/orders.json').then((answer) => answer.json())";
    const statusOf = (path, options = {}) => `fetch('${path}', ${JSON.stringify(options)}).then(({ status }) => status)`;

    /** Signs in at the support console. */
    async function signedIn(agent) {
      const support = await profile.open(`${stack.support}/sign-in`);
      await support.clickOn(button(agent));
      await support.eventually(isAt(`${stack.support}/`));
      return support;
    }

    /** Opens the shop as a user, in the place of the console's first. */
    async function openedBy(support, user = 'user-42') {
      await support.evaluate(`(document.querySelector('[name=user]').value = ${JSON.stringify(user)}, 1)`);
      const tab = await profile.opened(() => support.clickOn(button('Open the shop')));
      await tab.eventually("location.pathname === '/orders' && document.readyState === 'complete'");
      return tab;
    }

    test('the support console opens the shop as the user, and a reload goes on', async () => {
      profile = await browser.profile();
      const tab = await openedBy(await signedIn('agent-1'));
      await tab.eventually(BANNER);
      const { user, actor, id } = await tab.evaluate(orders);
      assert.deepEqual([user, actor, `http://${id}.${stack.domain}`], ['user-42', 'agent-1', await tab.evaluate('location.origin')]);
      assert.equal(await tab.evaluate("document.querySelector('#user').textContent"), 'user-42');
      await tab.evaluate('(globalThis.before = 1, location.reload(), 1)');
      await tab.eventually(`!globalThis.before && ${BANNER}`);
      assert.equal(await tab.evaluate('location.pathname'), '/orders');
    });

    test('forms, fetch, upload, download, WebSocket and events are the user\'s', async () => {
      stack.wire.forget();
      const { tab } = await begun({ userId: `${name} user` });
      const rows = "document.querySelector('tbody').textContent";
      await tab.eventually("/^\\d+$/.test(document.querySelector('#ticker').textContent)");
      await tab.evaluate("(document.querySelector('[name=text]').value = 'Where are my boots?', 1)");
      await tab.clickOn("document.querySelector('[name=send]:enabled')");
      await tab.eventually(`document.querySelector('#said').textContent === '${name} user: Where are my boots?'`);
      await tab.evaluate("(document.querySelector('[name=item]').value = 'Wellies', 1)");
      await tab.clickOn(button('Order'));
      await tab.eventually(`/Wellies.*ordered by agent-1/.test(${rows})`);
      await tab.choose('[name=photo]', FILE);
      await tab.clickOn(button('Send the photo'));
      await tab.eventually(`${rows}.includes('photo: style.css')`);
      const csv = await tab.downloaded(() => tab.clickOn("document.querySelector('a[download]')"), 'orders.csv');
      assert.match(csv, /^1003,"Wellies",1$/m);
      const fetched = await tab.evaluate(orders);
      assert.deepEqual([fetched.user, fetched.actor, fetched.orders.length], [`${name} user`, 'agent-1', 3]);
      // The banner has told the shop that an agent is here, and the shop counts no visit.
      const seen = stack.wire.requests();
      assert.ok(!seen.includes('POST /visits') && seen.includes('POST /photo') && seen.includes('GET /chat'), `${seen}`);
    });

    test('an agent who only reads gets a page for a form that the guard refuses, and nothing has changed', async () => {
      profile = await browser.profile();
      const tab = await openedBy(await signedIn('agent-2'));
      await tab.eventually(`${MARK} === 'Read-only'`);
      await tab.eventually("document.querySelector('#said').textContent === 'The chat is closed.'");
      const before = await tab.evaluate(orders);
      stack.wire.forget();
      await tab.evaluate("(document.querySelector('[name=item]').value = 'Wellies', 1)");
      await tab.clickOn(button('Order'));
      await tab.eventually("document.title === 'Not allowed'");
      await noFindings(tab, 'refused by the guard');
      assert.ok(!stack.wire.requests().includes('POST /orders'));
      await tab.evaluate('(history.back(), 1)');
      await tab.eventually(`${MARK} === 'Read-only'`);
      assert.equal(await tab.evaluate(statusOf('/orders', { method: 'POST' })), 403);
      assert.deepEqual(await tab.evaluate(orders), before);
    });

    test('by keyboard alone a session begins and stops, and Back shows nothing of it', async () => {
      profile = await browser.profile();
      const support = await signedIn('agent-1');
      const tabTo = async (tab, element) => {
        for (let presses = 0; !await tab.evaluate(`(${element}) ?? false`); presses += 1) {
          assert.ok(presses < 30, `no Tab leads to ${element}`);
          await tab.key('Tab');
        }
      };
      await support.open(`${stack.support}/`);
      await tabTo(support, "document.activeElement.textContent.startsWith('Open the shop')");
      const tab = await profile.opened(() => support.key('Enter'));
      await tab.eventually(BANNER);
      await tab.evaluate("(localStorage.setItem('basket', '1'), location.assign('/orders?page=2'), 1)");
      await tab.eventually(`location.search === '?page=2' && ${BANNER}`);
      const host = await tab.evaluate('location.origin');
      await tabTo(tab, "banner.activeElement?.localName === 'button'");
      await tab.key('Enter');
      await ended(tab);
      await noFindings(tab, 'ended');
      assert.deepEqual((await profile.cookies()).filter((one) => one.host === new URL(host).hostname), []);
      stack.wire.forget();
      await tab.evaluate('(globalThis.before = 1, history.back(), 1)');
      await tab.eventually(`!globalThis.before && ${isAt(`${stack.support}/ended`)}`);
      await tab.open(`${host}/.impersonation/me`);
      assert.deepEqual(await tab.evaluate('[location.origin, localStorage.length]'), [host, 0]);
      assert.deepEqual(stack.wire.requests(), []);
    });

    test('two sessions and the agent\'s own sign-in live beside each other', async () => {
      const one = await begun({ userId: 'user-42' });
      const two = await begun({ userId: 'user-43' });
      const own = await profile.open(`${stack.shopOrigin}/sign-in`);
      await own.clickOn(button('agent-1'));
      await own.eventually("location.pathname === '/orders'");
      const people = async (...tabs) => Promise.all(tabs.map(async (tab) => {
        await tab.evaluate('(globalThis.before = 1, location.reload(), 1)');
        await tab.eventually("!globalThis.before && document.readyState === 'complete'");
        const { user, actor } = await tab.evaluate(orders);
        assert.equal(await tab.evaluate("document.querySelector('#user').textContent"), user);
        return [user, actor];
      }));
      assert.deepEqual(await people(one.tab, two.tab, own), [['user-42', 'agent-1'], ['user-43', 'agent-1'], ['agent-1', undefined]]);
      assert.equal(await own.evaluate("document.querySelector('impersonation-banner')"), null);
      await one.tab.eventually(BANNER);
      await one.tab.clickOn(STOP);
      await ended(one.tab);
      assert.deepEqual(await people(two.tab, own), [['user-43', 'agent-1'], ['agent-1', undefined]]);
      // At the ordinary host the shop counts visits, and nobody forges who they are.
      stack.wire.forget();
      await own.open(`${stack.shopOrigin}/orders`);
      await poll(() => stack.wire.requests().includes('POST /visits'));
      const forged = { 'x-jwt-payload': Buffer.from('{"sub":"user-42"}').toString('base64url'), 'x-impersonation-id': 'b41', 'x-impersonator': 'agent-2' };
      const { user, actor, id } = await own.evaluate(`fetch('/orders.json', { headers: ${JSON.stringify(forged)} }).then((answer) => answer.json())`);
      assert.deepEqual([user, actor, id], ['agent-1', undefined, undefined]);
    });

    test('a kill while a form is being sent ends the tab, and the shop has no order', async () => {
      const { tab, id } = await begun({ userId: `${name} killed` });
      await tab.eventually(bannerOf(`${name} killed`));
      await tab.evaluate("(document.querySelector('[name=item]').value = 'Wellies', 1)");
      stack.wire.forget();
      stack.wire.hold();
      try {
        await tab.clickOn(button('Order'));
        await poll(() => stack.wire.requests().includes('POST /orders'));
        assert.equal((await stack.kill(id)).status, 204);
        await ended(tab);
      } finally {
        stack.wire.release();
      }
      const next = await begun({ userId: `${name} killed` });
      assert.equal((await next.tab.evaluate(orders)).orders.length, 2);
    });

    test('a token that begins a second session gets a page, and ends the first', async () => {
      const { tab, ...minted } = await begun();
      await tab.eventually(BANNER);
      const again = await profile.open();
      await stack.post(again, minted);
      await again.eventually("document.title === 'The session has not begun'");
      await noFindings(again, 'refused');
      await tab.evaluate(ASK);
      await ended(tab);
    });

    test('a token that is too long for a cookie begins nothing, and the browser keeps the longest other', async () => {
      profile = await browser.profile();
      const tab = await profile.open();
      const { fields, ...minted } = await stack.mint({ scope: undefined });
      const title = async (count) => {
        await stack.post(tab, { ...minted, fields: { ...fields, scope: ['shop:use', ...SCOPES.slice(0, count)].join(' ') } });
        await tab.eventually("['The session has not begun', 'Your orders'].includes(document.title)");
        return tab.evaluate('document.title');
      };
      let count = SCOPES.length;
      assert.equal(await title(count), 'The session has not begun');
      assert.match(await tab.evaluate('document.body.textContent'), /too long for a cookie/);
      assert.deepEqual(await profile.cookies(), []);
      count = 540;
      while (await title(count) !== 'Your orders') count -= 10;
      const [{ value }] = await profile.cookies();
      // Ten scopes have 67 bytes.
      assert.ok(value.length >= 4000 && value.length <= 4076, `${value.length}`);
      assert.equal((await tab.evaluate(orders)).user, 'user-42');
    });

    test('names of markup, of both directions and of 255 characters are text', async () => {
      profile = await browser.profile();
      const support = await signedIn('agent-1');
      for (const strange of STRANGE) {
        const tab = await openedBy(support, strange);
        await tab.eventually("globalThis.banner?.querySelectorAll('.who bdi')[1]?.textContent === document.querySelector('#user').textContent");
        assert.equal(await tab.evaluate("document.querySelector('#user').textContent"), strange);
        assert.deepEqual(await tab.evaluate("[document.title, document.querySelectorAll('main img, header img, main script').length, document.documentElement.scrollWidth <= innerWidth]"), ['Your orders', 0, true]);
        await tab.close();
      }
    });

    test('axe-core finds nothing on the page that goes on, nor in the shop with the banner', async () => {
      profile = await browser.profile();
      const tab = await profile.open();
      const minted = await stack.mint();
      // The browser stays on a page that leads to no content.
      stack.wire.answers = 'HTTP/1.1 204 No Content\r\n\r\n';
      stack.wire.forget();
      await stack.post(tab, minted);
      await poll(() => stack.wire.requests().length > 0);
      stack.wire.answers = undefined;
      await tab.eventually("document.title === 'The session begins'");
      await noFindings(tab, 'going on');
      nowhere(minted.fields, { page: await tab.evaluate('document.documentElement.outerHTML') });
      await tab.clickOn("document.querySelector('a')");
      await tab.eventually(BANNER);
      await tab.evaluate('(openBanner(), 1)');
      await noFindings(tab, 'the shop');
    });

    test('the tokens are in no address, log, page or storage but the cookie', async () => {
      stack.wire.forget();
      const { tab, host, fields } = await begun();
      await tab.eventually(BANNER);
      const [{ value, ...cookie }, ...others] = (await profile.cookies()).filter(({ name: of }) => of === '__Host-impersonation');
      assert.deepEqual([cookie.httpOnly, cookie.secure, cookie.sameSite.toLowerCase(), cookie.path, others.length], [true, true, 'strict', '/', 0]);
      assert.equal(new URL(host).hostname, cookie.host);
      nowhere({ ...fields, access_token: value.split('.')[2] }, {
        page: await tab.evaluate(KEPT),
        addresses: profile.urls.join('\n'),
        logs: stack.logs(),
        shop: stack.wire.bytes(),
      });
      assert.match(stack.wire.bytes(), /x-impersonator: agent-1/);
    });

    const attackers = {
      'a stranger\'s site': () => profile.open(stack.pages.at('stranger', 'Win a prize!')),
      'a sibling host': () => profile.open(stack.pages.at('sibling.as-user', 'Win a prize!')),
      'the application\'s own page in another session': async () => (await begun({ userId: 'user-43', landing: '/orders.json' })).tab,
    };
    for (const [what, open] of Object.entries(attackers)) {
      test(`${what} does nothing as the user, spends no token, and begins no session`, async () => {
        const victim = await begun({ landing: '/orders.json' });
        const token = await stack.mint();
        const attacker = await open();
        const before = (await profile.cookies()).length;
        const tried = async (marker, kinds) => {
          for (const kind of kinds) await poll(() => stack.logged(`/attack/${marker}/${kind}`).length > 0);
          for (const kind of kinds) {
            const statuses = stack.logged(`/attack/${marker}/${kind}`).map(({ status }) => status);
            assert.deepEqual(statuses.filter((status) => ![303, 401, 403].includes(status)), [], kind);
          }
        };
        stack.wire.forget();
        const marker = `${name}-${what.replaceAll(/\W+/g, '-')}`;
        const attempt = (members) => `(${attack})(${JSON.stringify({ host: victim.host, begin: token.begin, fields: token.fields, ...members })}, ${submit})`;
        assert.deepEqual(await attacker.evaluate(attempt({ marker })), []);
        await tried(marker, ATTACKS);
        // In a sandboxed frame the origin is `null`.
        const boxed = `<body><script>${attempt({ marker: `${marker}-boxed` })}.then((told) => parent.postMessage(told, '*'))</script>`;
        assert.deepEqual(await attacker.evaluate(`new Promise((resolve) => {
          addEventListener('message', ({ data }) => resolve(data));
          const frame = { sandbox: 'allow-scripts allow-forms', srcdoc: ${JSON.stringify(boxed).replaceAll('</', '<\\/')} };
          document.body.append(Object.assign(document.createElement('iframe'), frame));
        })`), []);
        await tried(`${marker}-boxed`, ATTACKS);
        // The whole tab goes there, by an address and by a form.
        for (const [kind, going] of [
          ['address', `(location.assign('${victim.host}/attack/${marker}/address'), 1)`],
          ['whole', `(${submit})('${victim.host}/attack/${marker}/whole', {}, '_top')`],
        ]) {
          const url = await attacker.evaluate('location.href');
          await attacker.evaluate(going);
          await attacker.eventually(`document.title === 'Not allowed' || ${isAt(`${stack.support}/ended`)}`);
          await tried(marker, [kind]);
          await attacker.open(url);
        }
        await attacker.evaluate(`(${submit})(${JSON.stringify(token.begin)}, ${JSON.stringify(token.fields)}, '_top')`);
        await attacker.eventually("document.title === 'The session has not begun'");

        // The shop has seen nothing but the attacking tab's own page, if it is the shop's.
        assert.deepEqual(stack.wire.requests().filter((one) => !/^GET \/(orders\.json|favicon\.ico)$/.test(one)), []);
        assert.equal((await profile.cookies()).length, before);
        const [user, me] = await victim.tab.evaluate(`Promise.all([${orders}.then(({ user }) => user), ${statusOf('/.impersonation/me')}])`);
        assert.deepEqual([user, me], ['user-42', 200]);
        const begins = await profile.open();
        await stack.post(begins, token);
        await begins.eventually(isAt(`${token.host}/orders`));
      });
    }

    test('a sandboxed frame of the support console begins nothing', async () => {
      profile = await browser.profile();
      const token = await stack.mint();
      const form = formOf(token.begin, token.fields, 'target="_top"');
      const tab = await profile.open(stack.pages.at('console', `<iframe sandbox="allow-scripts allow-forms allow-top-navigation"
        srcdoc="${`${form}<script>document.forms[0].submit()</script>`.replaceAll('&', '&amp;').replaceAll('"', '&quot;')}"></iframe>`));
      await tab.eventually("document.title === 'The session has not begun'");
      assert.deepEqual(await profile.cookies(), []);
    });

    test('a hostile page of the application neither reads the cookie nor replaces it', async () => {
      const { tab, host, fields } = await begun({ landing: '/orders.json' });
      const { host: stranger } = await stack.mint();
      const [{ value }] = await profile.cookies();
      const read = await tab.evaluate(`(async () => {
        const before = document.cookie;
        for (const more of ['', '; Domain=as-user.localhost', '; Path=/orders']) document.cookie = '__Host-impersonation=replaced; Secure; Path=/' + more;
        const cors = await fetch('${stranger}/.impersonation/me', { credentials: 'include' }).then(() => 'read', () => 'refused');
        const begin = await fetch('/.impersonation/begin', { method: 'POST', body: new URLSearchParams(${JSON.stringify(fields)}) });
        return [before, cors, begin.status, await begin.text()];
      })()`);
      assert.deepEqual(read.slice(0, 3), ['', 'refused', 403]);
      nowhere({ ...fields, access_token: value.split('.')[2] }, { answer: read[3] });
      assert.deepEqual((await profile.cookies()).map((one) => one.value), [value]);
      assert.equal(await tab.evaluate(statusOf('/.impersonation/me')), 200);
      assert.equal(await tab.evaluate('location.origin'), host);
    });

    test('when a session expires its streams end, the banner says so, and the tab leaves', async () => {
      ({ profile } = expiring);
      assert.equal(await expiring.bare.evaluate('stream'), 'ended');
      await ended(expiring.tab);
      await poll(() => stack.logged(`/said/The-session-as-user-42-has-ended./${name}`).length > 0);
      assert.equal((await stack.list()).impersonations.some(({ id }) => id === expiring.id), false);
    });

    if (name !== 'Chromium') return;

    test('the page of live impersonations and the list mark browser sessions', async () => {
      const inTab = await begun({ userId: 'in a tab' });
      const api = { resource: `${stack.origin}/orders`, scope: 'orders:read' };
      const other = await stack.mint({ userId: 'at an API', ...api });
      const exchanged = await fetch(`${stack.origin}/oidc/token`, { method: 'POST', body: new URLSearchParams({ ...other.fields, ...api }) });
      assert.equal(exchanged.status, 200);
      const marks = (await stack.list()).impersonations.map(({ id, browserSession }) => [id, browserSession]);
      assert.deepEqual([inTab.id, other.id].map((id) => marks.find(([one]) => one === id)[1]), [true, undefined]);
      const { page } = await profile.open();
      await enter(page, stack.origin);
      const row = (user) => page.getByRole('row').filter({ hasText: user });
      await row('in a tab').getByText('browser session').waitFor();
      await row('at an API').waitFor();
      assert.equal(await row('at an API').getByText('browser session').count(), 0);
    });

    test('the picture of the documentation shows the shop with the banner', async () => {
      profile = await browser.profile({ width: 1000, height: 560, deviceScaleFactor: 1.5 });
      const support = await signedIn('agent-1');
      const tab = await openedBy(support);
      await tab.eventually(`${BANNER} && /^\\d+$/.test(document.querySelector('#ticker').textContent)`);
      await tab.page.mouse.move(0, 0);
      const picture = await tab.picture({ path: PICTURE });
      assert.ok(picture.length <= 100_000, `${picture.length} bytes`);
    });

    test('the figures of a session', async () => {
      profile = await browser.profile();
      const support = await signedIn('agent-1');
      const now = 'performance.timeOrigin + performance.now()';
      const firstByte = "performance.timeOrigin + performance.getEntriesByType('navigation')[0].responseStart";
      const figures = { open: [], signIn: [], stop: [], asUser: [], byUser: [] };
      const twenty = "(async (from) => { await Promise.all(Array.from({ length: 20 }, () => fetch('/orders.json').then((one) => one.text()))); return performance.now() - from; })(performance.now())";
      const own = await profile.open(`${stack.shopOrigin}/sign-in`);
      await own.clickOn(button('user-42'));
      await own.eventually("location.pathname === '/orders'");
      for (let round = 0; round < (Number(process.env.ROUNDS) || 1); round += 1) {
        await support.evaluate(`(addEventListener('click', () => { globalThis.clicked = ${now}; }, true), 1)`);
        const tab = await openedBy(support);
        figures.open.push(await tab.evaluate(firstByte) - await support.evaluate('clicked'));
        await tab.eventually(BANNER);
        figures.asUser.push(await tab.evaluate(twenty));
        figures.byUser.push(await own.evaluate(twenty));
        const stopped = await tab.evaluate(`(${STOP}.click(), ${now})`);
        await ended(tab);
        figures.stop.push(await tab.evaluate(firstByte) - stopped);
        await tab.close();
        // The identity provider knows the agent already, and asks nothing.
        const began = await support.evaluate(`(globalThis.before = 1, location.assign('/sign-in'), ${now})`);
        await support.eventually(`!globalThis.before && ${isAt(`${stack.support}/`)}`);
        figures.signIn.push(await support.evaluate(firstByte) - began);
      }
      const [open, signIn, stop, asUser, byUser] = Object.values(figures).map((all) => Math.round(all.toSorted((a, b) => a - b)[all.length >> 1]));
      console.log(`from the console's click to the shop's first byte ${open} ms, for a sign-in ${signIn} ms; from Stop to the page \`ended\` ${stop} ms; `
        + `twenty requests as the user ${asUser} ms, by the user ${byUser} ms`);
    });
  });
}
