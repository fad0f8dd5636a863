// The CPU's norms, rotary embedding, activations and other simple ops against their references: random shapes, dtypes
// and strides, on every instruction set.
#include <limits>

#include "ops/op_test_support.h"

namespace anyaccel::cpu::testing {
namespace {

constexpr int kCases = 40;

// Some sizes around the lengths of vectors, of unrolled loops and of chunks.
int64_t row_length(Random& random) {
  return random.pick<int64_t>({1, 2, 7, 15, 16, 17, 31, 64, 100, 128, 255, 1000, 2049, random.integer(1, 300)});
}

Shape lead_shape(Random& random) {
  Shape shape;
  for (int64_t d = random.integer(0, 3); d > 0; --d)
    shape.push_back(random.integer(0, 12) == 0 ? 0 : random.integer(1, 4));
  return shape;
}

TestTensor input(Random& random, Shape shape, double deviation = 1) {
  return TestTensor::random_layout(random, random.float_dtype(), std::move(shape), true).fill_normal(random, deviation);
}
TestTensor output(Random& random, Shape shape) {
  return TestTensor::random_layout(random, random.float_dtype(), std::move(shape), false);
}

TEST(CpuNorm, RmsAndLayerNorm) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < 2 * kCases; ++i) {
      const bool layer = i % 2;
      Shape shape = lead_shape(random);
      shape.push_back(row_length(random));
      const int64_t h = shape.back();
      OpCase c;
      c.op = layer ? "layer_norm" : "rms_norm";
      c.tensors.push_back(output(random, shape));
      c.tensors.push_back(input(random, shape));
      c.tensors.push_back(random.chance(0.7) ? input(random, {h}) : TestTensor());
      if (layer) c.tensors.push_back(random.chance(0.7) ? input(random, {h}) : TestTensor());
      if (random.chance(0.5)) {
        // Sums that binary32 holds exactly and 16 bits do not, so that both versions round the same number to the residual's dtype,
        // and a norm of what was not rounded shows.
        const auto coarse = [&](int64_t) { return std::round(4096 * random.normal()) / 4096; };
        c.tensors[1].fill(coarse);
        c.tensors.push_back(output(random, shape).fill(coarse));
      } else {
        c.tensors.emplace_back();
      }
      c.with(aa_norm_params{0, 1e-5f});
      // If all elements are equal (a short row, or a broadcast one), only the rounding of the mean is left of their
      // distances from it, and 1 / sqrt(eps) makes 300 times that.
      const bool equal = h < 4 || c.tensors[1].view().strides[shape.size() - 1] == 0;
      compare(c, layer ? Tolerance{equal ? 2e-3 : 1e-5, 1e-5, 1.01} : Tolerance{1e-6, 2e-6, 1.01});
    }
  });
}

TEST(CpuNorm, InPlace) {
  for_each_seed([](Random& random) {
    for (const char* op : {"rms_norm", "layer_norm", "softmax", "activation"}) {
      for (DType dtype : {DType::F32, DType::BF16}) {
        TestTensor x = TestTensor(dtype, {5, 70}).fill_normal(random);
        OpCase c;
        c.op = op;
        c.tensors = {TestTensor(dtype, {5, 70}), x};
        if (c.op == "rms_norm") c.tensors.resize(4);
        if (c.op == "layer_norm") c.tensors.resize(5);
        if (c.op == "softmax") {
          c.with(aa_softmax_params{0, 1});
        } else if (c.op == "activation") {
          c.with(aa_activation_params{0, AA_ACTIVATION_GELU});
        } else {
          c.with(aa_norm_params{0, 1e-6f});
        }
        OpCase expected = c;
        run(expected, true);
        for (bool fast : {true, false}) {
          TestTensor shared = x;
          std::vector<aa_tensor> views(c.tensors.size());
          views[0] = views[1] = shared.view();
          aa_op_call call{sizeof(aa_op_call),
                          0,
                          views.data(),
                          static_cast<uint32_t>(views.size()),
                          static_cast<uint32_t>(c.params.size()),
                          c.params.data(),
                          nullptr,
                          nullptr};
          run_call(c.op, call, fast);
          if (fast) {
            EXPECT_TRUE(shared.same_bytes(expected.tensors[0])) << op;
          } else {
            expect_close(expected.tensors[0], shared, {3e-6, 3e-6, 1.01}, op);
          }
        }
      }
    }
  });
}

