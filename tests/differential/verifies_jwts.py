"""What PyJWT makes of tokens: reads lines of base64, a token each, from standard input, and answers each with its
claims as JSON, or null where it does not verify.

  python verifies_jwts.py '{"keys": [...], "issuer": ..., "audiences": [...], "algorithms": [...]}'
"""

import base64
import json
import sys

import jwt

expected = json.loads(sys.argv[1])
keys = [jwt.PyJWK(key) for key in expected["keys"]]


def claims(token):
    for key in keys:
        try:
            return jwt.decode(
                token, key, expected["algorithms"], audience=expected["audiences"], issuer=expected["issuer"]
            )
        except Exception:  # not only PyJWT's own: whatever it stumbles over, it does not verify
            continue
    return None


for line in sys.stdin:
    print(json.dumps(claims(base64.b64decode(line).decode())))
