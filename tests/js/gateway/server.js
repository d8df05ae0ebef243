// The identity gateway behind Envoy in the tests, in `make run` and in docker-compose.yml: an
// OpenID provider below /oidc, the management API's users below /api/users, and two small APIs
// (/orders, /invoices) for Envoy to guard.
//
// From the environment, all of it optional:
//   HOST, PORT   where to listen (127.0.0.1:9000; port 0 picks one)
//   API_PORT     where the APIs listen, if not there (9001, unless PORT is given)
//   ISSUER       the public address, that is Envoy's (http://127.0.0.1:10000/oidc)
//   ENVOY_ORIGIN where this process reaches Envoy, to report logouts (the origin of ISSUER)
//   CONSOLE_ORIGIN   the support console of the demo (http://localhost:3000)
//   GATEWAY_SIGNING_KEY   private JWK; without it a key is made at start and lost at the end
//   INTEGRATOR_BACKEND_SECRET, OPERATIONS_SECRET, SUPPORT_PORTAL_SECRET, INTROSPECTION_SECRET
//                the clients' secrets; the defaults are for trying things out, and say so
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createLocalJWKSet, jwtVerify } from 'jose';
import { createProvider, newSigningKey, signInByHint, users } from './provider.js';

const { env } = process;
const issuer = new URL(env.ISSUER ?? 'http://127.0.0.1:10000/oidc');
const signingKey = env.GATEWAY_SIGNING_KEY ? JSON.parse(env.GATEWAY_SIGNING_KEY) : newSigningKey();
const provider = createProvider({
  issuer: issuer.href,
  signingKey,
  envoy: env.ENVOY_ORIGIN ?? issuer.origin,
  support: env.CONSOLE_ORIGIN ?? 'http://localhost:3000',
  secrets: {
    integratorBackend: env.INTEGRATOR_BACKEND_SECRET ?? 'demo-only-integrator-backend',
    operations: env.OPERATIONS_SECRET ?? 'demo-only-operations',
    supportPortal: env.SUPPORT_PORTAL_SECRET ?? 'demo-only-support-portal',
    introspection: env.INTROSPECTION_SECRET ?? 'demo-only-impersonation-filter',
  },
});
provider.on('server_error', (_ctx, error) => console.error(error));
const oidc = provider.callback();

const API_ROUTES = [
  [/^\/(orders|invoices)(?:\/|$)/, serveResource],
];
const GATEWAY_ROUTES = [
  [/^\/oidc\/interaction\/[\w-]+$/, (request, response) => signInByHint(provider, request, response)],
  [/^\/oidc\//, serveProvider],
  [/^\/api\/users\/([^/]+)$/, serveUser],
];
const apiPort = env.API_PORT ?? (env.PORT ? undefined : 9001);
const port = await listen(env.PORT ?? 9000, apiPort ? GATEWAY_ROUTES : [...GATEWAY_ROUTES, ...API_ROUTES]);
if (apiPort) await listen(apiPort, API_ROUTES);
console.log(`ready on ${port}`);
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(0));

/** Serves these routes. Returns the port. */
async function listen(port, routes) {
  const server = createServer((request, response) => answer(routes, request, response));
  // Longer than Envoy keeps an idle connection (envoy.yaml), so that Envoy never uses a closed one.
  server.keepAliveTimeout = 75_000;
  server.listen(Number(port), env.HOST ?? '127.0.0.1');
  await once(server, 'listening');
  return server.address().port;
}

function answer(routes, request, response) {
  // The gateway's documents depend on ISSUER only, never on a header that a caller sets.
  request.headers.host = issuer.host;
  request.headers['x-forwarded-proto'] = issuer.protocol.slice(0, -1);
  delete request.headers['x-forwarded-host'];

  const path = request.url.split('?', 1)[0];
  for (const [pattern, serve] of routes) {
    const match = pattern.exec(path);
    if (match === null) continue;
    Promise.resolve(serve(request, response, match[1])).catch((error) => {
      console.error(error);
      if (!response.headersSent) json(response, 500, { error: 'server_error' });
    });
    return;
  }
  json(response, 404, { error: 'not_found' });
}

function serveProvider(request, response) {
  request.originalUrl = request.url;
  request.url = request.url.slice('/oidc'.length);
  return oidc(request, response);
}

/**
 * The management API: says whether a user exists, to machines whose token has the scope
 * `users:read`.
 */
async function serveUser(request, response, segment) {
  const scopes = await scopesOf(request.headers.authorization);
  if (scopes === undefined) {
    response.setHeader('www-authenticate', 'Bearer realm="api", error="invalid_token"');
    return json(response, 401, { error: 'invalid_token' });
  }
  if (!scopes.includes('users:read')) {
    response.setHeader('www-authenticate', 'Bearer realm="api", error="insufficient_scope", scope="users:read"');
    return json(response, 403, { error: 'insufficient_scope' });
  }
  const id = decode(segment);
  const user = users.get(id);
  return user ? json(response, 200, { id, ...user }) : json(response, 404, { error: 'not_found' });
}

/**
 * Returns the scopes of a machine's valid access token, opaque or JWT; undefined for anything else.
 */
async function scopesOf(authorization = '') {
  const token = /^Bearer +(\S+)$/i.exec(authorization)?.[1];
  if (token === undefined) return undefined;
  const opaque = await provider.ClientCredentials.find(token);
  if (opaque) return [...opaque.scopes];
  try {
    const { d, ...publicKey } = signingKey;
    const { payload } = await jwtVerify(token, createLocalJWKSet({ keys: [publicKey] }), {
      issuer: issuer.href,
      audience: `${issuer.origin}/api`,
      typ: 'at+jwt',
    });
    return payload.scope?.split(' ') ?? [];
  } catch {
    return undefined;
  }
}

/** An API that leaves its protection to Envoy, and shows the claims that Envoy has verified. */
function serveResource(request, response, resource) {
  const payload = request.headers['x-jwt-payload'];
  json(response, 200, {
    resource,
    method: request.method,
    path: request.url,
    claims: payload === undefined ? null : JSON.parse(Buffer.from(payload, 'base64url')),
    // The guard says who is acting.
    impersonation: { id: request.headers['x-impersonation-id'], actor: request.headers['x-impersonator'] },
    oddNames: Object.keys(request.headers).filter((name) => /[^a-z0-9-]/.test(name)),
  });
}

function json(response, status, body) {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return undefined;
  }
}