TEST(CpuNorm, Softmax) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < kCases; ++i) {
      Shape shape = lead_shape(random);
      shape.push_back(random.chance(0.1) ? 20000 : row_length(random));
      if (shape.back() == 20000) shape = {2, 20000};
      OpCase c;
      c.op = "softmax";
      c.tensors.push_back(output(random, shape));
      c.tensors.push_back(input(random, shape, random.pick({1.0, 20.0, 200.0})));
      c.with(aa_softmax_params{0, random.pick({1.0f, 0.125f, -0.7f})});
      // Scores of several hundred are known to 3e-5 in binary32.
      compare(c, {1e-7, 5e-5, 1.01});
    }
  });
}

TEST(CpuNorm, SoftmaxOfInfinitiesAndNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (float special : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (int64_t n : {1, 5, 33}) {
      OpCase c;
      c.op = "softmax";
      c.tensors = {TestTensor(DType::F32, {2, n}), TestTensor(DType::F32, {2, n})};
      c.tensors[1].fill([&](int64_t i) { return i % n == 0 ? special : 1.0; });
      c.with(aa_softmax_params{0, 1});
      compare(c, {1e-7, 1e-6, 1});
    }
  }
}

TEST(CpuRope, Table) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < kCases; ++i) {
      const int64_t t = random.integer(0, 40), r = random.integer(0, 70);
      OpCase c;
      c.op = "rope_table";
      c.tensors.push_back(TestTensor::random_layout(random, DType::F32, {t, r}, false));
      c.tensors.push_back(TestTensor::random_layout(random, DType::F32, {t, r}, false));
      c.tensors.push_back(TestTensor::random_layout(random, DType::F32, {r}, true).fill([&](int64_t j) {
        return std::pow(10000.0, -static_cast<double>(j) / static_cast<double>(r));
      }));
      c.tensors.push_back(TestTensor::random_layout(random, DType::I32, {t}, true).fill([&](int64_t) {
        return static_cast<double>(random.integer(0, 131072));
      }));
      c.with(aa_rope_table_params{0, random.pick({1.0f, 1.2f})});
      // hpu takes whole turns off in fp32, which leaves an angle of at most pi with an error of some ulps of that.
      const DriverAccelerator* device = anyaccel::testing::device_under_test();
      compare(c, {device && device->name() == "hpu" ? 5e-7 : 0, 0, 2});
    }
  });
}

TEST(CpuRope, Rotation) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < kCases; ++i) {
      const int64_t t = random.integer(0, random.chance(0.7) ? 9 : 70);
      const int64_t d = random.pick<int64_t>({2, 6, 16, 64, 80, 128, 33});
      const int64_t r = random.chance(0.6) ? d / 2 : random.integer(0, d / 2);
      OpCase c;
      c.op = "rope";
      c.tensors.push_back(output(random, {t, random.integer(1, 5), d}).fill_normal(random));
      c.tensors.push_back(random.chance(0.8) ? output(random, {t, random.integer(1, 3), d}).fill_normal(random)
                                             : TestTensor());
      const auto table = [&] {
        return TestTensor::random_layout(random, DType::F32, {t, r}, true).fill_normal(random);
      };
      c.tensors.push_back(table());
      c.tensors.push_back(table());
      c.with(aa_rope_params{0, static_cast<int32_t>(random.integer(0, 1))});
      compare(c, {1e-6, 0, 1.01});
    }
  });
}

// Numbers of all sizes, and the special ones.
double any_number(Random& random) {
  const double infinity = std::numeric_limits<double>::infinity();
  switch (random.integer(0, 12)) {
    case 0: return random.pick({0.0, -0.0, infinity, -infinity, std::nan("")});
    case 1: return random.normal(100);
    case 2: return random.normal(1e-3);
    default: return random.normal(4);
  }
}

TEST(CpuElementwise, Activations) {
  for_each_seed([](Random& random) {
    for (int32_t kind = AA_ACTIVATION_SILU; kind <= AA_ACTIVATION_TANH; ++kind) {
      for (int i = 0; i < 12; ++i) {
        Shape shape = lead_shape(random);
        if (i) shape.push_back(row_length(random));
        OpCase c;
        c.op = "activation";
        c.tensors.push_back(output(random, shape));
        // x * sigmoid(x) and its like have no value at -infinity.
        const bool bounded = kind <= AA_ACTIVATION_GELU_TANH;
        c.tensors.push_back(input(random, shape).fill([&](int64_t) {
          const double x = any_number(random);
          return bounded && std::isinf(x) ? -7.0 : x;
        }));
        c.with(aa_activation_params{0, kind});
        // A few ulp of binary32; tails below 1e-37 may be flushed to zero. The exact and the tanh form of gelu square
        // their argument in the exponent, which costs up to 1e-5 far out in the negative tail.
        compare(c, {1e-30, kind == AA_ACTIVATION_GELU || kind == AA_ACTIVATION_GELU_TANH ? 2e-5 : 6e-7, 1.01});
      }
    }
  });
}

