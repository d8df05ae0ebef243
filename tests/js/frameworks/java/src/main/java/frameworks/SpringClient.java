package frameworks;

import java.util.List;
import java.util.Map;
import org.springframework.security.authentication.TestingAuthenticationToken;
import org.springframework.security.oauth2.client.OAuth2AuthorizationContext;
import org.springframework.security.oauth2.client.TokenExchangeOAuth2AuthorizedClientProvider;
import org.springframework.security.oauth2.client.endpoint.RestClientTokenExchangeTokenResponseClient;
import org.springframework.security.oauth2.client.registration.ClientRegistrations;
import org.springframework.security.oauth2.core.AuthorizationGrantType;
import org.springframework.security.oauth2.core.OAuth2AccessToken;
import org.springframework.security.oauth2.core.OAuth2Token;
import org.springframework.security.oauth2.jwt.JwtDecoders;
import org.springframework.security.oauth2.server.resource.introspection.BadOpaqueTokenException;
import org.springframework.security.oauth2.server.resource.introspection.SpringOpaqueTokenIntrospector;
import org.springframework.util.LinkedMultiValueMap;

/**
 * The flow by Spring Security's client. Its resolvers say which tokens are exchanged, and a converter
 * adds `resource`, as Spring's documentation says. An actor token that the application has decoded
 * is announced as a JWT.
 */
final class SpringClient {
  static Map<String, Object> play(Map<String, Object> given) throws Exception {
    Flow flow = new Flow(given);
    var registration = ClientRegistrations.fromIssuerLocation(flow.issuer())
        .clientId(flow.id())
        .clientSecret(flow.secret())
        .authorizationGrantType(AuthorizationGrantType.TOKEN_EXCHANGE)
        .scope(flow.parameter("scope").split(" "))
        .build();

    var client = new RestClientTokenExchangeTokenResponseClient();
    client.addParametersConverter((request) -> new LinkedMultiValueMap<>(
        Map.of("resource", List.of(flow.parameter("resource")))));
    var provider = new TokenExchangeOAuth2AuthorizedClientProvider();
    provider.setAccessTokenResponseClient(client);
    provider.setSubjectTokenResolver((context) -> accessToken(flow.parameter("subject_token")));
    String actor = flow.parameter("actor_token");
    OAuth2Token actorToken = given.containsKey("decoded")
        ? JwtDecoders.fromIssuerLocation(flow.issuer()).decode(actor) : accessToken(actor);
    provider.setActorTokenResolver((context) -> actorToken);

    var granted = provider.authorize(OAuth2AuthorizationContext.withClientRegistration(registration)
        .principal(new TestingAuthenticationToken("agent-1", null)).build()).getAccessToken();
    return flow.end(granted.getTokenValue(), String.join(" ", granted.getScopes()), granted.getTokenType().getValue(),
        (token) -> isActive(flow, token));
  }

  private static OAuth2AccessToken accessToken(String value) {
    return new OAuth2AccessToken(OAuth2AccessToken.TokenType.BEARER, value, null, null);
  }

  private static boolean isActive(Flow flow, String token) throws Exception {
    var introspector = SpringOpaqueTokenIntrospector.withIntrospectionUri(flow.metadata().getIntrospectionEndpointURI().toString())
        .clientId(flow.id()).clientSecret(flow.secret()).build();
    try {
      introspector.introspect(token);
      return true;
    } catch (BadOpaqueTokenException inactive) {
      return false;
    }
  }
}
