// ops::SparseAttn against plain double arithmetic on dense matrices, finite differences, PyTorch's autograd and DeepSpeed's
// layouts; with ANYACCEL_TEST_ACCELERATOR that accelerator's.
#include "anyaccel/ops/sparse_attn.h"

#include <cstring>
#include <set>

#include "ops/attention_test_support.h"

namespace anyaccel {
namespace {

using namespace testing;
using ops::AttentionDirection;
using ops::SparseAttn;

constexpr auto one_way = AttentionDirection::Unidirectional;

std::shared_ptr<SparseAttn> sparse_attn() {
  return tested_accelerator().create_op_builder("SparseAttnBuilder")->load_as<SparseAttn>();
}

// A layout with its blocks' places.
struct Blocks {
  int64_t heads, rows, columns, block;
  std::vector<int64_t> seen;
  struct Place {
    int64_t head, row, column;
  };
  std::vector<Place> places;

  Blocks(int64_t h, int64_t m, int64_t n, int64_t size, uint64_t seed) : heads(h), rows(m), columns(n), block(size) {
    std::mt19937_64 engine(seed);
    for (int64_t i = 0; i < h * m * n; ++i) seen.push_back(engine() % 5 < 3);
    find_places();
  }
  explicit Blocks(const Tensor& layout, int64_t size)
      : heads(layout.size(0)),
        rows(layout.size(1)),
        columns(layout.size(2)),
        block(size),
        seen(layout.to_vector<int64_t>()) {
    find_places();
  }
  void find_places() {
    for (int64_t i = 0; i < heads * rows * columns; ++i) {
      if (seen[static_cast<size_t>(i)]) places.push_back({i / (rows * columns), i / columns % rows, i % columns});
    }
  }
  int64_t count() const { return static_cast<int64_t>(places.size()); }
  Tensor layout() const { return Tensor::from_host(seen.data(), {heads, rows, columns}, DType::I64); }
  Shape shape(int64_t batch) const { return {batch, count(), block, block}; }
  // Index in the dense [Z, H, rows, columns] of each element of the sparse tensor.
  std::vector<size_t> dense_index(int64_t batch) const {
    std::vector<size_t> index;
    for (int64_t z = 0; z < batch; ++z) {
      for (const Place& p : places) {
        for (int64_t i = 0; i < block * block; ++i) {
          index.push_back(
              static_cast<size_t>(((z * heads + p.head) * rows * block + p.row * block + i / block) * columns * block +
                                  p.column * block + i % block));
        }
      }
    }
    return index;
  }
  Doubles to_dense(const Doubles& sparse, int64_t batch) const {
    Doubles dense(static_cast<size_t>(batch * heads * rows * columns * block * block), 0.0);
    const std::vector<size_t> index = dense_index(batch);
    for (size_t i = 0; i < index.size(); ++i) dense[index[i]] = sparse[i];
    return dense;
  }
  Doubles to_sparse(const Doubles& dense, int64_t batch) const {
    Doubles sparse;
    for (const size_t i : dense_index(batch)) sparse.push_back(dense[i]);
    return sparse;
  }
};

// op(a) [n, k] times op(b) [k, m] for each of `matrices`.
Doubles plain_product(const Doubles& a, bool trans_a, const Doubles& b, bool trans_b, int64_t matrices, int64_t n,
                      int64_t k, int64_t m) {
  Doubles c(static_cast<size_t>(matrices * n * m), 0.0);
  for (int64_t z = 0; z < matrices; ++z) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < m; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l) {
          const int64_t at_a = z * n * k + (trans_a ? l * n + i : i * k + l);
          const int64_t at_b = z * k * m + (trans_b ? j * k + l : l * m + j);
          sum += a[static_cast<size_t>(at_a)] * b[static_cast<size_t>(at_b)];
        }
        c[static_cast<size_t>((z * n + i) * m + j)] = sum;
      }
    }
  }
  return c;
}

struct ProductCase {
  std::string mode;
  bool trans_a, trans_b;
  Blocks blocks;         // of the sparse one, as it lies in memory
  int64_t batch, other;  // `other`: the size that the layout leaves open

  int64_t sparse_rows() const { return blocks.rows * blocks.block; }
  int64_t sparse_columns() const { return blocks.columns * blocks.block; }
  // Sizes of op(a) [n, k] and op(b) [k, m].
  int64_t n() const {
    return mode == "sdd" ? sparse_rows() : mode == "dsd" ? (trans_a ? sparse_columns() : sparse_rows()) : other;
  }
  int64_t k() const {
    if (mode == "sdd") return other;
    if (mode == "dsd") return trans_a ? sparse_rows() : sparse_columns();
    return trans_b ? sparse_columns() : sparse_rows();
  }
  int64_t m() const {
    return mode == "sdd" ? sparse_columns() : mode == "dsd" ? other : (trans_b ? sparse_rows() : sparse_columns());
  }
  Shape shape_a() const {
    return mode == "dsd" ? blocks.shape(batch) : Shape{batch, blocks.heads, trans_a ? k() : n(), trans_a ? n() : k()};
  }
  Shape shape_b() const {
    return mode == "dds" ? blocks.shape(batch) : Shape{batch, blocks.heads, trans_b ? m() : k(), trans_b ? k() : m()};
  }
  Doubles run(const Doubles& a, const Doubles& b) const {
    const Doubles dense =
        plain_product(mode == "dsd" ? blocks.to_dense(a, batch) : a, trans_a,
                      mode == "dds" ? blocks.to_dense(b, batch) : b, trans_b, batch * blocks.heads, n(), k(), m());
    return mode == "sdd" ? blocks.to_sparse(dense, batch) : dense;
  }
};

