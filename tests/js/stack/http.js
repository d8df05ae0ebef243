// Requests whose bytes and header fields are compared: fetch adds fields, and sets the host itself.
import { request } from 'node:http';
import { buffer } from 'node:stream/consumers';

/**
 * Sends one request to a port of this machine, with `host` as the host if it is another. The body
 * is `json` or `form`, `token` an access token.
 */
export async function ask({ port, host, path, method, headers = {}, token, json, form, agent }) {
  const body = json === undefined ? form && (typeof form === 'string' ? form : new URLSearchParams(form).toString()) : JSON.stringify(json);
  const type = json === undefined ? 'application/x-www-form-urlencoded' : 'application/json';
  const fields = {
    ...(host && { host }),
    ...(token && { authorization: `Bearer ${token}` }),
    ...(body !== undefined && { 'content-type': type, 'content-length': Buffer.byteLength(body) }),
    ...headers,
  };
  const response = await new Promise((resolve, reject) => {
    const asked = request({ port, host: '127.0.0.1', path, method: method ?? (body === undefined ? 'GET' : 'POST'), headers: fields, agent });
    asked.on('response', resolve).on('error', reject).end(body);
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
