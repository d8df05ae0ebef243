// No one may act as an administrator. The roles come from the user's own record, so the user's name
// does not matter. A record without roles is refused too.
const PROTECTED = ['admin', 'owner', 'auditor'];

const authorizeSubjectToken = ({ user, api }) => {
  if (!Array.isArray(user?.roles)) return api.denyAccess('The roles of this user are not known');
  if (user.roles.some((role) => PROTECTED.includes(role))) {
    return api.denyAccess('This user must not be impersonated');
  }
};
