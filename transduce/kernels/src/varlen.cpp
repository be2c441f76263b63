// Attention of packed items to themselves: which thread does what. The arithmetic is varlen_part.h.
//
// A row's bits depend on its item and its place there alone: items are cut between blocks of queries.
#include <vector>

#include "team.h"
#include "varlen_part.h"

constexpr int64_t SHORTEST_PART = 128;     // queries: packing keys and values anew is little beside attending to them
constexpr int64_t QUERY_GRID = 32;         // parts end where blocks of queries do
constexpr int64_t PARALLEL_FROM = 1 << 22; // multiplications that are worth a second thread

static int64_t multiplications(const Varlen& call) {
    int64_t sum = 0;
    for (int64_t i = 0; i < call.items; i++) sum += 2 * call.lengths[i] * call.lengths[i] * call.heads * call.head_dim;
    return sum;
}

// Each item as one part for the first head, the longest first, so that no thread is left alone with one at the end.
static std::vector<Part> items_of(const Varlen& call) {
    std::vector<Part> items;
    int64_t row = 0;
    for (int64_t i = 0; i < call.items; row += call.lengths[i++])
        if (call.lengths[i] > 0) items.push_back({row, call.lengths[i], 0, call.lengths[i], 0});
    std::stable_sort(items.begin(), items.end(), [](const Part& a, const Part& b) { return a.length > b.length; });
    return items;
}

// Items by heads, in parts of which none is more than a quarter of a thread's work if it can be helped.
static std::vector<Part> parts_of(const Varlen& call, int64_t threads) {
    const int64_t most = multiplications(call) / (4 * threads);
    std::vector<Part> parts;
    for (Part part : items_of(call)) {
        const int64_t query = 2 * part.length * (call.heads / call.kv_heads) * call.head_dim;
        const int64_t step = threads == 1 ? part.length : round_up(std::max(SHORTEST_PART, most / query), QUERY_GRID);
        for (part.kv_head = 0; part.kv_head < call.kv_heads; part.kv_head++)
            for (part.from = 0; part.from < part.length; part.from += step) {
                part.to = std::min(part.length, part.from + step);
                parts.push_back(part);
            }
    }
    return parts;
}

template <class T> static void run(const Varlen& call) {
    const bool parallel = multiplications(call) >= PARALLEL_FROM;
    const std::vector<Part> parts = parts_of(call, parallel ? team_size() : 1);
    if (parts.empty()) return;
    PerMember<PartAttention<T>> attention;
    share(parts.size(), parallel, [&](int64_t i, int member) {
        const TileScope tiles;
        attention.of(member, call, parts[0].length).attend(parts[i]);
    });
}

TD_EXPORT void td_varlen(const Varlen* call) {
    if (call->bfloat16) run<bf16>(*call);
    else run<float>(*call);
}
