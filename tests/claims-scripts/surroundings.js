// Globals that scripts look for before they use them. They belong to hosts, not to JavaScript, and
// are absent.
const names = ['fetch', 'XMLHttpRequest', 'URL', 'URLSearchParams', 'TextEncoder', 'TextDecoder', 'atob', 'btoa', 'crypto',
  'setTimeout', 'setInterval', 'structuredClone', 'process', 'require', 'module', 'exports', 'Buffer', 'window', 'self'];

const getCustomJwtClaims = async () => ({
  there: names.filter((name) => name in globalThis || typeof globalThis[name] !== 'undefined'),
  console: typeof console?.log,
});
