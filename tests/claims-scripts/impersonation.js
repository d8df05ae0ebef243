/**
 * Called while an access token is made.
 *
 * @param {Object} payload - What the function is given.
 * @param {Object} payload.token - The claims of the token.
 * @param {Object} payload.context - Why it is issued.
 * @param {Object} [payload.environmentVariables] - What the operator has set.
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
