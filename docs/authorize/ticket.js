// The ticket's number must have the right form. The backend must check that the ticket exists.
const authorizeSubjectToken = ({ context, api }) => {
  if (typeof context.ticketId !== 'string' || !/^[A-Z]{2,5}-[1-9]\d{0,6}$/.test(context.ticketId)) {
    return api.denyAccess('ticketId must be a ticket such as SUP-1001');
  }
};
