// Nobody acts as an administrator, whatever the user is called: the roles are those of the user's own record.
// A record without roles says nothing, so it does not allow either.
const PROTECTED = ['admin', 'owner', 'auditor'];

const authorizeSubjectToken = ({ user, api }) => {
  if (!Array.isArray(user?.roles)) return api.denyAccess('The roles of this user are not known');
  if (user.roles.some((role) => PROTECTED.includes(role))) {
    return api.denyAccess('This user must not be impersonated');
  }
};
