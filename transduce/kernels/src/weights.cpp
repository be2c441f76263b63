// Weights on their way into memory: quantized by output, packed into panels. Called once per layer, when it is loaded.
#include "rows.h"
#include "team.h"

namespace {

template <class T> void quantize_row(const T* w, int64_t n, int8_t* out, float* scale) {
    const RowScale integer(row_magnitude(w, n), MOST);
    *scale = integer.unit;
    by_lanes(w, n, [&](int64_t i, f32x16 v) {
        const u8x16 bytes = low_bytes(integer(v));
        std::memcpy(out + i, &bytes, n - i < LANES ? n - i : LANES);
    });
}

// Row `row` of w, `bytes` long, into its lane of its panel: word by word.
void pack_output(const uint8_t* w, int64_t bytes, uint8_t* lane) {
    for (int64_t at = 0; at < bytes; at += 4, lane += 64) std::memcpy(lane, w + at, bytes - at < 4 ? bytes - at : 4);
}

template <class Work> void by_row(int64_t rows, Work work) {
    const int64_t step = 64;
    share((rows + step - 1) / step, true, [&](int64_t piece, int) {
        for (int64_t r = piece * step; r < rows && r < (piece + 1) * step; r++) work(r);
    });
}

} // namespace

// w [out, in] of the given Type to integers [out, in] and a scale per output, symmetric about zero.
TD_EXPORT void td_quantize(const Matrix* w, int64_t out, int64_t in, int8_t* integers, float* scales) {
    by_row(out, [&](int64_t r) {
        if (w->type == F32) quantize_row(static_cast<const float*>(w->data) + r * w->row, in, integers + r * in, scales + r);
        else quantize_row(static_cast<const bf16*>(w->data) + r * w->row, in, integers + r * in, scales + r);
    });
}

// w [out, in], contiguous, of elements as `kind` has them, to zeroed panels; integers: offset [out] too.
TD_EXPORT void td_pack(int32_t kind, const uint8_t* w, int64_t out, int64_t in, uint8_t* panels, int32_t* offset) {
    const Kind k = Kind(kind);
    const int64_t bytes = in * 4 / per_word(k), panel = steps_of(k, in) * TILE;
    by_row(out, [&](int64_t r) {
        const uint8_t* row = w + r * bytes;
        pack_output(row, bytes, panels + r / LANES * panel + r % LANES * 4);
        if (!integers(k)) return;
        int32_t sum = 0;
        for (int64_t i = 0; i < in; i++) sum += int8_t(row[i]);
        offset[r] = ZERO_POINT * sum;
    });
}
