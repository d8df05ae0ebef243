// A script for another grant, which does nothing in this one.
const getCustomJwtClaims = async ({ context }) => {
  if (context.grant?.type !== 'client_credentials') return {};
  return { robot: true };
};
