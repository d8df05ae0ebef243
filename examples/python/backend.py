"""The backend of the support console: it decides who may act as whom, and asks the filter for it."""

import os
import time
from threading import Lock
from typing import Annotated

import httpx
import uvicorn
from authlib.integrations.httpx_client import OAuth2Client
from fastapi import Depends, FastAPI, Response
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel

from tokens import bearer

FILTER = os.environ["FILTER"]
AGENTS = ["agent-1", "agent-2"]
USES = {
    "api": {"resource": os.environ["API"], "scope": "orders:read"},
    "application": {"resource": os.environ["APPLICATION"], "scope": "shop:use"},
}


class Wish(BaseModel):
    userId: str
    ticketId: str
    reason: str
    use: str


def decide(agent: str, wish: Wish) -> dict | None:
    """Yours: returns the bounds within which the agent may act as the user, or None."""
    if agent not in AGENTS or not wish.ticketId or not wish.reason or wish.use not in USES:
        return None
    return {**USES[wish.use], "expiresIn": 300, "accessTokenExpiresIn": 600}


client = OAuth2Client(os.environ["CLIENT_ID"], os.environ["CLIENT_SECRET"])
lock = Lock()


def machine_token() -> str:
    """One token of the machine's for all mints, until a minute before it expires."""
    with lock:
        if not client.token or client.token["expires_at"] < time.time() + 60:
            client.fetch_token(
                f"{os.environ['ISSUER']}/token",
                grant_type="client_credentials",
                scope="impersonate users:read",
                resource=f"{FILTER}/api",
            )
        return client.token["access_token"]


def ask(method: str, path: str = "", body: dict | None = None) -> httpx.Response:
    headers = {"authorization": f"Bearer {machine_token()}"}
    return httpx.request(method, f"{FILTER}/api/subject-tokens{path}", json=body, headers=headers, timeout=15)


def refused(answer: httpx.Response) -> JSONResponse:
    """Passes on what the agent can act on. A 401 is about the machine's token, not the agent's."""
    if answer.status_code in (400, 403, 404, 429, 503):
        return JSONResponse(answer.json(), answer.status_code)
    return JSONResponse({"error": "server_error"}, 502)


def row_of(agent: str, id: str) -> dict | None:
    """The row of a subject token that this agent asked for. Another agent's does not exist."""
    answer = ask("GET", f"/{id}")
    row = answer.json() if answer.is_success else {}
    return row if row.get("actorId") == agent else None


NOT_FOUND = JSONResponse({"error": "not_found"}, 404)
Agent = Annotated[dict, Depends(bearer(os.environ["AUDIENCE"]))]
app = FastAPI()


@app.post("/impersonations")
def mint(wish: Wish, claims: Agent):
    agent = claims["sub"]
    bounds = decide(agent, wish)
    if not bounds:
        return JSONResponse({"error": "access_denied", "error_description": f"{agent} may not act as this user"}, 403)
    answer = ask("POST", body={
        "userId": wish.userId,
        "context": {"ticketId": wish.ticketId, "reason": wish.reason},
        "actorId": agent,  # who has signed in, and nobody whom the body names
        "clientId": "support-console",
        **bounds,
    })
    if answer.status_code != 201:
        return refused(answer)
    id = answer.headers["location"].split("/")[-1]
    granted = {"id": id, **answer.json(), "resource": bounds["resource"], "scope": bounds["scope"]}
    return JSONResponse(granted, 201, {"cache-control": "no-store"})


@app.get("/impersonations/{id}")
def state(id: str, claims: Agent):
    row = row_of(claims["sub"], id)
    return {"state": row["state"]} if row else NOT_FOUND


@app.delete("/impersonations/{id}")
def take_back(id: str, claims: Agent):
    if not row_of(claims["sub"], id):
        return NOT_FOUND
    answer = ask("DELETE", f"/{id}")
    return Response(status_code=204) if answer.status_code == 204 else refused(answer)


app.mount("/", StaticFiles(directory=os.environ["CONSOLE"], html=True))

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ["PORT"]))
