// Only people on call may act. ON_CALL lists them, separated by spaces. The mint must name the
// actor in `actorId`, and only that person can use the token.
const authorizeSubjectToken = ({ bounds, environmentVariables, api }) => {
  const onCall = environmentVariables.ON_CALL.split(' ');
  if (!bounds.actorId) return api.denyAccess('actorId must name who is acting');
  if (!onCall.includes(bounds.actorId)) return api.denyAccess('Who is acting is not on call');
};
