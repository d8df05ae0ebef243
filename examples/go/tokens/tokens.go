// Package tokens verifies access tokens (RFC 9068), for the backend and for the API.
package tokens

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"slices"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
)

// Claims are those of a verified token. Txn marks an impersonation, Act names the actor.
type Claims struct {
	User   string `json:"sub"`
	Client string `json:"client_id"`
	Scope  string `json:"scope"`
	Txn    string `json:"txn"`
	Act    struct {
		Actor string `json:"sub"`
	} `json:"act"`
}

// Verifier returns a function that verifies the access token of a request for one of the audiences.
func Verifier(issuer string, audiences ...string) func(*http.Request) (*Claims, error) {
	provider, err := oidc.NewProvider(context.Background(), issuer)
	if err != nil {
		log.Fatal(err)
	}
	// go-oidc is made for ID tokens: it must not ask for a client's name as audience.
	verifier := provider.Verifier(&oidc.Config{SkipClientIDCheck: true, SupportedSigningAlgs: []string{oidc.ES256}})
	return func(request *http.Request) (*Claims, error) {
		// The scheme may be DPoP, too: the guard has verified the proof.
		scheme, raw, _ := strings.Cut(request.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") && !strings.EqualFold(scheme, "DPoP") {
			return nil, errors.New("no token")
		}
		token, err := verifier.Verify(request.Context(), raw)
		if err != nil {
			return nil, err
		}
		isForUs := func(audience string) bool { return slices.Contains(audiences, audience) }
		if !slices.ContainsFunc(token.Audience, isForUs) {
			return nil, errors.New("for somebody else")
		}
		if !isAccessToken(raw) {
			return nil, errors.New("not an access token")
		}
		var claims Claims
		return &claims, token.Claims(&claims)
	}
}

func isAccessToken(raw string) bool {
	var header struct {
		Typ string `json:"typ"`
	}
	first, _, _ := strings.Cut(raw, ".")
	bytes, err := base64.RawURLEncoding.DecodeString(first)
	return err == nil && json.Unmarshal(bytes, &header) == nil &&
		(strings.EqualFold(header.Typ, "at+jwt") || strings.EqualFold(header.Typ, "application/at+jwt"))
}

// Answer writes JSON.
func Answer(response http.ResponseWriter, status int, body any) {
	response.Header().Set("Content-Type", "application/json")
	response.WriteHeader(status)
	json.NewEncoder(response).Encode(body)
}
