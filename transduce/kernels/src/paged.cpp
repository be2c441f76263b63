// Reads and writes of a paged KV cache: which thread does what. pages.h is the layout, paged_floats.h and
// paged_bytes.h the arithmetic. T: what queries, keys and values come in, P: what pages hold; a name ends in both.
#include <cstdlib>
#include <vector>

#include "paged_bytes.h"
#include "paged_floats.h"
#include "team.h"

// Work that a second thread is not worth waking for.
constexpr int64_t READ_ALONE = 1 << 16;  // bytes of keys and values
constexpr int64_t WRITE_ALONE = 1 << 14; // bytes

constexpr int ITEM_QUERIES = 32; // so that a long prefill of few heads is spread
constexpr int64_t PIECES = 64;   // that a read is dealt out in, at most: each costs a word between threads

// The arguments of a read. A run is of neighbouring rows that read the first kv_len keys of a segment's block table.
struct Read {
    const void* q;
    void* cache;
    void* out;           // [rows][heads][head_dim]
    float* lse;          // [rows][heads] or null
    const int32_t* runs; // [4][run_count]: first row, rows, kv_len, segment
    const int32_t* positions; // [rows]
    const int32_t* blocks;    // [segments][max_blocks]
    int64_t q_stride;         // elements from one row to the next
    int32_t run_count, max_blocks, group; // group: query heads per KV head
    PageShape shape;
    int32_t causal, window; // no window: 0
    Scoring scoring;

    int run(int field, int i) const { return runs[field * run_count + i]; }
    int heads() const { return shape.kv_heads * group; }
};

// Neighbouring queries of one run and KV head: (row, head of the group), by row.
struct Item {
    int run, kv_head, first, count;
};

static std::vector<Item> items_of(const Read& read) {
    std::vector<Item> items;
    items.reserve(size_t(read.run_count) * read.shape.kv_heads);
    for (int run = 0; run < read.run_count; run++)
        for (int kv_head = 0; kv_head < read.shape.kv_heads; kv_head++) {
            const int queries = read.run(1, run) * read.group;
            for (int first = 0; first < queries; first += ITEM_QUERIES)
                items.push_back({run, kv_head, first, std::min(ITEM_QUERIES, queries - first)});
        }
    return items;
}

template <class P> static int64_t bytes_read(const Read& read, const std::vector<Item>& items) {
    int64_t tokens = 0;
    for (const Item& item : items)
        tokens += int64_t(read.run(2, item.run)) * ((item.count + MOST_QUERIES - 1) / MOST_QUERIES);
    return tokens * read.shape.head_dim * 2 * int64_t(sizeof(P));
}

// What one thread needs for the queries it has in hand.
class Scratch {
  public:
    explicit Scratch(const Read& read) {
        int most = 0;
        for (int run = 0; run < read.run_count; run++) most = std::max(most, read.run(2, run));
        keys = (int64_t(most) + 2 * LANES - 1) / LANES * LANES;
        dims = (read.shape.head_dim + LANES - 1) / LANES * LANES;
        each = keys + 2 * dims + round_up(Integers::room(dims, keys), 64) / int64_t(sizeof(float));
        memory = static_cast<float*>(std::aligned_alloc(64, MOST_QUERIES * each * sizeof(float)));
    }
    ~Scratch() { std::free(memory); }
    Scratch(const Scratch&) = delete;

    void lend(int i, Query& query) const {
        query.weights = memory + i * each;
        query.q = query.weights + keys;
        query.sums = query.q + dims;
        query.bytes = reinterpret_cast<uint8_t*>(query.sums + dims);
    }

  private:
    int64_t keys, dims, each;
    float* memory;
};

template <class T> static void start(const Read& read, const Item& item, int index, Query& query) {
    const int kv_len = read.run(2, item.run), width = read.shape.head_dim;
    query.row = read.run(0, item.run) + index / read.group;
    query.head = item.kv_head * read.group + index % read.group;
    query.position = read.positions[query.row];
    query.first = read.window ? std::max(0, query.position - read.window + 1) : 0;
    query.end = read.causal ? std::min(kv_len, query.position + 1) : kv_len;
    query.total = 0.f;
    query.top = -INFINITY;
    const T* q = static_cast<const T*>(read.q) + query.row * read.q_stride + int64_t(query.head) * width;
    for (int dim = 0; dim < width; dim += LANES) {
        store(query.q + dim, load(q + dim, std::min(LANES, width - dim)));
        store(query.sums + dim, splat(0.f));
    }
}

