// Written for another grant, and harmless in this one.
const getCustomJwtClaims = async ({ context }) => {
  if (context.grant?.type !== 'client_credentials') return {};
  return { robot: true };
};
