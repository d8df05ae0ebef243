// The gateways of docs/gateways/more.md, each with what its operator registers in it. Each starts
// on `port`, with `origin` as the public address, and has an agent who signs in with `fields`.
import { randomUUID } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { poll } from '../stack/envoy.js';
import { REDIRECT_URI, SECRETS } from '../stack/names.js';
import { freePorts } from '../stack/process.js';
import { serve } from '../stack/server.js';
import { newSigningKey } from '../stack/signing-key.js';
import { FILES, startInGo } from './programs.js';

const MACHINE = SECRETS['integrator-backend'];
export const SIGNED_OUT_URI = 'http://127.0.0.1/signed-out';

/** Spring Authorization Server, as Spring Boot sets it up. It has one user. */
export const spring = {
  name: 'Spring Authorization Server 7.1',
  machine: ['integrator-backend', MACHINE],
  agent: 'agent-1',
  fields: { username: 'agent-1', password: 'demo-only-agent-1' },
  async start({ port, origin, runInJava }) {
    const server = 'spring.security.oauth2.authorizationserver';
    const client = (id, secret, registration) => Object.fromEntries(Object.entries({
      'client-id': id, 'client-secret': `{noop}${secret}`, 'client-authentication-methods': 'client_secret_basic', ...registration,
    }).map(([member, value]) => [`${server}.client.${id}.registration.${member}`, value]));
    await runInJava('authorization-server', {
      'server.port': port,
      'server.address': '127.0.0.1',
      'spring.security.user.name': 'agent-1',
      'spring.security.user.password': 'demo-only-agent-1',
      [`${server}.issuer`]: origin,
      ...client('integrator-backend', MACHINE, { 'authorization-grant-types': 'client_credentials', scopes: 'impersonate' }),
      ...client('support-portal', SECRETS['support-portal'], {
        'authorization-grant-types': 'authorization_code', 'redirect-uris': REDIRECT_URI, scopes: 'openid',
      }),
    });
  },
};

/** The example provider of zitadel/oidc. A user has the id of its service user, `sid1`. */
export const zitadel = {
  name: 'zitadel/oidc 3.51, its example',
  machine: ['sid1', 'verysecret'],
  scope: 'impersonate openid',
  introspection: 'verysecret',
  agent: 'agent-1',
  fields: { username: 'agent-1', password: 'demo-only-agent-1' },
  async start({ port, origin }) {
    const file = written(`users-${port}.json`, Object.fromEntries(['sid1', zitadel.agent].map((id) => [id, {
      ID: id, Username: id, Password: id === zitadel.agent ? zitadel.fields.password : randomUUID(), PreferredLanguage: 'en',
    }])));
    await startInGo('provider', [`127.0.0.1:${port}`, origin, file], { ready: /^ready$/ });
  },
};

/** Ory Hydra, with its data in memory, and a login app that signs everybody in as the agent. */
export const hydra = {
  name: 'Ory Hydra 2.3',
  machine: ['integrator-backend', MACHINE],
  agent: 'agent-1',
  audience: 'impersonation-filter',
  async start({ port, origin }) {
    const [admin] = await freePorts(1);
    const app = await startLoginApp(admin);
    const file = written(`hydra-${port}.json`, {
      dsn: 'memory',
      serve: { public: { host: '127.0.0.1', port }, admin: { host: '127.0.0.1', port: admin } },
      urls: { self: { issuer: origin, public: origin }, login: `${app}/login`, consent: `${app}/consent`, logout: `${app}/logout` },
      secrets: { system: ['demo-only-hydra-system'] },
      strategies: { access_token: 'jwt' },
      oauth2: { allowed_top_level_claims: ['sid'] },
      sqa: { opt_out: true },
    });
    await startInGo('hydra', ['serve', 'all', '--dev', '--config', file], { ready: /Setting up http server on 127\.0\.0\.1/ });
    const administer = async (method, path, body) => {
      const response = await fetch(`http://127.0.0.1:${admin}/admin${path}`, { method, body: JSON.stringify(body) });
      if (!response.ok) throw new Error(`Hydra has refused ${path}: ${await response.text()}`);
    };
    const client = (body) => administer('POST', '/clients', { audience: [hydra.audience], ...body });
    for (const listening of [admin, port]) {
      await poll(() => fetch(`http://127.0.0.1:${listening}/health/ready`).then(({ ok }) => ok, () => false));
    }
    // Hydra would make keys of 4096 bits, one for each request that comes before it has one.
    for (const set of ['hydra.openid.id-token', 'hydra.jwt.access-token']) {
      await administer('PUT', `/keys/${set}`, { keys: [{ ...newSigningKey('RS256'), kid: randomUUID() }] });
    }
    await client({ client_id: 'integrator-backend', client_secret: MACHINE, grant_types: ['client_credentials'], scope: 'impersonate' });
    await client({
      client_id: 'support-portal', client_secret: SECRETS['support-portal'], grant_types: ['authorization_code'], response_types: ['code'],
      scope: 'openid', redirect_uris: [REDIRECT_URI], post_logout_redirect_uris: [SIGNED_OUT_URI],
      backchannel_logout_uri: `${origin}/api/backchannel-logout`,
    });
  },
};

