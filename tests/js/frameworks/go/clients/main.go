// Runs a client or a verifier: `clients NAME JSON` prints its result as JSON. Each is set up as the
// documentation of its library says, and as docs/gateway.md says.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/zitadel/oidc/v3/pkg/client/rp"
	"github.com/zitadel/oidc/v3/pkg/client/rs"
	"github.com/zitadel/oidc/v3/pkg/client/tokenexchange"
	zitadel "github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// given has the parties and parameters of a flow, as tests/js/clients/plays.js has them.
type given struct {
	Issuer   string
	Client   [2]string
	Exchange map[string]string
	Audience string
	Token    string
}

// result is FLOW of tests/js/clients/plays.js.
type result struct {
	Scope string `json:"scope"`
	Type  string `json:"type"`
	Live  bool   `json:"live"`
	Ended bool   `json:"ended"`
}

var tasks = map[string]func(context.Context, given) (any, error){
	"x-oauth2":         exchangeByXOAuth2,
	"zitadel":          exchangeByZitadel,
	"go-oidc":          verifyByGoOIDC,
	"zitadel-verifier": verifyByZitadel,
}

func main() {
	var parameters given
	err := json.Unmarshal([]byte(os.Args[2]), &parameters)
	var printed any
	if err == nil {
		printed, err = tasks[os.Args[1]](context.Background(), parameters)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(printed)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// exchangeByXOAuth2 takes the grant and its parameters as parameters of the endpoint: the library
// knows no token exchange. It finds out by itself how the client authenticates.
func exchangeByXOAuth2(ctx context.Context, given given) (any, error) {
	provider, err := oidc.NewProvider(ctx, given.Issuer)
	if err != nil {
		return nil, err
	}
	parameters := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}}
	for name, value := range given.Exchange {
		if name != "scope" {
			parameters.Set(name, value)
		}
	}
	config := clientcredentials.Config{
		ClientID: given.Client[0], ClientSecret: given.Client[1], TokenURL: provider.Endpoint().TokenURL,
		Scopes: strings.Fields(given.Exchange["scope"]), EndpointParams: parameters,
	}
	token, err := config.Token(ctx)
	if err != nil {
		return nil, err
	}
	scope, _ := token.Extra("scope").(string)
	basic := rp.WithAuthStyle(oauth2.AuthStyleInHeader)
	return ended(ctx, given, token.AccessToken, result{Scope: scope, Type: token.TokenType}, basic)
}

// exchangeByZitadel sends the parameters that it has no value for as empty ones, authenticates by
// Basic at the exchange, and in the form at the revocation.
func exchangeByZitadel(ctx context.Context, given given) (any, error) {
	exchanger, err := tokenexchange.NewTokenExchangerClientCredentials(ctx, given.Issuer, given.Client[0], given.Client[1])
	if err != nil {
		return nil, err
	}
	granted, err := tokenexchange.ExchangeToken(ctx, exchanger,
		given.Exchange["subject_token"], zitadel.AccessTokenType,
		given.Exchange["actor_token"], zitadel.TokenType(given.Exchange["actor_token_type"]),
		[]string{given.Exchange["resource"]}, nil, strings.Fields(given.Exchange["scope"]), "")
	if err != nil {
		return nil, err
	}
	return ended(ctx, given, granted.AccessToken, result{Scope: strings.Join(granted.Scopes, " "), Type: granted.TokenType})
}

// ended introspects the token, revokes it, and introspects it again, by zitadel/oidc.
func ended(ctx context.Context, given given, token string, flow result, options ...rp.Option) (any, error) {
	server, err := rs.NewResourceServerClientCredentials(ctx, given.Issuer, given.Client[0], given.Client[1])
	if err != nil {
		return nil, err
	}
	isActive := func() bool {
		answer, asked := rs.Introspect[*zitadel.IntrospectionResponse](ctx, server, token)
		err = errors.Join(err, asked)
		return asked == nil && answer.Active
	}
	flow.Type = strings.ToLower(flow.Type)
	flow.Live = isActive()
	party, failed := rp.NewRelyingPartyOIDC(ctx, given.Issuer, given.Client[0], given.Client[1], "http://127.0.0.1/callback", []string{"openid"}, options...)
	if failed != nil {
		return nil, failed
	}
	if failed := rp.RevokeToken(ctx, party, token, "access_token"); failed != nil {
		return nil, failed
	}
	flow.Ended = isActive()
	return flow, err
}

// verifyByGoOIDC is an API that verifies access tokens by the verifier of ID tokens: the audience of
// the API takes the place of the client.
func verifyByGoOIDC(ctx context.Context, given given) (any, error) {
	provider, err := oidc.NewProvider(ctx, given.Issuer)
	if err != nil {
		return nil, err
	}
	audience := given.Audience
	verifier := provider.Verifier(&oidc.Config{ClientID: audience})
	token, err := verifier.Verify(ctx, given.Token)
	if err != nil {
		return nil, err
	}
	claims := map[string]any{}
	return claims, token.Claims(&claims)
}

// verifyByZitadel is an API that verifies access tokens by zitadel/oidc. That looks at issuer,
// signature and time; the API itself must look at the audience.
func verifyByZitadel(ctx context.Context, given given) (any, error) {
	discovered, err := oidc.NewProvider(ctx, given.Issuer)
	if err != nil {
		return nil, err
	}
	var document struct {
		KeySet     string   `json:"jwks_uri"`
		Algorithms []string `json:"id_token_signing_alg_values_supported"`
	}
	if err := discovered.Claims(&document); err != nil {
		return nil, err
	}
	keys := rp.NewRemoteKeySet(http.DefaultClient, document.KeySet)
	verifier := op.NewAccessTokenVerifier(given.Issuer, keys, op.WithSupportedAccessTokenSigningAlgorithms(document.Algorithms...))
	claims, err := op.VerifyAccessToken[*zitadel.AccessTokenClaims](ctx, given.Token, verifier)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(claims.Audience, given.Audience) {
		return nil, fmt.Errorf("another audience: %v", claims.Audience)
	}
	return map[string]any{"sub": claims.Subject, "act": claims.Claims["act"]}, nil
}
