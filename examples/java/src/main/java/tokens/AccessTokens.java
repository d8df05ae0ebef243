package tokens;

import java.util.Collections;
import java.util.List;
import org.springframework.security.oauth2.jose.jws.SignatureAlgorithm;
import org.springframework.security.oauth2.jwt.JwtClaimValidator;
import org.springframework.security.oauth2.jwt.JwtDecoder;
import org.springframework.security.oauth2.jwt.JwtValidators;
import org.springframework.security.oauth2.jwt.NimbusJwtDecoder;

/** Access tokens by RFC 9068. By default Spring looks neither at `aud` nor at the type. */
public final class AccessTokens {
  public static JwtDecoder of(String issuer, List<String> audiences) {
    var decoder = NimbusJwtDecoder.withIssuerLocation(issuer)
        .validateType(false) // the validator below does
        .jwsAlgorithm(SignatureAlgorithm.ES256)
        .build();
    var isForUs = new JwtClaimValidator<List<String>>("aud",
        (given) -> given != null && !Collections.disjoint(given, audiences));
    decoder.setJwtValidator(JwtValidators.createAtJwtValidator()
        .issuer(issuer)
        .validators((all) -> all.put("aud", isForUs))
        .build());
    return decoder;
  }

  private AccessTokens() {}
}
