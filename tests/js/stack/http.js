// Requests whose bytes and header fields are compared: fetch adds fields, and sets the host itself.
import { request as http } from 'node:http';
import { buffer } from 'node:stream/consumers';

/** Sends one request to a port of this machine, with `host` as the host. */
export async function ask({ port, host, path, method, headers = {}, form }) {
  const body = form && (typeof form === 'string' ? form : new URLSearchParams(form).toString());
  const response = await new Promise((resolve, reject) => {
    const fields = body === undefined ? {} : { 'content-type': 'application/x-www-form-urlencoded', 'content-length': Buffer.byteLength(body) };
    const request = http({ port, host: '127.0.0.1', path, method: method ?? (body === undefined ? 'GET' : 'POST'), headers: { host, ...fields, ...headers } });
    request.on('response', resolve).on('error', reject).end(body);
  });
  const text = (await buffer(response)).toString();
  return { status: response.statusCode, headers: response.headers, text, json: parsed(text) };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function basic(credentials) {
  return { authorization: `Basic ${Buffer.from(credentials.join(':')).toString('base64')}` };
}
