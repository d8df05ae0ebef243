// The backend of the support console: it decides who may act as whom, and asks the filter for it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"

	"example/tokens"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

type object = map[string]any

type wish struct{ UserID, TicketID, Reason, Use string }

var (
	issuer = os.Getenv("ISSUER")
	filter = os.Getenv("FILTER")
	agents = []string{"agent-1", "agent-2"}
	uses   = map[string]object{
		"api":         {"resource": os.Getenv("API"), "scope": "orders:read"},
		"application": {"resource": os.Getenv("APPLICATION"), "scope": "shop:use"},
	}
)

// decide is yours: it returns the bounds within which the agent may act as the user, or nil.
func decide(agent string, wish wish) object {
	if !slices.Contains(agents, agent) || wish.TicketID == "" || wish.Reason == "" || uses[wish.Use] == nil {
		return nil
	}
	bounds := object{"expiresIn": 300, "accessTokenExpiresIn": 600}
	maps.Copy(bounds, uses[wish.Use])
	return bounds
}

// machine is one client for all mints: it keeps its token until that expires.
var machine = (&clientcredentials.Config{
	ClientID:       os.Getenv("CLIENT_ID"),
	ClientSecret:   os.Getenv("CLIENT_SECRET"),
	TokenURL:       issuer + "/token",
	Scopes:         []string{"impersonate", "users:read"},
	EndpointParams: url.Values{"resource": {filter + "/api"}},
	AuthStyle:      oauth2.AuthStyleInHeader,
}).Client(context.Background())

// ask returns status, header and body of the filter's answer. Without an answer the status is 0.
func ask(method, id string, body any) (int, http.Header, object) {
	sent, _ := json.Marshal(body)
	request, _ := http.NewRequest(method, filter+"/api/subject-tokens"+id, bytes.NewReader(sent))
	request.Header.Set("Content-Type", "application/json")
	answer, err := machine.Do(request)
	if err != nil {
		log.Print(err)
		return 0, nil, nil
	}
	defer answer.Body.Close()
	read, _ := io.ReadAll(answer.Body)
	var parsed object
	json.Unmarshal(read, &parsed)
	return answer.StatusCode, answer.Header, parsed
}

// refuse passes on what the agent can act on. A 401 is about the machine's token, not the agent's.
func refuse(response http.ResponseWriter, status int, body object) {
	if slices.Contains([]int{400, 403, 404, 429, 503}, status) {
		tokens.Answer(response, status, body)
	} else {
		tokens.Answer(response, 502, object{"error": "server_error"})
	}
}

// rowOf is the row of a subject token that this agent asked for. Another agent's does not exist.
func rowOf(agent, id string) object {
	status, _, row := ask("GET", "/"+url.PathEscape(id), nil)
	if status != 200 || row["actorId"] != agent {
		return nil
	}
	return row
}

func mint(response http.ResponseWriter, request *http.Request, agent string) {
	var wish wish
	if json.NewDecoder(request.Body).Decode(&wish) != nil {
		tokens.Answer(response, 400, object{"error": "invalid_request"})
		return
	}
	bounds := decide(agent, wish)
	if bounds == nil {
		tokens.Answer(response, 403, object{"error": "access_denied", "error_description": agent + " may not act as this user"})
		return
	}
	body := object{
		"userId":   wish.UserID,
		"context":  object{"ticketId": wish.TicketID, "reason": wish.Reason},
		"actorId":  agent, // who has signed in, and nobody whom the body names
		"clientId": "support-console",
	}
	maps.Copy(body, bounds)
	status, header, granted := ask("POST", "", body)
	if status != 201 {
		refuse(response, status, granted)
		return
	}
	granted["id"] = path.Base(header.Get("Location"))
	granted["resource"], granted["scope"] = bounds["resource"], bounds["scope"]
	response.Header().Set("Cache-Control", "no-store")
	tokens.Answer(response, 201, granted)
}

func state(response http.ResponseWriter, request *http.Request, agent string) {
	if row := rowOf(agent, request.PathValue("id")); row != nil {
		tokens.Answer(response, 200, object{"state": row["state"]})
		return
	}
	tokens.Answer(response, 404, object{"error": "not_found"})
}

func takeBack(response http.ResponseWriter, request *http.Request, agent string) {
	id := request.PathValue("id")
	if rowOf(agent, id) == nil {
		tokens.Answer(response, 404, object{"error": "not_found"})
		return
	}
	status, _, body := ask("DELETE", "/"+url.PathEscape(id), nil)
	if status != 204 {
		refuse(response, status, body)
		return
	}
	response.WriteHeader(204)
}

func main() {
	verify := tokens.Verifier(issuer, os.Getenv("AUDIENCE"))
	forAgents := func(handler func(http.ResponseWriter, *http.Request, string)) http.HandlerFunc {
		return func(response http.ResponseWriter, request *http.Request) {
			claims, err := verify(request)
			if err != nil {
				response.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
				tokens.Answer(response, 401, object{"error": "invalid_token"})
				return
			}
			handler(response, request, claims.User)
		}
	}
	http.HandleFunc("POST /impersonations", forAgents(mint))
	http.HandleFunc("GET /impersonations/{id}", forAgents(state))
	http.HandleFunc("DELETE /impersonations/{id}", forAgents(takeBack))
	http.Handle("/", http.FileServer(http.Dir(os.Getenv("CONSOLE"))))
	fmt.Println("ready")
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil))
}
