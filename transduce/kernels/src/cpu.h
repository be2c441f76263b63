// What this CPU can do.
#pragma once

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

// Linux hands out the tile registers on request, once per process.
static inline bool request_tiles() {
#if defined(__x86_64__) && defined(__linux__)
    const int request_permission = 0x1023, tile_data = 18;
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
    return false;
#endif
}
