// A service of this family gives scripts the user's data; the filter does not. The script gives the
// same claims as for a user without data.
const getCustomJwtClaims = async ({ token, context, environmentVariables }) => {
  const { user, organization, application } = context;
  const roles = user?.roles ?? [];
  const scopes = roles.flatMap(({ scopes }) => scopes?.map(({ name }) => name) ?? []);
  const claims = {
    email: user?.primaryEmail,
    roles: roles.map((role) => role.name),
    tenant: user?.customData?.tenant ?? 'none',
    organizations: user?.organizations?.map(({ id }) => id)?.join(' '),
    plan: organization?.customData?.['plan']?.toUpperCase?.() ?? null,
    robot: Boolean(application),
  };
  if (scopes.length > 0) {
    claims['scopes'] = scopes;
  }
  return claims;
};
