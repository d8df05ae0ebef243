/**
 * The text with which the editor of such a service starts.
 */
const getCustomJwtClaims = async ({ token, context, environmentVariables }) => {
  return {};
};
