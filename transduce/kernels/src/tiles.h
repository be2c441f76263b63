// AMX: this thread's tile registers set up for the time of a scope. Only for the level that has them.
#pragma once

#ifdef __AMX_TILE__
#include "cpu.h"
#include "vec.h"

constexpr int TILE_ROWS = 16;
constexpr int TILE_BYTES = 64; // of a row

// To GCC a tile load reads no memory: what was stored before this is stored before later tile loads.
TD_INLINE void what_tiles_load() { asm volatile("" ::: "memory"); }

struct alignas(64) TileConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
};

// All eight tiles of 16 rows x 64 bytes. What was configured before comes back: torch's kernels share the registers.
class TileScope {
  public:
    TileScope() {
        asm volatile("sttilecfg %0" : "=m"(before_));
        TileConfig whole;
        for (int i = 0; i < 8; i++) {
            whole.row_bytes[i] = TILE_BYTES;
            whole.rows[i] = TILE_ROWS;
        }
        load(whole);
    }
    ~TileScope() {
        if (before_.palette) {
            load(before_);
        } else {
            _tile_release();
        }
    }
    TileScope(const TileScope&) = delete;
    TileScope& operator=(const TileScope&) = delete;

  private:
    // Not the intrinsic: to it a config is eight bytes, and GCC drops what was stored to the others.
    static void load(const TileConfig& config) { asm volatile("ldtilecfg %0" ::"m"(config)); }

    TileConfig before_;
};
#else
struct TileScope {
    TileScope() {}
    ~TileScope() {}
};
#endif
