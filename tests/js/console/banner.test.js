// The banner of browser sessions in Chromium and Firefox. A fake plays what the filter answers on a
// session's host (session.js): what the filter answers in truth is not tested here.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { poll, ROOT } from '../stack/envoy.js';
import { stopAll } from '../stack/process.js';
import { STRANGE } from './stack.js';
import { startSession } from './session.js';
import { startTabs } from './tabs.js';

const AXE = readFileSync(new URL('../node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');
const PICTURES = `${ROOT}target/console/`;

const ME = 'GET /.impersonation/me';
const END = 'POST /.impersonation/end';
/** True while the banner can be seen and used: nothing lies over its middle. */
const ON_TOP = `(() => {
  const { left, top, width, height } = banner.host.getBoundingClientRect();
  const [x, y] = [left + width / 2, top + height / 2];
  const style = getComputedStyle(banner.host);
  return document.elementFromPoint(x, y) === banner.host && height > 30 && width > innerWidth - 30
    && style.opacity === '1' && style.visibility === 'visible' && style.clipPath === 'none' && style.transform === 'none' && style.filter === 'none';
})()`;
const SHOWN = `!!globalThis.banner?.host.isConnected && ${ON_TOP}`;
const STOP = `(({ left, top, width, height }) => [left + width / 2, top + height / 2])(banner.querySelector('button').getBoundingClientRect())`;
const text = (selector) => `banner.querySelector('${selector}').textContent`;

const session = await startSession();
after(stopAll);

test('the banner has at most 4 kB in gzip, and the file for the module is the script', () => {
  const packed = readFileSync(`${PICTURES}banner.gz`);
  assert.ok(packed.length <= 4096, `${packed.length} bytes`);
  assert.equal(gunzipSync(packed).toString(), readFileSync(`${PICTURES}banner.js`, 'utf8'));
});

for (const name of ['Chromium', 'Firefox']) {
  describe(name, () => {
    let browser;
    let tab;
    before(async () => {
      browser = await startTabs(name, session.origin);
    });
    after(() => browser?.close());
    beforeEach(() => session.renew());
    afterEach(() => tab.close());

    /** Opens a page with the banner in it. */
    async function opened(path = '/orders', options = {}) {
      tab = await browser.open(path, options);
      await tab.eventually(SHOWN);
    }
    const attributes = (members) => `/orders?${new URLSearchParams(members)}`;
    const clickStop = async () => tab.click(...await tab.evaluate(STOP));
    const nothingWrong = (expected = /$^/) => assert.deepEqual(tab.wrong.filter((line) => !expected.test(line)), []);

    test('the banner shows who acts as whom, read-only, the time left and Stop, under a strict policy', async () => {
      await opened();
      assert.equal(await tab.evaluate(text('.who')), 'agent-1 acts as user-42');
      assert.equal(await tab.evaluate("banner.querySelector('section').ariaLabel"), 'Impersonation');
      assert.equal(await tab.evaluate(text('.mark')), 'Read-only');
      assert.match(await tab.evaluate(text('.time')), /^1[45]:\d\d left$/);
      assert.equal(await tab.evaluate(text('button')), 'Stop');
      const before = await tab.evaluate(text('.time'));
      await tab.eventually(`${text('.time')} !== ${JSON.stringify(before)}`);
      nothingWrong();
    });

    test('a session that may write has no mark, and one without an actor names the client', async () => {
      session.renew({ readOnly: false, actorId: undefined });
      await opened();
      assert.equal(await tab.evaluate(text('.who')), 'support-desk acts as user-42');
      assert.equal(await tab.evaluate("banner.querySelector('.mark').checkVisibility()"), false);
    });

    test('without a session the module asks once and does nothing', async () => {
      const html = { 'content-type': 'text/html' };
      const cases = [[401], [404], [403], ['a page', [200, html, '<!doctype html>']], ['a redirect', [302, { location: '/login' }, '']], ['no session', [200, html, '{}']]];
      for (const [status, answer = status] of cases) {
        session.renew();
        session.status = answer;
        tab = await browser.open('/orders');
        await poll(() => session.count(ME) === 1);
        await tab.evaluate('fetch("/orders").then(() => 1)');
        assert.deepEqual(await tab.evaluate("[globalThis.banner ?? null, told, document.adoptedStyleSheets.length, document.querySelector('impersonation-banner')]"), [null, [], 0, null], `${status}`);
        assert.equal(session.count('GET /login'), 0);
        if (status !== cases.at(-1)[0]) await tab.close();
      }
    });

    test('a failure at the start is no answer: the module asks again', async () => {
      for (const failure of [503, 429, 'gone']) {
        session.renew();
        session.status = failure;
        tab = await browser.open('/orders');
        await poll(() => session.count(ME) > 0);
        session.status = 200;
        await tab.eventually(SHOWN);
        if (failure !== 'gone') await tab.close();
      }
    });

    test('the document is told once what `me` says', async () => {
      await opened();
      await poll(() => session.count(ME) > 1);
      const { resource, ...rest } = session.me;
      assert.deepEqual(await tab.evaluate('told'), [{ resource, ...rest }]);
    });

    test('the module asks every five seconds, and when the tab comes back', async () => {
      await opened();
      await poll(() => session.count(ME) >= 3);
      const before = session.count(ME);
      await tab.evaluate("document.dispatchEvent(new Event('visibilitychange')), dispatchEvent(new Event('pageshow')), 1");
      await poll(() => session.count(ME) > before);
    });

    test('Stop ends the session and goes to its location', async () => {
      await opened();
      await clickStop();
      await tab.eventually("location.pathname === '/stopped'");
      assert.equal(session.count(END), 1);
    });

    test('a Stop that fails says so, and can be tried again', async () => {
      session.end = 503;
      await opened();
      await clickStop();
      await tab.eventually(`${text('.said')} === 'The session could not be stopped. Try again.'`);
      assert.equal(await tab.evaluate(text('button')), 'Stop');
      session.end = 200;
      await clickStop();
      await tab.eventually("location.pathname === '/stopped'");
      nothingWrong(/503/);
    });

    test('Stop and everything else can be reached by keyboard alone', async () => {
      await opened();
      for (let presses = 0; !await tab.evaluate('banner.activeElement?.localName === "button"'); presses += 1) {
        assert.ok(presses < 20, 'no Tab leads to Stop');
        await tab.key('Tab');
      }
      assert.match(await tab.evaluate('getComputedStyle(banner.activeElement).outline'), /3px/);
      await tab.key('Enter');
      await tab.eventually("location.pathname === '/stopped'");
    });

    for (const [what, change] of [
      ['the session has ended', () => { session.status = 401; }],
      ['nothing answers at its path any more', () => { session.status = 404; }],
      ['the session is another', () => { session.me = { ...session.me, id: 'c52'.padEnd(28, '0') }; }],
    ]) {
      test(`${what}: the page is covered, and goes to \`ended\``, async () => {
        await opened();
        session.ended = 204;
        change();
        await tab.eventually("banner.querySelector('dialog').open");
        assert.equal(await tab.evaluate(text('dialog p')), 'The session as user-42 has ended.');
        const corners = '[[1, 1], [innerWidth - 20, 1], [1, innerHeight - 2], [innerWidth / 2, innerHeight / 2]]';
        assert.deepEqual(await tab.evaluate(`${corners}.map(([x, y]) => document.elementFromPoint(x, y).localName)`), Array(4).fill('impersonation-banner'));
        // Neither a key uncovers it, nor does the focus reach what is below.
        await tab.key('Escape');
        await tab.key('Escape');
        await tab.eventually("banner.querySelector('dialog').open");
        for (let presses = 0; presses < 4; presses += 1) {
          await tab.key('Tab');
          assert.equal(await tab.evaluate("document.activeElement.id === 'order'"), false);
        }
        await tab.page?.screenshot({ path: `${PICTURES}banner-ended.png` });
        await poll(() => session.count('GET /ended') > 0);
        // Where the application keeps the tab from leaving, the person can.
        session.ended = 200;
        for (let presses = 0; presses < 20 && !await tab.evaluate("banner.activeElement?.localName === 'a'"); presses += 1) await tab.key('Tab');
        await tab.key('Enter');
        await tab.eventually("location.pathname === '/ended'");
        nothingWrong(/40[14]/);
      });
    }

    test('while nobody answers the banner says so', async () => {
      await opened();
      session.status = 'gone';
      await tab.eventually(`${text('.said')} === 'No connection: the session may have ended.'`);
      session.status = 200;
      await tab.eventually(`${text('.said')} === ''`);
      await tab.eventually(SHOWN);
    });

    test('after its time a session is over, whoever answers', async () => {
      session.renew({ expiresAt: new Date(Date.now() + 50_000).toISOString() });
      await opened();
      await tab.eventually(`${text('.said')} === 'Less than a minute is left.'`);
      // The clock of the page is moved, because the session's time is the server's.
      session.status = 'gone';
      await tab.evaluate('(({ now }) => { Date.now = () => now() + 70_000; })(Date), 1');
      await tab.eventually("location.pathname === '/ended'");
    });

    test('a clock that is wrong does not change the time left', async () => {
      await opened();
      await tab.evaluate('(({ now }) => { Date.now = () => now() + 3_600_000; })(Date), 1');
      // The answer to the first of these two has set the banner right.
      const before = session.count(ME);
      await poll(() => session.count(ME) > before + 1);
      await tab.eventually(`/^1[45]:\\d\\d left$/.test(${text('.time')})`);
    });

    test('the shadow root is closed', async () => {
      await opened();
      assert.equal(await tab.evaluate("document.querySelector('impersonation-banner').shadowRoot"), null);
    });

    test('the style of the application does not hide the banner', async () => {
      await opened('/orders?style=hostile');
      await tab.evaluate("banner.host.setAttribute('hidden', ''), 1");
      for (const declaration of ['display: none', 'opacity: 0', 'visibility: hidden', 'transform: translateY(200px)', 'inset: 100%', 'clip-path: inset(50%)', 'zoom: 0.01']) {
        const [property, value] = declaration.split(': ');
        await tab.evaluate(`banner.host.style.setProperty('${property}', '${value}', 'important'), 1`);
        assert.equal(await tab.evaluate(ON_TOP), true, declaration);
      }
      await tab.evaluate("banner.host.animate({ opacity: [0, 0] }, { duration: 1e9, fill: 'both' }), 1");
      assert.equal(await tab.evaluate("getComputedStyle(banner.host).opacity"), '1');
    });

    test('a script of the application that removes, closes or covers the banner finds it back', async () => {
      await opened();
      for (const hiding of [
        'banner.host.remove()',
        'banner.host.hidePopover()',
        "banner.host.removeAttribute('popover')",
        "document.querySelector('#first').append(banner.host)",
        'document.body.replaceChildren()',
        'document.documentElement.replaceChildren(document.head, document.body)',
        'document.adoptedStyleSheets = []',
        "document.documentElement.append(Object.assign(document.createElement('div'), { popover: 'manual', id: 'cover' })), cover.style.cssText = 'position: fixed; inset: 0; width: 100%; height: 100%', cover.showPopover()",
      ]) {
        await tab.evaluate(`(${hiding}, 1)`);
        await tab.eventually(`${SHOWN} && banner.host.parentNode === document.documentElement && document.adoptedStyleSheets.length === 1`);
      }
      nothingWrong();
    });

    test('the banner stays above dialogs, and Stop can be used there', async () => {
      await opened();
      const parent = 'banner.host.parentNode.id || banner.host.parentNode.localName';
      for (const [doing, expected] of [
        ['first.showModal()', 'first'], ['second.showModal()', 'second'], ['second.close()', 'first'], ['first.close()', 'html'],
        ['first.show()', 'html'], ['above.showPopover()', 'html'], ['first.close()', 'html'], ['first.showModal()', 'first'], ['first.remove()', 'html'], ['second.showModal()', 'second'],
      ]) {
        await tab.evaluate(`(globalThis.first ??= document.querySelector('#first'), ${doing}, 1)`);
        await tab.eventually(`${SHOWN} && (${parent}) === '${expected}'`);
      }
      await tab.page?.screenshot({ path: `${PICTURES}banner-dialog.png` });
      await clickStop();
      await tab.eventually("location.pathname === '/stopped'");
      nothingWrong();
    });

    test('a dialog of a component has the banner, too', async () => {
      await opened();
      await tab.evaluate(`(() => {
        const part = document.body.appendChild(document.createElement('div'));
        // The tests' own attachShadow would take this root for the banner's.
        const { banner } = globalThis;
        const root = part.attachShadow({ mode: 'open' });
        globalThis.banner = banner;
        globalThis.inner = root.appendChild(document.createElement('dialog'));
        inner.append(document.createElement('button'));
        inner.showModal();
      })()`);
      await tab.eventually("banner.host.parentNode === inner && banner.elementFromPoint(...(({ left, top }) => [left + 9, top + 9])(banner.querySelector('button').getBoundingClientRect())).localName === 'button'");
    });

    test('the banner stays above full screens', async () => {
      await opened();
      const fill = async (element) => {
        await tab.evaluate(`(order.onclick = () => (globalThis.full = ${element}).requestFullscreen(), 1)`);
        await tab.click(...await tab.evaluate('(({ left, top }) => [left + 9, top + 9])(order.getBoundingClientRect())'));
        await tab.eventually('document.fullscreenElement === full');
      };
      const leave = async () => {
        await tab.evaluate('document.exitFullscreen().then(() => 1)');
        await tab.eventually(`${SHOWN} && banner.host.parentNode === document.documentElement && !document.fullscreenElement`);
      };
      for (const element of ["document.querySelector('main')", 'document.documentElement']) {
        await fill(element);
        await tab.eventually(`${SHOWN} && banner.host.parentNode === full`);
        await tab.evaluate("(document.querySelector('#second').showModal(), 1)");
        await tab.eventually(`${SHOWN} && banner.host.parentNode.id === 'second'`);
        await tab.evaluate("(document.querySelector('#second').close(), 1)");
        await tab.eventually(`${SHOWN} && banner.host.parentNode === full`);
        await leave();
      }
      // Nothing can be inside of a video. The banner is seen above it, and keeps its room.
      await fill("document.body.appendChild(document.createElement('video'))");
      await tab.eventually("banner.host.matches(':popover-open') && getComputedStyle(full).paddingBottom === `${banner.host.offsetHeight}px`");
      await tab.page?.screenshot({ path: `${PICTURES}banner-video.png` });
      await leave();
      nothingWrong();
    });

    test('the banner takes room, at the bottom and at the top', async () => {
      const rects = "[...document.querySelectorAll('h1, #last')].concat(banner.host).map((one) => one.getBoundingClientRect()).map(({ top, bottom }) => [Math.round(top), Math.round(bottom)])";
      for (const style of ['plain', 'full']) {
        for (const position of ['bottom', 'top']) {
          await opened(attributes({ style, position }));
          await tab.eventually("parseInt(getComputedStyle(document.documentElement).getPropertyValue('--impersonation-banner')) === banner.host.offsetHeight");
          const height = await tab.evaluate('innerHeight');
          const [[first], , [top, bottom]] = await tab.evaluate(rects);
          assert.deepEqual(position === 'top' ? top : bottom, position === 'top' ? 0 : height);
          assert.ok(position === 'bottom' || first >= bottom, `${style} ${position}: the heading begins at ${first}, the banner ends at ${bottom}`);
          await tab.evaluate('(scrollTo(0, 1e6), 1)');
          const [, [, last], [edge]] = await tab.evaluate(rects);
          assert.ok(last <= (position === 'top' ? height : edge), `${style} ${position}: the last line ends at ${last}`);
          if (style !== 'full' || position !== 'top') await tab.close();
        }
      }
    });

    test('a tall dialog ends above the banner', async () => {
      await opened();
      await tab.evaluate("(first.append(Object.assign(document.createElement('p'), { id: 'tall' })), tall.style.height = '3000px', first.showModal(), 1)");
      await tab.eventually(`${SHOWN} && first.getBoundingClientRect().bottom <= banner.host.getBoundingClientRect().top`);
    });

    test('the banner speaks German and English by the document\'s language, and others by attributes', async () => {
      const cases = [
        [{ lang: 'de' }, 'agent-1 handelt als user-42', 'Beenden', 'de', 'Nur lesen'],
        [{ lang: 'de-AT' }, 'agent-1 handelt als user-42', 'Beenden', 'de', 'Nur lesen'],
        [{ lang: 'en-GB' }, 'agent-1 acts as user-42', 'Stop', 'en', 'Read-only'],
        [{ lang: 'fr' }, 'agent-1 acts as user-42', 'Stop', 'en', 'Read-only'],
        [{ lang: 'fr', acting: 'Au nom de {user}, par {actor}', stop: 'Terminer', 'read-only': 'Lecture seule' }, 'Au nom de user-42, par agent-1', 'Terminer', 'fr', 'Lecture seule'],
      ];
      for (const [members, acting, stop, lang, readOnly] of cases) {
        await opened(attributes(members));
        assert.deepEqual(await tab.evaluate(`[${text('.who')}, ${text('button')}, banner.querySelector('section').lang, ${text('.mark')}]`), [acting, stop, lang, readOnly]);
        if (members !== cases.at(-1)[0]) await tab.close();
      }
    });

    test('from right to left the banner is mirrored, and names do not change places', async () => {
      const order = "[...banner.querySelectorAll('.who bdi, button')].map((one) => one.getBoundingClientRect().left)";
      await opened(attributes({ dir: 'rtl', lang: 'he', acting: '{actor} פועל בשם {user}', stop: 'סיום' }));
      const [actor, user, stop] = await tab.evaluate(order);
      assert.ok(stop < user && user < actor, `${[stop, user, actor]}`);
      await tab.page?.screenshot({ path: `${PICTURES}banner-rtl.png` });
      await tab.close();
      // An English sentence stays one.
      await opened(attributes({ dir: 'rtl', lang: 'ar' }));
      const [englishActor, englishUser, englishStop] = await tab.evaluate(order);
      assert.ok(englishStop < englishActor && englishActor < englishUser);
    });

    test('strange and long names are text, and leave the page its room', async () => {
      for (const [index, strange] of STRANGE.entries()) {
        session.renew({ actorId: strange, userId: strange });
        await opened('/orders', { width: 320, height: 640 });
        assert.deepEqual(await tab.evaluate("[...banner.querySelectorAll('.who bdi')].map((one) => [one.textContent, one.title])"), Array(2).fill([strange, strange]));
        assert.equal(await tab.evaluate("banner.querySelectorAll('img, script, b').length"), 0);
        assert.equal(await tab.evaluate('document.title'), 'Orders');
        assert.ok(await tab.evaluate('banner.host.offsetHeight < innerHeight / 3'), await tab.evaluate('banner.host.offsetHeight'));
        await tab.page?.screenshot({ path: `${PICTURES}banner-strange-${index}.png` });
        if (index < STRANGE.length - 1) await tab.close();
      }
    });

    test('at 320 pixels nothing is cut off', async () => {
      await opened('/orders', { width: 320, height: 640 });
      assert.ok(await tab.evaluate("[document.documentElement, banner.querySelector('section')].every((one) => one.scrollWidth <= one.clientWidth)"));
      assert.ok(await tab.evaluate("[...banner.querySelectorAll('section > :not(.said)')].every((one) => { const { left, right, bottom } = one.getBoundingClientRect(); return left >= 0 && right <= innerWidth && bottom <= innerHeight; })"));
      await tab.page?.screenshot({ path: `${PICTURES}banner-320.png` });
    });

    test('nothing moves', async () => {
      await opened();
      assert.deepEqual(await tab.evaluate("[document.getAnimations().length, ...banner.querySelectorAll('*')].map((one) => one === 0 || getComputedStyle(one).transitionDuration + getComputedStyle(one).animationName).filter((one) => one !== true && one !== '0snone')"), []);
    });

    test('a frame of the application has no banner of its own, and is told', async () => {
      await opened('/orders?frame=1');
      await poll(() => session.count(ME) >= 2);
      await tab.eventually('frames[0].told?.length === 1');
      assert.equal(await tab.evaluate("frames[0].document.querySelector('impersonation-banner')"), null);
    });

    test('axe-core finds nothing', async () => {
      const find = async (what) => {
        await tab.evaluate(`(() => { openBanner(); ${AXE}; })()`);
        const found = await tab.evaluate('axe.run().then(({ violations, passes }) => ({ violations: violations.map(({ id, nodes }) => [id, nodes.map(({ html, failureSummary }) => html + failureSummary)]), all: JSON.stringify(passes).includes("Stop") || JSON.stringify(passes).includes("Leave") }))');
        assert.deepEqual(found, { violations: [], all: true }, what);
      };
      for (const width of [1000, 320]) {
        await opened(attributes({ position: width === 320 ? 'top' : 'bottom' }), { width, height: 640 });
        await find(width);
        await tab.evaluate("(document.querySelector('#first').showModal(), 1)");
        await tab.eventually(`${SHOWN} && banner.host.parentNode.id === 'first'`);
        await find(`${width} with a dialog`);
        Object.assign(session, { status: 401, ended: 204 });
        await tab.eventually("banner.querySelector('dialog').open");
        await find(`${width}, ended`);
        session.renew();
        if (width !== 320) await tab.close();
      }
    });

    if (name !== 'Chromium') return;

    test('in high contrast each part has a border', async () => {
      await opened('/orders', { forcedColors: 'active' });
      for (const part of ['section', 'button', '.mark']) {
        const { width, style } = await tab.evaluate(`(({ borderTopWidth, borderTopStyle }) => ({ width: borderTopWidth, style: borderTopStyle }))(getComputedStyle(banner.querySelector('${part}')))`);
        assert.deepEqual([width, style], ['2px', 'solid'], part);
      }
      await tab.picture({ path: `${PICTURES}banner-contrast.png` });
    });

    test('on paper stands who acts as whom', async () => {
      await opened();
      await tab.page.emulateMedia({ media: 'print' });
      await tab.eventually(SHOWN);
      assert.equal(await tab.evaluate("banner.querySelector('.who').checkVisibility()"), true);
      assert.equal(await tab.evaluate("banner.querySelector('button').checkVisibility()"), false);
      assert.equal(await tab.evaluate("getComputedStyle(banner.querySelector('section')).printColorAdjust"), 'exact');
      await tab.page.pdf({ path: `${PICTURES}banner.pdf`, printBackground: false });
    });
  });
}
