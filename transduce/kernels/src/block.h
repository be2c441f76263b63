// One block of a product: up to 32 rows of packed activations times two panels of packed weights, or 16 times four.
//
// An element's sum runs over the inner dimension in one order, whatever the block it is computed in, so its bits do
// not depend on how many rows there are. Owns the innermost loops; knows nothing of what follows a sum.
#pragma once

#include "tiles.h"
#include "words.h"

constexpr int BLOCK = 1024; // sums: 32 rows x 2 panels, or 16 rows x 4 panels

// [row][panel][16 outputs]
template <Kind K> struct Sums {
    alignas(64) typename Accumulator<K>::one at[BLOCK];
};

// Weights that the next blocks use, asked for while this one computes: so many cache lines a step.
struct Ahead {
    const uint8_t* at;
    int lines;

    TD_MEMBER void fetch() {
        for (int i = 0; i < lines; i++) __builtin_prefetch(at + i * 64, 0, 2);
        at += lines * 64;
    }
};

#ifdef __AVX512F__
constexpr int ROWS_AT_ONCE = 4, PANELS_AT_ONCE = 4;
#else
constexpr int ROWS_AT_ONCE = 2, PANELS_AT_ONCE = PIECE == 8 ? 2 : 1;
#endif

// ROWS_AT_ONCE rows of one tile, starting at `a`, times P panels that are `panel` bytes apart. Sums are held in pieces
// of a register: GCC keeps what is wider in memory.
template <Kind K, int P>
TD_INLINE void vector_rows(const uint8_t* a, const uint8_t* b, int64_t panel, int64_t steps,
                           typename Accumulator<K>::one* out, int out_row) {
    constexpr int PIECES = LANES / PIECE;
    typename Accumulator<K>::piece acc[ROWS_AT_ONCE][P * PIECES] = {};
    for (int64_t s = 0; s < steps; s++, a += TILE, b += TILE) {
        for (int w = 0; w < STEP; w++) {
            i32xp weights[P * PIECES];
            for (int p = 0; p < P * PIECES; p++)
                weights[p] = load_as<i32xp>(b + p / PIECES * panel + w * 64 + p % PIECES * 4 * PIECE);
            for (int r = 0; r < ROWS_AT_ONCE; r++) {
                const i32xp word = load_as<int32_t>(a + r * 64 + w * 4) - i32xp{};
                for (int p = 0; p < P * PIECES; p++) acc[r][p] = dot<K>(acc[r][p], word, weights[p]);
            }
        }
    }
    for (int r = 0; r < ROWS_AT_ONCE; r++)
        for (int p = 0; p < P * PIECES; p++) store_as(out + r * out_row + p * PIECE, acc[r][p]);
}

// Rows come in units of ROWS_AT_ONCE: those past `rows` are padding of the last tile.
template <Kind K, int PANELS>
TD_INLINE void vector_block(const uint8_t* a, const uint8_t* b, int64_t steps, int rows, Sums<K>& out) {
    constexpr int P = PANELS < PANELS_AT_ONCE ? PANELS : PANELS_AT_ONCE;
    const int64_t panel = steps * TILE;
    for (int row = 0; row < rows; row += ROWS_AT_ONCE) {
        const uint8_t* rows_at = a + row / STEP * panel + row % STEP * 64;
        for (int p = 0; p < PANELS; p += P)
            vector_rows<K, P>(rows_at, b + p * panel, panel, steps, out.at + (row * PANELS + p) * LANES, PANELS * LANES);
    }
}

#ifdef __AMX_TILE__
#define TD_TILE_DOT(C, A, B)                           \
    {                                                  \
        if constexpr (integers(K)) _tile_dpbusd(C, A, B); \
        else _tile_dpbf16ps(C, A, B);                  \
    }

// Two tiles of rows, two panels.
template <Kind K>
TD_INLINE void tile_block_2x2(const uint8_t* a, const uint8_t* b, int64_t steps, Ahead ahead, Sums<K>& out) {
    const int64_t next = steps * TILE;
    what_tiles_load();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t s = 0; s < steps; s++, a += TILE, b += TILE) {
        ahead.fetch();
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        TD_TILE_DOT(0, 4, 6)
        _tile_loadd(7, b + next, 64);
        TD_TILE_DOT(1, 4, 7)
        _tile_loadd(5, a + next, 64);
        TD_TILE_DOT(2, 5, 6)
        TD_TILE_DOT(3, 5, 7)
    }
    _tile_stored(0, out.at, 128);
    _tile_stored(1, out.at + LANES, 128);
    _tile_stored(2, out.at + 32 * LANES, 128);
    _tile_stored(3, out.at + 33 * LANES, 128);
}

// One tile of rows, four panels.
template <Kind K> TD_INLINE void tile_block_1x4(const uint8_t* a, const uint8_t* b, int64_t steps, Sums<K>& out) {
    const int64_t next = steps * TILE;
    what_tiles_load();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t s = 0; s < steps; s++, a += TILE, b += TILE) {
        _tile_loadd(4, a, 64);
        _tile_loadd(5, b, 64);
        TD_TILE_DOT(0, 4, 5)
        _tile_loadd(6, b + next, 64);
        TD_TILE_DOT(1, 4, 6)
        _tile_loadd(7, b + 2 * next, 64);
        TD_TILE_DOT(2, 4, 7)
        _tile_loadd(5, b + 3 * next, 64);
        TD_TILE_DOT(3, 4, 5)
    }
    _tile_stored(0, out.at, 256);
    _tile_stored(1, out.at + LANES, 256);
    _tile_stored(2, out.at + 2 * LANES, 256);
    _tile_stored(3, out.at + 3 * LANES, 256);
}
#undef TD_TILE_DOT
#endif

// Sums of `rows` rows from the tile `a` on, 1 to 16 with four panels, 17 to 32 with two.
template <Kind K, int PANELS>
TD_INLINE void block(const uint8_t* a, const uint8_t* b, int64_t steps, int rows, Ahead ahead, Sums<K>& out) {
#ifdef __AMX_TILE__
    if constexpr (K != FLOAT32) {
        if constexpr (PANELS == 4) tile_block_1x4<K>(a, b, steps, out);
        else tile_block_2x2<K>(a, b, steps, ahead, out);
        return;
    }
#endif
    (void)ahead;
    vector_block<K, PANELS>(a, b, steps, rows, out);
}
