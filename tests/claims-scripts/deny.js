const getCustomJwtClaims = async ({ token, context, environmentVariables, api }) => {
  const { ticketId } = context.grant?.subjectTokenContext ?? {};
  const [project] = environmentVariables.PROJECTS.split(',').filter((name) => ticketId?.startsWith(`${name}-`));

  if (!project) {
    return api.denyAccess(`Ticket "${ticketId}" is of no project that may impersonate`);
  }

  return { project };
};
