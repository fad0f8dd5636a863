// ops::RaggedOps and ops::RaggedUtils against plain loops; with ANYACCEL_TEST_ACCELERATOR that accelerator's.
#include "anyaccel/ops/ragged_ops.h"

#include "ops/attention_test_support.h"

namespace anyaccel {
namespace {

using namespace testing;
using ops::InflightSeq;
using ops::RaggedBatch;
using ops::RaggedOps;

constexpr DType ragged_dtypes[] = {DType::F32, DType::F16, DType::BF16};

std::shared_ptr<RaggedOps> ragged() {
  return tested_accelerator().create_op_builder("RaggedOpsBuilder")->load_as<RaggedOps>();
}

Tensor integers(const std::vector<int32_t>& numbers, const Shape& shape) {
  return there(Tensor::from_host(numbers.data(), shape, DType::I32));
}

// Three sequences, of which the second has no new token, in blocks of four positions that lie anywhere in the cache.
struct Batch {
  static constexpr int64_t rows = 12, block = 4, blocks = 9;  // two rows are padding
  RaggedBatch batch{10, 3};
  std::vector<InflightSeq> sequences{{0, 7, 2}, {7, 0, 5}, {7, 3, 6}};
  std::vector<int32_t> tokens_to_seq{0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2};
  std::vector<int32_t> kv_blocks{8, 3, 5, 1, 7, -1, 0, 2, 4};

