package api;

import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.annotation.Bean;
import org.springframework.security.config.Customizer;
import org.springframework.security.config.annotation.web.builders.HttpSecurity;
import org.springframework.security.config.http.SessionCreationPolicy;
import org.springframework.security.core.context.SecurityContextHolder;
import org.springframework.security.oauth2.jwt.Jwt;
import org.springframework.security.oauth2.jwt.JwtDecoder;
import org.springframework.security.web.SecurityFilterChain;
import org.springframework.security.web.access.ExceptionTranslationFilter;
import tokens.AccessTokens;

/** The API and the application: it verifies each token itself, and knows when somebody is used. */
@SpringBootApplication
public class Api {
  private static final Logger LOG = LoggerFactory.getLogger(Api.class);

  public static void main(String[] arguments) {
    new SpringApplicationBuilder(Api.class).properties("spring.config.name=api").run(arguments);
  }

  @Bean
  SecurityFilterChain security(HttpSecurity http) {
    return http
        .authorizeHttpRequests((requests) -> requests
            .requestMatchers("/me", "/password").hasAnyAuthority("SCOPE_orders:read", "SCOPE_shop:use")
            .anyRequest().permitAll())
        .csrf((csrf) -> csrf.disable()) // the guard stops other sites
        .sessionManagement((session) -> session.sessionCreationPolicy(SessionCreationPolicy.STATELESS))
        .oauth2ResourceServer((server) -> server.jwt(Customizer.withDefaults()).dPoP(Customizer.withDefaults()))
        // Here the token is verified, and refusals pass by.
        .addFilterBefore((request, response, chain) -> {
          chain.doFilter(request, response);
          log((HttpServletRequest) request, (HttpServletResponse) response);
        }, ExceptionTranslationFilter.class)
        .build();
  }

  @Bean
  JwtDecoder decoder(@Value("${ISSUER}") String issuer, @Value("${API}") String api, @Value("${APPLICATION}") String application) {
    return AccessTokens.of(issuer, List.of(api, application));
  }

  private static void log(HttpServletRequest request, HttpServletResponse response) {
    var authentication = SecurityContextHolder.getContext().getAuthentication();
    if (authentication == null || !(authentication.getPrincipal() instanceof Jwt token)) return;
    var people = People.of(token);
    LOG.atInfo()
        .addKeyValue("user", people.user()).addKeyValue("actor", people.actor()).addKeyValue("impersonation", people.impersonation())
        .addKeyValue("method", request.getMethod()).addKeyValue("path", request.getRequestURI()).addKeyValue("status", response.getStatus())
        .log("request");
  }
}