TEST(CpuElementwise, ActivationsOverTheirWholeRange) {
  // Every step of 1e-3 over [-12, 12]: within 4 ulp of binary32 (gelu 16), or 1e-9 in the negative tails.
  OpCase c;
  c.op = "activation";
  c.tensors = {TestTensor(DType::F32, {24001}), TestTensor(DType::F32, {24001})};
  c.tensors[1].fill([](int64_t i) { return -12 + 1e-3 * static_cast<double>(i); });
  for (int32_t kind = AA_ACTIVATION_SILU; kind <= AA_ACTIVATION_TANH; ++kind) {
    c.with(aa_activation_params{0, kind});
    const bool gelu = kind == AA_ACTIVATION_GELU || kind == AA_ACTIVATION_GELU_TANH;
    compare(c, {1e-9, 0, gelu ? 16.0 : 4.0});
  }
}

TEST(CpuElementwise, GatedActivationAndAdd) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < 2 * kCases; ++i) {
      Shape shape = lead_shape(random);
      if (i) shape.push_back(i % 8 == 0 ? 5000 : row_length(random));
      OpCase c;
      c.op = i % 2 ? "gated_activation" : "add";
      c.tensors.push_back(output(random, shape));
      c.tensors.push_back(input(random, shape, 3));
      c.tensors.push_back(input(random, shape, 3));
      if (i % 2) c.with(aa_activation_params{0, static_cast<int32_t>(random.integer(0, 5))});
      compare(c, {1e-30, i % 2 ? 2e-5 : 0, 1.01});
    }
  });
}

TEST(CpuElementwise, ManyElementsOnManyThreads) {
  for_each_seed([](Random& random) {
    WorkerPool& pool = WorkerPool::instance();
    const int before = pool.size();
    pool.set_size(3);
    for (const Shape& shape : {Shape{70000}, Shape{300, 257}, Shape{5, 9000, 2}}) {
      OpCase c;
      c.op = "gated_activation";
      c.tensors = {output(random, shape), input(random, shape), input(random, shape)};
      c.with(aa_activation_params{0, AA_ACTIVATION_SILU});
      compare(c, {1e-30, 1e-6, 1.01});
    }
    pool.set_size(before);
  });
}

// Rows and weights of one 16-bit type, which vendors' libraries multiply.
TEST(CpuProducts, OfOneType) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < kCases; ++i) {
      const DType type = i % 3 ? DType::BF16 : DType::F16;
      const int64_t m = random.integer(1, 40), n = 8 * random.integer(1, 9), k = 8 * random.integer(1, 20);
      const bool dense = random.chance(0.7);
      const auto make = [&](DType dtype, int64_t rows, int64_t columns, bool is_input) {
        return dense ? TestTensor(dtype, {rows, columns})
                     : TestTensor::random_layout(random, dtype, {rows, columns}, is_input);
      };
      const auto in = [&](int64_t rows) { return make(type, rows, k, true).fill_normal(random); };
      OpCase c;
      if (i % 2) {
        c.op = "gated_linear";
        c.tensors = {make(type, m, n, false), in(m), in(n), in(n), {}, {}};
        c.with(aa_activation_params{0, AA_ACTIVATION_SILU});
      } else {
        c.op = "linear_multi";
        c.tensors.push_back(in(m));
        for (const int64_t columns : {2 * n, n, n}) {
          c.tensors.push_back(make(DType::F32, m, columns, false));
          c.tensors.push_back(in(columns));
          c.tensors.emplace_back();
        }
      }
      compare(c, {1e-3, 1e-5, 1.01});
    }
  });
}

TEST(CpuElementwise, RepetitionPenalty) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < kCases; ++i) {
      const Shape shape = {random.integer(0, 4), row_length(random)};
      OpCase c;
      c.op = "repetition_penalty";
      c.tensors.push_back(output(random, shape).fill_normal(random));
      c.tensors.push_back(TestTensor::random_layout(random, DType::U8, shape, true).fill([&](int64_t) {
        return random.chance(0.2) ? static_cast<double>(random.integer(1, 255)) : 0.0;
      }));
      c.with(aa_repetition_params{0, 1.3f});
      compare(c, {0, 0, 0});
    }
  });
}

