// The fused ops: whatever an accelerator makes of them, one op of its own or the sequence that ops::Inference runs,
// against the sequence of the CPU's references; and that it hands calls over where an accelerator has the op.
#include <map>
#include <memory>
#include <set>

#include "anyaccel/dtype.h"
#include "anyaccel/ops/inference.h"
#include "base/block_format.h"
#include "ops/fused_sequence.h"
#include "ops/op_test_support.h"

namespace anyaccel::cpu::testing {
namespace {

using anyaccel::testing::FusedDriver;

constexpr Tolerance kFusedTolerance{2e-5, 2e-5, 1.01};

// The sequence of the CPU's references.
void run_reference(OpCase& c) {
  std::vector<aa_tensor> views;
  for (TestTensor& t : c.tensors) views.push_back(t.view());
  aa_op_call call{};
  call.struct_size = sizeof(call);
  call.tensors = views.data();
  call.tensor_count = static_cast<uint32_t>(views.size());
  call.params = c.params.data();
  call.params_size = static_cast<uint32_t>(c.params.size());
  ops::find_op_schema(c.op)->check(call);
  std::vector<std::unique_ptr<std::vector<float>>> memory;
  const anyaccel::testing::Sequence sequence(
      [](const char* op, const aa_op_call& part) {
        ops::find_op_schema(op)->check(part);
        entry(op).reference(part);
      },
      [&](const std::vector<int64_t>& shape) {
        int64_t count = 1;
        for (const int64_t size : shape) count *= size;
        memory.push_back(std::make_unique<std::vector<float>>(static_cast<size_t>(count) + 1));
        return anyaccel::testing::dense_view(memory.back()->data(), AA_DTYPE_F32, shape);
      });
  sequence(c.op, call);
}

// Layout, sizes and dtypes of the tensors of a call.
struct Kind {
  bool any_layout = false;  // else dense
  bool any_dtype = false;   // else x and outputs F32 and all weights of one dtype, as models have them
};

class Maker {
 public:
  Maker(Random& random, Kind kind) : random_(random), kind_(kind), weights_(random.float_dtype()) {}

