"""An API that verifies tokens by PyJWT, with the key set that discovery names. Prints their claims as JSON."""

import json
import sys
from urllib.request import urlopen

import jwt

given = json.loads(sys.argv[1])
with urlopen(f"{given['issuer']}/.well-known/openid-configuration", timeout=60) as answer:
    keys = jwt.PyJWKClient(json.load(answer)["jwks_uri"], timeout=60)
claims = []
for token in given["tokens"]:
    key = keys.get_signing_key_from_jwt(token)
    claims.append(jwt.decode(token, key, algorithms=given["algorithms"], issuer=given["issuer"], audience=given["audience"]))
print(json.dumps(claims))
