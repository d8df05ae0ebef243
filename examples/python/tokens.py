"""The verification of access tokens (RFC 9068), for the backend and for the API."""

import os
import time

import httpx
from fastapi import HTTPException, Request
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

ISSUER = os.environ["ISSUER"]
known = {"keys": KeySet([]), "since": 0.0}


def fetch_keys():
    """Fetches the issuer's keys, but at most every five seconds: anybody can name an unknown key."""
    if time.monotonic() - known["since"] > 5:
        document = httpx.get(f"{ISSUER}/.well-known/openid-configuration").raise_for_status().json()
        key_set = KeySet.import_key_set(httpx.get(document["jwks_uri"]).raise_for_status().json())
        known.update(keys=key_set, since=time.monotonic())


def verified(token: str, audiences: list[str]) -> dict:
    try:
        parsed = jwt.decode(token, known["keys"], algorithms=["ES256"])
    except InvalidKeyIdError:
        fetch_keys()
        parsed = jwt.decode(token, known["keys"], algorithms=["ES256"])
    if parsed.header.get("typ", "").lower() not in ("at+jwt", "application/at+jwt"):
        raise ValueError("not an access token")
    jwt.JWTClaimsRegistry(
        iss={"essential": True, "value": ISSUER},
        aud={"essential": True, "values": audiences},
        exp={"essential": True},
        sub={"essential": True},
    ).validate(parsed.claims)
    return parsed.claims


def bearer(*audiences: str):
    """Returns a dependency: the claims of the request's access token, which is for `audiences`.

    The scheme may be DPoP, too: the guard has verified the proof.
    """

    def claims(request: Request) -> dict:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        try:
            if scheme.lower() not in ("bearer", "dpop"):
                raise ValueError("no token")
            return verified(token, list(audiences))
        except (JoseError, ValueError):
            raise HTTPException(401, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'}) from None

    return claims
