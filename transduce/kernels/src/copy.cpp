// Blocks of caches copied to other blocks of the same cache.
#include <algorithm>
#include <memory>

#include "team.h"
#include "vec.h"

// Bytes of every block that are copied together: what is held of the sources stays in a thread's cache.
constexpr int64_t SLICE = 4096;

// Below this many bytes a second thread costs more than it brings.
constexpr int64_t COPY_PARALLEL_FROM = 128 * 1024;

// In each of the caches, whose blocks are alike: pairs [count][source, destination]. All sources are read before any
// destination is written.
TD_EXPORT void td_copy_blocks(char* const* caches, int64_t cache_count, int64_t block_bytes, const int64_t* pairs,
                              int64_t count) {
    const int64_t slices = (block_bytes + SLICE - 1) / SLICE;
    const bool parallel = cache_count * count * block_bytes >= COPY_PARALLEL_FROM;
    share(cache_count * slices, parallel, [&](int64_t piece, int) {
        const int64_t at = piece % slices * SLICE;
        char* const first = caches[piece / slices] + at;
        const size_t size = size_t(std::min(SLICE, block_bytes - at));
        const std::unique_ptr<char[]> held(new char[size_t(count) * size]);
        for (int64_t i = 0; i < count; i++) std::memcpy(&held[i * size], first + pairs[2 * i] * block_bytes, size);
        for (int64_t i = 0; i < count; i++) std::memcpy(first + pairs[2 * i + 1] * block_bytes, &held[i * size], size);
    });
}
