// The fields of ECS 9 that the export uses, with their types and allowed values
// (generated/csv/fields.csv and generated/ecs/ecs_flat.yml of ECS 9).

/** The types that ECS expects for each category that the export uses. */
export const TYPES = {
  api: ['access', 'admin', 'allowed', 'change', 'creation', 'deletion', 'denied', 'end', 'info', 'start', 'user'],
  authentication: ['start', 'end', 'info'],
  configuration: ['access', 'change', 'creation', 'deletion', 'info'],
  iam: ['admin', 'change', 'creation', 'deletion', 'group', 'info', 'user'],
  intrusion_detection: ['allowed', 'denied', 'info'],
  session: ['start', 'end', 'info'],
  web: ['access', 'error', 'info'],
};

const keyword = { type: 'string' };
const long = { type: 'number' };

export const ECS = {
  '@timestamp': keyword,
  'ecs.version': keyword,
  'event.action': keyword,
  'event.category': { ...keyword, values: Object.keys(TYPES) },
  'event.dataset': keyword,
  'event.duration': long,
  'event.kind': { ...keyword, values: ['alert', 'event'] },
  'event.module': keyword,
  'event.outcome': { ...keyword, values: ['failure', 'success', 'unknown'] },
  'event.reason': keyword,
  'event.type': { ...keyword, values: Object.values(TYPES).flat() },
  'client.address': keyword,
  'client.ip': keyword,
  'error.code': keyword,
  'http.request.id': keyword,
  'http.request.method': keyword,
  'http.response.status_code': long,
  'related.user': keyword,
  'url.path': keyword,
  'user.effective.id': keyword,
  'user.id': keyword,
  'user.target.id': keyword,
};

/** Returns the fields of an event by their paths. A list is one field. */
export function leaves(object, before = '') {
  return Object.entries(object).flatMap(([name, value]) => {
    const nested = value && typeof value === 'object' && !Array.isArray(value);
    return nested ? leaves(value, `${before}${name}.`) : [[before + name, value]];
  });
}
