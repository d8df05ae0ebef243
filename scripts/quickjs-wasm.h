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

/* But wasm has two stacks, and the other one, Envoy's own, is out of sight: locals and return
 * addresses are there, and a recursion that takes addresses of little uses the visible one hardly at
 * all. So every function that checks also takes up room: 512 bytes of the visible stack are always
 * more than the same frames cost on the other. The room belongs to whatever function the check is
 * inlined into, hence the attributes. (For proxies the check sits in a helper of the functions that
 * recurse.) A limit on the visible stack is then a limit on the depth.
 *
 * tests of `src/claims` recurse in every way QuickJS can; a signature that no longer fits does not
 * compile.
 */
#pragma clang diagnostic ignored "-Wundefined-internal"
#pragma clang diagnostic ignored "-Wundefined-inline"
#pragma clang diagnostic ignored "-Wunused-function"
struct JSContext;
struct JSProxyData;
struct JSRuntime;
static inline bool js_check_stack_overflow(struct JSRuntime *, size_t) __attribute__((always_inline));
static struct JSProxyData *get_proxy_method(struct JSContext *, uint64_t *, uint64_t, uint32_t) __attribute__((always_inline));
#define __builtin_frame_address(level) \
  ({ char room[512]; __asm__ volatile("" : : "r"(room)); __builtin_frame_address(level); })
