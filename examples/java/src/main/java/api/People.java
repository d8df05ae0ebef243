package api;

import com.fasterxml.jackson.annotation.JsonInclude;
import java.util.Map;
import org.springframework.security.oauth2.jwt.Jwt;

/** The people of a verified token. Nothing here reads a header field that says who somebody is. */
@JsonInclude(JsonInclude.Include.NON_NULL)
record People(String user, String actor, String impersonation) {
  static People of(Jwt token) {
    String txn = token.getClaimAsString("txn");
    Map<String, Object> act = token.getClaimAsMap("act");
    String actor = act != null ? (String) act.get("sub") : null;
    if (actor == null && txn != null) actor = token.getClaimAsString("client_id");
    return new People(token.getSubject(), actor, txn);
  }
}
