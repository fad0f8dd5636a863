// The ops behind ops::EvoformerAttn on the host: attention with two biases, and its gradients. evoformer_calls.h has the
// arguments.
//
// A matrix is a head of a sequence. Forward, a thread takes a matrix, or some rows of one, and keeps everything between reading
// q, k and v and writing o in its own part of the scratch memory, the scores of kRows rows at a time.
//
// Backward, three loops over a matrix, or some rows of it, follow each other. The first makes k, v, q and the gradient of o fp32. The
// second takes rows: the weights, their gradients, and those of q and of the pairs' bias. The third takes columns: the gradients
// of k, of v and of the keys' bias. A thread does all of it for the matrices that share a pairs' bias. If there are too few
// of those for the threads, the threads share each loop, over several matrices at a time. Every sum has the same order either way.
#include "evoformer_calls.h"
#include "portable_language.h"
// After portable_language.h
#include "../portable/dialect.h"
#include "../portable/products.h"

namespace anyaccel::op::evoformer {
namespace {

using Call = aa_evoformer_call;

constexpr float kInfinity = __builtin_inff();
// Rows of scores that a thread computes at a time: some tiles of them.
constexpr int64_t kRows = AA_TILE_ROWS == 6 ? 24 : 32;
// Columns whose gradients a thread computes at a time; also the positions that it converts at a time.
constexpr int64_t kColumns = 64;
// Scores that exist at a time, besides their gradients: of a matrix, and of all matrices that threads share.
constexpr int64_t kPart = int64_t{1} << 17, kShared = int64_t{1} << 18;

AA_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
AA_INLINE int64_t larger(int64_t a, int64_t b) { return a < b ? b : a; }
AA_INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
AA_INLINE int64_t whole(int64_t n) { return ceil_div(n, AA_WIDE) * AA_WIDE; }

struct Sizes {
  int64_t matrices, length, size;
  int64_t columns;  // of scores, with those behind the last position
  int64_t pitch;    // floats from row to row of scores
  int64_t wide;     // floats from row to row of fp32 copies, which end with zeros
  int64_t stride;   // elements from position to position of q

