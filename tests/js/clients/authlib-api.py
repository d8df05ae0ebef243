"""An API that verifies tokens by Authlib as RFC 9068 has it. Prints their claims as JSON."""

import json
import sys

import requests
from authlib.oauth2.rfc9068 import JWTBearerTokenValidator

given = json.loads(sys.argv[1])


class Validator(JWTBearerTokenValidator):
    def get_jwks(self):
        document = requests.get(f"{self.issuer}/.well-known/openid-configuration", timeout=60).json()
        return requests.get(document["jwks_uri"], timeout=60).json()


validator = Validator(given["issuer"], given["audience"])
claims = []
for token in given["tokens"]:
    verified = validator.authenticate_token(token)
    validator.validate_token(verified, [given["scope"]], None)
    claims.append(dict(verified))
print(json.dumps(claims))
