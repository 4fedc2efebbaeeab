/* AddressSanitizer and libFuzzer both have the functions that note coverage; where both are loaded,
 * those of AddressSanitizer, which do nothing, are found first. This library is found before them
 * and hands on to libFuzzer. Each call is a jump: libFuzzer sees who called, and tells the places
 * in a program apart by that. `FUZZ_CORE` names the library that holds libFuzzer. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

static void *found(const char *name) {
    void *core = dlopen(getenv("FUZZ_CORE"), RTLD_NOLOAD | RTLD_LAZY);
    void *function = core ? dlsym(core, name) : NULL;
    if (function == NULL) abort();
    return function;
}

#define HAND_ON(name, parameters, arguments)                                                       \
    static void (*name##_there) parameters;                                                        \
    static void name##_first parameters {                                                          \
        name##_there = (void (*) parameters) found(#name);                                         \
        name##_there arguments;                                                                    \
    }                                                                                              \
    static void (*name##_there) parameters = name##_first;                                         \
    void name parameters { name##_there arguments; }

HAND_ON(__sanitizer_cov_8bit_counters_init, (uint8_t * from, uint8_t *to), (from, to))
HAND_ON(__sanitizer_cov_pcs_init, (const uintptr_t *from, const uintptr_t *to), (from, to))
HAND_ON(__sanitizer_cov_trace_cmp8, (uint64_t a, uint64_t b), (a, b))
HAND_ON(__sanitizer_cov_trace_const_cmp8, (uint64_t a, uint64_t b), (a, b))
