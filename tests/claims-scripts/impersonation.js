/**
 * Called for each access token.
 *
 * @param {Object} payload - The input of the function.
 * @param {Object} payload.token - The claims of the token.
 * @param {Object} payload.context - The reason for the token.
 * @param {Object} [payload.environmentVariables] - The operator's settings.
 *
 * @returns {Promise<Object>} The custom claims.
 */
const getCustomJwtClaims = async ({ token, context, environmentVariables }) => {
  const { grant } = context;

  if (grant?.type === 'urn:ietf:params:oauth:grant-type:token-exchange') {
    const { subjectTokenContext } = grant;

    return {
      impersonation_context: {
        ticket_id: subjectTokenContext.ticketId,
        reason: subjectTokenContext.reason,
        support_engineer_id: subjectTokenContext.supportEngineerId,
      },
    };
  }

  return {};
};