  explicit Sizes(const Call& c)
      : matrices(c.batch * c.group * c.heads),
        length(c.length),
        size(c.size),
        columns(whole(c.length)),
        // An odd number of cache lines: otherwise the lines of a column would share a few sets of the caches.
        pitch((columns / AA_WIDE | 1) * AA_WIDE),
        wide(whole(c.size)),
        stride(c.heads * c.size) {}
  int64_t panels() const { return columns / AA_WIDE; }
};

// Hands out parts of the scratch memory, or counts only if that is null.
struct Scratch {
  float* from;
  int64_t floats = 0;
  float* take(int64_t count) {
    float* const taken = from ? from + floats : nullptr;
    floats += whole(count);
    return taken;
  }
};

// ---- steps ----

// Copies `rows` rows of x, which are `stride` elements apart, times `scale`, to rows of `wide` floats.
template <class T>
AA_ONCE void read_rows(const T* x, int64_t stride, int64_t rows, int64_t size, int64_t wide, float scale, float* out) {
  // Rows of heads are short and far apart, so that the hardware fetches none of them ahead.
  constexpr int64_t ahead = 16;
  for (int64_t i = 0; i < rows; ++i, x += stride, out += wide) {
    int64_t k = 0;
    for (; k + Vec::width <= size; k += Vec::width) {
      prefetch(x + ahead * stride + k);
      store(out + k, load(x + k) * Vec(scale));
    }
    if (k < size) {
      store(out + k, load_n(x + k, size - k) * Vec(scale));
      k += Vec::width;
    }
    for (; k < wide; k += Vec::width) store(out + k, Vec());
  }
}
// The reverse; row i is multiplied by factors[i * step].
template <class T>
AA_ONCE void write_rows(T* to, int64_t stride, const float* x, int64_t wide, int64_t rows, int64_t size,
                        const float* factors, int64_t step) {
  for (int64_t i = 0; i < rows; ++i, to += stride, x += wide) {
    const Vec factor(factors[i * step]);
    int64_t k = 0;
    for (; k + Vec::width <= size; k += Vec::width) store(to + k, load(x + k) * factor);
    if (k < size) store_n(to + k, load(x + k) * factor, size - k);
  }
}

// Turns up to AA_WIDE rows of `size` floats into a panel (products.h) of as many columns, with zeros behind the last one.
AA_ONCE void transpose(const float* x, int64_t wide, int64_t rows, int64_t size, float* panel) {
  if (rows == AA_WIDE) {
    for (int64_t k = 0; k < size; ++k) {
      for (int64_t j = 0; j < AA_WIDE; ++j) panel[k * AA_WIDE + j] = x[j * wide + k];
    }
    return;
  }
  for (int64_t k = 0; k < size; ++k) {
    for (int64_t j = 0; j < AA_WIDE; ++j) panel[k * AA_WIDE + j] = j < rows ? x[j * wide + k] : 0.0f;
  }
}

// The operands of a product: where they begin, and the floats from row to row and from one inner element to the next, or from
// panel to panel.
struct Left {
  const float* at;
  int64_t row, inner;
};
struct Right {
  const float* at;
  int64_t panel, row;
};

template <int kTileRows, int kWides, bool kAcross>
AA_INLINE void multiply_tile(float* out, int64_t out_row, Left a, Right b, int64_t inner, int64_t r, int64_t p,
                             bool add) {
  aa_wide sums[kTileRows * kWides];
  for (int i = 0; i < kTileRows * kWides; ++i) sums[i] = aa_wide_all(0.0f);
  aa_tile_add(kTileRows, kWides, sums, a.at, r * (kAcross ? 1 : a.row), kAcross ? 1 : a.row, kAcross ? a.inner : 1,
              b.at, p * b.panel, b.panel, b.row, inner);
  AA_PRAGMA_UNROLL for (int i = 0; i < kTileRows; ++i) {
    AA_PRAGMA_UNROLL for (int w = 0; w < kWides; ++w) {
      float* const to = out + (r + i) * out_row + (p + w) * AA_WIDE;
      if (add) {
        aa_tile_add_store(to, 0, sums[i * kWides + w], AA_WIDE);
      } else {
        aa_tile_store(to, 0, sums[i * kWides + w], AA_WIDE);
      }
    }
  }
}
// out = a b, or out += a b, for `rows` rows and `panels` whole panels. kAcross: a is transposed, so its rows lie side by side;
// else its inner elements do.
template <bool kAcross>
AA_ONCE void multiply(float* out, int64_t out_row, Left a, Right b, int64_t rows, int64_t inner, int64_t panels,
                      bool add = false) {
#define AA_TILE(rows, wides, r, p) multiply_tile<rows, wides, kAcross>(out, out_row, a, b, inner, r, p, add)
  AA_EACH_TILE(AA_TILE, 0, rows, 0, panels)
#undef AA_TILE
}

// The bias of the keys of a sequence, which also hides what is behind the last position.
template <class T>
AA_ONCE void read_keys(const T* keys, int64_t sequence, const Sizes& s, float* out) {
  for (int64_t j = 0; j < s.length; ++j) out[j] = keys ? to_float(keys[sequence * s.length + j]) : 0.0f;
  for (int64_t j = s.length; j < s.columns; ++j) out[j] = -kInfinity;
}

// Scores with both biases; `pair` is a row of the pairs' bias, or null.
template <class T>
AA_INLINE Vec biased(const float* scores, const float* keys, const T* pair, int64_t j, int64_t length) {
  const Vec x = load(scores + j) + load(keys + j);
  if (!pair || j >= length) return x;
  return x + (j + Vec::width <= length ? load(pair + j) : load_n(pair + j, length - j));
}

// Turns a row of scores into e^(x - the largest), and writes the logarithm of the sum of e^x. Returns the factor that makes
// weights of them; that of a row that sees nothing is zero.
template <class T>
AA_ONCE float softmax_row(float* x, const float* keys, const T* pair, const Sizes& s, float* lse) {
  for (int64_t j = s.length; j < s.columns; ++j) x[j] = 0.0f;
  Vec most(-kInfinity);
  for (int64_t j = 0; j < s.columns; j += Vec::width) {
    const Vec value = biased(x, keys, pair, j, s.length);
    store(x + j, value);
    most = max(value, most);
  }
  float largest = op::largest(most);
  if (largest == -kInfinity) largest = 0.0f;
  Vec sums(0.0f);
  for (int64_t j = 0; j < s.columns; j += Vec::width) {
    const Vec value = exponential(load(x + j) - Vec(largest));
    store(x + j, value);
    sums += value;
  }
  const float total = sum(sums);
  *lse = total == 0.0f ? -kInfinity : largest + __builtin_logf(total);
  return total == 0.0f ? 0.0f : 1.0f / total;
}

// Turns a row of scores into weights, and the gradients of the weights, dx, into those of the scores. Adds these to gpair, if it
// is not null.
template <class T>
AA_ONCE void gradient_row(float* x, float* dx, const float* keys, const T* pair, const Sizes& s, float lse, float delta,
                          float* gpair) {
  for (int64_t j = s.length; j < s.columns; ++j) x[j] = dx[j] = 0.0f;
  if (lse == -kInfinity) {
    for (int64_t j = 0; j < s.columns; ++j) x[j] = dx[j] = 0.0f;
    return;
  }
  for (int64_t j = 0; j < s.columns; j += Vec::width) {
    const Vec weight = exponential(biased(x, keys, pair, j, s.length) - Vec(lse));
    const Vec change = weight * (load(dx + j) - Vec(delta));
    store(x + j, weight);
    store(dx + j, change);
    if (!gpair) continue;
    if (j + Vec::width <= s.length) {
      store(gpair + j, load(gpair + j) + change);
    } else if (j < s.length) {
      store_n(gpair + j, load_n(gpair + j, s.length - j) + change, s.length - j);
    }
  }
}

// ---- forward ----

// What a thread has.
struct ForwardScratch {
  float *keys, *values, *bias, *queries, *scores, *out, *factors;
  int64_t floats;
  ForwardScratch(const Sizes& s, float* from) {
    Scratch scratch{from};
    keys = scratch.take(s.columns * s.size);
    values = scratch.take(s.columns * s.wide);
    bias = scratch.take(s.columns);
    queries = scratch.take(kRows * s.wide);
    scores = scratch.take(kRows * s.pitch);
    out = scratch.take(kRows * s.wide);
    factors = scratch.take(kRows);
    floats = scratch.floats;
  }
};

// Rows begin .. end - 1 of a matrix.
template <class T>
AA_ONCE void attend(const Call& c, const Sizes& s, const ForwardScratch& t, int64_t matrix, int64_t begin,
                    int64_t end) {
  const int64_t sequence = matrix / c.heads, head = matrix % c.heads;
  const int64_t first = sequence * s.length * s.stride + head * s.size;
  const auto of = [&](const void* x) { return static_cast<const T*>(x) + first; };
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(s.size));
  for (int64_t j = 0; j < s.length; j += AA_WIDE) {
    const int64_t rows = smaller(AA_WIDE, s.length - j);
    read_rows(of(c.k) + j * s.stride, s.stride, rows, s.size, s.wide, scale, t.queries);
    transpose(t.queries, s.wide, rows, s.size, t.keys + j * s.size);
  }
  read_rows(of(c.v), s.stride, s.length, s.size, s.wide, 1.0f, t.values);
  read_keys(static_cast<const T*>(c.keys), sequence, s, t.bias);
  const T* const pairs = static_cast<const T*>(c.pairs);
  const int64_t pair_row = (sequence / c.group * c.heads + head) * s.length;
  for (int64_t r = begin; r < end; r += kRows) {
    const int64_t rows = smaller(kRows, end - r);
    read_rows(of(c.q) + r * s.stride, s.stride, rows, s.size, s.wide, 1.0f, t.queries);
    multiply<false>(t.scores, s.pitch, {t.queries, s.wide, 1}, {t.keys, AA_WIDE * s.size, AA_WIDE}, rows, s.size,
                    s.panels());
    for (int64_t i = 0; i < rows; ++i) {
      t.factors[i] =
          softmax_row(t.scores + i * s.pitch, t.bias, pairs ? pairs + (pair_row + r + i) * s.length : nullptr, s,
                      c.lse + matrix * c.lse_row + r + i);
    }
    multiply<false>(t.out, s.wide, {t.scores, s.pitch, 1}, {t.values, AA_WIDE, s.wide}, rows, s.length,
                    s.wide / AA_WIDE);
    write_rows(static_cast<T*>(c.o) + first + r * s.stride, s.stride, t.out, s.wide, rows, s.size, t.factors, 1);
  }
}

template <class T>
void forward(const Call& c) {
  const Sizes s(c);
  const int64_t floats = ForwardScratch(s, nullptr).floats;
  // Matrices are divided only if there are few, since each part of one converts all of its keys and values.
  const int64_t blocks = ceil_div(s.length, kRows);
  const int64_t parts = smaller(blocks, ceil_div(4 * c.threads, s.matrices));
  run_shares(s.matrices * parts, c.threads, [&](int thread, int64_t unit) {
    const ForwardScratch scratch(s, c.scratch + thread * floats);
    const int64_t part = unit % parts;
    attend<T>(c, s, scratch, unit / parts, blocks * part / parts * kRows,
              smaller(blocks * (part + 1) / parts * kRows, s.length));
  });
}

// ---- backward ----

// Matrices are numbered by batch, head and sequence here, so that those that share a pairs' bias follow each other.
//
// What `threads` threads share.
struct BackwardScratch {
  int64_t count, rows;                 // matrices at a time, and rows of each at a time
  float *keys, *queries, *gradients;   // of these matrices: k, q and go
  float *keys_across, *values_across;  // and k and v as panels
  float *delta, *bias;                 // the same: go * o by rows, and the bias of the keys
  float *weights, *changes;            // of these rows: the weights, and the gradients of the scores
  float *gk, *gv;                      // sums for the gradients of k and v
  float* own;                          // what each thread has
  int64_t own_floats, floats;
  BackwardScratch(const Sizes& s, int threads, float* from) {
    const int64_t scores = s.length * s.pitch;
    count = threads == 1 ? 1 : smaller(larger(1, kShared / scores), s.matrices);
    rows = scores <= kPart ? s.length : smaller(larger(kRows, kPart / s.pitch / kRows * kRows), s.length);
    Scratch scratch{from};
    const int64_t positions = count * s.length;
    keys = scratch.take(positions * s.wide);
    queries = scratch.take(positions * s.wide);
    gradients = scratch.take(positions * s.wide);
    keys_across = scratch.take(count * s.columns * s.size);
    values_across = scratch.take(count * s.columns * s.size);
    delta = scratch.take(positions);
    bias = scratch.take(count * s.columns);
    weights = scratch.take(count * rows * s.pitch);
    changes = scratch.take(count * rows * s.pitch);
    gk = scratch.take(positions * s.wide);
    gv = scratch.take(positions * s.wide);
    own_floats = larger(kRows, kColumns) * s.wide;
    own = scratch.take(threads * own_floats);
    floats = scratch.floats;
  }
};

template <class T>
class Backward {
 public:
  // `scratch` is what BackwardScratch needs for these threads. `column_sums` has the length of a row for every matrix.
  Backward(const Call& call, int threads, float* scratch, float* column_sums)
      : c(call), s(call), threads_(threads), t(s, threads, scratch), column_sums_(column_sums) {}

