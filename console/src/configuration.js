// What the filter writes at the end of the page, as JSON:
//
//   issuer          the issuer of the identity gateway
//   discovery       the path of its discovery document, on the page's own origin
//   clientId, scopes   who signs in, and for what; `resource` (RFC 8707) if the gateway needs one
//   impersonations  the path of the list
//   approvals       the path of the list of what waits for approval; absent if nothing does

export const configuration = JSON.parse(document.getElementById('configuration').textContent);

/** The page's own address, which is the redirect URI, too. */
export const ADDRESS = location.origin + location.pathname;
