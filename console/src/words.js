// Numbers and times in words.

const counts = new Intl.NumberFormat('en');
const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });

/** Less time than this is called soon. */
export const SOON_MS = 120_000;

export function counted(number) {
  return counts.format(number);
}

export function count(number, one = 'impersonation', many = `${one}s`) {
  return `${counted(number)} ${number === 1 ? one : many}`;
}

/** The time, and the day if it is not today. */
export function since(time, now) {
  const date = day.format(time);
  return date === day.format(now) ? clock.format(time) : `${date}, ${clock.format(time)}`;
}

const two = (number) => String(number).padStart(2, '0');

/** `1:02:03` or `2:03`. */
export function left(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1_000));
  const [hours, minutes] = [Math.floor(seconds / 3_600), Math.floor(seconds / 60) % 60];
  return hours > 0 ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
}

export function age(ms) {
  const seconds = Math.max(0, Math.round(ms / 1_000));
  return seconds < 120 ? count(seconds, 'second') : count(Math.round(seconds / 60), 'minute');
}