void check_product(SparseAttn& library, const ProductCase& c, DType dtype, bool gradients) {
  SCOPED_TRACE(c.mode + (c.trans_a ? " a^T" : " a") + (c.trans_b ? " b^T" : " b") + " block " +
               std::to_string(c.blocks.block) + " " + std::string(dtype_name(dtype)));
  const std::vector<float> a = random_numbers(c.shape_a().numel(), 1), b = random_numbers(c.shape_b().numel(), 2);
  Doubles da = kept_numbers(a, dtype), db = kept_numbers(b, dtype);
  const auto multiply = library.matmul(c.blocks.layout(), c.blocks.block, c.mode, c.trans_a, c.trans_b);
  const Tensor ta = make_tensor(a, c.shape_a(), dtype), tb = make_tensor(b, c.shape_b(), dtype);
  const Tensor result = multiply(ta, tb);
  const Doubles expected = c.run(da, db);
  expect_close(result, expected, tolerance_of(dtype) * std::sqrt(static_cast<double>(c.k())), "c");
  if (!gradients) return;
  const std::vector<float> weights = random_numbers(result.numel(), 3);
  const Doubles dc(weights.begin(), weights.end());
  const auto found = multiply.backward(ta, tb, make_tensor(weights, result.shape(), dtype));
  const auto loss = [&] { return weighted_sum(c.run(da, db), dc); };
  EXPECT_EQ(found.a.shape(), ta.shape());
  EXPECT_EQ(found.b.shape(), tb.shape());
  expect_close(found.a, differences(da, loss), 1e-4, "da");
  expect_close(found.b, differences(db, loss), 1e-4, "db");
}

TEST(SparseAttnTest, ProductsOfAllModes) {
  auto library = sparse_attn();
  for (const char* mode : {"sdd", "dsd", "dds"}) {
    for (const int transposed : {0, 1, 2, 3}) {
      const bool trans_a = transposed & 1, trans_b = transposed & 2;
      check_product(*library, {mode, trans_a, trans_b, Blocks(2, 2, 3, 3, 7), 1, 2}, DType::F32, true);
      // Tiles of every kind: whole ones, rest rows and rest columns; panels alone and in pairs.
      for (const int64_t block : {1, 16, 20, 32}) {
        check_product(*library, {mode, trans_a, trans_b, Blocks(2, 3, 2, block, 8), 2, 37}, DType::F32, false);
      }
      check_product(*library, {mode, trans_a, trans_b, Blocks(1, 2, 4, 16, 9), 2, 48}, DType::BF16, false);
      check_product(*library, {mode, trans_a, trans_b, Blocks(3, 2, 2, 8, 9), 1, 64}, DType::F16, false);
    }
  }
}

TEST(SparseAttnTest, EmptyProducts) {
  auto library = sparse_attn();
  Blocks none(2, 2, 2, 4, 1);
  std::fill(none.seen.begin(), none.seen.end(), 0);
  none.places.clear();
  const Tensor dense = make_tensor(random_numbers(1 * 2 * 8 * 5, 1), {1, 2, 8, 5});
  const Tensor blocks = library->matmul(none.layout(), 4, "sdd", false, true)(dense, dense);
  EXPECT_EQ(blocks.shape(), (Shape{1, 0, 4, 4}));
  expect_close(library->matmul(none.layout(), 4, "dsd")(blocks, dense), Doubles(80, 0.0), 0, "c");
  const Tensor no_batch = make_tensor({}, {0, 2, 8, 5});
  EXPECT_EQ(library->matmul(none.layout(), 4, "sdd", false, true)(no_batch, no_batch).shape(), (Shape{0, 0, 4, 4}));
  // An inner size of 0 sums nothing.
  const Blocks some(1, 2, 2, 4, 3);
  const Tensor flat = make_tensor({}, {1, 1, 8, 0});
  expect_close(library->matmul(some.layout(), 4, "sdd", false, true)(flat, flat),
               Doubles(static_cast<size_t>(some.count() * 16), 0.0), 0, "c");
}

