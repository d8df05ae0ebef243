// The API and the application: it verifies each token itself, and knows when somebody is used.
package main

import (
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"

	"example/tokens"
)

type people struct {
	User          string `json:"user"`
	Actor         string `json:"actor,omitempty"`
	Impersonation string `json:"impersonation,omitempty"`
}

// peopleOf a verified token. Nothing here reads a header field that says who somebody is.
func peopleOf(claims *tokens.Claims) people {
	actor := claims.Act.Actor
	if actor == "" && claims.Txn != "" {
		actor = claims.Client
	}
	return people{claims.User, actor, claims.Txn}
}

// recorder keeps the status for the log.
type recorder struct {
	http.ResponseWriter
	status int
}

func (recorder *recorder) WriteHeader(status int) {
	recorder.status = status
	recorder.ResponseWriter.WriteHeader(status)
}

func me(response http.ResponseWriter, _ *http.Request, someone people) {
	tokens.Answer(response, 200, someone)
}

func changePassword(response http.ResponseWriter, _ *http.Request, _ people) {
	response.WriteHeader(204)
}

// notForSomebodyElse asks for Txn: it marks an impersonation, also one without an actor.
func notForSomebodyElse(handler func(http.ResponseWriter, *http.Request, people)) func(http.ResponseWriter, *http.Request, people) {
	return func(response http.ResponseWriter, request *http.Request, someone people) {
		if someone.Impersonation != "" {
			tokens.Answer(response, 403, map[string]string{"error": "access_denied"})
			return
		}
		handler(response, request, someone)
	}
}

func main() {
	verify := tokens.Verifier(os.Getenv("ISSUER"), os.Getenv("API"), os.Getenv("APPLICATION"))
	protected := func(handler func(http.ResponseWriter, *http.Request, people)) http.HandlerFunc {
		return func(response http.ResponseWriter, request *http.Request) {
			claims, err := verify(request)
			if err != nil {
				response.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
				tokens.Answer(response, 401, map[string]string{"error": "invalid_token"})
				return
			}
			isOurs := func(scope string) bool { return scope == "orders:read" || scope == "shop:use" }
			if !slices.ContainsFunc(strings.Fields(claims.Scope), isOurs) {
				tokens.Answer(response, 403, map[string]string{"error": "insufficient_scope"})
				return
			}
			someone, recorder := peopleOf(claims), &recorder{response, 200}
			handler(recorder, request, someone)
			slog.Info("request", "user", someone.User, "actor", someone.Actor, "impersonation", someone.Impersonation,
				"method", request.Method, "path", request.URL.Path, "status", recorder.status)
		}
	}
	http.HandleFunc("GET /me", protected(me))
	http.HandleFunc("POST /password", protected(notForSomebodyElse(changePassword)))
	http.Handle("/", http.FileServer(http.Dir(os.Getenv("PAGE"))))
	fmt.Println("ready")
	// Without an idle timeout, so that Envoy never writes to a connection that is closed here.
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil))
}
