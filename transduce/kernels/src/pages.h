// A paged KV cache: floats, bf16, or bytes with a float for every row, which says what one of its integers stands for.
//
// cache [blocks][keys, values][kv_heads][a page]. A page is words of four bytes, which are one, two or four elements: keys are [head_dim / PER_WORD][block_size] words, so that lanes are neighbouring tokens; values are
// [block_size / PER_WORD][head_dim] words, so that lanes are neighbouring dimensions. Either way a product's terms meet
// within a lane, nothing is summed across lanes, and a bf16 becomes a float by a shift or a mask.
// A page of bytes is words of four, of keys with 128 added, as dot products take one unsigned operand; then come the
// scales [block_size].
#pragma once

#include "vec.h"

// Pages: memory takes about as long to answer as the work on so many.
constexpr int AHEAD = 3;

template <class T> constexpr int PER_WORD = 4 / sizeof(T);
template <class T> constexpr int SCALE = sizeof(T) == 1 ? 4 : 0; // bytes for each row

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

    int64_t elements() const { return int64_t(head_dim) * block_size; }
    template <class T> int64_t page_bytes() const { return elements() * int64_t(sizeof(T)) + SCALE<T> * block_size; }
    template <class T> T* keys_of(void* cache, int64_t block, int head) const {
        return reinterpret_cast<T*>(static_cast<char*>(cache) + (block * 2 * kv_heads + head) * page_bytes<T>());
    }
    template <class T> T* values_of(void* cache, int64_t block, int head) const {
        return keys_of<T>(cache, block, head + kv_heads);
    }
};

// The pages of one block table and KV head.
template <class T> struct Pages {
    void* cache;
    const int32_t* blocks;
    PageShape shape;
    int head;
    bool far; // not read a moment ago

    const T* keys(int block) const { return shape.keys_of<T>(cache, blocks[block], head); }
    const T* values(int block) const { return shape.values_of<T>(cache, blocks[block], head); }

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
    // Ask for what a reader of `count` keys begins with.
    void fetch_first(int count) const {
        const int blocks_read = (count + shape.block_size - 1) / shape.block_size;
        for (int block = 0; block < AHEAD && block < blocks_read; block++) fetch(keys(block));
    }

  private:
    __attribute__((always_inline)) void fetch(const T* page) const {
        if (!far) return;
        const char* bytes = reinterpret_cast<const char*>(page);
        for (int64_t i = 0; i < shape.page_bytes<T>(); i += 64) __builtin_prefetch(bytes + i, 0, 2);
    }
};