TEST(SparseAttnTest, OneLayoutForAllHeads) {
  auto library = sparse_attn();
  const Blocks one(1, 3, 3, 8, 4);
  Blocks three(3, 3, 3, 8, 4);
  for (size_t i = 0; i < three.seen.size(); ++i) three.seen[i] = one.seen[i % one.seen.size()];
  three.places.clear();
  three.find_places();
  const Tensor q = make_tensor(random_numbers(2 * 3 * 24 * 5, 1), {2, 3, 24, 5});
  const Tensor shared = one.layout().view(Shape{3, 3});
  const Tensor x = library->matmul(shared, 8, "sdd", false, true)(q, q);
  const Tensor y = library->matmul(three.layout(), 8, "sdd", false, true)(q, q);
  expect_same(x.to_vector<float>(), y.to_vector<float>(), "sdd");
  library->softmax(shared, 8)(x);
  library->softmax(three.layout(), 8)(y);
  expect_same(x.to_vector<float>(), y.to_vector<float>(), "softmax");
  expect_same(library->matmul(shared, 8, "dsd")(x, q).to_vector<float>(),
              library->matmul(three.layout(), 8, "dsd")(y, q).to_vector<float>(), "dsd");
}

// ---- softmax -----------------------------------------------------------------------------------------------------------

struct SoftmaxCase {
  Blocks blocks;
  int64_t batch;
  double scale;
  Doubles rpe, keys, pairs;  // empty: absent
  std::string key_mode = "add", pair_mode = "add";

  Doubles run(const Doubles& x) const {
    const int64_t rows = blocks.rows * blocks.block, columns = blocks.columns * blocks.block;
    Doubles y(x.size());
    const std::vector<size_t> index = blocks.dense_index(batch);
    std::vector<std::vector<size_t>> by_row(static_cast<size_t>(batch * blocks.heads * rows));
    for (size_t i = 0; i < index.size(); ++i) by_row[index[i] / static_cast<size_t>(columns)].push_back(i);
    const auto masked = [](double v, double mask, const std::string& mode) {
      return mode == "add" ? v + mask : mask == 0 ? -HUGE_VAL : v;
    };
    for (size_t r = 0; r < by_row.size(); ++r) {
      double largest = -HUGE_VAL, total = 0;
      Doubles scores;
      for (const size_t i : by_row[r]) {
        const size_t column = index[i] % static_cast<size_t>(columns);
        double v = x[i] * scale;
        if (!rpe.empty()) v += rpe[index[i]];
        if (!keys.empty()) {
          const size_t z = r / static_cast<size_t>(blocks.heads * rows);
          v = masked(v, keys[z * static_cast<size_t>(columns) + column], key_mode);
        }
        if (!pairs.empty()) {
          v = masked(v, pairs[r % static_cast<size_t>(rows) * static_cast<size_t>(columns) + column], pair_mode);
        }
        scores.push_back(v);
        if (v > largest) largest = v;
      }
      if (largest == -HUGE_VAL) largest = 0;
      for (double& v : scores) total += v = std::exp(v - largest);
      for (size_t i = 0; i < scores.size(); ++i) y[by_row[r][i]] = total == 0 ? 0 : scores[i] / total;
    }
    return y;
  }
};

Tensor optional_tensor(const Doubles& numbers, const Shape& shape, DType dtype) {
  if (numbers.empty()) return {};
  return make_tensor(std::vector<float>(numbers.begin(), numbers.end()), shape, dtype);
}

void check_softmax(SparseAttn& library, const SoftmaxCase& c, DType dtype, bool gradient) {
  const int64_t rows = c.blocks.rows * c.blocks.block, columns = c.blocks.columns * c.blocks.block;
  const std::vector<float> numbers = random_numbers(c.blocks.shape(c.batch).numel(), 5, 2);
  const auto softmax = library.softmax(c.blocks.layout(), c.blocks.block);
  const Tensor x = make_tensor(numbers, c.blocks.shape(c.batch), dtype);
  const auto scale = static_cast<float>(c.scale);
  softmax(x, scale, optional_tensor(c.rpe, {c.batch, c.blocks.heads, rows, columns}, dtype),
          optional_tensor(c.keys, {c.batch, columns}, dtype), optional_tensor(c.pairs, {rows, columns}, dtype),
          c.key_mode, c.pair_mode);
  Doubles doubles = kept_numbers(numbers, dtype);
  expect_close(x, c.run(doubles), tolerance_of(dtype), "y");
  if (!gradient) return;
  const std::vector<float> weights = random_numbers(x.numel(), 6);
  const Tensor dy = make_tensor(weights, x.shape());
  softmax.backward(x, dy, scale);
  const Doubles w(weights.begin(), weights.end());
  expect_close(dy, differences(doubles, [&] { return weighted_sum(c.run(doubles), w); }), 1e-4, "dx");
}

Doubles doubles_of(int64_t count, uint64_t seed, DType dtype = DType::F32) {
  return kept_numbers(random_numbers(count, seed), dtype);
}
// 0 and 1.
Doubles coins(int64_t count, uint64_t seed) {
  std::mt19937_64 engine(seed);
  Doubles numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(static_cast<double>(engine() % 3 != 0));
  return numbers;
}