  OpCase norm_linear() {
    const int64_t m = rows(), k = inputs(), n = random_.integer(1, 100);
    OpCase c;
    c.op = "norm_linear";
    c.tensors = {output({m, n}), activations({m, k}), optional({k}), weight(n, k), optional({n})};
    return c.with(aa_norm_linear_params{0, 1e-5f, normed()});
  }
  OpCase norm_gated_linear() {
    const int64_t m = rows(), k = inputs(), n = random_.integer(1, 100);
    OpCase c;
    c.op = "norm_gated_linear";
    c.tensors = {output({m, n}), activations({m, k}), optional({k}), weight(n, k),
                 weight(n, k),   optional({n}),       optional({n})};
    return c.with(aa_norm_activation_params{0, 1e-5f, static_cast<int32_t>(random_.integer(0, 5)), normed()});
  }
  // Rows that some accelerators have tuned kernels for, and others.
  OpCase norm_quantized_gated_linear() {
    const int64_t m = rows(), k = 256 * random_.integer(1, 3), n = random_.integer(1, 40);
    const uint32_t format =
        random_.pick<uint32_t>({AA_BLOCK_Q4_0, AA_BLOCK_Q8_0, AA_BLOCK_Q4_K, AA_BLOCK_Q6_K, AA_BLOCK_Q5_0});
    OpCase c;
    c.op = "norm_quantized_gated_linear";
    c.tensors = {output({m, n}),       activations({m, k}), optional({k}), blocks(n, k, format),
                 blocks(n, k, format), optional({n}),       optional({n})};
    return c.with(aa_norm_quantized_params{0, 1e-5f, static_cast<int32_t>(format), random_.chance(0.7) ? 1 : 0,
                                           static_cast<int32_t>(random_.integer(0, 5)), 0});
  }
  OpCase norm_quantized_qkv_rope() {
    OpCase c = norm_qkv_rope(0, 256 * random_.integer(1, 2));
    const int64_t k = c.tensors[3].shape()[1];
    const int32_t interleaved = reinterpret_cast<const aa_norm_rope_params*>(c.params.data())->interleaved;
    const uint32_t format =
        random_.pick<uint32_t>({AA_BLOCK_Q4_0, AA_BLOCK_Q8_0, AA_BLOCK_Q4_K, AA_BLOCK_Q6_K, AA_BLOCK_Q5_0});
    c.op = "norm_quantized_qkv_rope";
    for (const size_t w : {5u, 7u, 9u}) c.tensors[w] = blocks(c.tensors[w].shape()[0], k, format);
    return c.with(
        aa_norm_quantized_params{0, 1e-5f, static_cast<int32_t>(format), random_.chance(0.7) ? 1 : 0, 0, interleaved});
  }
  // `reach`: how far sequence numbers and positions may be out of range.
  OpCase norm_qkv_rope(int64_t reach = 0, int64_t width = 0) {
    const int64_t t = rows(), k = width > 0 ? width : inputs(), hk = random_.integer(1, 3),
                  hq = hk * random_.pick<int64_t>({1, 2, 4, 7});
    const int64_t d = random_.pick<int64_t>({2, 16, 20, 32, 64}), b = random_.integer(1, 4), s = random_.integer(t, 40);
    const int64_t r = random_.chance(0.6) ? d / 2 : random_.integer(1, d / 2);
    const bool heads_biased = random_.chance(0.5);
    const auto bias = [&](int64_t n) { return heads_biased ? input(weights(), {n}) : TestTensor(); };
    OpCase c;
    c.op = "norm_qkv_rope";
    const DType cache = kind_.any_dtype ? random_.float_dtype() : weights_;
    c.tensors = {output({t, hq, d}),
                 made(cache, {b, hk, s, d}, false).fill_normal(random_),
                 made(cache, {b, hk, s, d}, false).fill_normal(random_),
                 activations({t, k}),
                 optional({k}),
                 weight(hq * d, k),
                 bias(hq * d),
                 weight(hk * d, k),
                 bias(hk * d),
                 weight(hk * d, k),
                 bias(hk * d),
                 made(DType::F32, {t, r}, true),
                 made(DType::F32, {t, r}, true),
                 TestTensor(DType::I32, {t}),
                 TestTensor(DType::I32, {t})};
    for (int64_t i = 0; i < t * r; ++i) {
      const double angle = random_.normal(3);
      c.tensors[11].set(i, std::cos(angle));
      c.tensors[12].set(i, std::sin(angle));
    }
    for (int64_t i = 0; i < t; ++i) {
      c.tensors[13].set(i, random_.integer(-reach, b - 1 + reach));
      // Now and then two tokens name the same slot.
      c.tensors[14].set(i, random_.chance(0.2) ? random_.integer(-reach, s - 1 + reach) : i);
    }
    return c.with(aa_norm_rope_params{0, 1e-5f, random_.chance(0.3) ? 1 : 0, normed()});
  }