/** Dex, whose access tokens are made as ID tokens are. It has no grant for machines. */
export const dex = {
  name: 'Dex 2.45',
  fields: { login: 'admin@example.com', password: 'password' },
  async start({ port, origin }) {
    const file = written(`dex-${port}.json`, {
      issuer: origin,
      storage: { type: 'memory' },
      web: { http: `127.0.0.1:${port}` },
      oauth2: { skipApprovalScreen: true },
      enablePasswordDB: true,
      // The user of Dex's own example, with its hash.
      staticPasswords: [{
        email: dex.fields.login, username: 'admin', userID: '08a8684b-db88-4b73-90a9-3cd1661f5466',
        hash: '$2a$10$2b2cU8CPhOTaGrs1HRQuAueS7JTT5ZHsHSzYiFPm1leZck7Mc8T4W',
      }],
      staticClients: [{ id: 'support-portal', secret: SECRETS['support-portal'], name: 'Support portal', redirectURIs: [REDIRECT_URI] }],
    });
    await startInGo('dex', ['serve', file], { ready: /listening on/, env: { ...process.env, DEX_EXPAND_ENV: 'false' } });
  },
};

/** Writes a file of a gateway, and returns its name. */
function written(name, content) {
  mkdirSync(FILES, { recursive: true });
  writeFileSync(`${FILES}/${name}`, JSON.stringify(content));
  return `${FILES}/${name}`;
}

/**
 * Starts the app that Hydra leaves login, consent and logout to. It puts the session's id into the
 * access token, as docs/gateways/more.md says. `admin` is the port of Hydra's administration.
 */
async function startLoginApp(admin) {
  const accept = async (kind, challenge, answer) => {
    const requests = `http://127.0.0.1:${admin}/admin/oauth2/auth/requests/${kind}`;
    const request = await (await fetch(`${requests}?${kind}_challenge=${challenge}`)).json();
    const accepted = await fetch(`${requests}/accept?${kind}_challenge=${challenge}`, { method: 'PUT', body: JSON.stringify(answer(request)) });
    return (await accepted.json()).redirect_to;
  };
  const answers = {
    login: () => ({ subject: hydra.agent, remember: true }),
    consent: (request) => ({
      grant_scope: request.requested_scope,
      grant_access_token_audience: request.requested_access_token_audience,
      session: { access_token: { sid: request.login_session_id } },
    }),
    logout: () => ({}),
  };
  const { port } = await serve((request, response) => {
    const { pathname, searchParams } = new URL(request.url, 'http://127.0.0.1');
    const kind = pathname.slice(1);
    accept(kind, searchParams.get(`${kind}_challenge`), answers[kind]).then(
      (location) => response.writeHead(302, { location }).end(),
      (error) => response.writeHead(500).end(String(error)),
    );
  });
  return `http://127.0.0.1:${port}`;
}
