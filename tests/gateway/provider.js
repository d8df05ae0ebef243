// The OpenID provider: npm `oidc-provider` set up as its documentation says, without anything made
// for the filter. `clients` has what a platform team must register with its own provider.
import { createHash, generateKeyPairSync, randomBytes, randomUUID } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { Provider, errors } from 'oidc-provider';

export const users = new Map([
  ['agent-1', { name: 'Ada Agent', email: 'ada@support.example' }],
  ['agent-2', { name: 'Ben Agent', email: 'ben@support.example' }],
  ['user-42', { name: 'Una User', email: 'una@customers.example' }],
  ['user-43', { name: 'Uwe User', email: 'uwe@customers.example' }],
]);

/** The end of a scripted sign-in. Nothing listens there: the code is read from the redirect. */
export const REDIRECT_URI = 'http://127.0.0.1/callback';

/** The management API under another name: as `resource` it gives an opaque token for the API. */
export const OPAQUE_API = 'urn:gateway:api:opaque';

/** Returns a private JWK for a provider to sign with. */
export function newSigningKey() {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return { ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), alg: 'ES256', use: 'sig' };
}

export function createProvider({ issuer, signingKey, secrets }) {
  const { origin } = new URL(issuer);

  // RFC 8707: a request with one of these as `resource` gets a JWT bound to it (RFC 9068). A
  // request without `resource` gets an opaque token without an audience. `OPAQUE_API` gives an
  // opaque token for the API.
  const resources = new Map([
    [`${origin}/api`, 'impersonate users:read impersonations:read impersonations:revoke'],
    [`${origin}/orders`, 'orders:read orders:write'],
    [`${origin}/invoices`, 'invoices:read'],
    [OPAQUE_API, 'impersonate users:read impersonations:read impersonations:revoke'],
  ]);

  const signsIn = {
    grant_types: ['authorization_code', 'refresh_token'],
    redirect_uris: [REDIRECT_URI],
    response_types: ['code'],
    scope: 'openid profile email orders:read orders:write',
  };
  const signsNobodyIn = { redirect_uris: [], response_types: [] };
  const clients = [
    {
      client_id: 'integrator-backend',
      client_secret: secrets.integratorBackend,
      grant_types: ['client_credentials'],
      scope: 'impersonate users:read',
      ...signsNobodyIn,
    },
    // The operators. Better have your gateway sign people in, so that the audit log names them.
    {
      client_id: 'operations',
      client_secret: secrets.operations,
      grant_types: ['client_credentials'],
      scope: 'impersonations:read impersonations:revoke',
      ...signsNobodyIn,
    },
    { client_id: 'support-portal', client_secret: secrets.supportPortal, ...signsIn },
    { client_id: 'support-console', token_endpoint_auth_method: 'none', ...signsIn },
    // The filter itself, for introspection. It gets no tokens of its own.
    {
      client_id: 'impersonation-filter',
      client_secret: secrets.introspection,
      grant_types: [],
      ...signsNobodyIn,
    },
  ];

  const provider = new Provider(issuer, {
    clients,
    clientDefaults: { id_token_signed_response_alg: signingKey.alg },
    jwks: { keys: [signingKey] },
    cookies: { keys: [randomBytes(32).toString('base64url')] },
    claims: { openid: ['sub'], profile: ['name'], email: ['email'] },
    // The APIs' scopes are listed here too, so that an opaque token can carry them.
    scopes: ['openid', 'profile', 'email', ...new Set([...resources.values()].join(' ').split(' '))],
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      introspection: {
        enabled: true,
        allowedPolicy: (_ctx, client) => client.clientId === 'impersonation-filter',
      },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo(_ctx, indicator) {
          const scope = resources.get(indicator);
          if (scope === undefined) throw new errors.InvalidTarget();
          if (indicator === OPAQUE_API) {
            return { scope, audience: `${origin}/api`, accessTokenFormat: 'opaque' };
          }
          return {
            scope,
            audience: indicator,
            accessTokenFormat: 'jwt',
            jwt: { sign: { alg: signingKey.alg } },
          };
        },
      },
    },
    interactions: { url: (_ctx, { uid }) => `/oidc/interaction/${uid}` },
    ttl: {
      AccessToken: 3600, ClientCredentials: 600, Grant: 86400, IdToken: 3600, Interaction: 600,
      RefreshToken: 86400, Session: 86400,
    },
    clientBasedCORS: () => false,
    findAccount: (_ctx, sub) => {
      const user = users.get(sub);
      return user && { accountId: sub, claims: () => ({ sub, ...user }) };
    },
    issueRefreshToken: (_ctx, client) => client.grantTypeAllowed('refresh_token'),
    // These clients belong to the house: no user is asked for consent.
    async loadExistingGrant({ oidc }) {
      const { accountId } = oidc.session;
      const grant = new oidc.provider.Grant({ accountId, clientId: oidc.client.clientId });
      grant.addOIDCScope(oidc.client.scope);
      grant.addResourceScope(`${origin}/orders`, resources.get(`${origin}/orders`));
      await grant.save();
      return grant;
    },
  });

  provider.proxy = true;
  provider.use(cacheableDocuments);
  return provider;
}

/**
 * Signs in the user that `login_hint` names, without a password and without a page, so that scripts
 * can sign in. A real identity gateway must never do this.
 */
export async function signInByHint(provider, request, response) {
  const { params } = await provider.interactionDetails(request, response);
  const result = users.has(params.login_hint)
    ? { login: { accountId: params.login_hint } }
    : { error: 'access_denied', error_description: 'login_hint names no user' };
  await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
}

/**
 * Serves key set and discovery document as providers behind a CDN do: with a validator, cacheable,
 * and compressed if asked. The validator is weak because it covers both codings.
 */
async function cacheableDocuments(ctx, next) {
  await next();
  if (ctx.status !== 200 || !['/jwks', '/.well-known/openid-configuration'].includes(ctx.path)) return;
  const json = JSON.stringify(ctx.body);
  const type = ctx.response.get('content-type');
  ctx.set('cache-control', 'public, max-age=60');
  ctx.set('etag', `W/"${createHash('sha256').update(json).digest('base64url')}"`);
  ctx.vary('accept-encoding');
  if (ctx.fresh) {
    ctx.status = 304;
    return;
  }
  if (ctx.acceptsEncodings('gzip', 'identity') === 'gzip') {
    ctx.body = gzipSync(json);
    ctx.set('content-encoding', 'gzip');
  } else {
    ctx.body = json;
  }
  ctx.set('content-type', type);
}
