const getCustomJwtClaims = async ({ token, environmentVariables }) => {
  const { REGION = 'nowhere', TENANTS, LIMIT, UNSET = 'unset', ...others } = environmentVariables;
  const tenants = JSON.parse(TENANTS);

  return {
    region: REGION,
    tenant: tenants[token.sub]?.name,
    limit: Number.parseInt(LIMIT, 10) * 2,
    unset: UNSET,
    others: Object.entries(others).map(([name, value]) => `${name}=${value}`),
  };
};
