// A service of this family has the user at hand; an impersonation at the gateway has not. A script that
// expects that gives what it gives for a user without any of it.
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
