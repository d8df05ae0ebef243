// The part of a browser that a scripted sign-in needs: it follows redirects and carries cookies.

/**
 * Opens `url` and follows redirects to the client's redirect URI, which it returns with its
 * parameters.
 */
export async function followTo(redirectUri, url) {
  const cookies = new Map();
  for (let hops = 0; hops < 10; hops += 1) {
    const response = await fetch(url, {
      redirect: 'manual',
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
    });
    const page = await response.text();
    const location = response.headers.get('location');
    if (location === null) throw new Error(`the sign-in stopped at ${url}: ${response.status} ${page}`);
    for (const cookie of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie);
      cookies.set(name, value);
    }
    url = new URL(location, url);
    if (`${url.origin}${url.pathname}` === redirectUri) return url;
  }
  throw new Error(`the sign-in did not end at ${redirectUri}`);
}