template <class T> static void finish(const Read& read, const Query& query) {
    const int width = read.shape.head_dim;
    const int64_t place = query.row * read.heads() + query.head;
    const float share = query.first < query.end ? 1.f / query.total : 0.f;
    T* out = static_cast<T*>(read.out) + place * width;
    for (int dim = 0; dim < width; dim += LANES)
        store(out + dim, load(query.sums + dim) * share, std::min(LANES, width - dim));
    if (read.lse) read.lse[place] = query.top + std::log(query.total);
}

// Attention of 1 to MOST_QUERIES queries that see something: their sums, totals and tops.
template <class T> static void attend(const Pages<T>& pages, const Scoring& how, int count, Query* queries) {
    Query* each[MOST_QUERIES];
    for (int n = 0; n < MOST_QUERIES; n++) each[n] = queries + std::min(n, count - 1);
    if (count == 1) attend_together<T, 1>(pages, how, count, each);
    else attend_together<T, MOST_QUERIES>(pages, how, count, each);
}

template <class P> static Pages<P> pages_of(const Read& read, const Item& item) {
    const int32_t* blocks = read.blocks + int64_t(read.run(3, item.run)) * read.max_blocks;
    return {read.cache, blocks, read.shape, item.kv_head, true};
}

template <class T, class P> static void read_item(const Read& read, const Item& item, const Scratch& scratch) {
    Pages<P> pages = pages_of<P>(read, item);
    const int stop = item.first + item.count;
    for (int next = item.first; next < stop;) {
        Query queries[MOST_QUERIES];
        int count = 0;
        for (; count < MOST_QUERIES && next < stop; next++) {
            Query& query = queries[count];
            scratch.lend(count, query);
            start<T>(read, item, next, query);
            if (query.first < query.end) count++;
            else finish<T>(read, query);
        }
        if (count) attend(pages, read.scoring, count, queries);
        for (int n = 0; n < count; n++) finish<T>(read, queries[n]);
        pages.far = false;
    }
}

template <class T, class P> static void read_all(const Read& read) {
    const std::vector<Item> items = items_of(read);
    PerMember<Scratch> scratch;
    const int64_t count = int64_t(items.size()), each = std::max<int64_t>(1, (count + PIECES - 1) / PIECES);
    share((count + each - 1) / each, bytes_read<P>(read, items) > READ_ALONE, [&](int64_t piece, int member) {
        const int64_t end = std::min(count, (piece + 1) * each);
        for (int64_t i = piece * each; i < end; i++) {
            if (i + 1 < end) pages_of<P>(read, items[i + 1]).fetch_first(read.run(2, items[i + 1].run));
            read_item<T, P>(read, items[i], scratch.of(member, read));
        }
    });
}

// The arguments of a write. Rows are k_stride and v_stride elements apart.
struct Write {
    void* cache;
    const void *k, *v;    // [tokens][kv_heads][head_dim]
    const int64_t* slots; // [tokens]
    int64_t k_stride, v_stride, tokens;
    PageShape shape;
};

// Sixteen words, each of two bf16: one of `low`, one of `high`.
TD_INLINE u32x16 zipped(const bf16* low, const bf16* high) {
    const u32x16 a = __builtin_convertvector(load_as<u16x16>(low), u32x16);
    return a | __builtin_convertvector(load_as<u16x16>(high), u32x16) << 16;
}

// One head of a token to its place among the block's keys and values.
template <class T>
static void write_head(const PageShape& shape, const T* k, const T* v, int token, T* keys, T* values) {
    constexpr int PER = PER_WORD<T>;
    for (int dim = 0; dim < shape.head_dim; dim += PER)
        std::memcpy(keys + int64_t(dim) * shape.block_size + token * PER, k + dim, 4);
    values += int64_t(token / PER) * PER * shape.head_dim + token % PER;
    for (int dim = 0; dim < shape.head_dim; dim++) values[dim * PER] = v[dim];
}