  Tensor seqs(bool on_host = false) const {
    const Tensor made = Tensor::from_host(sequences.data(), {3, 4}, DType::I32);
    return on_host ? made : there(made);
  }
  Tensor owners() const { return integers(tokens_to_seq, {rows}); }
  Tensor table() const { return integers(kv_blocks, {3, 3}); }
  int64_t position(int64_t token) const {
    const InflightSeq& s = sequences[static_cast<size_t>(tokens_to_seq[static_cast<size_t>(token)])];
    return s.seen_tokens + token - s.start_idx;
  }
  // Block number * block + place of a position.
  int64_t place(int64_t sequence, int64_t p) const {
    return kv_blocks[static_cast<size_t>(3 * sequence + p / block)] * block + p % block;
  }
};

TEST(RaggedOpsTest, AtomsOfSequences) {
  auto library = ragged();
  const Batch b;
  const Tensor atoms = Tensor::zeros({8, 8}, DType::I32);
  EXPECT_EQ(library->build_atoms(atoms, b.batch, b.seqs(true), 3, 4), 4);
  const std::vector<int32_t> found = atoms.slice(0, 0, 4).to_vector<int32_t>();
  const std::vector<int32_t> expected{0, 0, 3, 2, 5, 2, 0, 0, 0, 3, 3, 2, 8, 5, 0, 0,
                                      0, 6, 1, 3, 9, 8, 0, 0, 2, 7, 3, 3, 9, 6, 0, 0};
  EXPECT_EQ(found, expected);
  expect_refused(
      [&] {
        library->build_atoms(Tensor::zeros({3, 8}, DType::I32), b.batch, b.seqs(true), 3, 4);
      },
      "too few");
  expect_refused([&] { library->build_atoms(atoms, b.batch, b.seqs(true), 0, 4); }, "at least 1");
  expect_refused([&] { library->build_atoms(atoms, {1, 4}, b.seqs(true), 3, 4); }, "n_sequences");
}

void check_cache(RaggedOps& library, DType dtype, int64_t rotary_dim, bool trained) {
  SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + std::to_string(rotary_dim) + (trained ? " trained" : ""));
  const Batch b;
  constexpr int64_t heads = 4, kv_heads = 2, size = 10;
  const std::vector<float> q = random_numbers(b.rows * heads * size, 1),
                           k = random_numbers(b.rows * kv_heads * size, 2),
                           v = random_numbers(b.rows * kv_heads * size, 3);
  const Shape cache_shape{b.blocks, b.block, 2, kv_heads, size};
  const Tensor cache =
      make_tensor(std::vector<float>(static_cast<size_t>(cache_shape.numel()), 7.0f), cache_shape, dtype);
  const Tensor tq = make_tensor(q, {b.rows, heads * size}, dtype);
  const Tensor tk = make_tensor(k, {b.rows, kv_heads * size}, dtype),
               tv = make_tensor(v, {b.rows, kv_heads * size}, dtype);
  std::vector<float> frequencies;
  for (int64_t j = 0; j < rotary_dim / 2; ++j) {
    const double exponent = -2.0 * static_cast<double>(j) / static_cast<double>(rotary_dim);
    frequencies.push_back(trained ? 0.3f + static_cast<float>(j) : static_cast<float>(std::pow(10000.0, exponent)));
  }
  if (trained) {
    library.kv_trained_rotary_embeddings(cache, tq, tk, tv, make_tensor(frequencies, {rotary_dim / 2}), b.batch,
                                         b.seqs(), b.owners(), b.table());
  } else if (rotary_dim == 0) {
    library.linear_kv_copy(cache, tq, tk, tv, b.batch, b.seqs(), b.owners(), b.table());
  } else {
    library.kv_rotary_embeddings(cache, tq, tk, tv, rotary_dim, 10000.0f, b.batch, b.seqs(), b.owners(), b.table());
  }
  Doubles expected_q = kept_numbers(q, dtype), rotated_k = kept_numbers(k, dtype);
  const Doubles values = kept_numbers(v, dtype);
  Doubles expected(static_cast<size_t>(cache_shape.numel()), 7.0);
  const auto rotate = [&](Doubles& x, size_t at, int64_t position) {
    const auto half = static_cast<size_t>(rotary_dim / 2);
    for (size_t j = 0; j < half; ++j) {
      const double angle = static_cast<double>(position) * frequencies[j];
      const double a = x[at + j], c = x[at + half + j];
      x[at + j] = a * std::cos(angle) - c * std::sin(angle);
      x[at + half + j] = c * std::cos(angle) + a * std::sin(angle);
    }
  };
  for (int64_t token = 0; token < b.batch.n_tokens; ++token) {
    const int64_t p = b.position(token), place = b.place(b.tokens_to_seq[static_cast<size_t>(token)], p);
    for (int64_t h = 0; h < heads; ++h) rotate(expected_q, static_cast<size_t>((token * heads + h) * size), p);
    for (int64_t h = 0; h < kv_heads; ++h) {
      const auto from = static_cast<size_t>((token * kv_heads + h) * size);
      rotate(rotated_k, from, p);
      for (size_t d = 0; d < size; ++d) {
        expected[static_cast<size_t>((place * 2 * kv_heads + h) * size) + d] = rotated_k[from + d];
        expected[static_cast<size_t>(((place * 2 + 1) * kv_heads + h) * size) + d] = values[from + d];
      }
    }
  }
  expect_close(tq, expected_q, tolerance_of(dtype), "q");
  expect_close(cache, expected, tolerance_of(dtype), "cache");
}

TEST(RaggedOpsTest, CacheIsWrittenAndQueriesRotated) {
  auto library = ragged();
  for (const DType dtype : ragged_dtypes) {
    check_cache(*library, dtype, 10, false);
    check_cache(*library, dtype, 6, false);
    check_cache(*library, dtype, 4, true);
    check_cache(*library, dtype, 0, false);
  }
}

void check_ragged_attention(RaggedOps& library, DType dtype, int64_t size, bool causal, int64_t q_block) {
  SCOPED_TRACE(std::string(dtype_name(dtype)) + " d " + std::to_string(size) + (causal ? " causal" : ""));
  const Batch b;
  constexpr int64_t heads = 4, kv_heads = 2;
  const std::vector<float> q = random_numbers(b.rows * heads * size, 1);
  const Shape cache_shape{b.blocks, b.block, 2, kv_heads, size};
  const std::vector<float> cache = random_numbers(cache_shape.numel(), 2);
  const Tensor tcache = make_tensor(cache, cache_shape, dtype), tq = make_tensor(q, {b.rows, heads * size}, dtype);
  const Tensor host_atoms = Tensor::zeros({12, 8}, DType::I32);
  const int64_t count = library.build_atoms(host_atoms, b.batch, b.seqs(true), q_block, b.block);
  const Tensor out = make_tensor(std::vector<float>(q.size(), 7.0f), {b.rows, heads * size}, dtype);
  library.flash_attn_by_atoms(out, tq, tcache.select(2, 0), tcache.select(2, 1), there(host_atoms.slice(0, 0, count)),
                              b.table(), 0.3f, causal);
  const Doubles dq = kept_numbers(q, dtype), dcache = kept_numbers(cache, dtype);
  Doubles expected(q.size(), 7.0);
  for (int64_t token = 0; token < b.batch.n_tokens; ++token) {
    const int64_t sequence = b.tokens_to_seq[static_cast<size_t>(token)], p = b.position(token);
    const InflightSeq& s = b.sequences[static_cast<size_t>(sequence)];
    // Without is_causal a query sees what its atom does.
    const int64_t done = token - s.start_idx;
    const int64_t end = causal ? p + 1 : s.seen_tokens + std::min<int64_t>((done / q_block + 1) * q_block, s.n_tokens);
    for (int64_t h = 0; h < heads; ++h) {
      const auto at = static_cast<size_t>((token * heads + h) * size);
      Doubles weights;
      double total = 0;
      const auto in_cache = [&](int64_t j, int64_t which) {
        return static_cast<size_t>(((b.place(sequence, j) * 2 + which) * kv_heads + h / 2) * size);
      };
      for (int64_t j = 0; j < end; ++j) {
        double score = 0;
        for (size_t d = 0; d < static_cast<size_t>(size); ++d) score += dq[at + d] * dcache[in_cache(j, 0) + d];
        weights.push_back(std::exp(0.3 * score));
        total += weights.back();
      }
      for (size_t d = 0; d < static_cast<size_t>(size); ++d) {
        double sum = 0;
        for (int64_t j = 0; j < end; ++j) sum += weights[static_cast<size_t>(j)] / total * dcache[in_cache(j, 1) + d];
        expected[at + d] = sum;
      }
    }
  }
  expect_close(out, expected, tolerance_of(dtype), "out");
}

TEST(RaggedOpsTest, AttentionOverThePagedCache) {
  auto library = ragged();
  for (const bool causal : {true, false}) {
    for (const DType dtype : ragged_dtypes) check_ragged_attention(*library, dtype, 16, causal, 4);
    check_ragged_attention(*library, DType::F32, 7, causal, 64);
    check_ragged_attention(*library, DType::F32, 256, causal, 1);
  }
}

TEST(RaggedOpsTest, EmbeddingAndLastRows) {
  auto library = ragged();
  const Batch b;
  constexpr int64_t columns = 6, vocabulary = 11, positions = 8;
  for (const DType dtype : ragged_dtypes) {
    const std::vector<float> table = random_numbers(vocabulary * columns, 1),
                             places = random_numbers(positions * columns, 2);
    const Doubles dt = kept_numbers(table, dtype), dp = kept_numbers(places, dtype);
    const Tensor tt = make_tensor(table, {vocabulary, columns}, dtype),
                 tp = make_tensor(places, {positions, columns}, dtype);
    const std::vector<int32_t> ids{3, 0, 10, 11, -1, 5, 5, 2, 9, 1, 4, 4};  // 11 and -1 are outside
    for (const bool wide : {false, true}) {
      for (const bool with_positions : {false, true}) {
        const Tensor out = make_tensor(std::vector<float>(b.rows * columns, 7.0f), {b.rows, columns}, dtype);
        const Tensor numbers = integers(ids, {b.rows});
        library->ragged_embed(out, wide ? numbers.to(DType::I64) : numbers, tt, with_positions ? tp : Tensor(), 2,
                              b.batch, b.seqs(), b.owners());
        Doubles expected(b.rows * columns, 7.0);
        for (int64_t token = 0; token < b.batch.n_tokens; ++token) {
          const int32_t id = ids[static_cast<size_t>(token)];
          if (id < 0 || id >= vocabulary) continue;
          const int64_t p = std::min<int64_t>(b.position(token) + 2, positions - 1);
          for (int64_t j = 0; j < columns; ++j) {
            expected[static_cast<size_t>(token * columns + j)] =
                dt[static_cast<size_t>(id * columns + j)] +
                (with_positions ? dp[static_cast<size_t>(p * columns + j)] : 0.0);
          }
        }
        expect_close(out, expected, tolerance_of(dtype), "out");
      }
    }
    const std::vector<float> x = random_numbers(b.rows * columns, 3);
    const Doubles dx = kept_numbers(x, dtype);
    const Tensor out = make_tensor(std::vector<float>(3 * columns, 7.0f), {3, columns}, dtype);
    library->gather_for_logits(out, make_tensor(x, {b.rows, columns}, dtype), b.batch, b.seqs());
    // The sequence without tokens has the row before its start.
    Doubles expected;
    for (const size_t row : {6, 6, 9}) {
      expected.insert(expected.end(), dx.begin() + static_cast<std::ptrdiff_t>(row * columns),
                      dx.begin() + static_cast<std::ptrdiff_t>(row * columns + columns));
    }
    expect_close(out, expected, 0, "last rows");
  }
}

TEST(RaggedOpsTest, ExpertsThereAndBack) {
  auto library = ragged();
  constexpr int64_t rows = 9, tokens = 7, experts = 5, columns = 6;
  for (const DType dtype : ragged_dtypes) {
    for (const int64_t k : {1, 2, 4}) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " k " + std::to_string(k));
      std::vector<float> logits = random_numbers(rows * experts, 1);
      logits[2] = logits[4] = 3;  // of two equal ones the lower comes first
      const Doubles dl = kept_numbers(logits, dtype);
      const Tensor counts = there(Tensor::zeros({experts}, DType::I32));
      const Tensor scores = there(Tensor::empty({rows, k}, DType::F32));
      const Tensor chosen = there(Tensor::empty({rows, k}, DType::I32)),
                   offsets = there(Tensor::empty({rows, k}, DType::I32));
      library->top_k_gating(counts, scores, chosen, offsets, make_tensor(logits, {rows, experts}, dtype), {tokens, 0});
      std::vector<int64_t> expected_experts, expected_offsets, expected_counts(experts, 0);
      Doubles expected_scores;
      for (int64_t token = 0; token < rows; ++token) {
        std::vector<int64_t> order(experts);
        std::iota(order.begin(), order.end(), 0);
        const double* row = dl.data() + token * experts;
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t c) { return row[a] > row[c]; });
        double total = 0;
        for (int64_t e = 0; e < experts; ++e) total += std::exp(row[e]);
        for (int64_t j = 0; j < k; ++j) {
          const int64_t expert = order[static_cast<size_t>(j)];
          expected_experts.push_back(token < tokens ? expert : -1);
          expected_offsets.push_back(token < tokens ? expected_counts[static_cast<size_t>(expert)]++ : -1);
          expected_scores.push_back(token < tokens ? std::exp(row[expert]) / total : 0);
        }
      }
      EXPECT_EQ(chosen.to_vector<int64_t>(), expected_experts);
      EXPECT_EQ(offsets.to_vector<int64_t>(), expected_offsets);
      EXPECT_EQ(counts.to_vector<int64_t>(), expected_counts);
      expect_close(scores, expected_scores, 1e-5, "scores");

      std::vector<int64_t> cumsum(expected_counts);
      std::partial_sum(cumsum.begin(), cumsum.end(), cumsum.begin());
      const std::vector<float> x = random_numbers(rows * columns, 2);
      const Doubles dx = kept_numbers(x, dtype);
      const Tensor moe_input =
          make_tensor(std::vector<float>(static_cast<size_t>(rows * k * columns), 7.0f), {rows * k, columns}, dtype);
      const Tensor slots = there(Tensor::empty({rows, k}, DType::I32));
      const Tensor sums = there(Tensor::zeros({experts}, DType::I64));
      library->moe_scatter(moe_input, sums, slots, make_tensor(x, {rows, columns}, dtype), counts, chosen, offsets);
      EXPECT_EQ(sums.to_vector<int64_t>(), cumsum);
      Doubles expected_input(static_cast<size_t>(rows * k * columns), 7.0);
      std::vector<int64_t> expected_slots;
      for (size_t i = 0; i < expected_experts.size(); ++i) {
        const int64_t expert = expected_experts[i];
        const int64_t slot =
            expert < 0 ? -1 : (expert > 0 ? cumsum[static_cast<size_t>(expert - 1)] : 0) + expected_offsets[i];
        expected_slots.push_back(slot);
        for (int64_t c = 0; c < columns && slot >= 0; ++c) {
          expected_input[static_cast<size_t>(slot * columns + c)] =
              dx[i / static_cast<size_t>(k) * columns + static_cast<size_t>(c)];
        }
      }
      EXPECT_EQ(slots.to_vector<int64_t>(), expected_slots);
      expect_close(moe_input, expected_input, 0, "moe_input");

      for (const bool normalize : {false, true}) {
        const Tensor out = make_tensor(std::vector<float>(rows * columns, 7.0f), {rows, columns}, dtype);
        library->moe_gather(out, moe_input, scores, slots, counts, normalize);
        Doubles expected(rows * columns, 7.0);
        for (int64_t token = 0; token < tokens; ++token) {
          double sum = 0;
          for (int64_t j = 0; j < k; ++j) sum += expected_scores[static_cast<size_t>(token * k + j)];
          for (int64_t c = 0; c < columns; ++c) {
            expected[static_cast<size_t>(token * columns + c)] =
                dx[static_cast<size_t>(token * columns + c)] * (normalize ? 1 : sum);
          }
        }
        expect_close(out, expected, tolerance_of(dtype), "out");
        EXPECT_EQ(counts.to_vector<int64_t>(), std::vector<int64_t>(experts, 0));
      }
    }
  }
}

