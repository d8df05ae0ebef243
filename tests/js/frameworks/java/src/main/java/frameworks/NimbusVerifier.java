package frameworks;

import com.nimbusds.jose.JOSEObjectType;
import com.nimbusds.jose.JWSAlgorithm;
import com.nimbusds.jose.jwk.source.JWKSourceBuilder;
import com.nimbusds.jose.proc.BadJOSEException;
import com.nimbusds.jose.proc.DefaultJOSEObjectTypeVerifier;
import com.nimbusds.jose.proc.JWSVerificationKeySelector;
import com.nimbusds.jose.proc.SecurityContext;
import com.nimbusds.jwt.JWTClaimsSet;
import com.nimbusds.jwt.proc.DefaultJWTClaimsVerifier;
import com.nimbusds.jwt.proc.DefaultJWTProcessor;
import java.util.Map;
import java.util.Set;

/** An API that verifies tokens by Nimbus's processor: as it is, and with the line of docs/gateway.md. */
final class NimbusVerifier {
  static Map<String, Object> verify(Map<String, Object> given) throws Exception {
    Flow flow = new Flow(given);
    var keys = JWKSourceBuilder.create(flow.metadata().getJWKSetURI().toURL()).build();
    var processor = new DefaultJWTProcessor<SecurityContext>();
    processor.setJWSKeySelector(new JWSVerificationKeySelector<>(JWSAlgorithm.parse((String) given.get("algorithm")), keys));
    processor.setJWTClaimsSetVerifier(new DefaultJWTClaimsVerifier<>(
        (String) given.get("audience"), new JWTClaimsSet.Builder().issuer(flow.issuer()).build(), Set.of("sub", "exp")));
    if (given.containsKey("types")) {
      processor.setJWSTypeVerifier(new DefaultJOSEObjectTypeVerifier<>(new JOSEObjectType("at+jwt"), JOSEObjectType.JWT));
    }
    try {
      return processor.process((String) given.get("token"), null).toJSONObject();
    } catch (BadJOSEException refusal) {
      return Map.of("refused", refusal.getMessage());
    }
  }
}
