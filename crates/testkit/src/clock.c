/* Loaded into Envoy before its libraries: the wall clock, moved by as many seconds as the file says that $CLOCK_OFFSET
 * names. Everything that measures time, rather than telling it, keeps the real clock. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
  const char *file = getenv("CLOCK_OFFSET");
  char text[32] = "";
  int opened = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
  if (opened < 0) return 0;
  ssize_t length = read(opened, text, sizeof text - 1);
  close(opened);
  return length > 0 ? strtol(text, 0, 10) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = (int)syscall(SYS_clock_gettime, clock, now);
  if (!failed && clock == CLOCK_REALTIME) now->tv_sec += offset();
  return failed;
}
