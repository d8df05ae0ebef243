// Only who is on call acts: ON_CALL lists them, with spaces between. The mint must say for whom it asks, and the
// token is then good for that person alone.
const authorizeSubjectToken = ({ bounds, environmentVariables, api }) => {
  const onCall = environmentVariables.ON_CALL.split(' ');
  if (!bounds.actorId) return api.denyAccess('actorId must name who is acting');
  if (!onCall.includes(bounds.actorId)) return api.denyAccess('Who is acting is not on call');
};
