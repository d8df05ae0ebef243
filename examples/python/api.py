"""The API and the application: it verifies each token itself, and knows when somebody is used."""

import json
import os
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.staticfiles import StaticFiles

from tokens import bearer

app = FastAPI()


def people(request: Request, claims: Annotated[dict, Depends(bearer(os.environ["API"], os.environ["APPLICATION"]))]):
    """The people of a verified token. Nothing here reads a header field that says who somebody is."""
    if not {"orders:read", "shop:use"} & set(claims.get("scope", "").split()):
        raise HTTPException(403, headers={"WWW-Authenticate": 'Bearer error="insufficient_scope"'})
    txn = claims.get("txn")
    actor = claims.get("act", {}).get("sub") or (claims["client_id"] if txn else None)
    request.state.people = {"user": claims["sub"], "actor": actor, "impersonation": txn}
    return request.state.people


People = Annotated[dict, Depends(people)]


def not_for_somebody_else(someone: People):
    """`txn` marks an impersonation, also one without `act`."""
    if someone["impersonation"]:
        raise HTTPException(403, "only the user may do this")


@app.middleware("http")
async def log(request: Request, call_next):
    response = await call_next(request)
    someone = getattr(request.state, "people", {})
    print(json.dumps({**someone, "method": request.method, "path": request.url.path, "status": response.status_code}), flush=True)
    return response


@app.get("/me")
def me(someone: People):
    return someone


@app.post("/password", status_code=204, dependencies=[Depends(not_for_somebody_else)])
def change_password():
    pass


app.mount("/", StaticFiles(directory=os.environ["PAGE"], html=True))

if __name__ == "__main__":
    # Longer than Envoy keeps an idle connection, so that Envoy never writes to a closed one.
    uvicorn.run(app, port=int(os.environ["PORT"]), timeout_keep_alive=75)
