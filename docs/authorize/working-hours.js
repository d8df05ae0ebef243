// From 8 to 18, Monday to Friday, by the offset that UTC_OFFSET gives: "+01:00". There is no clock but `Date`, and it
// knows no time zones, so an offset is what there can be; it is changed in the configuration when the clocks are.
const offsetInMinutes = (text) => {
  const [, sign, hours, minutes] = /^([+-])(\d\d):(\d\d)$/.exec(text);
  return (sign === '-' ? -1 : 1) * (60 * hours + Number(minutes));
};

const authorizeSubjectToken = ({ context, environmentVariables, api }) => {
  const local = new Date(Date.now() + offsetInMinutes(environmentVariables.UTC_OFFSET) * 60_000);
  const [day, hour] = [local.getUTCDay(), local.getUTCHours()];
  const working = day >= 1 && day <= 5 && hour >= 8 && hour < 18;
  if (!working && context.emergency !== true) return api.denyAccess('Only from 8 to 18, Monday to Friday');
  // What is done at night is short.
  if (!working) return { expiresIn: 60, accessTokenExpiresIn: 300 };
};
