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
  ['vip-1', { name: 'Vera Vip', email: 'vera@customers.example' }],
  ['oncall-1', { name: 'Olga Oncall', email: 'olga@support.example' }],
  ['auditor-1', { name: 'Abe Auditor', email: 'abe@support.example' }],
  ['approver-1', { name: 'Anna Approver', email: 'anna@support.example' }],
]);

/** The people who may look at impersonations, end them, or approve them. Nobody else may. */
const oversight = new Map([
  ['oncall-1', 'impersonations:read impersonations:revoke impersonations:approve'],
  ['auditor-1', 'impersonations:read'],
  ['approver-1', 'impersonations:approve'],
  ['agent-2', 'impersonations:approve'],
]);

/** The end of a scripted sign-in. Nothing listens there: the code is read from the redirect. */
export const REDIRECT_URI = 'http://127.0.0.1/callback';

/** The end of a scripted logout. Nothing listens there, either. */
export const SIGNED_OUT_URI = 'http://127.0.0.1/signed-out';

/** The management API under another name: as `resource` it gives an opaque token for the API. */
export const OPAQUE_API = 'urn:gateway:api:opaque';

/** Returns a private JWK for a provider to sign with. */
export function newSigningKey() {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return { ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), alg: 'ES256', use: 'sig' };
}

/**
 * `envoy` is the address at which the provider reaches Envoy, and `support` the origin of the
 * support console of the demo.
 */
export function createProvider({ issuer, signingKey, secrets, envoy, support }) {
  const { origin } = new URL(issuer);

  // RFC 8707: a request with one of these as `resource` gets a JWT bound to it (RFC 9068). A
  // request without `resource` gets an opaque token without an audience. `OPAQUE_API` gives an
  // opaque token for the API.
  const resources = new Map([
    [`${origin}/api`, 'impersonate users:read impersonations:read impersonations:revoke impersonations:approve'],
    [`${origin}/orders`, 'orders:read orders:write'],
    [`${origin}/invoices`, 'invoices:read'],
    [OPAQUE_API, 'impersonate users:read impersonations:read impersonations:revoke impersonations:approve'],
    // The backend of a support console (examples/), which agents ask.
    [`${support}/impersonations`, 'support:ask'],
  ]);

  const signsIn = {
    grant_types: ['authorization_code', 'refresh_token'],
    redirect_uris: [REDIRECT_URI],
    response_types: ['code'],
    scope: 'openid profile email orders:read orders:write support:ask',
    // Says that an agent has logged out. The filter asks `userinfo` about actor tokens, which does
    // not name the session: so the logout tokens do not name it, either.
    backchannel_logout_uri: `${origin}/oidc/backchannel-logout`,
    backchannel_logout_session_required: false,
    post_logout_redirect_uris: [SIGNED_OUT_URI],
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
    {
      client_id: 'support-portal',
      client_secret: secrets.supportPortal,
      ...signsIn,
      redirect_uris: [REDIRECT_URI, `${support}/callback`],
    },
    {
      client_id: 'support-console',
      token_endpoint_auth_method: 'none',
      ...signsIn,
      redirect_uris: [REDIRECT_URI, `${support}/`],
    },
    // The filter's page, for people on call and for those who approve.
    {
      client_id: 'oncall',
      token_endpoint_auth_method: 'none',
      grant_types: ['authorization_code'],
      redirect_uris: [`${origin}/impersonations/`],
      response_types: ['code'],
      scope: 'openid impersonations:read impersonations:revoke impersonations:approve',
    },
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
      backchannelLogout: { enabled: true },
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      rpInitiatedLogout: { enabled: true, logoutSource: askIfSure },
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
    // By default the library delivers no logout to loopback and private addresses, and gives up
    // after 2.5 seconds.
    fetch(url, { dispatcher, signal, ...options }) {
      const path = url.startsWith(`${origin}/`) && url.slice(origin.length);
      if (!path) return fetch(url, { dispatcher, signal, ...options });
      return fetch(envoy + path, { ...options, signal: AbortSignal.timeout(30_000) });
    },
    interactions: { url: (_ctx, { uid }) => `/oidc/interaction/${uid}` },
    ttl: {
      AccessToken: 3600, ClientCredentials: 600, Grant: 86400, IdToken: 3600, Interaction: 600,
      RefreshToken: 86400, Session: 86400,
    },
    // The page at the gateway's own origin and the support console redeem codes by themselves.
    clientBasedCORS: (_ctx, from) => [origin, support].includes(from),
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
      for (const api of [`${origin}/orders`, `${support}/impersonations`]) grant.addResourceScope(api, resources.get(api));
      if (oidc.client.clientId === 'oncall') {
        const all = resources.get(`${origin}/api`).split(' ').filter((scope) => scope.startsWith('impersonations:'));
        const allowed = (oversight.get(accountId) ?? '').split(' ');
        grant.addResourceScope(`${origin}/api`, allowed.join(' '));
        grant.rejectResourceScope(`${origin}/api`, all.filter((scope) => !allowed.includes(scope)).join(' '));
      }
      await grant.save();
      return grant;
    },
  });

  provider.proxy = true;
  provider.on('backchannel.error', (_ctx, error, client) => console.error(`logout not delivered for ${client.clientId}:`, error));
  provider.use(cacheableDocuments);
  return provider;
}

/**
 * Signs in the user that `login_hint` names, without a password and without a page, so that scripts
 * can sign in. Without it, a page asks who it is; it asks for no password, either. A real identity
 * gateway must never do this.
 */
export async function signInByHint(provider, request, response) {
  const { params, prompt } = await provider.interactionDetails(request, response);
  if (params.login_hint === undefined && request.method !== 'POST') return askWho(response);
  const login = params.login_hint ?? new URLSearchParams(await textOf(request)).get('login');
  const result = users.has(login)
    ? { login: { accountId: login } }
    : { error: 'access_denied', error_description: params.login_hint === undefined ? `${prompt.name} was cancelled` : 'login_hint names no user' };
  await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
}

function askWho(response) {
  const buttons = [...users].map(([id, { name }]) => `<p><button name="login" value="${id}">${id} (${name})</button></p>`);
  response.writeHead(200, { 'content-type': 'text/html; charset=utf-8', 'cache-control': 'no-store' });
  response.end(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Sign in</title>
<link rel="icon" href="data:,"><style>body { font: 16px/1.5 system-ui, sans-serif; color-scheme: light dark; max-width: 24em; margin: 10vh auto; }</style>
<h1>Who are you?</h1><p>This gateway is for trying things out: it asks for no password.</p>
<form method="post">${buttons.join('')}<p><button name="login" value="">Cancel</button></p></form></html>`);
}

/** The page of a logout, with the library's form. */
function askIfSure(ctx, form) {
  ctx.type = 'html';
  ctx.body = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Sign out</title>
<link rel="icon" href="data:,"><style>body { font: 16px/1.5 system-ui, sans-serif; color-scheme: light dark; max-width: 24em; margin: 10vh auto; }</style>
<h1>Sign out?</h1>${form.replace('</form>', '<p><button name="logout" value="yes">Sign out</button></p></form>')}</html>`;
}

async function textOf(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
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