// Sixteen neighbouring tokens from `token` on: keys by words, transposed; values by tokens that share a word.
template <class T>
static void write_sixteen(const Write& write, const T* k, const T* v, int token, T* keys, T* values) {
    constexpr int PER = PER_WORD<T>, DIMS = LANES * PER;
    const PageShape& shape = write.shape;
    for (int dim = 0; dim < shape.head_dim; dim += DIMS) {
        i32x16 rows[LANES];
        for (int i = 0; i < LANES; i++) rows[i] = load_as<i32x16>(k + i * write.k_stride + dim);
        transpose(rows);
        for (int word = 0; word < LANES; word++)
            store_as(keys + (int64_t(dim) + word * PER) * shape.block_size + token * PER, rows[word]);
    }
    for (int i = 0; i < LANES; i += PER) {
        T* out = values + int64_t(token + i) * shape.head_dim;
        const T* row = v + i * write.v_stride;
        for (int dim = 0; dim < shape.head_dim; dim += LANES) {
            if constexpr (PER == 1) store(out + dim, load(row + dim));
            else store_as(out + dim * PER, zipped(row + dim, row + write.v_stride + dim));
        }
    }
}

// How many tokens from the i-th on go to neighbouring places of one block, at most sixteen.
static int neighbours(const Write& write, int64_t i) {
    const int64_t first = write.slots[i], room = write.shape.block_size - first % write.shape.block_size;
    const int64_t most = std::min({int64_t(LANES), room, write.tokens - i});
    int count = 1;
    while (count < most && write.slots[i + count] == first + count) count++;
    return count;
}

// Ask for the lines that one token's head is going to be written to: each of its words in a line of its own.
template <class T> TD_INLINE void fetch_head(const Write& write, int64_t i, int head) {
    constexpr int PER = PER_WORD<T>;
    const PageShape& shape = write.shape;
    const int64_t block = write.slots[i] / shape.block_size, token = write.slots[i] % shape.block_size;
    const T* keys = shape.keys_of<T>(write.cache, block, head) + token * PER;
    for (int dim = 0; dim < shape.head_dim; dim += PER) __builtin_prefetch(keys + int64_t(dim) * shape.block_size, 1);
    const T* values = shape.values_of<T>(write.cache, block, head) + token / PER * PER * shape.head_dim;
    for (int dim = 0; dim < shape.head_dim; dim += LANES) __builtin_prefetch(values + dim * PER, 1);
}

template <class T> static void write_tokens(const Write& write, int head) {
    const PageShape& shape = write.shape;
    const bool by_words = shape.head_dim % (LANES * PER_WORD<T>) == 0;
    for (int64_t i = 0; i < write.tokens;) {
        const int64_t block = write.slots[i] / shape.block_size, at = int64_t(head) * shape.head_dim;
        const int token = int(write.slots[i] % shape.block_size);
        const T* k = static_cast<const T*>(write.k) + i * write.k_stride + at;
        const T* v = static_cast<const T*>(write.v) + i * write.v_stride + at;
        T* keys = shape.keys_of<T>(write.cache, block, head);
        T* values = shape.values_of<T>(write.cache, block, head);
        if (by_words && token % PER_WORD<T> == 0 && neighbours(write, i) == LANES) {
            write_sixteen(write, k, v, token, keys, values);
            i += LANES;
        } else {
            if (i + 2 < write.tokens) fetch_head<T>(write, i + 2, head);
            write_head(shape, k, v, token, keys, values);
            i++;
        }
    }
}

