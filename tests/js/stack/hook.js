// A hook for the demo: it is told what happens to impersonations, verifies that the filter has told
// it (https://www.standardwebhooks.com), and keeps each event.
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { text } from 'node:stream/consumers';
import { poll, replacedOnce } from './envoy.js';
import { serve } from './server.js';

/** Starts a hook. `secret` is for the filter's HOOK_SECRET. */
export async function startHook() {
  const key = randomBytes(32);
  const events = [];
  const { port } = await serve(async (request, response) => {
    const body = await text(request);
    const signed = isSigned(request.headers, body, key);
    if (signed) events.push(JSON.parse(body));
    response.writeHead(signed ? 204 : 401).end();
  });

  /** Resolves with the first event of a type about a subject token. */
  const told = async (type, subject) => {
    let event;
    await poll(() => (event = events.find((one) => one.type === type && one.subject === subject)) !== undefined);
    return event;
  };
  return { secret: `whsec_${key.toString('base64')}`, port, told };
}

/** Returns envoy.yaml with the hook that is commented there. */
export function withHook(yaml, { port }) {
  const commented = /^( *)# (notifications:\n)\1# (- http_uri: \{uri: )[^,]*(.*\n)\1# (.*HOOK_SECRET\}\n)/m;
  const hook = `$1$2$1$3http://127.0.0.1:${port}/$4$1$5`;
  const cluster = `  - name: hooks
    connect_timeout: 1s
    type: STATIC
    load_assignment:
      cluster_name: hooks
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: ${port}}}}
`;
  return [
    [commented, hook],
    [/(host_env_keys: \[[^\]]*)/, '$1, HOOK_SECRET'],
    [/^ {2}clusters:\n/m, `$&${cluster}`],
  ].reduce((edited, [pattern, text_]) => replacedOnce(edited, pattern, text_), yaml);
}

function isSigned({ 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signatures = '' }, body, key) {
  const expected = createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest();
  return signatures.split(' ').some((signature) => {
    const given = Buffer.from(signature.replace(/^v1,/, ''), 'base64');
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
}