  void run(int64_t begin, int64_t end) {
    for (first = begin; first < end; first += t.count) {
      count = smaller(t.count, end - first);
      const int64_t strips = ceil_div(s.length, kColumns);
      each(count * strips, [&](int thread, int64_t unit) { convert(thread, unit / strips, unit % strips * kColumns); });
      for (first_row = 0; first_row < s.length; first_row += t.rows) {
        rows = smaller(t.rows, s.length - first_row);
        // Fewer rows at a time if there are not enough for all threads.
        const int64_t pairs = (first + count - 1) / c.group - first / c.group + 1;
        const int64_t share = ceil_div(rows * pairs, 4 * threads_ * AA_TILE_ROWS) * AA_TILE_ROWS;
        const int64_t at_once = threads_ == 1 ? kRows : smaller(kRows, share), blocks = ceil_div(rows, at_once);
        each(pairs * blocks, [&](int thread, int64_t unit) {
          const int64_t row = unit % blocks * at_once;
          take_rows(thread, first / c.group + unit / blocks, row, smaller(at_once, rows - row));
        });
        each(count * strips, [&](int, int64_t unit) { take_columns(unit / strips, unit % strips * kColumns); });
      }
    }
  }

 private:
  template <class Body>
  AA_INLINE void each(int64_t units, const Body& body) const {
    if (threads_ > 1) return run_shares(units, threads_, body);
    for (int64_t unit = 0; unit < units; ++unit) body(0, unit);
  }

