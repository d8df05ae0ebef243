// Allows mints from 8 to 18, Monday to Friday. UTC_OFFSET is the offset of local time, such as
// "+01:00": `Date` knows no time zones here. Change it in the configuration when daylight saving
// time begins or ends.
const offsetInMinutes = (text) => {
  const [, sign, hours, minutes] = /^([+-])(\d\d):(\d\d)$/.exec(text);
  return (sign === '-' ? -1 : 1) * (60 * hours + Number(minutes));
};

const authorizeSubjectToken = ({ context, environmentVariables, api }) => {
  const local = new Date(Date.now() + offsetInMinutes(environmentVariables.UTC_OFFSET) * 60_000);
  const [day, hour] = [local.getUTCDay(), local.getUTCHours()];
  const working = day >= 1 && day <= 5 && hour >= 8 && hour < 18;
  if (!working && context.emergency !== true) return api.denyAccess('Only from 8 to 18, Monday to Friday');
  // Tokens for emergencies at night are short-lived.
  if (!working) return { expiresIn: 60, accessTokenExpiresIn: 300 };
};