TEST(SparseAttnTest, SoftmaxWithMasks) {
  auto library = sparse_attn();
  const Blocks small(2, 2, 3, 3, 11);
  check_softmax(*library, {small, 2, 0.7, {}, {}, {}}, DType::F32, true);
  check_softmax(*library, {small, 2, -1.3, doubles_of(2 * 2 * 6 * 9, 1), doubles_of(2 * 9, 2), doubles_of(6 * 9, 3)},
                DType::F32, true);
  check_softmax(*library, {small, 2, 1, {}, coins(2 * 9, 4), coins(6 * 9, 5), "mul", "mul"}, DType::F32, true);
  for (const int64_t block : {1, 16, 20, 40}) {
    const Blocks blocks(1, 2, 3, block, 12);
    const int64_t rows = 2 * block, columns = 3 * block;
    check_softmax(*library, {blocks, 1, 0.5, doubles_of(rows * columns, 1), {}, coins(rows * columns, 2), "add", "mul"},
                  DType::F32, false);
    for (const DType dtype : {DType::F16, DType::BF16}) {
      check_softmax(*library,
                    {blocks, 1, 0.5, {}, coins(columns, 3), doubles_of(rows * columns, 2, dtype), "mul", "add"}, dtype,
                    false);
    }
  }
}

TEST(SparseAttnTest, InfinitiesInMasks) {
  auto library = sparse_attn();
  const Blocks blocks(1, 2, 2, 4, 1);
  SoftmaxCase c{blocks, 1, 1, doubles_of(64, 1), Doubles(8, 0.0), Doubles(64, 0.0)};
  c.keys[1] = c.keys[6] = -HUGE_VAL;
  c.rpe[9] = -HUGE_VAL;
  for (size_t column = 0; column < 8; ++column) c.pairs[3 * 8 + column] = -HUGE_VAL;  // this query sees nothing
  c.pairs[5 * 8 + 2] = c.pairs[5 * 8 + 7] = HUGE_VAL;                                 // infinity over infinity
  check_softmax(*library, c, DType::F32, false);
  // A row that sees nothing has no gradient either.
  const Tensor y = make_tensor(std::vector<float>(static_cast<size_t>(blocks.count() * 16), 0.0f), blocks.shape(1));
  const Tensor dy = make_tensor(random_numbers(blocks.count() * 16, 2), blocks.shape(1));
  library->softmax(blocks.layout(), 4).backward(y, dy);
  expect_close(dy, Doubles(static_cast<size_t>(dy.numel()), 0.0), 0, "dx");
}

// ---- attention ---------------------------------------------------------------------------------------------------------

// softmax(q k^T / sqrt(d)) v in double over the blocks.
Doubles plain_attention(const Blocks& blocks, int64_t batch, int64_t size, const Doubles& q, const Doubles& k,
                        const Doubles& v) {
  const int64_t length = blocks.rows * blocks.block, matrices = batch * blocks.heads;
  const Doubles scores = blocks.to_sparse(plain_product(q, false, k, true, matrices, length, size, length), batch);
  const SoftmaxCase softmax{blocks, batch, 1 / std::sqrt(static_cast<double>(size)), {}, {}, {}};
  return plain_product(blocks.to_dense(softmax.run(scores), batch), false, v, false, matrices, length, length, size);
}

TEST(SparseAttnTest, AttentionAndItsGradients) {
  auto library = sparse_attn();
  ops::BigBirdSparsityConfig config(2, 3, true, 1, 1, 1);
  const Blocks blocks(ops::BigBirdSparsityConfig(2, 3, true, 1, 1, 1).make_layout(12), 3);
  const auto attention = library->self_attention(config, "add", "mul", 12);
  const Shape shape{2, 2, 12, 3};
  const std::vector<float> numbers[] = {random_numbers(shape.numel(), 1), random_numbers(shape.numel(), 2),
                                        random_numbers(shape.numel(), 3)};
  const std::vector<float> weights = random_numbers(shape.numel(), 4);
  const Tensor q = make_tensor(numbers[0], shape), k = make_tensor(numbers[1], shape),
               v = make_tensor(numbers[2], shape);
  Doubles in[] = {kept_numbers(numbers[0], DType::F32), kept_numbers(numbers[1], DType::F32),
                  kept_numbers(numbers[2], DType::F32)};
  Tensor kept_weights;
  const Tensor out = attention.forward(q, k, v, {}, {}, {}, &kept_weights);
  expect_close(out, plain_attention(blocks, 2, 3, in[0], in[1], in[2]), 2e-5, "out");
  expect_same(attention.forward(q, k, v).to_vector<float>(), out.to_vector<float>(), "out");
  const auto found = attention.backward(make_tensor(weights, shape), q, k, v, kept_weights);
  const Doubles w(weights.begin(), weights.end());
  const auto loss = [&] { return weighted_sum(plain_attention(blocks, 2, 3, in[0], in[1], in[2]), w); };
  expect_close(found.q, differences(in[0], loss), 1e-4, "dq");
  expect_close(found.k, differences(in[1], loss), 1e-4, "dk");
  expect_close(found.v, differences(in[2], loss), 1e-4, "dv");
}