  // Where matrix number `index` of those at a time is.
  int64_t sequence_of(int64_t index) const {
    return (first + index) / (c.group * c.heads) * c.group + (first + index) % c.group;
  }
  int64_t head_of(int64_t index) const { return (first + index) / c.group % c.heads; }
  int64_t element_of(int64_t index, int64_t position) const {
    return (sequence_of(index) * s.length + position) * s.stride + head_of(index) * s.size;
  }
  int64_t lse_of(int64_t index, int64_t position) const {
    return (sequence_of(index) * c.heads + head_of(index)) * c.lse_row + position;
  }

  void convert(int thread, int64_t index, int64_t begin) const {
    const int64_t positions = smaller(kColumns, s.length - begin), at = index * s.length + begin;
    const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(s.size));
    const auto read = [&](const void* x, float factor, float* out) {
      read_rows(static_cast<const T*>(x) + element_of(index, begin), s.stride, positions, s.size, s.wide, factor, out);
    };
    const auto across = [&](const float* x, float* out) {
      out += (index * s.columns + begin) * s.size;
      for (int64_t j = 0; j < positions; j += AA_WIDE) {
        transpose(x + j * s.wide, s.wide, smaller(AA_WIDE, positions - j), s.size, out + j * s.size);
      }
    };
    float* const own = t.own + thread * t.own_floats;
    float *const keys = t.keys + at * s.wide, *const gradients = t.gradients + at * s.wide;
    read(c.k, scale, keys);
    across(keys, t.keys_across);
    read(c.v, 1.0f, own);
    across(own, t.values_across);
    read(c.q, 1.0f, t.queries + at * s.wide);
    read(c.go, 1.0f, gradients);
    read(c.o, 1.0f, own);
    for (int64_t i = 0; i < positions; ++i) {
      Vec dot(0.0f);
      for (int64_t k = i * s.wide; k < (i + 1) * s.wide; k += Vec::width) {
        dot = multiply_add(load(gradients + k), load(own + k), dot);
      }
      t.delta[at + i] = sum(dot);
    }
    if (begin == 0) read_keys(static_cast<const T*>(c.keys), sequence_of(index), s, t.bias + index * s.columns);
  }

