// Debian's Firefox, by WebDriver BiDi (https://w3c.github.io/webdriver-bidi/). playwright-core drives
// only a Firefox of its own.
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import WebSocket from 'ws';
import { poll, ROOT } from '../stack/envoy.js';
import { start } from '../stack/process.js';

const LISTENS = /WebDriver BiDi listening on (ws:\S+)/;

/** Starts Firefox with a new profile, and one tab. Call `close` afterwards. */
export async function startFirefox(origin) {
  const profile = mkdtempSync(join(tmpdir(), 'firefox-'));
  let socket;
  try {
    const firefox = await start('Firefox', `${ROOT}scripts/firefox`, ['--remote-debugging-port', '0', '--profile', profile, '--no-remote', 'about:blank'], {
      ready: LISTENS,
      timeout: 120_000,
    });
    const [, address] = LISTENS.exec(await firefox.printed(LISTENS));
    socket = new WebSocket(`${address}/session`);
    await once(socket, 'open');
    return await tabOf(socket, origin, async () => {
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

async function tabOf(socket, origin, close) {
  const waiting = new Map();
  const wrong = [];
  let sent = 0;
  socket.on('message', (text) => {
    const { id, type, method, params, result, error, message } = JSON.parse(text);
    if (type === 'event') {
      if (method === 'log.entryAdded' && ['error', 'warn'].includes(params.level)) wrong.push(`${params.level}: ${params.text}`);
      if (method === 'network.beforeRequestSent') {
        const url = new URL(params.request.url);
        if (url.protocol.startsWith('http') && url.origin !== origin) wrong.push(`request elsewhere: ${url}`);
      }
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
  await send('session.subscribe', { events: ['log.entryAdded', 'network.beforeRequestSent'] });
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