// The gradients of attention are those of its product, softmax and product, with blocks and heads that are whole vectors or not.
TEST(SparseAttnTest, GradientsAreThoseOfTheSteps) {
  auto library = sparse_attn();
  for (const auto& [block, size] : {std::pair<int64_t, int64_t>{16, 32}, {20, 16}, {40, 19}, {32, 48}}) {
    SCOPED_TRACE(std::to_string(block) + " " + std::to_string(size));
    const int64_t length = 5 * block;
    ops::BigBirdSparsityConfig config(3, static_cast<int>(block), true, 1, 3, 1),
        same(3, static_cast<int>(block), true, 1, 3, 1);
    const Tensor layout = same.make_layout(length);
    const auto attention = library->self_attention(config, "add", "mul", length);
    const Shape shape{2, 3, length, size};
    const auto input = [&](uint64_t seed) { return make_tensor(random_numbers(shape.numel(), seed), shape); };
    const Tensor q = input(1), k = input(2), v = input(3), dout = input(4);
    Tensor weights;
    attention.forward(q, k, v, {}, {}, {}, &weights);
    const auto found = attention.backward(dout, q, k, v, weights);
    const auto weighted = library->matmul(layout, block, "dsd").backward(weights, v, dout);
    const float scale = 1 / std::sqrt(static_cast<float>(size));
    const Tensor changes = library->softmax(layout, block).backward(weights, weighted.a, scale);
    const auto scored = library->matmul(layout, block, "sdd", false, true).backward(q, k, changes);
    for (const auto& [gradient, expected] :
         {std::pair{found.q, scored.a}, {found.k, scored.b}, {found.v, weighted.b}}) {
      expect_close(gradient, expected.to_vector<double>(), 1e-5, "gradient");
    }
  }
}

TEST(SparseAttnTest, AgreesWithPyTorch) {
  const ThreadCount several(3);  // ctest gives these tests one thread
  auto library = sparse_attn();
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    SCOPED_TRACE(std::string(dtype_name(dtype)));
    ops::FixedSparsityConfig config(4, 16, false, 4, 1, one_way);
    const auto attention = library->self_attention(config, "add", "mul", 256);
    const Shape shape{2, 4, 128, 32};
    const auto input = [&](int n, const Shape& of) { return make_tensor(stored_input(n, of.numel()), of, dtype); };
    const Tensor q = input(1, shape), k = input(2, shape), v = input(3, shape), dout = input(4, shape);
    std::vector<float> keys(2 * 128, 0.0f), pairs(128 * 128, 0.0f);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = i % 128 % 7 == 3 ? -infinity : 0;
    for (size_t i = 0; i < pairs.size(); ++i) pairs[i] = i % 128 <= i / 128;
    Tensor weights;
    const Tensor out = attention.forward(q, k, v, input(5, {2, 4, 128, 128}), make_tensor(keys, {2, 128}, dtype),
                                         make_tensor(pairs, {128, 128}, dtype), &weights);
    const auto gradients = attention.backward(dout, q, k, v, weights);
    const double tolerance = dtype == DType::F32 ? 1e-5 : dtype == DType::F16 ? 3e-3 : 2e-2;
    using namespace ops::torch_values;
    expect_stored(out, sparse_out, tolerance, "out");
    expect_stored(gradients.q, sparse_dq, tolerance, "dq");
    expect_stored(gradients.k, sparse_dk, tolerance, "dk");
    expect_stored(gradients.v, sparse_dv, tolerance, "dv");
  }
}

// 16,384 positions: a dense matrix of scores would be 1 GiB. Twice the length takes twice the memory, and keys outside the
// layout are never read.
TEST(SparseAttnTest, MemoryGrowsWithTheBlocks) {
  if (device_under_test()) GTEST_SKIP() << "minutes on a simulator";
  Accelerator& accelerator = tested_accelerator();
  auto library = sparse_attn();
  const auto peak_of = [&](int64_t length, bool with_weights) {
    ops::LocalSlidingWindowSparsityConfig config(1, 64, 3);
    const auto attention = library->self_attention(config, "add", "mul", length);
    const Shape shape{1, 1, length, 16};
    Tensor q = Tensor::zeros(shape, DType::F32, accelerator.device()),
           k = Tensor::zeros(shape, DType::F32, accelerator.device());
    Tensor v = Tensor::zeros(shape, DType::F32, accelerator.device());
    attention.forward(q, k, v);  // the lists are made once
    accelerator.reset_peak_memory_stats();
    const int64_t before = accelerator.memory_allocated();
    Tensor weights;
    const Tensor out = attention.forward(q, k, v, {}, {}, {}, with_weights ? &weights : nullptr);
    if (with_weights) attention.backward(out, q, k, v, weights);
    return accelerator.max_memory_allocated() - before;
  };
  for (const bool with_weights : {false, true}) {
    const int64_t once = peak_of(8192, with_weights), twice = peak_of(16384, with_weights);
    EXPECT_LT(static_cast<double>(twice), 2.2 * static_cast<double>(once));
    // Scores of two blocks a row, twice with the gradient, and a few tensors like q.
    EXPECT_LT(twice, int64_t{16384} * (with_weights ? 2 * 128 : 16) * 4 + 12 * 16384 * 16 * 4);
  }
}