TEST(CpuElementwise, FrequencyPenalty) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < kCases; ++i) {
      const Shape shape = {random.integer(0, 4), row_length(random)};
      OpCase c;
      c.op = "frequency_penalty";
      c.tensors.push_back(output(random, shape).fill_normal(random));
      c.tensors.push_back(TestTensor::random_layout(random, DType::I32, shape, false).fill([&](int64_t) {
        return random.chance(0.2) ? static_cast<double>(random.integer(1, 100)) : 0.0;
      }));
      if (random.chance(0.3)) {
        c.tensors.push_back(TestTensor());
      } else {
        c.tensors.push_back(TestTensor::random_layout(random, random.pick({DType::I32, DType::I64}), {shape[0]}, false)
                                .fill([&](int64_t) {  // now and then no token
                                  return static_cast<double>(random.integer(-1, shape[1]));
                                }));
      }
      c.with(aa_frequency_params{0, random.pick({0.0f, 0.7f, -2.0f}), random.pick({0.0f, 0.3f, -1.1f})});
      compare(c, {1e-5, 1e-6, 1.01});
    }
  });
}

TEST(CpuElementwise, Increment) {
  for_each_seed([](Random& random) {
    for (DType dtype : {DType::I32, DType::I64}) {
      for (int64_t amount : {int64_t{1}, int64_t{-7}, int64_t{1} << 31, std::numeric_limits<int64_t>::max()}) {
        OpCase c;
        c.op = "increment";
        c.tensors.push_back(TestTensor::random_layout(random, dtype, {3, 5}, false).fill([&](int64_t) {
          return static_cast<double>(random.integer(-1000000, 1000000));
        }));
        c.with(aa_increment_params{0, 0, amount});
        compare(c, {0, 0, 0});
      }
    }
  });
}

TEST(CpuGather, Embedding) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < kCases; ++i) {
      const int64_t t = random.integer(0, 20), v = random.integer(1, 50), h = row_length(random);
      OpCase c;
      c.op = "embedding";
      c.tensors.push_back(output(random, {t, h}));
      c.tensors.push_back(input(random, {v, h}));
      c.tensors.push_back(TestTensor::random_layout(random, random.pick({DType::I32, DType::I64}), {t}, true));
      c.tensors[2].fill([&](int64_t) { return static_cast<double>(random.integer(0, v - 1)); });
      compare(c, {0, 0, 0});
    }
    OpCase bad;
    bad.op = "embedding";
    bad.tensors = {TestTensor(DType::F32, {3, 4}), TestTensor(DType::F32, {5, 4}), TestTensor(DType::I64, {3})};
    for (int64_t id : {int64_t{5}, int64_t{-1}, int64_t{1} << 40}) {
      bad.tensors[2].set(2, id);
      expect_out_of_range(bad);
    }
  });
}

TEST(CpuGather, EmbeddingShard) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < kCases; ++i) {
      const int64_t t = random.integer(0, 20), v = random.integer(0, 50), h = row_length(random);
      const int64_t first = random.integer(0, 60);
      OpCase c;
      c.op = "embedding_shard";
      c.tensors.push_back(output(random, {t, h}));
      c.tensors.push_back(input(random, {v, h}));
      c.tensors.push_back(TestTensor::random_layout(random, random.pick({DType::I32, DType::I64}), {t}, true));
      c.tensors[2].fill([&](int64_t) { return static_cast<double>(random.integer(-3, first + v + 20)); });
      if (t > 1 && c.tensors[2].dtype() == DType::I64) {
        c.tensors[2].set(0, std::numeric_limits<int64_t>::min());
        c.tensors[2].set(1, std::numeric_limits<int64_t>::max());
      }
      c.with(aa_embedding_shard_params{0, 0, first});
      compare(c, {0, 0, 0});
    }
  });
}

TEST(CpuGather, CacheWrite) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < kCases; ++i) {
      const bool many = random.chance(0.3);
      const int64_t t = random.integer(0, many ? 70 : 9), b = random.integer(1, 3), heads = random.integer(1, 4);
      const int64_t slots = random.integer(1, many ? 90 : 30), d = random.pick<int64_t>({1, 16, 40, 64});
      OpCase c;
      c.op = "cache_write";
      for (int k = 0; k < 2; ++k) c.tensors.push_back(output(random, {b, heads, slots, d}).fill_normal(random));
      for (int k = 0; k < 2; ++k) c.tensors.push_back(input(random, {t, heads, d}));
      for (int64_t bound : {b, slots}) {
        c.tensors.push_back(TestTensor::random_layout(random, DType::I32, {t}, true));
        c.tensors.back().fill([&](int64_t) { return static_cast<double>(random.integer(0, bound - 1)); });
      }
      compare(c, {0, 0, 0});
      if (t == 0) continue;
      for (size_t tensor : {4u, 5u}) {
        OpCase bad = c;
        bad.tensors[tensor].set(t - 1, tensor == 4 ? b : slots);
        expect_out_of_range(bad);
      }
    }
  });
}

}  // namespace
}  // namespace anyaccel::cpu::testing
