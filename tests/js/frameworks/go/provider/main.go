// The example provider of zitadel/oidc: `provider ADDRESS ISSUER USERS`. Its own program listens at
// the port of its issuer, where Envoy listens here, and knows other clients.
package main

import (
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
)

func main() {
	address, issuer := os.Args[1], os.Args[2]
	users, err := storage.StoreFromFile(os.Args[3])
	if err != nil {
		panic(err)
	}
	storage.RegisterClients(
		// Its service user, `sid1`, which may get a machine's tokens, introspects them as a client.
		storage.WebClient("sid1", "verysecret"),
		storage.WebClient("support-portal", "demo-only-support-portal", "http://127.0.0.1/callback"),
	)
	handler := exampleop.SetupServer(issuer, storage.NewStorage(users), slog.Default(), false)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		panic(err)
	}
	println("ready")
	panic(http.Serve(listener, handler))
}