TEST(SparseAttnTest, KeysOutsideTheLayoutAreNotRead) {
  auto library = sparse_attn();
  ops::LocalSlidingWindowSparsityConfig config(1, 16, 3);
  const auto attention = library->self_attention(config, "add", "mul", 96);
  const Shape shape{1, 1, 96, 8};
  std::vector<float> k = random_numbers(shape.numel(), 1), v = random_numbers(shape.numel(), 2);
  const auto run = [&] {
    return attention
        .forward(make_tensor(random_numbers(shape.numel(), 3), shape), make_tensor(k, shape), make_tensor(v, shape))
        .to_vector<float>();
  };
  const std::vector<float> before = run();
  // The last block is seen by its own row only.
  std::fill(k.begin() + 80 * 8, k.end(), not_a_number);
  std::fill(v.begin() + 80 * 8, v.end(), not_a_number);
  const std::vector<float> after = run();
  expect_same({after.begin(), after.begin() + 80 * 8}, {before.begin(), before.begin() + 80 * 8}, "out");
  EXPECT_TRUE(std::isnan(after.back()));
}

// ---- layouts and segments ----------------------------------------------------------------------------------------------

std::unique_ptr<ops::SparsityConfig> stored_config(const std::string& name, int64_t heads) {
  using namespace ops;
  const auto both = AttentionDirection::Bidirectional;
  if (name == "dense") return std::make_unique<DenseSparsityConfig>(heads, 8);
  if (name == "fixed" || name == "fixed short window") return std::make_unique<FixedSparsityConfig>(heads, 8);
  if (name == "fixed unidirectional") return std::make_unique<FixedSparsityConfig>(heads, 8, false, 4, 1, one_way);
  if (name == "fixed horizontal") return std::make_unique<FixedSparsityConfig>(heads, 8, false, 4, 2, both, true);
  if (name == "fixed patterns") return std::make_unique<FixedSparsityConfig>(heads, 8, true, 4, 1, one_way, false, 3);
  if (name == "fixed patterns both ways")
    return std::make_unique<FixedSparsityConfig>(heads, 8, true, 8, 2, both, true, 4);
  using List = std::vector<int64_t>;
  if (name == "variable") return std::make_unique<VariableSparsityConfig>(heads, 8);
  if (name == "variable windows") {
    return std::make_unique<VariableSparsityConfig>(heads, 8, false, 0, List{2, 5, 3}, List{1, 7, 40});
  }
  if (name == "variable ranges") {
    return std::make_unique<VariableSparsityConfig>(heads, 8, false, 0, List{3}, List{2, 9}, List{4, 30}, both, true);
  }
  if (name == "variable unidirectional") {
    return std::make_unique<VariableSparsityConfig>(heads, 8, false, 0, List{1, 4}, List{0, 6}, List{2, 7}, one_way);
  }
  if (name == "bigbird") return std::make_unique<BigBirdSparsityConfig>(heads, 8, false, 0);
  if (name == "bigbird wide") return std::make_unique<BigBirdSparsityConfig>(heads, 8, false, 0, 6, 2);
  if (name == "bigbird unidirectional")
    return std::make_unique<BigBirdSparsityConfig>(heads, 8, false, 0, 3, 3, one_way);
  if (name == "longformer") return std::make_unique<BSLongformerSparsityConfig>(heads, 8, false, 3, List{0, 5});
  if (name == "longformer ranges") {
    return std::make_unique<BSLongformerSparsityConfig>(heads, 8, false, 5, List{1, 6}, List{3, 20}, one_way);
  }
  if (name == "sliding") return std::make_unique<LocalSlidingWindowSparsityConfig>(heads, 8);
  if (name == "sliding both ways") return std::make_unique<LocalSlidingWindowSparsityConfig>(heads, 8, 4, both);
  return nullptr;
}

TEST(SparseAttnTest, LayoutsAreThoseOfDeepSpeed) {
  for (const ops::torch_values::StoredLayout& stored : ops::torch_values::layouts) {
    const auto config = stored_config(stored.name, stored.heads);
    ASSERT_TRUE(config) << stored.name;
    const Tensor layout = config->make_layout(stored.blocks * 8);
    EXPECT_EQ(layout.shape(), (Shape{stored.heads, stored.blocks, stored.blocks}));
    std::vector<int64_t> bits;
    for (const char* digit = stored.bits; *digit; ++digit) {
      const int value = *digit >= 'a' ? *digit - 'a' + 10 : *digit - '0';
      for (int bit = 3; bit >= 0; --bit) bits.push_back(value >> bit & 1);
    }
    bits.resize(static_cast<size_t>(layout.numel()));
    EXPECT_EQ(layout.to_vector<int64_t>(), bits) << stored.name;
  }
}

