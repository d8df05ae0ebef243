"""Mints, lists and ends by a client that openapi-python-client has made from docs/openapi.yaml."""

import json
import sys

origin, backend, operator, folder = sys.argv[1:]
sys.path.insert(0, folder)

from api.api.backend import mint_subject_token
from api.api.operator import end_impersonations, list_impersonations
from api.client import AuthenticatedClient
from api.models import ImpersonationList, MintRequest, MintResponse, RevocationRequest, RevocationResponse


def as_bearer(token):
    return AuthenticatedClient(origin, token)


minted = mint_subject_token.sync(client=as_bearer(backend), body=MintRequest(user_id="user-42", actor_id="agent-7"))
assert isinstance(minted, MintResponse), minted
listed = list_impersonations.sync(client=as_bearer(operator), actor_id="agent-7")
assert isinstance(listed, ImpersonationList), listed
ended = end_impersonations.sync(client=as_bearer(operator), body=RevocationRequest(actor_id="agent-7"))
assert isinstance(ended, RevocationResponse), ended
print(json.dumps({
    "token": minted.subject_token[:4],
    "complete": listed.complete,
    "actors": [one.actor_id for one in listed.impersonations],
    "ended": ended.ended,
}))
