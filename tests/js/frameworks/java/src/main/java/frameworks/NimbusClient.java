package frameworks;

import com.nimbusds.oauth2.sdk.AccessTokenResponse;
import com.nimbusds.oauth2.sdk.Scope;
import com.nimbusds.oauth2.sdk.TokenIntrospectionRequest;
import com.nimbusds.oauth2.sdk.TokenIntrospectionResponse;
import com.nimbusds.oauth2.sdk.TokenRequest;
import com.nimbusds.oauth2.sdk.TokenResponse;
import com.nimbusds.oauth2.sdk.token.BearerAccessToken;
import com.nimbusds.oauth2.sdk.token.TokenTypeURI;
import com.nimbusds.oauth2.sdk.token.TypelessAccessToken;
import com.nimbusds.oauth2.sdk.tokenexchange.TokenExchangeGrant;
import java.net.URI;
import java.util.List;
import java.util.Map;

/** The flow by Nimbus's OAuth 2.0 SDK. */
final class NimbusClient {
  static Map<String, Object> play(Map<String, Object> given) throws Exception {
    Flow flow = new Flow(given);
    var grant = new TokenExchangeGrant(
        new TypelessAccessToken(flow.parameter("subject_token")), TokenTypeURI.ACCESS_TOKEN,
        new TypelessAccessToken(flow.parameter("actor_token")), TokenTypeURI.ACCESS_TOKEN,
        null, null);
    var request = new TokenRequest.Builder(flow.metadata().getTokenEndpointURI(), flow.basic(), grant)
        .scope(Scope.parse(flow.parameter("scope")))
        .resources(URI.create(flow.parameter("resource")))
        .build();
    TokenResponse response = TokenResponse.parse(request.toHTTPRequest().send());
    if (!response.indicatesSuccess()) throw new IllegalStateException(response.toErrorResponse().toJSONObject().toString());
    AccessTokenResponse granted = response.toSuccessResponse();
    var token = granted.getTokens().getAccessToken();
    return flow.end(token.getValue(), token.getScope().toString(), token.getType().getValue(), (live) -> isActive(flow, live));
  }

  private static boolean isActive(Flow flow, String token) throws Exception {
    var request = new TokenIntrospectionRequest(flow.metadata().getIntrospectionEndpointURI(), flow.basic(), new BearerAccessToken(token));
    return TokenIntrospectionResponse.parse(request.toHTTPRequest().send()).toSuccessResponse().isActive();
  }
}
