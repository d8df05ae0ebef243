// What is looked at: filters, search and order. The address has it behind `#`, so that a view can
// be shared, and no server writes the names into its log.
import { MEMBERS, ORDERS } from './live.js';

export function viewOf(hash) {
  const parameters = new URLSearchParams(hash.slice(1));
  const named = Object.keys(MEMBERS).filter((name) => parameters.get(name));
  const order = parameters.get('order');
  return {
    members: Object.fromEntries(named.map((name) => [name, parameters.get(name)])),
    search: parameters.get('search') ?? '',
    order: Object.hasOwn(ORDERS, order) ? order : 'newest',
  };
}

export function hashOf({ members, search, order }) {
  const parameters = new URLSearchParams({ ...members, ...(search && { search }), ...(order !== 'newest' && { order }) });
  return parameters.size > 0 ? `#${parameters}` : '';
}
