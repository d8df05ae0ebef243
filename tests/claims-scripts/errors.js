class TicketError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = 'TicketError';
  }
}

const check = (ticket) => {
  try {
    return JSON.parse(ticket);
  } catch (cause) {
    throw new TicketError('a ticket that is no JSON', { cause });
  }
};

const getCustomJwtClaims = async ({ context }) => {
  const results = [];
  for (const ticket of context.grant.subjectTokenContext.tickets) {
    try {
      results.push(check(ticket).id ?? 'no id');
    } catch (error) {
      if (!(error instanceof TicketError)) throw error;
      results.push(`${error.name}/${error.cause.name}/${error}`);
    } finally {
      results.push('|');
    }
  }
  return { results: results.join(' ') };
};
