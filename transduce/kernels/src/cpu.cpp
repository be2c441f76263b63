// The best instruction set that this CPU runs; loaded at the portable level to pick the others.
#include "cpu.h"
#include "vec.h"

#if defined(__x86_64__)
static bool has_tiles() {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    const unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24, amx_int8 = 1u << 25;
    return (d & amx_bf16) && (d & amx_tile) && (d & amx_int8) && request_tiles();
}
static bool has_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
}
static bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#else
static bool has_tiles() { return false; }
static bool has_avx512() { return false; }
static bool has_avx2() { return false; }
#endif

// An index into build.py's LEVELS: 0 amx, 1 avx512, 2 avx2, 3 portable.
TD_EXPORT int td_best_level() {
    if (!has_avx2()) return 3;
    if (!has_avx512()) return 2;
    return has_tiles() ? 0 : 1;
}
