package frameworks;

import java.util.Map;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Import;
import org.springframework.security.core.annotation.AuthenticationPrincipal;
import org.springframework.security.oauth2.jwt.Jwt;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** An API that Spring Security protects as Spring Boot sets it up: it accepts the typ JWT, or none. */
@SpringBootConfiguration
@EnableAutoConfiguration
@Import(Api.Orders.class)
class Api {
  @RestController
  static class Orders {
    @GetMapping("/orders")
    Map<String, Object> claims(@AuthenticationPrincipal Jwt token) {
      return token.getClaims();
    }
  }
}
