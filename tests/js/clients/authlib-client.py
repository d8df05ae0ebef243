"""Runs the flow of plays.js with Authlib. Argument and output are JSON."""

import json
import os
import sys
import time

# Discovery is read over loopback here.
os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"

import requests
from authlib.integrations.requests_client import OAuth2Session
from authlib.oauth2.rfc7523 import PrivateKeyJWT
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from authlib.oidc.discovery import get_well_known_url
from joserfc.jwk import ECKey


class Assertion(PrivateKeyJWT):
    """An assertion that is good for a minute: by default Authlib makes it good for an hour."""

    def sign(self, auth, token_endpoint):
        # Authlib adds a `jti` to these claims, and would use it again.
        self.claims = {"exp": int(time.time()) + 60}
        return super().sign(auth, token_endpoint)


given = json.loads(sys.argv[1])
document = requests.get(get_well_known_url(given["issuer"], external=True), timeout=60).json()
# OpenID Connect also requires RS256, which is up to the gateway.
metadata = AuthorizationServerMetadata(document)
metadata.validate()

# Authlib has one option for each of the two endpoints.
endpoints = [] if given["method"] == "default" else ["token", "revocation"]
options = {f"{endpoint}_endpoint_auth_method": given["method"] for endpoint in endpoints}
with OAuth2Session(*given["client"], **options) as session:
    if given["method"] == "private_key_jwt":
        # In place of the secret there is a key. The audience is the issuer, not the endpoint.
        session.client_secret = ECKey.import_key(session.client_secret)
        session.register_client_auth_method(Assertion(given["issuer"], alg="ES256"))
    granted = session.fetch_token(
        metadata["token_endpoint"],
        grant_type="urn:ietf:params:oauth:grant-type:token-exchange",
        **given["exchange"],
    )
    token = granted["access_token"]

    def is_active():
        return session.introspect_token(metadata["introspection_endpoint"], token=token).json()["active"]

    live = is_active()
    session.revoke_token(metadata["revocation_endpoint"], token=token).raise_for_status()
    print(json.dumps({
        "scope": granted["scope"], "type": granted["token_type"].lower(), "live": live, "ended": is_active(),
    }))