 private:
  int64_t rows() { return random_.pick<int64_t>({1, 1, 1, 2, 3, 4, 7, 8, 9, 16, random_.integer(1, 40)}); }
  int64_t inputs() {
    return random_.pick<int64_t>({1, 8, 31, 64, 72, 96, 128, 256, 256, 512, random_.integer(1, 300)});
  }
  // Of the norm's result.
  int32_t normed() {
    return random_.chance(0.5) ? AA_DTYPE_F32 : kind_.any_dtype && random_.chance(0.3) ? AA_DTYPE_F16 : AA_DTYPE_BF16;
  }
  DType weights() { return kind_.any_dtype ? random_.float_dtype() : weights_; }
  TestTensor made(DType dtype, Shape shape, bool is_input) {
    return kind_.any_layout ? TestTensor::random_layout(random_, dtype, std::move(shape), is_input)
                            : TestTensor(dtype, std::move(shape));
  }
  TestTensor input(DType dtype, Shape shape, double deviation = 1) {
    return made(dtype, std::move(shape), true).fill_normal(random_, deviation);
  }
  TestTensor output(Shape shape) {
    return made(kind_.any_dtype ? random_.float_dtype() : DType::F32, std::move(shape), false);
  }
  TestTensor activations(Shape shape) {
    return input(kind_.any_dtype ? random_.float_dtype() : DType::F32, std::move(shape), 2);
  }
  TestTensor optional(Shape shape) { return random_.chance(0.6) ? input(weights(), std::move(shape)) : TestTensor(); }
  // Random numbers with scales that make results of the size of 1.
  TestTensor blocks(int64_t n, int64_t k, uint32_t number) {
    const BlockFormat& format = *find_block_format(number);
    const double size = number == AA_BLOCK_Q8_0   ? 74
                        : number == AA_BLOCK_Q4_K ? 200
                        : number == AA_BLOCK_Q6_K ? 1370
                        : number == AA_BLOCK_Q5_0 ? 9
                                                  : 4.6;
    TestTensor w(DType::U8, {n, k / format.values * format.bytes});
    const auto scale = float_to_fp16(static_cast<float>(1 / (size * std::sqrt(static_cast<double>(k)))));
    const auto least = float_to_fp16(static_cast<float>(7.5 / (size * std::sqrt(static_cast<double>(k)))));
    const int64_t bytes = format.bytes;
    for (int64_t i = 0; i < w.count(); ++i) {
      const int64_t b = number == AA_BLOCK_Q6_K ? (i + 2) % bytes : i % bytes;  // d is the last of its fields
      const int64_t half = b < 2 ? scale : number == AA_BLOCK_Q4_K && b < 4 ? least : -1;
      w.set(i, half < 0 ? random_.integer(0, 255) : (half >> (8 * (b % 2))) & 255);
    }
    return w;
  }
  // So that results are of the size of 1.
  TestTensor weight(int64_t n, int64_t k) { return input(weights(), {n, k}, 1 / std::sqrt(static_cast<double>(k))); }

  Random& random_;
  Kind kind_;
  DType weights_;
};

// The dtype of the norm's result.
int32_t normed_of(const OpCase& c) {
  if (c.op == "norm_linear") return reinterpret_cast<const aa_norm_linear_params*>(c.params.data())->normed;
  if (c.op == "norm_gated_linear") return reinterpret_cast<const aa_norm_activation_params*>(c.params.data())->normed;
  if (c.op == "norm_qkv_rope") return reinterpret_cast<const aa_norm_rope_params*>(c.params.data())->normed;
  return AA_DTYPE_F32;
}

// Rounded rows of x, or weights, make errors of a hundredth of a result, which a gate multiplies by another.
Tolerance tolerance_of(const OpCase& c) {
  if (!c.op.starts_with("norm_quantized")) {
    // Where the norm's result is rounded, a value near the middle of two numbers may become the other one. That it is rounded is
    // what the conformance suite's cases "rounds_the_norm" show.
    if (normed_of(c) == AA_DTYPE_F32) return kFusedTolerance;
    return {c.op == "norm_gated_linear" ? 0.1 : 0.03, 0.01, 1.01};
  }
  const auto& params = *reinterpret_cast<const aa_norm_quantized_params*>(c.params.data());
  if (params.rounding == AA_QUANTIZED_EXACT) return {1e-4, 1e-4, 1.01};
  return {c.op == "norm_quantized_gated_linear" ? 0.4 : 0.1, 0.02, 1.01};
}

void expect_results(const OpCase& found, const OpCase& expected, const OpCase& original) {
  const ops::OpSchema& schema = *ops::find_op_schema(original.op);
  for (size_t i = 0; i < found.tensors.size(); ++i) {
    if (!found.tensors[i].present()) continue;
    if (schema.tensors[i].role == ops::Role::In) {
      EXPECT_TRUE(found.tensors[i].same_bytes(original.tensors[i])) << "the input " << schema.tensors[i].name;
    } else {
      EXPECT_TRUE(found.tensors[i].untouched()) << "something was written outside of " << schema.tensors[i].name;
      expect_close(found.tensors[i], expected.tensors[i], tolerance_of(original), schema.tensors[i].name);
    }
  }
}

// ---- an accelerator's own ------------------------------------------------------------------------------------------

// Calls of an op that the accelerator under test has, of any layout and dtype; what it refuses is the sequence's.
class OwnOps : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    DriverAccelerator* accelerator = anyaccel::testing::device_under_test();
    if (!accelerator || accelerator->find_op(GetParam()) < 0) {
      GTEST_SKIP() << (accelerator ? accelerator->name() : "cpu") << " has no op \"" << GetParam() << "\" of its own";
    }
  }
  // Returns true if the accelerator ran the call itself.
  static bool compare(const OpCase& original) {
    SCOPED_TRACE(original.text());
    OpCase expected = original;
    run_reference(expected);
    OpCase found = original;
    try {
      run(found, true);
    } catch (const NotImplementedError&) {
      return false;
    }
    expect_results(found, expected, original);
    return true;
  }
  static OpCase make(Maker& maker) {
    const std::string op = GetParam();
    return op == "norm_linear"               ? maker.norm_linear()
           : op == "norm_gated_linear"       ? maker.norm_gated_linear()
           : op == "norm_qkv_rope"           ? maker.norm_qkv_rope()
           : op == "norm_quantized_qkv_rope" ? maker.norm_quantized_qkv_rope()
                                             : maker.norm_quantized_gated_linear();
  }
};

