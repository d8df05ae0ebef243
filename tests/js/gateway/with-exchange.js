// A provider that has the grant itself, with which `make bench` compares the filter: the same
// `oidc-provider`, in the memory of one process, doing no more for an exchange than it must. It
// writes who minted and who exchanged to standard error, one line each, as the filter's audit log
// does.
//
// Prints a line of JSON: its port and a machine's access token that may mint.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { Provider, errors } from 'oidc-provider';
import { newSigningKey } from './provider.js';

const TOKEN_EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';
const ORDERS = 'https://api.example.com/orders';
const LIFETIME = 600;

const server = createServer();
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const { port } = server.address();

const orders = {
  scope: 'orders:read orders:write',
  audience: ORDERS,
  accessTokenFormat: 'jwt',
  accessTokenTTL: 3600,
  jwt: { sign: { alg: 'ES256' } },
};
const provider = new Provider(`http://127.0.0.1:${port}/oidc`, {
  clients: [
    {
      client_id: 'support-backend', client_secret: randomBytes(24).toString('hex'),
      grant_types: ['client_credentials'], redirect_uris: [], response_types: [],
    },
    {
      client_id: 'support-console', token_endpoint_auth_method: 'none',
      grant_types: [TOKEN_EXCHANGE], redirect_uris: [], response_types: [],
    },
  ],
  clientDefaults: { id_token_signed_response_alg: 'ES256' },
  jwks: { keys: [newSigningKey()] },
  cookies: { keys: [randomBytes(32).toString('base64url')] },
  scopes: ['openid', 'impersonate', 'orders:read', 'orders:write'],
  features: { clientCredentials: { enabled: true }, devInteractions: { enabled: false } },
  findAccount: (_ctx, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
});

const audit = (event) => process.stderr.write(`${JSON.stringify(event)}\n`);

/** The outstanding subject tokens: token → user, context, expiry. */
const outstanding = new Map();

provider.registerGrantType(TOKEN_EXCHANGE, async (ctx) => {
  const { params, client } = ctx.oidc;
  const subject = outstanding.get(params.subject_token);
  if (params.subject_token_type !== ACCESS_TOKEN || !(subject?.expires > Date.now())) {
    throw new errors.InvalidRequest('the subject token is invalid');
  }
  if (params.resource !== ORDERS) throw new errors.InvalidTarget();
  const scope = params.scope.split(' ').filter((one) => orders.scope.split(' ').includes(one)).join(' ');
  if (scope === '') throw new errors.InvalidScope('no scope can be granted', params.scope);
  outstanding.delete(params.subject_token);
  const token = new provider.AccessToken({ accountId: subject.userId, client, scope, gty: 'token_exchange' });
  token.resourceServer = new provider.ResourceServer(ORDERS, orders);
  const accessToken = await token.save();
  audit({
    event: 'token_exchange.succeeded', user_id: subject.userId, client_id: client.clientId, caller: subject.caller,
    resource: ORDERS, scope, jti: token.jti,
  });
  ctx.body = {
    access_token: accessToken,
    issued_token_type: ACCESS_TOKEN,
    token_type: 'Bearer',
    expires_in: token.expiration,
    scope,
  };
}, ['resource', 'scope', 'subject_token', 'subject_token_type']);

const oidc = provider.callback();
server.on('request', (request, response) => {
  if (request.method === 'POST' && request.url === '/api/subject-tokens') {
    mint(request, response).catch(() => response.writeHead(400).end());
    return;
  }
  request.originalUrl = request.url;
  request.url = request.url.slice('/oidc'.length);
  oidc(request, response);
});

async function mint(request, response) {
  const token = await provider.ClientCredentials.find(request.headers.authorization?.slice('Bearer '.length));
  if (!token?.scopes.has('impersonate')) return void response.writeHead(403).end();
  let body = '';
  for await (const chunk of request) body += chunk;
  const { userId, context = {} } = JSON.parse(body);
  const subjectToken = `sub_${randomBytes(32).toString('base64url')}`;
  const caller = token.clientId;
  outstanding.set(subjectToken, { userId, context, caller, expires: Date.now() + LIFETIME * 1000 });
  audit({ event: 'subject_token.created', user_id: userId, caller });
  const answer = JSON.stringify({ subjectToken, expiresIn: LIFETIME });
  response.writeHead(201, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(answer) });
  response.end(answer);
}

const client = await provider.Client.find('support-backend');
const bearer = await new provider.ClientCredentials({ client, scope: 'impersonate' }).save();
console.log(JSON.stringify({ port, bearer }));
