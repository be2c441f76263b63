// What a linear layer is to the kernels; made once by Python (kernels/linear.py), read by every call.
#pragma once

#include "words.h"

enum Activation : int32_t { NONE = 0, RELU = 1, GELU = 2, GELU_NEW = 3, SILU = 4 };
enum Type : int32_t { F32 = 0, BF16 = 1 };

// Outputs are padded to a multiple of 64 in all arrays, with zeros.
struct Linear {
    const uint8_t* panels; // [outputs/16][steps][16 words][16 outputs]
    const float* bias;     // [outputs], or null
    const float* scale;    // [outputs], integers alone: of each output's weights
    const int32_t* offset; // [outputs], integers alone: 128 times the sum of each output's weights
    int64_t in, out;
    int32_t kind, activation;
};

// Rows of floats of one type; `row` counts elements between rows.
struct Matrix {
    void* data;
    int64_t row;
    int32_t type;
};
