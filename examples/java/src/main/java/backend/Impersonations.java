package backend;

import java.net.URI;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.core.ParameterizedTypeReference;
import org.springframework.http.ResponseEntity;
import org.springframework.security.core.annotation.AuthenticationPrincipal;
import org.springframework.security.oauth2.jwt.Jwt;
import org.springframework.web.bind.annotation.DeleteMapping;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.client.RestClient;

@RestController
@RequestMapping("/impersonations")
class Impersonations {
  record Wish(String userId, String ticketId, String reason, String use) {}

  private static final List<String> AGENTS = List.of("agent-1", "agent-2");
  private static final List<Integer> PASSED_ON = List.of(400, 403, 404, 429, 503);
  private static final ParameterizedTypeReference<Map<String, Object>> OBJECT = new ParameterizedTypeReference<>() {};

  private final RestClient filter;
  private final Map<String, Map<String, Object>> uses;

  Impersonations(RestClient filter, @Value("${API}") String api, @Value("${APPLICATION}") String application) {
    this.filter = filter;
    this.uses = Map.of(
        "api", Map.of("resource", api, "scope", "orders:read"),
        "application", Map.of("resource", application, "scope", "shop:use"));
  }

  /** Yours: returns the bounds within which the agent may act as the user, or null. */
  private Map<String, Object> decide(String agent, Wish wish) {
    if (!AGENTS.contains(agent) || isEmpty(wish.ticketId()) || isEmpty(wish.reason())) return null;
    var use = uses.get(wish.use());
    if (use == null) return null;
    var bounds = new HashMap<String, Object>(Map.of("expiresIn", 300, "accessTokenExpiresIn", 600));
    bounds.putAll(use);
    return bounds;
  }

  private static boolean isEmpty(String text) {
    return text == null || text.isEmpty();
  }

  @PostMapping
  ResponseEntity<?> mint(@AuthenticationPrincipal Jwt agent, @RequestBody Wish wish) {
    var bounds = decide(agent.getSubject(), wish);
    if (bounds == null) return error(403, "access_denied", agent.getSubject() + " may not act as this user");
    var body = new HashMap<String, Object>(bounds);
    body.put("userId", wish.userId());
    body.put("context", Map.of("ticketId", wish.ticketId(), "reason", wish.reason()));
    body.put("actorId", agent.getSubject()); // who has signed in, and nobody whom the body names
    body.put("clientId", "support-console");
    var answer = filter.post().body(body).retrieve().toEntity(OBJECT);
    if (answer.getStatusCode().value() != 201) return refused(answer);
    String location = answer.getHeaders().getFirst("location");
    var granted = new HashMap<>(answer.getBody());
    granted.put("id", location.substring(location.lastIndexOf('/') + 1));
    granted.put("resource", bounds.get("resource"));
    granted.put("scope", bounds.get("scope"));
    return ResponseEntity.created(URI.create(location)).body(granted);
  }

  @GetMapping("/{id}")
  ResponseEntity<?> state(@AuthenticationPrincipal Jwt agent, @PathVariable String id) {
    var row = rowOf(agent, id);
    return row == null ? error(404, "not_found", "nothing has this id") : ResponseEntity.ok(Map.of("state", row.get("state")));
  }

  @DeleteMapping("/{id}")
  ResponseEntity<?> takeBack(@AuthenticationPrincipal Jwt agent, @PathVariable String id) {
    if (rowOf(agent, id) == null) return error(404, "not_found", "nothing has this id");
    var answer = filter.delete().uri("/{id}", id).retrieve().toEntity(OBJECT);
    return answer.getStatusCode().value() == 204 ? ResponseEntity.noContent().build() : refused(answer);
  }

  /** The row of a subject token that this agent asked for. Another agent's does not exist. */
  private Map<String, Object> rowOf(Jwt agent, String id) {
    var answer = filter.get().uri("/{id}", id).retrieve().toEntity(OBJECT);
    var row = answer.getBody();
    return row != null && agent.getSubject().equals(row.get("actorId")) ? row : null;
  }

  /** Passes on what the agent can act on. A 401 is about the machine's token, not the agent's. */
  private static ResponseEntity<?> refused(ResponseEntity<Map<String, Object>> answer) {
    int status = answer.getStatusCode().value();
    if (!PASSED_ON.contains(status)) return error(502, "server_error", "the filter could not be asked");
    return ResponseEntity.status(status).body(answer.getBody());
  }

  private static ResponseEntity<?> error(int status, String error, String description) {
    return ResponseEntity.status(status).body(Map.of("error", error, "error_description", description));
  }
}
