// Rows of a table of bytes, looked up by token id and turned into floats.
#include "vec.h"

template <class T>
static void look_up(const int64_t* ids, int64_t count, const int8_t* table, const float* scales, int64_t d, T* out) {
    for (int64_t i = 0; i < count; i++, out += d) {
        const int8_t* row = table + ids[i] * d;
        const float scale = scales[ids[i]];
        int64_t dim = 0;
        for (; dim + LANES <= d; dim += LANES)
            store(out + dim, to_f32(__builtin_convertvector(load_as<i8x16>(row + dim), i32x16)) * scale);
        for (; dim < d; dim++) out[dim] = from_f32<T>(float(row[dim]) * scale);
    }
}

// table [..][d] and scales [..]: out [count][d] is table[ids] * scales[ids].
TD_EXPORT void td_look_up_f32(const int64_t* ids, int64_t count, const int8_t* table, const float* scales, int64_t d, float* out) {
    look_up(ids, count, table, scales, d, out);
}
TD_EXPORT void td_look_up_bf16(const int64_t* ids, int64_t count, const int8_t* table, const float* scales, int64_t d, bf16* out) {
    look_up(ids, count, table, scales, d, out);
}
