// The output of a demo: titles, requests as curl lines, answers. An unexpected answer ends the
// demo.
import { setTimeout as pause } from 'node:timers/promises';
import { curl, send } from './requests.js';

const PATIENCE_MS = 30_000;

export class FlowError extends Error {}

/** Shows and sends one request. Sends it again if the answer asks to retry. */
export async function show(request, expected) {
  console.log(`$ ${curl(request)}`);
  const deadline = Date.now() + PATIENCE_MS;
  let response = await send(request);
  while (response.status === 503 && Date.now() < deadline) {
    await pause(Number(response.headers.get('retry-after') ?? 1) * 1000);
    response = await send(request);
  }
  console.log(`${response.status} ${response.reason}`);
  if (response.json) print(shortened(response.json));
  else console.log(response.text);
  check(response.status === expected, `expected status ${expected}`);
  return response.json;
}

/** Shortens JWTs: their text tells a reader nothing. */
function shortened(body) {
  return JSON.parse(JSON.stringify(body, (_name, value) => (
    typeof value === 'string' && value.length > 100 ? `${value.slice(0, 40)}…` : value
  )));
}

export function check(condition, what) {
  if (!condition) throw new FlowError(what);
}

export function title(text) {
  console.log(`\n# ${text}`);
}

export function print(value) {
  console.log(JSON.stringify(value, null, 2));
}
