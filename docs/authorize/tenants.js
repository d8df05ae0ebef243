// Each tenant has a support backend of its own, which may mint for that tenant's users only. The
// user's record names the user's tenant. TENANTS maps backends to tenants, as JSON:
// {"acme-support": "acme"}.
const authorizeSubjectToken = ({ caller, user, environmentVariables, api }) => {
  const tenants = new Map(Object.entries(JSON.parse(environmentVariables.TENANTS)));
  const tenant = tenants.get(caller.clientId);
  if (tenant === undefined || user?.tenant !== tenant) return api.denyAccess('This user belongs to somebody else');
  return { resource: `https://${tenant}.example.com/api` };
};
