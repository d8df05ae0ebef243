// One tab of Chromium or of Firefox with the same few functions, so that a rule is written once.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { poll } from '../stack/envoy.js';
import { startBrowser } from './stack.js';
import { startFirefox } from './firefox.js';

/**
 * Runs in each page before its scripts. The banner's shadow root is closed: tests see it as
 * `banner`, and axe-core needs it as the element's property, which `openBanner` makes.
 */
function reveal() {
  const { attachShadow } = Element.prototype;
  Element.prototype.attachShadow = function attach(options) {
    globalThis.banner = attachShadow.call(this, options);
    globalThis.openBanner = () => Object.defineProperty(this, 'shadowRoot', { value: globalThis.banner });
    return globalThis.banner;
  };
  globalThis.told = [];
  // At the window, because Firefox gives a frame's window another document.
  addEventListener('impersonation', ({ detail }) => globalThis.told.push(detail), true);
}

/**
 * Starts the browser of this name. `open` returns a tab. `profile` returns a new profile for many
 * tabs, which has their cookies and the addresses of their requests.
 */
export async function startTabs(name, origin = '') {
  return name === 'Chromium' ? chromium(origin) : firefox(origin);
}

async function chromium(origin) {
  const { browser } = await startBrowser(origin);
  const profile = async ({ width = 1000, height = 700, ...options } = {}) => {
    const context = await browser.newContext({ viewport: { width, height }, ...options });
    await context.addInitScript(reveal);
    const urls = [];
    context.on('request', (request) => urls.push(request.url()));
    const tabOf = (page) => {
      page.setDefaultTimeout(60_000);
      const wrong = [];
      page.on('console', (message) => ['error', 'warning'].includes(message.type()) && wrong.push(message.text()));
      page.on('pageerror', (error) => wrong.push(error.stack));
      return withPolling({
        page,
        wrong,
        evaluate: async (expression) => page.evaluate(expression),
        open: (next) => page.goto(`${origin}${next}`),
        key: (key) => page.keyboard.press(key),
        click: (x, y) => page.mouse.click(x, y),
        choose: (selector, file) => page.setInputFiles(selector, file),
        picture: (given) => page.screenshot(given),
        /** The text of the file that an action downloads. */
        async downloaded(action) {
          const [download] = await Promise.all([page.waitForEvent('download'), action()]);
          return readFileSync(await download.path(), 'utf8');
        },
        close: () => page.close(),
      });
    };
    const open = async (path) => {
      const tab = tabOf(await context.newPage());
      if (path) await tab.open(path);
      return tab;
    };
    /** The tab that an action opens. */
    const opened = async (action) => {
      const [page] = await Promise.all([context.waitForEvent('page'), action()]);
      return tabOf(page);
    };
    const cookies = async () => (await context.cookies()).map(({ domain, ...cookie }) => ({ host: domain, ...cookie }));
    return { open, opened, urls, cookies, close: () => context.close() };
  };
  const open = async (path, options) => {
    const own = await profile(options);
    return { ...await own.open(path), close: own.close };
  };
  return { open, profile, close: () => browser.close() };
}

const KEYS = { Tab: '\uE004', Enter: '\uE007', Escape: '\uE00C' };

async function firefox(origin) {
  const { send, wrong, events, folder, close } = await startFirefox(origin);
  await send('script.addPreloadScript', { functionDeclaration: `${reveal}` });
  const tabOf = (context) => {
    const perform = (type, actions) => send('input.performActions', { context, actions: [{ type, id: type, actions }] });
    const evaluate = async (expression) => {
      const { result, exceptionDetails } = await send('script.evaluate', {
        expression: `Promise.resolve(${expression}).then((value) => JSON.stringify(value))`,
        target: { context },
        awaitPromise: true,
      });
      if (exceptionDetails) throw new Error(exceptionDetails.text);
      return result.value === undefined ? undefined : JSON.parse(result.value);
    };
    return withPolling({
      wrong,
      evaluate,
      open: (next) => send('browsingContext.navigate', { context, url: `${origin}${next}`, wait: 'complete' }),
      key: (key) => perform('key', [{ type: 'keyDown', value: KEYS[key] ?? key }, { type: 'keyUp', value: KEYS[key] ?? key }]),
      click: (x, y) => perform('pointer', [
        { type: 'pointerMove', x: Math.round(x), y: Math.round(y) }, { type: 'pointerDown', button: 0 }, { type: 'pointerUp', button: 0 },
      ]),
      async choose(selector, file) {
        const { result: element } = await send('script.evaluate', { expression: `document.querySelector('${selector}')`, target: { context }, awaitPromise: false });
        await send('input.setFiles', { context, element, files: [file] });
      },
      async downloaded(action, name) {
        await action();
        const file = join(folder, name);
        await poll(() => existsSync(file) && readFileSync(file).length > 0);
        return readFileSync(file, 'utf8');
      },
      close: () => send('browsingContext.close', { context }),
    });
  };
  const openIn = async (userContext, path, { width = 1000, height = 700 } = {}) => {
    const { context } = await send('browsingContext.create', { type: 'tab', userContext });
    // The first tab never has the focus, and without it there is no full screen.
    await send('browsingContext.activate', { context });
    await send('browsingContext.setViewport', { context, viewport: { width, height } });
    const tab = tabOf(context);
    if (path) await tab.open(path);
    return tab;
  };
  const open = (path, options) => {
    wrong.splice(0);
    return openIn('default', path, options);
  };
  const profile = async (options) => {
    wrong.splice(0);
    const { userContext } = await send('browser.createUserContext');
    const urls = [];
    const note = ({ request }) => urls.push(request.url);
    events.on('network.beforeRequestSent', note);
    const opened = async (action) => {
      const created = new Promise((resolve) => {
        events.on('browsingContext.contextCreated', function isNew(info) {
          if (info.parent || info.userContext !== userContext) return;
          events.off('browsingContext.contextCreated', isNew);
          resolve(info.context);
        });
      });
      await action();
      return tabOf(await created);
    };
    return {
      open: (path) => openIn(userContext, path, options),
      opened,
      urls,
      async cookies() {
        const { cookies } = await send('storage.getCookies', { partition: { type: 'storageKey', userContext } });
        return cookies.map(({ domain, value, ...cookie }) => ({ ...cookie, host: domain, value: value.value }));
      },
      close() {
        events.off('network.beforeRequestSent', note);
        return send('browser.removeUserContext', { userContext });
      },
    };
  };
  return { open, profile, close };
}

function withPolling(tab) {
  /** While the tab goes to another page, there is nothing to ask. */
  const eventually = (expression) => poll(async () => {
    try {
      return await tab.evaluate(expression);
    } catch {
      return false;
    }
  }).catch(() => {
    throw new Error(`never true: ${expression}`);
  });
  /** Clicks on the middle of an element, once it is there. */
  const clickOn = async (element) => {
    await eventually(`!!${element}`);
    await tab.click(...await tab.evaluate(`(${element}.scrollIntoView({ block: 'center', behavior: 'instant' }),
      (({ left, top, width, height }) => [left + width / 2, top + height / 2])(${element}.getBoundingClientRect()))`));
  };
  return { ...tab, eventually, clickOn };
}
