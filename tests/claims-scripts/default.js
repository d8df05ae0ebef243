/**
 * What the editor of such a service starts with.
 */
const getCustomJwtClaims = async ({ token, context, environmentVariables }) => {
  return {};
};
