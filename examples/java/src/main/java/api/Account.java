package api;

import org.springframework.http.HttpStatus;
import org.springframework.security.access.AccessDeniedException;
import org.springframework.security.core.annotation.AuthenticationPrincipal;
import org.springframework.security.oauth2.jwt.Jwt;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.ResponseStatus;
import org.springframework.web.bind.annotation.RestController;

@RestController
class Account {
  @GetMapping("/me")
  People me(@AuthenticationPrincipal Jwt token) {
    return People.of(token);
  }

  @PostMapping("/password")
  @ResponseStatus(HttpStatus.NO_CONTENT)
  void changePassword(@AuthenticationPrincipal Jwt token) {
    notForSomebodyElse(token);
  }

  /** `txn` marks an impersonation, also one without `act`. */
  private static void notForSomebodyElse(Jwt token) {
    if (token.hasClaim("txn")) throw new AccessDeniedException("only the user may do this");
  }
}
