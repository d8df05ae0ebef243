"""Compares the filter's answers with docs/openapi.yaml, for requests that it allows and others.

The argument is JSON: the filter's address and the callers' credentials. The output is JSON: the
number of answers of each status, by operation. The program fails at the first answer that is not
described, and shows the request.
"""

import collections
import itertools
import json
import sys

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi import checks

asked = json.loads(sys.argv[1])
origin, who, examples = asked["origin"], asked["who"], asked["examples"]
load_all_checks()
schemathesis.serializer.alias("application/secevent+jwt", "text/plain")

ALWAYS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    schemathesis.checks.not_a_server_error,
]
# The operations whose body is the filter's own JSON. In OAuth's forms unknown parameters are
# ignored.
STRICT = ["mintSubjectToken", "endImpersonations", "listImpersonations"]

# The operations of people who approve.
APPROVING = ["listApprovals", "decide"]

session = requests.Session()
seen = collections.defaultdict(collections.Counter)


def mint(**bounds):
    answer = session.post(
        f"{origin}/api/subject-tokens",
        json={"userId": "user-42", "context": {"ticketId": "T-1"}, **bounds},
        headers={"authorization": f"Bearer {who['backend']}"},
    )
    assert answer.status_code == 201, answer.text
    return answer


def exchange_form(subject_token):
    return {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "scope": "orders:read",
        "subject_token": subject_token,
        "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "resource": asked["resource"],
        "actor_token": who["actor"],
        "actor_token_type": "urn:ietf:params:oauth:token-type:access_token",
    }


def exchange():
    answer = session.post(f"{origin}/oidc/token", data=exchange_form(mint().json()["subjectToken"]), auth=tuple(who["client"]))
    assert answer.status_code == 200, answer.text
    return answer.json()["access_token"]


def give_a_token(case):
    """Gives half of the requests a real token: an invented one only reaches the first check."""
    token = exchange()
    case.body["token"] = token


def give_a_subject_token(case):
    case.body.update(exchange_form(mint().json()["subjectToken"]))


def give_an_id(case):
    case.path_parameters["id"] = mint().headers["location"].rsplit("/", 1)[1]


def give_what_waits(case):
    case.path_parameters["id"] = mint(approvals=1).headers["location"].rsplit("/", 1)[1]


def give_bounds_that_can_be_met(case):
    for bound in ["clientId", "resource", "scope", "actorId", "expiresIn", "accessTokenExpiresIn", "approvals", "consent", "breakGlass"]:
        case.body.pop(bound, None)


def give_a_logout_token(case):
    case.body = {"logout_token": who["logout token"]}


def give_an_event(case):
    case.body = who["event"]


REAL = {
    "receiveLogoutToken": give_a_logout_token,
    "receiveSecurityEvent": give_an_event,
    "exchangeSubjectToken": give_a_subject_token,
    "revokeToken": give_a_token,
    "introspectToken": give_a_token,
    "cancelSubjectToken": give_an_id,
    "showSubjectToken": give_an_id,
    "endImpersonation": give_an_id,
    "mintSubjectToken": give_bounds_that_can_be_met,
    "decide": give_what_waits,
    "listApprovals": lambda case: case.query.pop("cursor", None),
    "listImpersonations": lambda case: case.query.pop("cursor", None),
}


def identify(case, name):
    """Returns the credentials of a caller who may use the operation."""
    if name in ["mintSubjectToken", "cancelSubjectToken", "showSubjectToken"]:
        return {"headers": {"authorization": f"Bearer {who['backend']}"}}
    if name in ["listImpersonations", "endImpersonation", "endImpersonations"]:
        return {"headers": {"authorization": f"Bearer {who['operator']}"}}
    if name in APPROVING:
        return {"headers": {"authorization": f"Bearer {who['approver']}"}}
    if name in ["exchangeSubjectToken", "revokeToken", "introspectToken"]:
        for other in ["client_id", "client_secret"]:
            if isinstance(case.body, dict):
                case.body.pop(other, None)
        return {"auth": tuple(who["client"])}
    return {}


def strangers(name):
    """Returns the credentials of callers who may not use the operation."""
    # The signature of an event is its only credential here.
    if name.startswith("receive"):
        return []
    if "Token" in name and name not in ["mintSubjectToken", "cancelSubjectToken", "showSubjectToken"]:
        return [{}, {"auth": ("nobody", "x")}, {"auth": (who["client"][0], "x")}]
    if name.startswith(("get", "head")):
        return []
    others = ["x", who["operator"], who["backend with another scope"]]
    if "SubjectToken" not in name:
        others = ["x", who["backend"], who["operator with another scope"]]
    if name in APPROVING:
        others = ["x", who["operator"], who["approver with another scope"]]
    return [{}, *({"headers": {"authorization": f"Bearer {other}"}} for other in others)]


def validate(case, name, also=(), **sender):
    response = case.call(base_url=origin, session=session, **sender)
    # The description does not cover the gateway's answers.
    if "x-passed-on" in response.headers:
        seen[name]["passed on"] += 1
        return
    seen[name][str(response.status_code)] += 1
    case.validate_response(response, checks=[*ALWAYS, *also])


def play(operation, mode, real):
    name = operation.definition.raw["operationId"]
    allowed = mode == GenerationMode.POSITIVE
    count, others = itertools.count(), strangers(name)
    also = [] if allowed or name not in STRICT else [checks.negative_data_rejection]

    @settings(
        max_examples=examples, derandomize=True, database=None, deadline=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case):
        sender = identify(case, name)
        if real and name in REAL and not (name == "mintSubjectToken" and not isinstance(case.body, dict)):
            REAL[name](case)
        # Each third request is sent by a stranger, in turn.
        turn, rest = divmod(next(count), 3)
        if allowed and rest == 2 and others:
            sender = others[turn % len(others)]
        validate(case, name, also, **sender)

    run()


# This file sets the credentials of each request.
config = SchemathesisConfig.from_dict({"generation": {"with-security-parameters": False}})
schema = schemathesis.openapi.from_path("docs/openapi.yaml", config=config)
for result in schema.get_all_operations():
    operation = result.ok()
    play(operation, GenerationMode.POSITIVE, real=True)
    play(operation, GenerationMode.POSITIVE, real=False)
    try:
        play(operation, GenerationMode.NEGATIVE, real=False)
    except Exception as error:
        # A request without any parameters cannot be made invalid.
        if type(error).__name__ not in ["Unsatisfiable", "SkipTest"]:
            raise

print(json.dumps(seen))
