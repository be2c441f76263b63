// A paged KV cache as words of four bytes: one float, or two neighbouring bf16.
//
// cache [blocks][keys, values][kv_heads][...]: keys are [head_dim / PER_WORD][block_size] words, so that lanes are
// neighbouring tokens; values are [block_size / PER_WORD][head_dim] words, so that lanes are neighbouring dimensions.
// Either way a product's terms meet within a lane, nothing is summed across lanes, and a bf16 becomes a float by a
// shift or a mask.
#pragma once

#include "vec.h"

// Pages: memory takes about as long to answer as the work on so many.
constexpr int AHEAD = 3;

template <class T> constexpr int PER_WORD = 4 / sizeof(T);

// The floats of one place in sixteen words.
template <class T> TD_INLINE f32x16 part(i32x16 words, int place) {
    if constexpr (PER_WORD<T> == 1) return as_f32(words);
    else return as_f32(place ? words & int32_t(0xffff0000) : words << 16);
}

// Sixteen words at p; if not WHOLE, only the first n are there, and the other lanes are zero.
template <bool WHOLE> TD_INLINE i32x16 load_words(const int32_t* p, int n) {
    return WHOLE ? load_as<i32x16>(p) : as_i32(load(reinterpret_cast<const float*>(p), n));
}

// What a cache's blocks hold. block_size is a multiple of PER_WORD, and so is head_dim.
struct PageShape {
    int32_t kv_heads, head_dim, block_size;

    int64_t elements_per_head() const { return int64_t(head_dim) * block_size; }
    int64_t keys_of(int64_t block, int head) const { return (block * 2 * kv_heads + head) * elements_per_head(); }
    int64_t values_of(int64_t block, int head) const { return keys_of(block, head + kv_heads); }
};

// The pages of one block table and KV head.
template <class T> struct Pages {
    const T* cache;
    const int32_t* blocks;
    PageShape shape;
    int head;
    bool far; // not read a moment ago

    const int32_t* keys(int block) const { return words(shape.keys_of(blocks[block], head)); }
    const int32_t* values(int block) const { return words(shape.values_of(blocks[block], head)); }

    // Ask for the page that is used AHEAD pages later: keys of the blocks [first, last] are used first, then values.
    // Inlined by order: a function that does nothing but prefetch has no effect that the compiler knows of, and goes.
    __attribute__((always_inline)) void fetch_after_keys(int block, int first, int last) const {
        const int later = block + AHEAD, value = first + later - last - 1;
        if (later <= last) fetch(keys(later));
        else if (value <= last) fetch(values(value));
    }
    __attribute__((always_inline)) void fetch_after_values(int block, int last) const {
        if (block + AHEAD <= last) fetch(values(block + AHEAD));
    }

  private:
    __attribute__((always_inline)) void fetch(const int32_t* page) const {
        if (!far) return;
        const int64_t words = shape.elements_per_head() / PER_WORD<T>;
        for (int64_t word = 0; word < words; word += LANES) __builtin_prefetch(page + word, 0, 2);
    }
    const int32_t* words(int64_t element) const { return reinterpret_cast<const int32_t*>(cache + element); }
};