  // Rows row .. row + taken - 1 of those at a time, of the matrices that share pairs' bias number `pair`.
  void take_rows(int thread, int64_t pair, int64_t row, int64_t taken) const {
    const int64_t begin = larger(pair * c.group, first) - first,
                  end = smaller((pair + 1) * c.group, first + count) - first;
    float* const own = t.own + thread * t.own_floats;
    const int64_t position = first_row + row, pair_at = (pair * s.length + position) * s.length;
    const T* const pairs = c.pairs ? static_cast<const T*>(c.pairs) + pair_at : nullptr;
    const float one = 1.0f;
    for (int64_t index = begin; index < end; ++index) {
      float *const weights = t.weights + (index * rows + row) * s.pitch, *const changes =
                                                                             t.changes + (weights - t.weights);
      const int64_t at = (index * s.length + position) * s.wide, across = index * s.columns * s.size;
      multiply<false>(weights, s.pitch, {t.queries + at, s.wide, 1},
                      {t.keys_across + across, AA_WIDE * s.size, AA_WIDE}, taken, s.size, s.panels());
      multiply<false>(changes, s.pitch, {t.gradients + at, s.wide, 1},
                      {t.values_across + across, AA_WIDE * s.size, AA_WIDE}, taken, s.size, s.panels());
      for (int64_t i = 0; i < taken; ++i) {
        gradient_row(weights + i * s.pitch, changes + i * s.pitch, t.bias + index * s.columns,
                     pairs ? pairs + i * s.length : nullptr, s, c.lse[lse_of(index, position + i)],
                     t.delta[index * s.length + position + i], c.gpairs ? c.gpairs + pair_at + i * s.length : nullptr);
      }
      multiply<false>(own, s.wide, {changes, s.pitch, 1}, {t.keys + index * s.length * s.wide, AA_WIDE, s.wide}, taken,
                      s.length, s.wide / AA_WIDE);
      write_rows(static_cast<T*>(c.gq) + element_of(index, position), s.stride, own, s.wide, taken, s.size, &one, 0);
    }
  }