TEST(RaggedOpsTest, NumbersOutsideReadAndWriteNothing) {
  auto library = ragged();
  Batch b;
  b.kv_blocks = {99, -5, 5, 1, 7, -1, 0, 2, 4};
  b.tokens_to_seq[1] = 3;
  b.tokens_to_seq[2] = -1;
  const Tensor cache = make_tensor(std::vector<float>(9 * 4 * 2 * 4, 7.0f), {9, 4, 2, 1, 4});
  const Tensor q = make_tensor(random_numbers(48, 1), {12, 4});
  library->linear_kv_copy(cache, q, q, q, b.batch, b.seqs(), b.owners(), b.table());
  const Tensor out = make_tensor(std::vector<float>(48, 7.0f), {12, 4});
  const Tensor atoms = integers({9, 0, 2, 1, 4, 0, 0, 0, 0, 50, 2, 1, 4, 0, 0, 0, 0, 2, 1, 1, 1, 0, 0, 0}, {3, 8});
  library->flash_attn_by_atoms(out, q, cache.select(2, 0), cache.select(2, 1), atoms, b.table(), 1, true);
  const Doubles values = out.to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(values[i], i / 4 == 2 ? 0 : 7) << i;  // its only block is no block
}

TEST(RaggedOpsTest, RefusesTensorsThatDoNotFit) {
  auto library = ragged();
  const Batch b;
  const auto zeros = [](const Shape& shape, DType dtype = DType::F32) { return there(Tensor::zeros(shape, dtype)); };
  const Tensor cache = zeros({9, 4, 2, 1, 4}), q = zeros({12, 8}), k = zeros({12, 4});
  const auto copy = [&](const Tensor& c, const Tensor& queries, const Tensor& keys, const RaggedBatch& batch) {
    library->linear_kv_copy(c, queries, keys, k, batch, b.seqs(), b.owners(), b.table());
  };
  expect_refused([&] { copy(zeros({9, 4, 1, 1, 4}), q, k, b.batch); }, "kv_cache must be [any, any, 2, any, any]");
  expect_refused([&] { copy(zeros({9, 0, 2, 1, 4}), q, k, b.batch); }, "blocks of at least one position");
  expect_refused([&] { copy(cache, zeros({12, 7}), k, b.batch); }, "q must be [T, heads * 4]");
  expect_refused([&] { copy(cache, q, zeros({12, 4}, DType::F16), b.batch); }, "k must be float32");
  expect_refused([&] { copy(cache, q, k, {13, 3}); }, "batch.n_tokens must be from 0 to 12");
  expect_refused([&] { copy(cache, q, k, {10, 4}); }, "batch.n_sequences must be from 0 to 3");
  expect_refused(
      [&] { library->kv_rotary_embeddings(cache, q, k, k, 3, 1e4f, b.batch, b.seqs(), b.owners(), b.table()); },
      "rotary_dim must be even");
  expect_refused([&] { library->kv_rotary_embeddings(cache, q, k, k, 4, 0, b.batch, b.seqs(), b.owners(), b.table()); },
                 "theta_base");
  expect_refused(
      [&] {
        library->flash_attn_by_atoms(q, q, zeros({9, 4, 1, 300}), zeros({9, 4, 1, 300}), zeros({1, 8}, DType::I32),
                                     b.table(), 1, true);
      },
      "from 1 to 256 elements");
  expect_refused([&] { library->gather_for_logits(zeros({2, 8}), q, b.batch, b.seqs()); }, "out must be [3, 8]");
  expect_refused(
      [&] {
        library->top_k_gating(zeros({3}, DType::I32), zeros({2, 4}), zeros({2, 4}, DType::I32),
                              zeros({2, 4}, DType::I32), zeros({2, 3}), {2, 0});
      },
      "from 1 to 3 experts");
  expect_refused(
      [&] {
        copy(cache, q, cache.view({72, 4}).slice(0, 5, 17), b.batch);
      },
      "shares memory with the tensor");
  expect_refused([&] { library->gather_for_logits(q.slice(0, 1, 4), q, b.batch, b.seqs()); }, "shares memory with");
  const Tensor rows = zeros({12, 16});  // queries, keys and values as one product gives them
  library->linear_kv_copy(cache, rows.slice(1, 0, 8), rows.slice(1, 8, 12), rows.slice(1, 12, 16), b.batch, b.seqs(),
                          b.owners(), b.table());
}

