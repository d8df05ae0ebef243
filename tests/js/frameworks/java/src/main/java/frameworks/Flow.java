package frameworks;

import com.nimbusds.oauth2.sdk.TokenRevocationRequest;
import com.nimbusds.oauth2.sdk.auth.ClientSecretBasic;
import com.nimbusds.oauth2.sdk.auth.Secret;
import com.nimbusds.oauth2.sdk.id.ClientID;
import com.nimbusds.oauth2.sdk.id.Issuer;
import com.nimbusds.oauth2.sdk.token.BearerAccessToken;
import com.nimbusds.openid.connect.sdk.op.OIDCProviderMetadata;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A flow as tests/js/clients/plays.js plays it: the given client, and the parameters of the
 * exchange.
 */
record Flow(Map<String, Object> given) {
  interface Introspection {
    boolean isActive(String token) throws Exception;
  }

  String issuer() {
    return (String) given.get("issuer");
  }

  String id() {
    return (String) ((List<?>) given.get("client")).get(0);
  }

  String secret() {
    return (String) ((List<?>) given.get("client")).get(1);
  }

  String parameter(String name) {
    return (String) ((Map<?, ?>) given.get("exchange")).get(name);
  }

  ClientSecretBasic basic() {
    return new ClientSecretBasic(new ClientID(id()), new Secret(secret()));
  }

  OIDCProviderMetadata metadata() throws Exception {
    return OIDCProviderMetadata.resolve(new Issuer(issuer()));
  }

  /** Introspects the token, revokes it, and introspects it again. */
  Map<String, Object> end(String token, String scope, String type, Introspection introspection) throws Exception {
    Map<String, Object> result = new HashMap<>(Map.of("scope", scope, "type", type.toLowerCase(), "token", token));
    result.put("live", introspection.isActive(token));
    var revocation = new TokenRevocationRequest(metadata().getRevocationEndpointURI(), basic(), new BearerAccessToken(token));
    revocation.toHTTPRequest().send().ensureStatusCode(200);
    result.put("ended", introspection.isActive(token));
    return result;
  }
}
