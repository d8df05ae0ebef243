// The token's claims, by the names that such services have for them and by those of the RFCs.
const getCustomJwtClaims = async ({ token: { accountId, clientId, sub, client_id, aud, scope, act, ...others } }) => ({
  user: accountId,
  sameUser: accountId === sub,
  app: clientId,
  sameApp: clientId === client_id,
  api: Array.isArray(aud) ? aud[0] : aud,
  mayWrite: scope.split(' ').some((name) => name.endsWith(':write')),
  actor: act?.sub,
  has: Object.keys(others).filter((name) => !['accountId', 'clientId'].includes(name)).sort(),
});
