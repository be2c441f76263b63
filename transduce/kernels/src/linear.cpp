// Linear layers: packed weights times rows of floats, with everything that follows fused in. Owns how work is divided.
#include <cstdlib>

#include "codes.h"
#include "epilogue.h"
#include "select.h"
#include "team.h"

namespace {

constexpr int64_t UNIT = 4 * LANES; // outputs are dealt out four panels at a time

// Rows that are packed at once when there are many: activations stay in the second-level cache while weights pass by.
constexpr int64_t ROWS_AT_A_TIME = 256;

// Floats that one thread packs sooner than it shares them.
constexpr int64_t PACKED_ALONE = 1 << 16;

class Buffer {
  public:
    explicit Buffer(int64_t bytes) : data_(static_cast<uint8_t*>(std::aligned_alloc(64, size_t(round_up(bytes, 64))))) {}
    ~Buffer() { std::free(data_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    uint8_t* get() const { return data_; }

  private:
    uint8_t* data_;
};

// Packed rows and what goes with them.
struct Packed {
    Packed(Kind kind, int64_t rows, int64_t inner)
        : steps(steps_of(kind, inner)), extra(extra_bytes(kind, inner)),
          tiles(round_up(rows, STEP) * steps * (TILE / STEP)), extras(rows * extra) {}
    Tiles from(int64_t row) const {
        return {tiles.get() + row / STEP * steps * TILE, extras.get() + row * extra, extra};
    }
    int64_t steps, extra;
    Buffer tiles, extras;
};

// A thread's place for the four panels that it decodes at a time.
uint8_t* scratch_of(int64_t bytes) {
    static thread_local std::unique_ptr<Buffer> own;
    static thread_local int64_t size = 0;
    if (bytes > size) own.reset(new Buffer(size = bytes));
    return own->get();
}

// A layer, its rows, and how its results get where they go. Packed rows are terms(K) to a row.
template <Kind K> struct Job {
    const Linear& w;
    const Matrix& x;
    int64_t rows;
    Finish<K, 2> finish_pair;
    Finish<K, 4> finish_four;

    int64_t units() const { return round_up(w.out, UNIT) / UNIT; }
    // A few thousand words are sooner multiplied than shared out.
    bool parallel() const { return w.in * w.out * (1 + rows / STEP) >= (1 << 17); }
};

// The four panels of the unit of outputs that begins at `column`, made of their codes where that is what there is.
template <Kind K> TD_INLINE const uint8_t* unit_at(const Job<K>& job, int64_t column) {
    const int64_t panel = steps_of(K, job.w.in) * TILE;
    if constexpr (!integers(K)) {
        if (job.w.levels) {
            uint8_t* scratch = scratch_of(UNIT / LANES * panel);
            for (int64_t p = 0; p < UNIT / LANES; p++) decode_panel<K>(job.w, column + p * LANES, scratch + p * panel);
            return scratch;
        }
    }
    return job.w.panels + column / LANES * panel;
}

// `rows` packed rows from `row` on, which is row `first` of the target and so on, times PANELS panels from output `column` on.
template <Kind K, int PANELS>
TD_INLINE void multiply_block(const Job<K>& job, const Packed& x, const uint8_t* panels, const Target& target, int64_t first,
                              int64_t row, int rows, int64_t column, Ahead ahead) {
    Sums<K> sums;
    const Tiles tiles = x.from(row);
    block<K, PANELS>(tiles.at, panels, x.steps, rows, ahead, sums);
    const Place place{first + row / terms(K), column, rows / terms(K), tiles};
    if constexpr (PANELS == 2) job.finish_pair(sums, job.w, place, target);
    else job.finish_four(sums, job.w, place, target);
}

// `count` packed rows, which are the target's from row `first` on, times the units [from, to) of outputs. Two panels stay
// in the first-level cache while the rows go by.
template <Kind K>
void multiply(const Job<K>& job, const Packed& x, const Target& target, int64_t first, int64_t count, int64_t from,
              int64_t to) {
    constexpr int64_t PAIR = 2 * STEP; // rows of two tiles
    const int64_t paired = count % PAIR > STEP ? round_up(count, PAIR) : count / PAIR * PAIR;
    const int lines = paired ? int(round_up(TILE, paired) / paired) : 0; // of the next two panels, a share with each pair
    for (int64_t column = from * UNIT; column < to * UNIT; column += UNIT) {
        const uint8_t* unit = unit_at(job, column);
        for (int64_t half = 0; half < UNIT; half += 2 * LANES) {
            const uint8_t *panels = unit + half / LANES * x.steps * TILE, *next = panels + 2 * x.steps * TILE;
            Ahead ahead{next, lines};
            for (int64_t row = 0; row < paired; row += PAIR, ahead.at += lines * 64 * x.steps) {
                const int rows = int(count - row < PAIR ? count - row : PAIR);
                multiply_block<K, 2>(job, x, panels, target, first, row, rows, column + half, ahead);
            }
        }
        if (paired < count)
            multiply_block<K, 4>(job, x, unit, target, first, paired, int(count - paired), column, Ahead{nullptr, 0});
    }
}

// All rows, packed by all threads.
template <Kind K> void pack(const Job<K>& job, const Packed& packed) {
    constexpr int64_t STEP_ROWS = STEP / terms(K); // that fill a tile
    const int64_t count = job.rows * terms(K);
    share(round_up(count, STEP) / STEP, job.parallel() && count * job.w.in >= PACKED_ALONE, [&](int64_t tile, int) {
        const int64_t from = tile * STEP_ROWS, to = from + STEP_ROWS < job.rows ? from + STEP_ROWS : job.rows;
        pack_rows<K>(job.w, job.x, from, to, packed.from(tile * STEP));
    });
}

// Few rows: all threads share the packed rows and divide the outputs. target_of(member): where its results go.
template <Kind K, class TargetOf> void few_rows(const Job<K>& job, TargetOf target_of) {
    const int64_t count = job.rows * terms(K);
    const Packed packed(K, count, job.w.in);
    const bool parallel = job.parallel();
    pack(job, packed);
    const int64_t units = job.units(), most = team_size() * 4, pieces = !parallel ? 1 : units < most ? units : most;
    share(pieces, parallel, [&](int64_t piece, int member) {
        const TileScope tiles;
        multiply<K>(job, packed, target_of(member), 0, count, units * piece / pieces, units * (piece + 1) / pieces);
    });
}

// Many rows: every thread packs its own, a cacheful at a time, and passes all weights by them.
template <Kind K> void many_rows(const Job<K>& job, const Target& target) {
    PerMember<Packed> scratch;
    constexpr int64_t ROWS = ROWS_AT_A_TIME / terms(K);
    share(round_up(job.rows, ROWS) / ROWS, true, [&](int64_t piece, int member) {
        const TileScope tiles;
        const Packed& packed = scratch.of(member, K, ROWS_AT_A_TIME, job.w.in);
        const int64_t first = piece * ROWS, count = job.rows - first < ROWS ? job.rows - first : ROWS;
        pack_rows<K>(job.w, job.x, first, first + count, packed.from(0));
        multiply<K>(job, packed, target, first, count * terms(K), 0, job.units());
    });
}

template <Kind K> void linear(const Linear& w, const Matrix& x, int64_t rows, const Target& target) {
    const Job<K> job{w, x, rows, finish_of<K, 2>(w, target), finish_of<K, 4>(w, target)};
    if (rows * terms(K) > ROWS_AT_A_TIME * team_size()) many_rows(job, target);
    else few_rows(job, [&](int) { return target; });
}

// Every thread keeps the best of the outputs it has seen, for each row; leaders: [members][rows].
template <Kind K> void best(const Linear& w, const Matrix& x, int64_t rows, Leader* leaders) {
    const Job<K> job{w, x, rows, finish_best<K, 2>, finish_best<K, 4>};
    few_rows(job, [&](int member) { return Target{{}, nullptr, nullptr, leaders + member * rows}; });
}

// Outputs [from, from + SPAN) of a layer, or as many as there are.
Linear span_of(Kind kind, const Linear& w, int64_t from) {
    Linear span = w;
    span.panels += from / LANES * (w.levels ? code_bytes(kind, w.in) : steps_of(kind, w.in) * TILE);
    if (w.absmax) span.absmax += from * padded_runs(kind, w.in, w.run);
    if (w.bias) span.bias += from;
    if (w.scale) span.scale += from;
    if (w.offset) span.offset += from;
    span.out = std::min(w.out - from, SPAN);
    return span;
}

// One thread's: a span of every row's outputs, and the best of each row so far.
struct Scratch {
    static constexpr int64_t ROW = SPAN + LANES; // no power of two: rows would contend for a few places in the cache
    Scratch(int64_t rows, int k) : outputs(rows * ROW * int64_t(sizeof(float))), best(rows, Best(k)) {}
    float* row(int64_t row) const { return reinterpret_cast<float*>(outputs.get()) + row * ROW; }
    Buffer outputs;
    std::vector<Best> best;
};

// Up to ROWS_AT_A_TIME rows, the first of which is row `first` of what is asked. Every thread makes a span of outputs
// at a time, and looks through it while it is in the cache.
template <Kind K> void top_k(const Linear& w, const Matrix& x, int64_t first, int64_t rows, const Ranks& ranks) {
    const Job<K> job{w, x, rows, nullptr, nullptr};
    const Packed packed(K, rows * terms(K), w.in);
    pack(job, packed);
    const int64_t spans = spans_of(w.out), k = ranks.k;
    std::vector<Mass> masses(rows * spans);
    PerMember<Scratch> scratch;
    share(spans, job.parallel(), [&](int64_t span, int member) {
        const TileScope tiles;
        Scratch& own = scratch.of(member, rows, ranks.k);
        const Linear part = span_of(K, w, span * SPAN);
        const Target target{{own.row(0), Scratch::ROW, F32}, nullptr, nullptr, nullptr};
        const Job<K> piece{part, x, rows, finish_of<K, 2>(part, target), finish_of<K, 4>(part, target)};
        multiply<K>(piece, packed, target, 0, rows * terms(K), 0, piece.units());
        for (int64_t row = 0; row < rows; row++) {
            own.best[row].look(own.row(row), part.out, span * SPAN);
            masses[row * spans + span] = mass_of(own.row(row), part.out);
        }
    });
    const std::vector<Scratch*> made = scratch.made();
    const int64_t width = int64_t(made.size()) * k;
    std::vector<Candidate> found(width);
    for (int64_t row = 0; row < rows; row++) {
        for (size_t i = 0; i < made.size(); i++) made[i]->best[row].write(&found[i * k]);
        ranks.write(first + row, found.data(), width, &masses[row * spans], spans);
    }
}

template <Kind K> void top_k(const Linear& w, const Matrix& x, int64_t rows, const Ranks& ranks) {
    const int64_t row_bytes = x.row * (x.type == F32 ? 4 : 2);
    for (int64_t first = 0; first < rows; first += ROWS_AT_A_TIME) {
        const Matrix some{static_cast<uint8_t*>(x.data) + first * row_bytes, x.row, x.type};
        top_k<K>(w, some, first, std::min(rows - first, ROWS_AT_A_TIME), ranks);
    }
}

} // namespace

// out = activation(x · weights + bias) [* times] [+ plus], for rows of x; times and plus: null, or of out's type.
// Numbers rather than structures: the caller makes this call hundreds of times a step.
TD_EXPORT void td_linear(const Linear* w, int64_t rows, void* x, int64_t x_row, int32_t x_type, void* out, int64_t out_row,
                         int32_t out_type, void* times, int64_t times_row, void* plus, int64_t plus_row) {
    const Matrix input{x, x_row, x_type}, factors{times, times_row, out_type}, terms{plus, plus_row, out_type};
    const Target target{{out, out_row, out_type}, times ? &factors : nullptr, plus ? &terms : nullptr, nullptr};
    by_kind(w->kind, [&](auto kind) { linear<kind.value>(*w, input, rows, target); });
}

// The greatest of x · weights + bias in each row, and the lowest index that has it; without the activation. A NaN is
// no greatest: -infinity and index 0 where there is nothing else.
TD_EXPORT void td_linear_best(const Linear* w, int64_t rows, const Matrix* x, float* values, int64_t* indices) {
    const int threads = team_size();
    const Buffer buffer(threads * rows * int64_t(sizeof(Leader)));
    Leader* leaders = reinterpret_cast<Leader*>(buffer.get());
    for (int64_t i = 0; i < threads * rows; i++) leaders[i] = Leader{};
    by_kind(w->kind, [&](auto kind) { best<kind.value>(*w, *x, rows, leaders); });
    for (int64_t row = 0; row < rows; row++) {
        Leader& first = leaders[row];
        for (int thread = 1; thread < threads; thread++) first.meet(leaders[thread * rows + row]);
        values[row] = first.value;
        indices[row] = first.index;
    }
}

// The k greatest of x · weights + bias in each row, values and indices [rows, k], best first, and lse [rows], as of
// td_top_k over all outputs; without the activation.
TD_EXPORT void td_linear_top_k(const Linear* w, int64_t rows, const Matrix* x, int k, float* values, int64_t* indices,
                               float* lse) {
    const Ranks ranks{k, values, indices, lse};
    by_kind(w->kind, [&](auto kind) { top_k<kind.value>(*w, *x, rows, ranks); });
}