TEST(SparseAttnTest, RandomBlocks) {
  ops::VariableSparsityConfig variable(2, 4, true, 3, {1}, {}, {});
  const std::vector<int64_t> layout = variable.make_layout(80).to_vector<int64_t>();
  std::set<std::vector<int64_t>> rows;
  for (size_t row = 0; row < 40; ++row) {
    std::vector<int64_t> columns(layout.begin() + static_cast<std::ptrdiff_t>(row * 20),
                                 layout.begin() + static_cast<std::ptrdiff_t>(row * 20 + 20));
    const int64_t seen = std::accumulate(columns.begin(), columns.end(), int64_t{0});
    // Its own block and three random ones, of which one may be its own.
    EXPECT_TRUE(seen == 3 || seen == 4) << seen;
    EXPECT_EQ(columns[row % 20], 1);
    rows.insert(columns);
  }
  EXPECT_GT(rows.size(), 35u) << "rows repeat";
  ops::BigBirdSparsityConfig bird(1, 4, false, 2, 1, 0, one_way), again(1, 4, false, 2, 1, 0, one_way);
  const Tensor first = bird.make_layout(80);
  EXPECT_EQ(first.to_vector<int64_t>(), again.make_layout(80).to_vector<int64_t>());
  EXPECT_NE(first.to_vector<int64_t>(), bird.make_layout(80).to_vector<int64_t>()) << "the same numbers again";
  const std::vector<int64_t> triangle = first.to_vector<int64_t>();
  for (size_t i = 0; i < 400; ++i) EXPECT_LE(triangle[i], i % 20 <= i / 20) << "above the diagonal";
}

TEST(SparseAttnTest, SegmentsAreThoseOfDeepSpeed) {
  auto library = sparse_attn();
  for (const ops::torch_values::StoredSegments& stored : ops::torch_values::segments) {
    const auto* layout = std::find_if(std::begin(ops::torch_values::layouts), std::end(ops::torch_values::layouts),
                                      [&](const auto& l) { return std::strcmp(l.name, stored.name) == 0; });
    const Tensor blocks = stored_config(stored.name, layout->heads)->make_layout(layout->blocks * 8).to(DType::I32);
    std::vector<long long> found;
    for (const SparseAttn::Segment& segment : library->sdd_segment(blocks, stored.start_width)) {
      const std::vector<int64_t> rows = segment.blocks.to_vector<int64_t>();
      long long sum = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        sum += rows[i] * static_cast<long long>((i / 4 % 97 + 1) * (i % 4 + 1));
      }
      found.insert(found.end(), {segment.width, segment.blocks.size(0), sum});
      found.insert(found.end(), rows.end() - 4, rows.end());
    }
    ASSERT_LE(found.size(), std::size(stored.values));
    found.resize(std::size(stored.values));
    EXPECT_EQ(found, std::vector<long long>(std::begin(stored.values), std::end(stored.values))) << stored.name;
    EXPECT_EQ(blocks.to_vector<int64_t>(), std::vector<int64_t>(static_cast<size_t>(blocks.numel()), 0));
  }
}

// The expected values are those of DeepSpeed's Python, in which an index below 0 counts from the end.
TEST(SparseAttnTest, LayoutsWithFewerBlocksThanGlobalOnes) {
  using namespace ops;
  const auto layout = [](int64_t global, int64_t n) {
    return FixedSparsityConfig(1, 1, false, global, global, one_way).make_layout(n).to_vector<int64_t>();
  };
  EXPECT_EQ(layout(4, 3), (std::vector<int64_t>{1, 0, 0, 1, 1, 0, 1, 1, 1}));
  EXPECT_EQ(layout(3, 2), (std::vector<int64_t>{1, 0, 1, 1}));
  EXPECT_EQ(layout(4, 2), (std::vector<int64_t>{1, 1, 1, 1}));
}

// ---- errors ------------------------------------------------------------------------------------------------------------

TEST(SparseAttnTest, RefusesLayoutsThatContradictThemselves) {
  using namespace ops;
  const auto both = AttentionDirection::Bidirectional;
  expect_refused([] { DenseSparsityConfig(2).make_layout(40); },
                 "Sequence Length, 40, needs to be dividable by Block size 16!");
  expect_refused([] { DenseSparsityConfig(0); }, "num_heads");
  expect_refused([] { FixedSparsityConfig(1, 16, false, 4, 3); }, "must be dividable by number of global blocks, 3!");
  expect_refused([] { FixedSparsityConfig(1, 16, false, 4, 1, one_way, true); }, "horizontal global attention");
  expect_refused([&] { FixedSparsityConfig(4, 16, false, 4, 1, both, false, 2); }, "different_layout_per_head");
  expect_refused([&] { FixedSparsityConfig(4, 16, true, 4, 2, both, false, 3); }, "num_different_global_patterns), 3,");
  expect_refused([&] { VariableSparsityConfig(1, 16, false, 0, {4}, {0, 1}, {2}); }, "start indices length, 2,");
  expect_refused([&] { VariableSparsityConfig(1, 16, false, 0, {4}, {3}, {3}); }, "start index, 3,");
  expect_refused([&] { VariableSparsityConfig(1, 16, false, 0, {}); }, "local_window_blocks");
  expect_refused([&] { VariableSparsityConfig(1, 16, false, 5).make_layout(64); }, "Number of random blocks, 5,");
  expect_refused([&] { BigBirdSparsityConfig(1, 16, false, 1, 5).make_layout(64); },
                 "Number of sliding window blocks, 5,");
  expect_refused([&] { BigBirdSparsityConfig(1, 16, false, 1, 3, 5).make_layout(64); }, "Number of global blocks, 5,");
  expect_refused([&] { BSLongformerSparsityConfig(1, 16, false, 3, {2}, {1}); }, "start index, 2,");
  expect_refused([&] { LocalSlidingWindowSparsityConfig(1, 16, 9).make_layout(64); },
                 "Number of sliding window blocks, 9,");
}

