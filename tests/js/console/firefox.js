// Debian's Firefox, by WebDriver BiDi (https://w3c.github.io/webdriver-bidi/). playwright-core drives
// only a Firefox of its own.
import { EventEmitter, once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import WebSocket from 'ws';
import { poll, ROOT } from '../stack/envoy.js';
import { start } from '../stack/process.js';

const LISTENS = /WebDriver BiDi listening on (ws:\S+)/;

/**
 * Starts Firefox with a new profile, and one tab. Requests to another origin are wrong, if there is
 * one. Downloads go to `folder`. `events` emits those of the protocol by method. Call `close`
 * afterwards.
 */
export async function startFirefox(origin) {
  const profile = mkdtempSync(join(tmpdir(), 'firefox-'));
  // A page of JSON is then a page like any other, and a file goes into the profile.
  writeFileSync(join(profile, 'user.js'), Object.entries({
    'devtools.jsonview.enabled': false, 'browser.download.folderList': 2, 'browser.download.dir': profile,
  }).map(([name, value]) => `user_pref("${name}", ${JSON.stringify(value)});\n`).join(''));
  let socket;
  try {
    const firefox = await start('Firefox', `${ROOT}scripts/firefox`, ['--remote-debugging-port', '0', '--profile', profile, '--no-remote', 'about:blank'], {
      ready: LISTENS,
      timeout: 120_000,
    });
    const [, address] = LISTENS.exec(await firefox.printed(LISTENS));
    socket = new WebSocket(`${address}/session`);
    await once(socket, 'open');
    return await tabOf(socket, origin, profile, async () => {
      socket.close();
      await firefox.stop();
      rmSync(profile, { recursive: true, force: true });
    });
  } catch (error) {
    socket?.close();
    rmSync(profile, { recursive: true, force: true });
    throw error;
  }
}

async function tabOf(socket, origin, folder, close) {
  const waiting = new Map();
  const wrong = [];
  const events = new EventEmitter();
  let sent = 0;
  socket.on('message', (text) => {
    const { id, type, method, params, result, error, message } = JSON.parse(text);
    if (type === 'event') {
      if (method === 'log.entryAdded' && ['error', 'warn'].includes(params.level)) wrong.push(`${params.level}: ${params.text}`);
      if (method === 'network.beforeRequestSent') {
        const url = new URL(params.request.url);
        if (origin && url.protocol.startsWith('http') && url.origin !== origin) wrong.push(`request elsewhere: ${url}`);
      }
      events.emit(method, params);
      return;
    }
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (error) reject(new Error(`${error}: ${message}`));
    else resolve(result);
  });
  const send = (method, params = {}) => new Promise((resolve, reject) => {
    sent += 1;
    waiting.set(sent, { resolve, reject });
    socket.send(JSON.stringify({ id: sent, method, params }));
  });
  socket.on('close', () => waiting.forEach(({ reject }) => reject(new Error('Firefox is gone'))));
  await send('session.new', { capabilities: {} });
  await send('session.subscribe', { events: ['log.entryAdded', 'network.beforeRequestSent', 'browsingContext.contextCreated'] });
  const { contexts: [{ context }] } = await send('browsingContext.getTree');
  /** The value of an expression in the page, as JSON. */
  const evaluate = async (expression) => {
    const { result, exceptionDetails } = await send('script.evaluate', {
      expression: `JSON.stringify(${expression})`, target: { context }, awaitPromise: true,
    });
    if (exceptionDetails) throw new Error(exceptionDetails.text);
    return result.value === undefined ? undefined : JSON.parse(result.value);
  };
  // While the tab goes to another page, there is nothing to ask.
  const eventually = (expression) => poll(async () => {
    try {
      return await evaluate(expression);
    } catch {
      return false;
    }
  });
  const named = (name) => `[...document.querySelectorAll('button')].find((one) => (one.ariaLabel ?? one.textContent).trim() === ${JSON.stringify(name)})`;
  return {
    wrong,
    events,
    folder,
    send,
    evaluate,
    eventually,
    close,
    open: (url) => send('browsingContext.navigate', { context, url, wait: 'complete' }),
    sees: (text) => eventually(`document.body.innerText.includes(${JSON.stringify(text)})`),
    async press(name) {
      await eventually(`!!${named(name)}`);
      await evaluate(`(${named(name)}.click(), true)`);
    },
  };
}
