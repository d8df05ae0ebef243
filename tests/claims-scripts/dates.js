const DAY = 24 * 60 * 60 * 1000;

const getCustomJwtClaims = async ({ context }) => {
  const { opened, days = 14 } = context.grant.subjectTokenContext;
  const date = new Date(opened);
  const due = new Date(date.getTime() + days * DAY);
  const now = new Date();

  return {
    opened: date.toISOString(),
    due: due.toISOString().slice(0, 10),
    weekday: ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'][due.getUTCDay()],
    year: due.getUTCFullYear(),
    seconds: Math.floor(date.valueOf() / 1000),
    overdue: Date.now() > due,
    sane: now.getTime() > Date.UTC(2025, 0, 1) && now - date > 0,
    invalid: String(new Date('no date').getTime()),
    json: JSON.parse(JSON.stringify({ date })).date,
  };
};
