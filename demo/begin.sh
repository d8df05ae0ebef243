# Begins an impersonation at the Envoy of `make run` or `docker compose up`: agent-1 acts as user-42
# with $ACCESS_TOKEN, for five minutes. $OPERATOR_TOKEN may list and end it. Read it into a shell:
#   . demo/begin.sh
#
# The lines are those of docs/flow.md, and one more.
member() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }

# The backend gets a machine's access token from the gateway, and with it a subject token for
# user-42: for one agent, one client and one API, for five minutes.
BACKEND_TOKEN=$(curl -s http://127.0.0.1:10000/oidc/token -u integrator-backend:demo-only-integrator-backend \
  -d grant_type=client_credentials --data-urlencode 'scope=impersonate users:read' \
  -d resource=http://127.0.0.1:10000/api | member access_token)
SUBJECT_TOKEN=$(curl -s http://127.0.0.1:10000/api/subject-tokens \
  -H "Authorization: Bearer $BACKEND_TOKEN" -H 'Content-Type: application/json' \
  -d '{"userId": "user-42", "context": {"ticketId": "T-1001"}, "actorId": "agent-1", "clientId": "support-console",
       "resource": "http://127.0.0.1:10000/orders", "expiresIn": 300, "accessTokenExpiresIn": 300}' | member subjectToken)

# A support agent signs in, by authorization code. This gateway takes a hint where yours asks for a
# password.
CODE=$(curl -s -L --max-redirs 2 -b '' -o /dev/null -w '%{redirect_url}' -G http://127.0.0.1:10000/oidc/auth \
  -d client_id=support-console -d response_type=code -d scope=openid -d redirect_uri=http://127.0.0.1/callback \
  -d code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM -d code_challenge_method=S256 \
  -d login_hint=agent-1 | sed 's/.*[?&]code=\([^&]*\).*/\1/')
AGENT_TOKEN=$(curl -s http://127.0.0.1:10000/oidc/token -d grant_type=authorization_code -d client_id=support-console \
  -d "code=$CODE" -d redirect_uri=http://127.0.0.1/callback \
  -d code_verifier=dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk | member access_token)

# The support client exchanges both, once, for an access token to the orders of user-42 that names
# the agent.
ACCESS_TOKEN=$(curl -s http://127.0.0.1:10000/oidc/token \
  -d grant_type=urn:ietf:params:oauth:grant-type:token-exchange -d client_id=support-console \
  -d "subject_token=$SUBJECT_TOKEN" -d subject_token_type=urn:ietf:params:oauth:token-type:access_token \
  -d "actor_token=$AGENT_TOKEN" -d actor_token_type=urn:ietf:params:oauth:token-type:access_token \
  -d resource=http://127.0.0.1:10000/orders -d scope=orders:read | member access_token)


# An operator gets an access token that may list and end impersonations.
OPERATOR_TOKEN=$(curl -s http://127.0.0.1:10000/oidc/token -u operations:demo-only-operations \
  -d grant_type=client_credentials --data-urlencode 'scope=impersonations:read impersonations:revoke' \
  -d resource=http://127.0.0.1:10000/api | member access_token)
