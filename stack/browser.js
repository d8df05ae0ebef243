// The part of a browser that a scripted sign-in needs: it follows redirects and carries cookies.

/**
 * Opens `url` and follows redirects to the client's redirect URI, which it returns with its
 * parameters. On the way it fills the first form that it finds with `fields`, if there are any.
 */
export async function followTo(redirectUri, url, fields) {
  const cookies = new Map();
  let body;
  for (let hops = 0; hops < 10; hops += 1) {
    const response = await fetch(url, {
      method: body ? 'POST' : 'GET',
      body,
      redirect: 'manual',
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
    });
    const page = await response.text();
    for (const cookie of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie);
      cookies.set(name, value);
    }
    const location = response.headers.get('location');
    if (location === null) {
      const [, action] = /<form [^>]*action="([^"]*)"/.exec(page) ?? [];
      if (!action || !fields) throw new Error(`the sign-in stopped at ${url}: ${response.status} ${page}`);
      url = new URL(action.replaceAll('&amp;', '&'), url);
      body = new URLSearchParams(fields);
      fields = undefined;
      continue;
    }
    body = undefined;
    url = new URL(location, url);
    if (`${url.origin}${url.pathname}` === redirectUri) return url;
  }
  throw new Error(`the sign-in did not end at ${redirectUri}`);
}
