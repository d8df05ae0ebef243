package frameworks;

import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;

/** Spring Authorization Server, as Spring Boot sets it up. */
@SpringBootConfiguration
@EnableAutoConfiguration
class AuthorizationServer {}
