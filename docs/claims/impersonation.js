const getCustomJwtClaims = async ({ token, context, environmentVariables, api }) => {
  if (context.grant?.type !== 'urn:ietf:params:oauth:grant-type:token-exchange') return {};
  const { ticketId, reason, supportEngineerId } = context.grant.subjectTokenContext;
  if (!ticketId) return api.denyAccess('An impersonation needs a ticket');
  return { impersonation: { ticketId, reason, supportEngineerId, region: environmentVariables.REGION } };
};
