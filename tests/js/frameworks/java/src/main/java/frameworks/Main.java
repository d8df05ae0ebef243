package frameworks;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.Map;
import java.util.concurrent.Executors;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.builder.SpringApplicationBuilder;
import tools.jackson.databind.json.JsonMapper;

/**
 * All programs in Java, in one process: it starts servers and runs clients when the tests ask it to,
 * by a POST with JSON.
 */
public final class Main {
  private static final JsonMapper JSON = new JsonMapper();

  private interface Task {
    Object run(Map<String, Object> given) throws Exception;
  }

  private static final Map<String, Task> TASKS = Map.of(
      "/authorization-server", (given) -> serve(AuthorizationServer.class, given),
      "/api", (given) -> serve(Api.class, given),
      "/api-of-access-tokens", (given) -> serve(ApiOfAccessTokens.class, given),
      "/spring-client", SpringClient::play,
      "/nimbus-client", NimbusClient::play,
      "/nimbus-verifier", NimbusVerifier::verify);

  public static void main(String[] arguments) throws IOException {
    var server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 0);
    server.setExecutor(Executors.newCachedThreadPool());
    TASKS.forEach((path, task) -> server.createContext(path, (exchange) -> answer(exchange, task)));
    server.start();
    System.out.println("ready");
  }

  private static void answer(HttpExchange exchange, Task task) throws IOException {
    int status = 200;
    Object answer;
    try {
      @SuppressWarnings("unchecked")
      Map<String, Object> given = JSON.readValue(exchange.getRequestBody(), Map.class);
      answer = task.run(given);
    } catch (Exception failure) {
      status = 500;
      answer = Map.of("error", failure.toString());
    }
    byte[] body = JSON.writeValueAsBytes(answer);
    exchange.sendResponseHeaders(status, body.length);
    try (var stream = exchange.getResponseBody()) {
      stream.write(body);
    }
  }

  /** Starts an application of Spring Boot with these properties, and returns when it listens. */
  private static Map<String, Object> serve(Class<?> application, Map<String, Object> properties) {
    SpringApplication spring = new SpringApplicationBuilder(application).build();
    String[] settings = properties.entrySet().stream()
        .map((property) -> "--" + property.getKey() + "=" + property.getValue()).toArray(String[]::new);
    spring.run(settings);
    return Map.of();
  }
}
