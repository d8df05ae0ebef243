// Yours: where the console finds the other parts.
export const issuer = 'http://127.0.0.1:10000/oidc';
export const api = 'http://127.0.0.1:10000'; // behind the guard
export const resource = 'http://127.0.0.1:10000/orders'; // its indicator
export const sessions = 'http://as-user.localhost:10080'; // below it, each session has a host
export const backend = `${location.origin}/impersonations`;
export const insecure = true; // for http on this machine alone
