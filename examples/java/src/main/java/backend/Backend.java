package backend;

import java.util.List;
import java.util.Map;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.annotation.Bean;
import org.springframework.http.HttpStatusCode;
import org.springframework.security.authentication.UsernamePasswordAuthenticationToken;
import org.springframework.security.config.Customizer;
import org.springframework.security.config.annotation.web.builders.HttpSecurity;
import org.springframework.security.config.http.SessionCreationPolicy;
import org.springframework.security.oauth2.client.AuthorizedClientServiceOAuth2AuthorizedClientManager;
import org.springframework.security.oauth2.client.OAuth2AuthorizedClientProviderBuilder;
import org.springframework.security.oauth2.client.OAuth2AuthorizedClientService;
import org.springframework.security.oauth2.client.endpoint.RestClientClientCredentialsTokenResponseClient;
import org.springframework.security.oauth2.client.registration.ClientRegistrationRepository;
import org.springframework.security.oauth2.client.web.client.OAuth2ClientHttpRequestInterceptor;
import org.springframework.security.oauth2.jwt.JwtDecoder;
import org.springframework.security.web.SecurityFilterChain;
import org.springframework.util.LinkedMultiValueMap;
import org.springframework.web.client.RestClient;
import tokens.AccessTokens;

/** The backend of the support console: Impersonations decides who may act as whom. */
@SpringBootApplication
public class Backend {
  public static void main(String[] arguments) {
    new SpringApplicationBuilder(Backend.class).properties("spring.config.name=backend").run(arguments);
  }

  @Bean
  SecurityFilterChain security(HttpSecurity http) {
    return http
        .authorizeHttpRequests((requests) -> requests
            .requestMatchers("/impersonations/**").authenticated()
            .anyRequest().permitAll())
        .csrf((csrf) -> csrf.disable()) // no cookie says who asks
        .sessionManagement((session) -> session.sessionCreationPolicy(SessionCreationPolicy.STATELESS))
        .oauth2ResourceServer((server) -> server.jwt(Customizer.withDefaults()))
        .build();
  }

  @Bean
  JwtDecoder decoder(@Value("${ISSUER}") String issuer, @Value("${AUDIENCE}") String audience) {
    return AccessTokens.of(issuer, List.of(audience));
  }

  /** The filter, asked with one token of the machine's, which the manager keeps until it expires. */
  @Bean
  RestClient filter(ClientRegistrationRepository clients, OAuth2AuthorizedClientService kept, @Value("${FILTER}") String filter) {
    var tokens = new RestClientClientCredentialsTokenResponseClient();
    tokens.addParametersConverter((grant) -> new LinkedMultiValueMap<>(Map.of("resource", List.of(filter + "/api"))));
    var manager = new AuthorizedClientServiceOAuth2AuthorizedClientManager(clients, kept);
    manager.setAuthorizedClientProvider(OAuth2AuthorizedClientProviderBuilder.builder()
        .clientCredentials((grant) -> grant.accessTokenResponseClient(tokens)).build());
    var interceptor = new OAuth2ClientHttpRequestInterceptor(manager);
    interceptor.setClientRegistrationIdResolver((request) -> "machine");
    // By default Spring would keep one token for each agent.
    interceptor.setPrincipalResolver((request) -> new UsernamePasswordAuthenticationToken("machine", null));
    return RestClient.builder()
        .baseUrl(filter + "/api/subject-tokens")
        .requestInterceptor(interceptor)
        .defaultStatusHandler(HttpStatusCode::isError, (request, response) -> {})
        .build();
  }
}
