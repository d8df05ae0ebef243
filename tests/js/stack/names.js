// The names that the gateway of tests/js/gateway, envoy.yaml and their clients share.

export const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
export const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';

/** The secret of each client that has one: for trying things out. */
export const SECRETS = {
  'impersonation-filter': 'demo-only-impersonation-filter',
  'integrator-backend': 'demo-only-integrator-backend',
  operations: 'demo-only-operations',
  'support-portal': 'demo-only-support-portal',
};

/** Returns a client as `basic` of a request. */
export const client = (id) => [id, SECRETS[id]];

/** The end of a scripted sign-in. Nothing listens there: the code is read from the redirect. */
export const REDIRECT_URI = 'http://127.0.0.1/callback';
