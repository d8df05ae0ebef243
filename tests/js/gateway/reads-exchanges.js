// The gateway's own reading of a token request, for comparison with the filter's in
// tests/differential: the same `oidc-provider`, with the token-exchange grant and another one
// registered as documented. It issues nothing: it answers which of the two grants was requested,
// and with which subject token.
//
// Prints its port, and ends with its standard input.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { Provider } from 'oidc-provider';
import { newSigningKey } from './provider.js';

const TOKEN_EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const ANOTHER = 'urn:example:another';

const server = createServer();
// The server never closes a connection first: a lost request would count as one that was not read.
server.keepAliveTimeout = 0;
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const { port } = server.address();

const provider = new Provider(`http://127.0.0.1:${port}/oidc`, {
  clients: [{
    client_id: 'support-console', token_endpoint_auth_method: 'none',
    grant_types: [TOKEN_EXCHANGE, ANOTHER], redirect_uris: [], response_types: [],
  }],
  clientDefaults: { id_token_signed_response_alg: 'ES256' },
  jwks: { keys: [newSigningKey()] },
  cookies: { keys: [randomBytes(32).toString('base64url')] },
  features: { devInteractions: { enabled: false } },
});

const parameters = ['audience', 'resource', 'scope', 'subject_token', 'subject_token_type'];
// As forgiving as a gateway may be: it looks at all values of a repeated parameter.
provider.registerGrantType(TOKEN_EXCHANGE, (ctx) => {
  const tokens = [ctx.oidc.params.subject_token ?? []].flat().filter((token) => token !== '');
  ctx.body = tokens.length > 0 ? { exchange: tokens } : { error: 'invalid_request' };
}, parameters, parameters);
provider.registerGrantType(ANOTHER, (ctx) => {
  ctx.body = { another: true };
}, parameters, parameters);

// Many gateways decode a body by the charset of its content type. oidc-provider looks for the
// charset on the context, where koa 3 does not have it, so it is copied there.
provider.use((ctx, next) => {
  ctx.charset = ctx.request.charset;
  return next();
});

const oidc = provider.callback();
server.on('request', (request, response) => {
  request.originalUrl = request.url;
  request.url = request.url.slice('/oidc'.length);
  oidc(request, response);
});

console.log(port);
process.stdin.on('end', () => process.exit(0)).resume();
