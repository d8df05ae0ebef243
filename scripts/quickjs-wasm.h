/* The compiler reads this file before every C file for wasm. QuickJS is the only C there is.
 *
 * Endless recursion must end as an error inside the script. By default it ends as a trap, which
 * kills Envoy's VM with every request in it: QuickJS switches its stack check off on WASI. The
 * check works there all the same. It compares the frame address, which in wasm is the top of the
 * stack in linear memory. So this file undefines `__wasi__` for QuickJS, after the system headers,
 * which need it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#undef __wasi__

/* Wasm has a second stack, the VM's own, which the check cannot see. It holds locals and return
 * addresses, and a recursion that takes few addresses hardly uses the visible stack. So every
 * function that checks the visible stack also takes 512 bytes of it, more than its frame is likely
 * to have on the other. A limit on the visible stack then limits the depth of both.
 *
 * The function that contains the check must take these bytes, so the check must be inlined: for
 * proxies with the helper that has the check, for regular expressions (in a file of their own) by a
 * replacement under the name of the check. If a newer QuickJS does not fit, it does not compile.
 */
#define TAKE_ROOM() ({ char room[512]; __asm__ volatile("" : : "r"(room)); })

#ifdef QUICKJS_LIBREGEXP
bool check(void *, size_t) __asm__("lre_check_stack_overflow");
__attribute__((always_inline)) static inline bool lre_check_with_room(void *opaque, size_t size) {
  TAKE_ROOM();
  return check(opaque, size);
}
#define lre_check_stack_overflow lre_check_with_room
#else
#pragma clang diagnostic ignored "-Wundefined-internal"
#pragma clang diagnostic ignored "-Wundefined-inline"
#pragma clang diagnostic ignored "-Wunused-function"
struct JSContext;
struct JSProxyData;
struct JSRuntime;
__attribute__((always_inline)) static inline bool js_check_stack_overflow(struct JSRuntime *, size_t);
__attribute__((always_inline)) static struct JSProxyData *
get_proxy_method(struct JSContext *, uint64_t *, uint64_t, uint32_t);
#define __builtin_frame_address(level) ({ TAKE_ROOM(); __builtin_frame_address(level); })
#endif
