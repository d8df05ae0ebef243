package frameworks;

import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Import;
import org.springframework.security.oauth2.core.OAuth2TokenValidator;
import org.springframework.security.oauth2.jwt.Jwt;
import org.springframework.security.oauth2.jwt.JwtTypeValidator;

/** An API with the line of docs/gateway.md: it also accepts the typ of RFC 9068. */
@SpringBootConfiguration
@EnableAutoConfiguration
@Import(Api.Orders.class)
class ApiOfAccessTokens {
  @Bean OAuth2TokenValidator<Jwt> typ() { return new JwtTypeValidator("at+jwt", "JWT"); }
}
