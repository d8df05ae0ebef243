// A page of another origin, with a private key that no script can read: what somebody copies from
// the page is worth nothing elsewhere.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { EXCHANGE } from '../stack/names.js';
import { stopAll } from '../stack/process.js';
import { withBinding } from '../stack/binding.js';
import { parties } from '../stack/client.js';
import { serve } from '../stack/server.js';
import { startStack } from '../stack/shipped.js';
import { startBrowser } from './stack.js';

let browser;
let origin; // of Envoy
let elsewhere; // the origin of the page
let exchange;

before(async () => {
  const { port } = await serve((request, response) => response.writeHead(200, { 'content-type': 'text/html' }).end('<title>page</title>'));
  elsewhere = `http://localhost:${port}`; // WebCrypto needs https or localhost
  ({ origin } = await startStack((yaml) => withBinding(yaml, { nonce: true })
    .replaceAll('http://localhost:3000', elsewhere)));
  ({ exchange } = await parties(origin));
  ({ browser } = await startBrowser(elsewhere));
});

after(async () => {
  await browser?.close();
  await stopAll();
});

/** Runs in the page: makes its key pair, and two functions that use it. */
async function becomeClient() {
  const { subtle } = crypto;
  const keys = await subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, false, ['sign', 'verify']);
  const base64url = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
  const utf8 = (text) => new TextEncoder().encode(text);
  const { kty, crv, x, y } = await subtle.exportKey('jwk', keys.publicKey);
  globalThis.prove = async (htm, htu, { token, nonce }) => {
    const header = { typ: 'dpop+jwt', alg: 'ES256', jwk: { kty, crv, x, y } };
    const claims = { jti: crypto.randomUUID(), htm, htu, iat: Math.floor(Date.now() / 1000), nonce };
    if (token) claims.ath = base64url(await subtle.digest('SHA-256', utf8(token)));
    const signed = [header, claims].map((part) => base64url(utf8(JSON.stringify(part)))).join('.');
    return `${signed}.${base64url(await subtle.sign({ name: 'ECDSA', hash: 'SHA-256' }, keys.privateKey, utf8(signed)))}`;
  };
  globalThis.send = async (url, { method = 'GET', headers = {}, form, token, nonce, proof }) => {
    proof ??= await globalThis.prove(method, url, { token, nonce });
    const body = form && new URLSearchParams(form);
    const answer = await fetch(url, { method, body, headers: { ...headers, dpop: proof, ...(token && { authorization: `DPoP ${token}` }) } });
    const text = await answer.text();
    return { status: answer.status, text, nonce: answer.headers.get('dpop-nonce') ?? undefined, proof };
  };
  // The name of the error, as the key cannot leave the browser.
  return subtle.exportKey('jwk', keys.privateKey).then(() => 'it can be read', ({ name }) => name);
}

const newPage = async () => {
  const page = await (await browser.newContext()).newPage();
  page.setDefaultTimeout(60_000);
  await page.goto(elsewhere);
  assert.equal(await page.evaluate(becomeClient), 'InvalidAccessError');
  return { send: (url, options) => page.evaluate(([url, options]) => globalThis.send(url, options), [url, options]) };
};

test('a page with a key that cannot be read impersonates, and a copy of its token does not', async () => {
  const page = await newPage();
  const form = { ...await exchange(), grant_type: EXCHANGE, client_id: 'support-console' };
  const ask = (nonce) => page.send(`${origin}/oidc/token`, { method: 'POST', form, nonce });
  const refused = await ask();
  assert.equal(refused.status, 400, refused.text);
  assert.equal(JSON.parse(refused.text).error, 'use_dpop_nonce');
  const granted = await ask(refused.nonce); // which the page may read
  assert.equal(granted.status, 200, granted.text);
  const { access_token: token, token_type } = JSON.parse(granted.text);
  assert.equal(token_type, 'DPoP');

  const orders = `${origin}/orders`;
  const read = await page.send(orders, { token });
  assert.equal(read.status, 200, read.text);
  assert.equal((await page.send(orders, { token })).status, 200, 'each request has a new proof');

  const thief = await newPage();
  assert.equal((await thief.send(orders, { token })).status, 401, 'another page has another key');
  assert.equal((await thief.send(orders, { token, proof: read.proof })).status, 401, 'the proof was used');
  for (const scheme of ['Bearer', 'DPoP']) {
    for (const more of [{}, { dpop: read.proof }]) {
      const stolen = await fetch(orders, { headers: { authorization: `${scheme} ${token}`, ...more } });
      assert.equal(stolen.status, 401, `${scheme}, ${Object.keys(more)}`);
    }
  }
});
