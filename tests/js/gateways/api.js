// An API that leaves its protection to Envoy, and shows the claims that Envoy has verified.
import { serve } from '../stack/server.js';

export const startApi = (port) => serve((request, response) => {
  request.resume();
  const { 'x-jwt-payload': payload, 'x-impersonator': impersonator } = request.headers;
  const { sub, act, aud } = payload === undefined ? {} : JSON.parse(Buffer.from(payload, 'base64url'));
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ method: request.method, sub, act, aud, impersonator }));
}, port);