// One head of a token to its place among the bytes of a block's keys and values.
template <class T> static void round_head(const PageShape& shape, const T* k, const T* v, int token, int8_t* keys, int8_t* values) {
    const int width = shape.head_dim, place = 8 * (token % PER_BYTES);
    const RowScale key(row_magnitude(k, width), MOST), value(row_magnitude(v, width), MOST);
    reinterpret_cast<float*>(keys + shape.elements())[token] = key.unit;
    reinterpret_cast<float*>(values + shape.elements())[token] = value.unit;
    by_lanes(k, width, [&](int64_t dim, f32x16 x) {
        uint8_t bytes[LANES];
        store_as(bytes, low_bytes(key(x)) ^ uint8_t(ZERO_POINT));
        for (int i = 0; i < LANES && dim + i < width; i += PER_BYTES)
            std::memcpy(keys + (dim + i) * shape.block_size + token * PER_BYTES, bytes + i, PER_BYTES);
    });
    auto* words = reinterpret_cast<int32_t*>(values) + int64_t(token / PER_BYTES) * width;
    by_lanes(v, width, [&](int64_t dim, f32x16 x) {
        const int lanes = int(std::min<int64_t>(LANES, width - dim));
        const i32x16 others = load_words<false>(words + dim, lanes) & ~(0xff << place);
        store(reinterpret_cast<float*>(words) + dim, as_f32(others | (value(x) & 0xff) << place), lanes);
    });
}

// Ask for the lines that one token's head is going to be written to.
TD_INLINE void fetch_rounded(const Write& write, int64_t i, int head) {
    const PageShape& shape = write.shape;
    const int64_t block = write.slots[i] / shape.block_size, token = write.slots[i] % shape.block_size;
    const int8_t* keys = shape.keys_of<int8_t>(write.cache, block, head);
    const int8_t* values = shape.values_of<int8_t>(write.cache, block, head);
    for (int dim = 0; dim < shape.head_dim; dim += PER_BYTES)
        __builtin_prefetch(keys + int64_t(dim) * shape.block_size + token * PER_BYTES, 1);
    for (int dim = 0; dim < shape.head_dim; dim += LANES)
        __builtin_prefetch(values + token / PER_BYTES * PER_BYTES * shape.head_dim + dim * PER_BYTES, 1);
    __builtin_prefetch(keys + shape.elements() + token * 4, 1);
    __builtin_prefetch(values + shape.elements() + token * 4, 1);
}

template <class T> static void round_tokens(const Write& write, int head) {
    const PageShape& shape = write.shape;
    const int64_t at = int64_t(head) * shape.head_dim;
    for (int64_t i = 0; i < write.tokens; i++) {
        if (i + 2 < write.tokens) fetch_rounded(write, i + 2, head);
        const int64_t block = write.slots[i] / shape.block_size;
        round_head(shape, static_cast<const T*>(write.k) + i * write.k_stride + at,
                   static_cast<const T*>(write.v) + i * write.v_stride + at, int(write.slots[i] % shape.block_size),
                   shape.keys_of<int8_t>(write.cache, block, head), shape.values_of<int8_t>(write.cache, block, head));
    }
}

// Threads share the heads, not the tokens: of tokens that go to one slot, the last one stays.
template <class T, class P> static void write_all(const Write& write) {
    const int64_t bytes = write.tokens * write.shape.kv_heads * write.shape.head_dim * 2 * int64_t(sizeof(T));
    share(write.shape.kv_heads, bytes > WRITE_ALONE, [&](int64_t head, int) {
        if constexpr (sizeof(P) == 1) round_tokens<T>(write, int(head));
        else write_tokens<T>(write, int(head));
    });
}

TD_EXPORT void td_paged_read_f32_f32(const Read* read) { read_all<float, float>(*read); }
TD_EXPORT void td_paged_read_f32_i8(const Read* read) { read_all<float, int8_t>(*read); }
TD_EXPORT void td_paged_read_bf16_bf16(const Read* read) { read_all<bf16, bf16>(*read); }
TD_EXPORT void td_paged_read_bf16_i8(const Read* read) { read_all<bf16, int8_t>(*read); }
TD_EXPORT void td_paged_write_f32_f32(const Write* write) { write_all<float, float>(*write); }
TD_EXPORT void td_paged_write_f32_i8(const Write* write) { write_all<float, int8_t>(*write); }
TD_EXPORT void td_paged_write_bf16_bf16(const Write* write) { write_all<bf16, bf16>(*write); }
TD_EXPORT void td_paged_write_bf16_i8(const Write* write) { write_all<bf16, int8_t>(*write); }