TEST(SparseAttnTest, RefusesTensorsThatDoNotFit) {
  auto library = sparse_attn();
  const Blocks blocks(2, 2, 2, 4, 3);
  const Tensor layout = blocks.layout();
  const auto zeros = [](const Shape& shape, DType dtype = DType::F32) { return there(Tensor::zeros(shape, dtype)); };
  expect_refused([&] { library->matmul(layout, 4, "ddd"); }, "\"ddd\"");
  expect_refused([&] { library->matmul(layout, 0, "sdd"); }, "block must be at least 1");
  expect_refused([&] { library->matmul(layout.to(DType::F32), 4, "sdd"); }, "layout must be int32 or int64");
  expect_refused([&] { library->matmul(zeros({0, 2, 2}, DType::I32), 4, "sdd"); }, "at least one head");
  expect_refused(
      [&] {
        library->matmul(Tensor::from_host(std::vector<int64_t>{2}.data(), {1, 1}, DType::I64), 4, "sdd");
      },
      "0 and 1");
  const auto sdd = library->matmul(layout, 4, "sdd");
  const Tensor a = zeros({1, 2, 8, 3}), b = zeros({1, 2, 3, 8});
  expect_refused([&] { sdd(a, zeros({1, 2, 4, 8})); }, "the inner size of a");
  expect_refused([&] { sdd(a, zeros({1, 2, 3, 7})); }, "columns of blocks");
  expect_refused([&] { sdd(a, zeros({1, 2, 3, 8}, DType::F16)); }, "Inputs must be the same dtype");
  expect_refused([&] { sdd(a, zeros({2, 2, 3, 8})); }, "first dimension");
  expect_refused([&] { sdd(zeros({1, 3, 8, 3}), zeros({1, 3, 3, 8})); }, "2 heads");
  expect_refused([&] { sdd(a, {}); }, "b is absent");
  expect_refused([&] { sdd(a, zeros({1, 2, 3, 8}, DType::I32)); }, "b must be float32");
  if (device_under_test()) {
    expect_refused([&] { sdd(a, Tensor::zeros({1, 2, 3, 8}, DType::F32)); }, "Inputs must be on the same device");
  }
  expect_refused([&] { library->matmul(layout, 4, "dsd")(zeros({1, 1, 4, 4}), a); }, "number of blocks");
  const auto softmax = library->softmax(layout, 4);
  const Tensor x = zeros(blocks.shape(1));
  expect_refused([&] { softmax(zeros({1, 1, 4, 4})); }, "x must be");
  expect_refused([&] { softmax(x, 1, zeros({1, 2, 8, 7})); }, "rpe must be [1, 2, 8, 8]");
  expect_refused([&] { softmax(x, 1, {}, zeros({1, 8}, DType::F16)); }, "key_padding_mask must be float32");
  expect_refused([&] { softmax(x, 1, {}, {}, zeros({8, 8}), "add", "or"); }, "\"add\" or \"mul\"");
  expect_refused([&] { softmax.backward(x, zeros({1, 1, 4, 4})); }, "dy must be");
  ops::DenseSparsityConfig config(2, 4);
  const auto attention = library->self_attention(config, "add", "mul", 16);
  const Tensor q = zeros({1, 2, 8, 4});
  expect_refused(
      [&] {
        attention.forward(zeros({1, 2, 6, 4}), zeros({1, 2, 6, 4}), zeros({1, 2, 6, 4}));
      },
      "Sequence Length, 6, needs to be dividable by Block size 4!");
  expect_refused([&] { attention.forward(q, zeros({1, 2, 12, 4}), q); }, "only self-attention");
  expect_refused(
      [&] {
        attention.forward(zeros({1, 2, 20, 4}), zeros({1, 2, 20, 4}), zeros({1, 2, 20, 4}));
      },
      "max_seq_length is 16");
  expect_refused([&] { attention.backward(q, q, q, q, {}); }, "weights is absent");
  expect_refused([&] { library->self_attention(config, "add", "mul", 15); }, "Sequence Length, 15,");
  expect_refused([&] { library->sdd_segment(layout, 4); }, "layout must be int32");
  expect_refused([&] { library->sdd_segment(layout.to(DType::I32), 0); }, "start_width");
  EXPECT_EQ(attention.forward(zeros({0, 2, 8, 4}), zeros({0, 2, 8, 4}), zeros({0, 2, 8, 4})).numel(), 0);
  EXPECT_EQ(attention.forward(zeros({1, 2, 0, 4}), zeros({1, 2, 0, 4}), zeros({1, 2, 0, 4})).numel(), 0);
}

}  // namespace
}  // namespace anyaccel
