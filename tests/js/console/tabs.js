// One tab of Chromium or of Firefox with the same few functions, so that a rule is written once.
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

/** Starts the browser of this name. `open` returns a tab. */
export async function startTabs(name, origin) {
  return name === 'Chromium' ? chromium(origin) : firefox(origin);
}

async function chromium(origin) {
  const { browser } = await startBrowser(origin);
  const open = async (path, { width = 1000, height = 700, ...options } = {}) => {
    const context = await browser.newContext({ viewport: { width, height }, ...options });
    await context.addInitScript(reveal);
    const page = await context.newPage();
    page.setDefaultTimeout(60_000);
    const wrong = [];
    page.on('console', (message) => ['error', 'warning'].includes(message.type()) && wrong.push(message.text()));
    page.on('pageerror', (error) => wrong.push(error.stack));
    const evaluate = async (expression) => page.evaluate(expression);
    const tab = {
      page,
      wrong,
      evaluate,
      open: (next) => page.goto(`${origin}${next}`),
      key: (key) => page.keyboard.press(key),
      click: (x, y) => page.mouse.click(x, y),
      picture: (options) => page.screenshot(options),
      close: () => context.close(),
    };
    if (path) await tab.open(path);
    return withPolling(tab);
  };
  return { open, close: () => browser.close() };
}

const KEYS = { Tab: '\uE004', Enter: '\uE007', Escape: '\uE00C' };

async function firefox(origin) {
  const { send, wrong, close } = await startFirefox(origin);
  await send('script.addPreloadScript', { functionDeclaration: `${reveal}` });
  const open = async (path, { width = 1000, height = 700 } = {}) => {
    wrong.splice(0);
    const { context } = await send('browsingContext.create', { type: 'tab' });
    // The first tab never has the focus, and without it there is no full screen.
    await send('browsingContext.activate', { context });
    await send('browsingContext.setViewport', { context, viewport: { width, height } });
    const perform = (type, actions) => send('input.performActions', { context, actions: [{ type, id: type, actions }] });
    const tab = {
      wrong,
      async evaluate(expression) {
        const { result, exceptionDetails } = await send('script.evaluate', {
          expression: `Promise.resolve(${expression}).then((value) => JSON.stringify(value))`,
          target: { context },
          awaitPromise: true,
        });
        if (exceptionDetails) throw new Error(exceptionDetails.text);
        return result.value === undefined ? undefined : JSON.parse(result.value);
      },
      open: (next) => send('browsingContext.navigate', { context, url: `${origin}${next}`, wait: 'complete' }),
      key: (key) => perform('key', [{ type: 'keyDown', value: KEYS[key] }, { type: 'keyUp', value: KEYS[key] }]),
      click: (x, y) => perform('pointer', [
        { type: 'pointerMove', x: Math.round(x), y: Math.round(y) }, { type: 'pointerDown', button: 0 }, { type: 'pointerUp', button: 0 },
      ]),
      close: () => send('browsingContext.close', { context }),
    };
    if (path) await tab.open(path);
    return withPolling(tab);
  };
  return { open, close };
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
  return { ...tab, eventually };
}