TEST(RaggedOpsTest, BuffersOfTheHost) {
  Accelerator& accelerator = tested_accelerator();
  auto utils = accelerator.create_op_builder("RaggedUtilsBuilder")->load_as<ops::RaggedUtils>();
  const Tensor like = there(Tensor::zeros({3, 5}, DType::F16));
  const Tensor buffer = utils->allocate_fast_host_buffer(like);
  EXPECT_TRUE(buffer.device().is_host());
  EXPECT_EQ(buffer.shape(), like.shape());
  EXPECT_EQ(buffer.dtype(), DType::F16);
  EXPECT_TRUE(accelerator.is_pinned(buffer));
  std::vector<uint8_t> bytes(64);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  const Tensor storage = Tensor::from_host(bytes.data(), {64}, DType::U8);
  const Tensor view = utils->allocate_view_on(Tensor::zeros({2, 3}, DType::I32), storage, 8);
  EXPECT_EQ(view.shape(), (Shape{2, 3}));
  EXPECT_EQ(view.data(), storage.data_as<uint8_t>() + 8);
  const int64_t strides[] = {1, 4};
  const Tensor columns = utils->allocate_view_like({4, 2}, strides, Tensor::zeros({1}, DType::I16), storage, 2);
  EXPECT_EQ(columns.select(0, 1).select(0, 1).item<int16_t>(), (2 + 2 * 5) | (2 + 2 * 5 + 1) << 8);
  const Tensor floats = Tensor::zeros({4, 4}, DType::F32);
  expect_refused([&] { utils->allocate_view_on(floats, storage, 4); }, "needs 64 bytes from byte 4 on");
  expect_refused([&] { utils->allocate_view_on(floats, storage, 2); }, "in place");
  expect_refused([&] { utils->allocate_view_on(floats, storage, -4); }, "must not be negative");
  expect_refused(
      [&] {
        utils->allocate_view_like({4, 4}, strides, floats, storage.slice(0, 0, 32), 0);
      },
      "needs 64 bytes");
  expect_refused([&] { utils->allocate_view_like({4}, strides, floats, storage, 0); }, "a stride for each");
}

}  // namespace
}  // namespace anyaccel