  // Columns from `begin` on: sums over the rows at a time.
  void take_columns(int64_t index, int64_t begin) const {
    const int64_t taken = smaller(kColumns, s.length - begin), at = (index * s.length + begin) * s.wide;
    const int64_t score = index * rows * s.pitch + begin, other = (index * s.length + first_row) * s.wide;
    const bool add = first_row != 0, last = first_row + rows == s.length;
    const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(s.size)), one = 1.0f;
    const auto collect = [&](const float* scores, const float* with, float* sums, void* to, const float* factor) {
      multiply<true>(sums + at, s.wide, {scores + score, 1, s.pitch}, {with + other, AA_WIDE, s.wide}, taken, rows,
                     s.wide / AA_WIDE, add);
      if (!last) return;
      write_rows(static_cast<T*>(to) + element_of(index, begin), s.stride, sums + at, s.wide, taken, s.size, factor, 0);
    };
    collect(t.changes, t.queries, t.gk, c.gk, &scale);
    collect(t.weights, t.gradients, t.gv, c.gv, &one);
    if (c.gkeys) add_up(t.changes + score, taken, column_sums_ + (first + index) * s.length + begin, add);
  }
  AA_ONCE void add_up(const float* changes, int64_t columns, float* sums, bool add) const {
    float totals[kColumns] = {};
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < whole(columns); ++j) totals[j] += changes[i * s.pitch + j];
    }
    for (int64_t j = 0; j < columns; ++j) sums[j] = add ? sums[j] + totals[j] : totals[j];
  }

  const Call& c;
  const Sizes s;
  const int threads_;
  const BackwardScratch t;
  float* const column_sums_;
  int64_t first = 0, count = 0, first_row = 0, rows = 0;  // the matrices and rows at a time
};

// How the threads divide a call.
struct BackwardPlan {
  bool alone;      // each unit is one thread's
  int64_t unit;    // its matrices
  int64_t sums;    // floats at the beginning of the scratch memory: the gradients of the keys' bias, by matrices
  int64_t floats;  // of a thread that works alone, or of all
  BackwardPlan(const Call& c, const Sizes& s) {
    // The sum over the matrices that share a pairs' bias is one thread's.
    unit = c.gpairs ? c.group : 1;
    const int64_t units = s.matrices / unit;
    alone = 4 * ceil_div(units, c.threads) * c.threads <= 5 * units;  // it is busy for four fifths of the time or more
    sums = c.gkeys ? whole(s.matrices * s.length) : 0;
    floats = BackwardScratch(s, alone ? 1 : c.threads, nullptr).floats;
  }
};

template <class T>
void backward(const Call& c) {
  const Sizes s(c);
  const BackwardPlan plan(c, s);
  float* const scratch = c.scratch + plan.sums;
  if (plan.alone) {
    run_shares(s.matrices / plan.unit, c.threads, [&](int thread, int64_t unit) {
      Backward<T>(c, 1, scratch + thread * plan.floats, c.scratch).run(unit * plan.unit, (unit + 1) * plan.unit);
    });
  } else {
    Backward<T>(c, c.threads, scratch, c.scratch).run(0, s.matrices);
  }
  if (!c.gkeys) return;
  run_shares(c.batch * c.group, c.threads, [&](int, int64_t sequence) {
    const int64_t b = sequence / c.group, n = sequence % c.group;
    for (int64_t head = 0; head < c.heads; ++head) {
      const float* const sums = c.scratch + ((b * c.heads + head) * c.group + n) * s.length;
      for (int64_t j = 0; j < s.length; ++j) c.gkeys[sequence * s.length + j] += sums[j];
    }
  });
}

// Calls body(x) with a null pointer to the call's element type.
template <class Body>
AA_INLINE void with_type(int32_t dtype, const Body& body) {
  if (dtype == AA_DTYPE_F32) {
    body(static_cast<float*>(nullptr));
  } else if (dtype == AA_DTYPE_BF16) {
    body(static_cast<bf16*>(nullptr));
  } else {
    body(static_cast<fp16*>(nullptr));
  }
}

}  // namespace

AA_OP int64_t evoformer_forward_scratch(const aa_evoformer_call* c) {
  return c->threads * ForwardScratch(Sizes(*c), nullptr).floats;
}
AA_OP int64_t evoformer_backward_scratch(const aa_evoformer_call* c) {
  const BackwardPlan plan(*c, Sizes(*c));
  return plan.sums + (plan.alone ? c->threads : 1) * plan.floats;
}

AA_OP void evoformer_forward(const aa_evoformer_call* c) {
  with_type(c->dtype, [&]<class T>(T*) { forward<T>(*c); });
}
AA_OP void evoformer_backward(const aa_evoformer_call* c) {
  with_type(c->dtype, [&]<class T>(T*) { backward<T>(*c); });
}

}  // namespace anyaccel::op::evoformer
