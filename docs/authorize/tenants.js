// One backend for each tenant's support staff, and each for that tenant's users only. Whose users they are is in
// the user's record; which backend is whose is in TENANTS, as JSON: {"acme-support": "acme"}.
const authorizeSubjectToken = ({ caller, user, environmentVariables, api }) => {
  const tenants = new Map(Object.entries(JSON.parse(environmentVariables.TENANTS)));
  const tenant = tenants.get(caller.clientId);
  if (tenant === undefined || user?.tenant !== tenant) return api.denyAccess('This user belongs to somebody else');
  return { resource: `https://${tenant}.example.com/api` };
};