TEST_P(OwnOps, OfModels) {
  int taken = 0;
  for_each_seed([&](Random& random) {
    for (int i = 0; i < 60; ++i) {
      Maker maker(random, {});
      taken += compare(make(maker));
    }
  });
  EXPECT_GT(taken, 0) << "the accelerator finds the op and refuses every call";
  RecordProperty("taken", taken);
}

TEST_P(OwnOps, OfAnyKind) {
  for_each_seed([&](Random& random) {
    for (int i = 0; i < 60; ++i) {
      Maker maker(random, {.any_layout = random.chance(0.7), .any_dtype = true});
      compare(make(maker));
    }
  });
}

TEST_P(OwnOps, OutOfRange) {
  if (std::string(GetParam()) != "norm_qkv_rope") GTEST_SKIP() << "the op takes no positions";
  for_each_seed([&](Random& random) {
    for (int i = 0; i < 30; ++i) {
      Maker maker(random, {});
      const OpCase original = maker.norm_qkv_rope(3);
      SCOPED_TRACE(original.text());
      const auto in_range = [&](int64_t t) {
        const int64_t b = original.tensors[13].integer(t), s = original.tensors[14].integer(t);
        return b >= 0 && b < original.tensors[1].shape()[0] && s >= 0 && s < original.tensors[1].shape()[2];
      };
      OpCase found = original;
      try {
        run(found, true);
      } catch (const NotImplementedError&) {
        continue;
      } catch (const InvalidArgument& error) {
        EXPECT_EQ(error.code(), AA_OUT_OF_RANGE) << error.what();
        continue;
      }
      // Slots that no token names are as they were, and nothing else was touched.
      std::set<int64_t> named;
      for (int64_t t = 0; t < original.tensors[13].count(); ++t) {
        if (in_range(t)) {
          named.insert(original.tensors[13].integer(t) * original.tensors[1].shape()[2] +
                       original.tensors[14].integer(t));
        }
      }
      const Shape& shape = original.tensors[1].shape();
      for (const size_t cache : {1u, 2u}) {
        EXPECT_TRUE(found.tensors[cache].untouched());
        for (int64_t e = 0; e < original.tensors[cache].count(); ++e) {
          const int64_t slot = e / shape[3] % shape[2], b = e / shape[3] / shape[2] / shape[1];
          if (named.count(b * shape[2] + slot)) continue;
          ASSERT_EQ(found.tensors[cache].number(e), original.tensors[cache].number(e)) << "element " << e;
        }
      }
      EXPECT_TRUE(found.tensors[0].untouched());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, OwnOps,
                         ::testing::Values("norm_linear", "norm_gated_linear", "norm_qkv_rope",
                                           "norm_quantized_gated_linear", "norm_quantized_qkv_rope"),
                         [](const auto& info) { return std::string(info.param); });

// ---- by ops::Inference --------------------------------------------------------------------------------------------

// Runs cases of dense tensors by the functions of ops::Inference.
class Face {
 public:
  explicit Face(Accelerator& accelerator) : accelerator_(accelerator), ops_(accelerator) {}

  ops::Inference& ops() { return ops_; }

  void run(OpCase& c) {
    const auto between = static_cast<DType>(normed_of(c));
    std::vector<Tensor> t;
    for (const TestTensor& tensor : c.tensors) t.push_back(upload(tensor));
    if (c.op == "norm_linear") {
      ops_.norm_linear(t[0], t[1], t[2], t[3], params<aa_norm_linear_params>(c).eps, t[4], between);
    } else if (c.op == "norm_gated_linear") {
      const auto& p = params<aa_norm_activation_params>(c);
      ops_.norm_gated_linear(t[0], t[1], t[2], t[3], t[4], static_cast<ops::Activation>(p.kind), p.eps, t[5], t[6],
                             between);
    } else if (c.op == "norm_quantized_gated_linear") {
      const auto& p = params<aa_norm_quantized_params>(c);
      ops_.norm_quantized_gated_linear(t[0], t[1], t[2], t[3], t[4], static_cast<aa_block_format>(p.format),
                                       p.rounding != 0, static_cast<ops::Activation>(p.kind), p.eps, t[5], t[6]);
    } else if (c.op == "norm_quantized_qkv_rope") {
      const auto& p = params<aa_norm_quantized_params>(c);
      ops_.norm_quantized_qkv_rope(
          t[0], {t[1], t[2], t[13], t[14]}, t[3], t[4], {t[5], t[6], t[7], t[8], t[9], t[10], {}, {}},
          static_cast<aa_block_format>(p.format), p.rounding != 0, {t[11], t[12], p.interleaved != 0}, p.eps);
    } else {
      const auto& p = params<aa_norm_rope_params>(c);
      ops_.norm_qkv_rope(t[0], {t[1], t[2], t[13], t[14]}, t[3], t[4], {t[5], t[6], t[7], t[8], t[9], t[10], {}, {}},
                         {t[11], t[12], p.interleaved != 0}, p.eps, between);
    }
    const ops::OpSchema& schema = *ops::find_op_schema(c.op);
    for (size_t i = 0; i < t.size(); ++i) {
      if (!t[i] || schema.tensors[i].role == ops::Role::In) continue;
      const std::vector<float> values = t[i].to_vector<float>();
      c.tensors[i].fill([&](int64_t e) { return values[static_cast<size_t>(e)]; });
    }
  }

 private:
  template <class Params>
  static const Params& params(const OpCase& c) {
    return *reinterpret_cast<const Params*>(c.params.data());
  }
  Tensor upload(const TestTensor& tensor) const {
    if (!tensor.present()) return {};
    return Tensor::from_host(tensor.at(0), anyaccel::Shape(std::span<const int64_t>(tensor.shape())), tensor.dtype(),
                             accelerator_.device());
  }

  Accelerator& accelerator_;
  ops::Inference ops_;
};

// The accelerator under test, else the CPU.
Accelerator& accelerator() {
  if (DriverAccelerator* device = anyaccel::testing::device_under_test()) return *device;
  static const std::unique_ptr<Accelerator> cpu = make_accelerator("cpu");
  return *cpu;
}

TEST(FusedFace, MatchesTheSequence) {
  Face face(accelerator());
  for_each_seed([&](Random& random) {
    for (int i = 0; i < 30; ++i) {
      Maker maker(random, {});
      for (const OpCase& original : {maker.norm_linear(), maker.norm_gated_linear(), maker.norm_qkv_rope(),
                                     maker.norm_quantized_gated_linear(), maker.norm_quantized_qkv_rope()}) {
        SCOPED_TRACE(original.text());
        OpCase expected = original, found = original;
        run_reference(expected);
        face.run(found);
        expect_results(found, expected, original);
      }
    }
  });
  for (const ops::OpPlacement& placement : face.ops().placements()) EXPECT_EQ(placement.fallbacks, 0u) << placement.op;
}

TEST(FusedFace, PlacementsAndGraphs) {
  Face face(accelerator());
  EXPECT_TRUE(face.ops().all_native());
  int fused = 0;
  for (const ops::OpPlacement& placement : face.ops().placements()) {
    EXPECT_TRUE(placement.native || placement.as_sequence || placement.avoided) << placement.op;
    EXPECT_EQ(placement.avoided, !placement.native && placement.op.starts_with("quantized_")) << placement.op;
    EXPECT_FALSE(placement.native && placement.as_sequence) << placement.op;
    EXPECT_EQ(placement.native, accelerator().find_op(placement.op.c_str()) >= 0) << placement.op;
    fused += anyaccel::testing::is_fused_op(placement.op);
  }
  EXPECT_EQ(fused, 5);
}

TEST(FusedFace, NeverFallsBackAsOneOp) {
  const auto null = make_accelerator("null");
  ASSERT_EQ(setenv("ANYACCEL_FALLBACK", "error", 1), 0);
  Face face(*null);
  ASSERT_EQ(unsetenv("ANYACCEL_FALLBACK"), 0);
  EXPECT_FALSE(face.ops().all_native());
  Random random(5);
  OpCase c = Maker(random, {}).norm_linear();
  try {
    face.run(c);
    ADD_FAILURE() << "no error";
  } catch (const NotImplementedError& error) {
    EXPECT_NE(std::string(error.what()).find("\"rms_norm\""), std::string::npos) << error.what();
  }
  for (const ops::OpPlacement& placement : face.ops().placements()) {
    EXPECT_EQ(placement.as_sequence, anyaccel::testing::is_fused_op(placement.op)) << placement.op;
  }
}

// ---- an accelerator that has them: the CPU's driver with fused ops of its own --------------------------------------

class HandedOver : public ::testing::Test {
 protected:
  FusedDriver driver_;
  DriverAccelerator accelerator_{&driver_.table()};
  Face face_{accelerator_};
};

TEST_F(HandedOver, AsOneCall) {
  Random random(1);
  for (int i = 0; i < 5; ++i) {
    Maker maker(random, {});
    for (const OpCase& original : {maker.norm_linear(), maker.norm_gated_linear(), maker.norm_qkv_rope(),
                                   maker.norm_quantized_gated_linear(), maker.norm_quantized_qkv_rope()}) {
      SCOPED_TRACE(original.text());
      OpCase expected = original, found = original;
      run_reference(expected);
      const int calls = FusedDriver::calls(), others = FusedDriver::other_calls();
      face_.run(found);
      EXPECT_EQ(FusedDriver::calls(), calls + 1);
      EXPECT_EQ(FusedDriver::other_calls(), others);
      expect_results(found, expected, original);
    }
  }
  for (const ops::OpPlacement& placement : face_.ops().placements()) {
    EXPECT_TRUE(placement.native && !placement.as_sequence) << placement.op;
  }
  EXPECT_TRUE(face_.ops().all_native());
}

TEST_F(HandedOver, NotWhatTheDriverRefuses) {
  FusedDriver::refuse(true);
  Random random(2);
  Maker maker(random, {});
  std::map<std::string, int> parts = {{"norm_linear", 2},
                                      {"norm_gated_linear", 2},
                                      {"norm_qkv_rope", 4},
                                      {"norm_quantized_gated_linear", 4},
                                      {"norm_quantized_qkv_rope", 6}};
  for (const OpCase& original : {maker.norm_linear(), maker.norm_gated_linear(), maker.norm_qkv_rope(),
                                 maker.norm_quantized_gated_linear(), maker.norm_quantized_qkv_rope()}) {
    SCOPED_TRACE(original.text());
    OpCase expected = original, found = original;
    run_reference(expected);
    const int others = FusedDriver::other_calls();
    face_.run(found);
    EXPECT_EQ(FusedDriver::other_calls(), others + parts[original.op]);
    expect_results(found, expected, original);
  }
  EXPECT_EQ(FusedDriver::calls(), 0);
  for (const ops::OpPlacement& placement : face_.ops().placements()) EXPECT_EQ(placement.fallbacks, 0u);
}

TEST_F(HandedOver, NotUnderAmp) {
  Random random(4);
  Maker maker(random, {});
  const ScopeGuard amp = accelerator_.amp(DType::BF16);
  for (OpCase c : {maker.norm_linear(), maker.norm_gated_linear(), maker.norm_qkv_rope()}) face_.run(c);
  EXPECT_EQ(FusedDriver::calls(), 0);
}

TEST_F(HandedOver, BadCallsAreRefusedFirst) {
  Random random(6);
  OpCase c = Maker(random, {}).norm_linear();
  const Shape shape = c.tensors[3].shape();
  c.tensors[3] = TestTensor(DType::F32, {shape[0], shape[1] + 1});
  EXPECT_THROW(face_.run(c), InvalidArgument);
  EXPECT_EQ(FusedDriver::calls(), 0);
}

}  // namespace
}  // namespace anyaccel::cpu::testing
