// An API that leaves its protection to Envoy, and shows the claims that Envoy has verified.
import { once } from 'node:events';
import { createServer } from 'node:http';

export async function startApi(port) {
  const server = createServer((request, response) => {
    request.resume();
    const { 'x-jwt-payload': payload, 'x-impersonator': impersonator } = request.headers;
    const { sub, act, aud } = payload === undefined ? {} : JSON.parse(Buffer.from(payload, 'base64url'));
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ method: request.method, sub, act, aud, impersonator }));
  });
  server.keepAliveTimeout = 75_000; // longer than Envoy keeps an idle connection
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  return server;
}
