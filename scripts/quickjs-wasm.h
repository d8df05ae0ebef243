/* Read before every C file that is compiled for wasm, and QuickJS is the only C there is.
 *
 * Endless recursion must end as an error inside the script. By default it ends as a trap, which kills
 * Envoy's VM with every request in it: QuickJS switches its stack check off on WASI. The check does
 * work there. It compares the frame address, which in wasm is the top of the stack in linear memory,
 * so QuickJS is not told that this is WASI once the system headers, which must know, are through.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#undef __wasi__

/* But wasm has two stacks, and the other one, the VM's own, is out of sight: locals and return
 * addresses are there, and a recursion that takes the address of little hardly touches the visible
 * one. So whatever function checks the visible stack also takes room on it, 512 bytes at a time, more
 * than its frame is likely to have on the other. A limit on the visible stack is then a limit on the
 * depth of both.
 *
 * The room belongs to the function that the check is inlined into, so inlined it must be: for proxies
 * with the helper that has the check, for regular expressions (in a file of their own) by a stand-in
 * under the name of the check. What no longer fits a newer QuickJS does not compile.
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
