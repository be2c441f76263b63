// What a linear layer is to the kernels; made once by Python (kernels/linear.py), read by every call.
#pragma once

#include "words.h"

enum Activation : int32_t { NONE = 0, RELU = 1, GELU = 2, GELU_NEW = 3, SILU = 4 };
enum Type : int32_t { F32 = 0, BF16 = 1 };

// Outputs are padded to a multiple of 64 in all arrays, with zeros.
struct Linear {
    const uint8_t* panels; // [outputs/16][steps][16 words][16 outputs]; or codes, see codes.h
    const float* bias;     // [outputs], or null
    const float* scale;    // [outputs], integers alone: of each output's weights
    const int32_t* offset; // [outputs], integers alone: 128 times the sum of each output's weights
    const float* absmax;   // [outputs/16][runs][16 outputs], codes alone: what a run's levels are multiples of
    const float* levels;   // [16], codes alone: what each of them stands for
    int64_t in, out, run;  // run: how many inputs share an absmax, an even number
    int32_t kind, activation;
    float threshold;       // LLM_INT8 alone: the magnitude from which a value is an outlier
};

// Rows of floats of one type; `row` counts elements between rows.
struct Matrix {
    void* data;
    int64_t row;
    int32_t type;
};
