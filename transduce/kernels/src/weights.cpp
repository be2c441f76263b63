// Weights on their way into memory: quantized by output, packed into panels. Called once per layer, when it is loaded.
#include "codes.h"
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

// The codes of sixteen outputs, `bytes` of each, in the order in which codes.h has them.
template <Kind K> void pack_codes(const uint8_t* const (&rows)[LANES], int64_t bytes, uint8_t* panel) {
    for (int64_t i = 0; i < bytes; i++, panel += LANES) {
        for (int lane = 0; lane < LANES / 2; lane++) {
            const uint8_t a = rows[lane][i], b = rows[lane + LANES / 2][i];
            if constexpr (K == FLOAT32) {
                panel[lane] = uint8_t(a >> 4 | a << 4);
                panel[lane + LANES / 2] = uint8_t(b >> 4 | b << 4);
            } else {
                panel[2 * lane] = uint8_t(a >> 4 | (b & 0xf0));
                panel[2 * lane + 1] = uint8_t((a & 15) | b << 4);
            }
        }
    }
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

// codes [out, in/2], two inputs to a byte, and absmax [out, in/run] to zeroed panels of codes and of their absmax.
TD_EXPORT void td_pack_codes(int32_t kind, const uint8_t* codes, const float* absmax, int64_t out, int64_t in, int64_t run,
                             uint8_t* panels, float* panel_absmax) {
    const Kind k = Kind(kind);
    const int64_t panel = code_bytes(k, in), runs = padded_runs(k, in, run), stored = in / run, bytes = in / 2;
    const std::vector<uint8_t> none(bytes);
    share(round_up(out, LANES) / LANES, true, [&](int64_t p, int) {
        const uint8_t* rows[LANES];
        for (int64_t lane = 0; lane < LANES; lane++) {
            const int64_t r = p * LANES + lane;
            float* to = panel_absmax + p * runs * LANES + lane;
            rows[lane] = r < out ? codes + r * bytes : none.data();
            for (int64_t i = 0; r < out && i < stored; i++) to[i * LANES] = absmax[r * stored + i];
        }
        if (k == FLOAT32) pack_codes<FLOAT32>(rows, bytes, panels + p * panel);
        else pack_codes<BFLOAT16>(rows, bytes, panels + p * panel);
    });
}
