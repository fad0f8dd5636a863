// CPUAdam, CPUAdagrad and CPULion, on every instruction set of the machine.
#include "anyaccel/ops/cpu_adagrad.h"
#include "anyaccel/ops/cpu_adam.h"
#include "anyaccel/ops/cpu_lion.h"
#include "ops/optimizer_test_support.h"
#include "ops/optimizer_torch_values.h"

namespace anyaccel::ops::testing {
namespace {

template <class Face>
std::shared_ptr<Face> load(const char* builder) {
  return cpu_accelerator().create_op_builder(builder)->load_as<Face>();
}
std::shared_ptr<CPUAdam> adam() { return load<CPUAdam>("CPUAdamBuilder"); }

// Around vectors, blocks and staging buffers; the last is cut among threads.
constexpr int64_t sizes[] = {0, 1, 3, 4, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1023, 1091, 40003};

// One parameter with its arrays and its reference.
struct AdamCase {
  DType param_dtype, grad_dtype, state_dtype;
  std::vector<float> p, g, m, v;
  Array param, grad, exp_avg, exp_avg_sq;

  AdamCase(std::mt19937& engine, int64_t n, Pair pair, DType gradient, int64_t lead = 3)
      : param_dtype(pair.param),
        grad_dtype(gradient),
        state_dtype(pair.state),
        p(random_values(engine, n, pair.param, 1)),
        g(random_values(engine, n, gradient, 0.3f)),
        m(random_values(engine, n, pair.state, 0.1f)),
        v(random_values(engine, n, pair.state, 0.2f, true)),
        param(pair.param, p, lead),
        grad(gradient, g, lead),
        exp_avg(pair.state, m, lead),
        exp_avg_sq(pair.state, v, lead) {}

  void update(CPUAdam& op, int id, const AdamReference& r, const Tensor& copy = {}) {
    op.adam_update(id, r.step, r.lr, r.beta1, r.beta2, r.eps, r.weight_decay, r.bias_correction, param.tensor(),
                   grad.tensor(), exp_avg.tensor(), exp_avg_sq.tensor(), copy);
  }
  void rollback(CPUAdam& op, int id, const AdamReference& r) {
    op.adam_rollback(id, r.step, r.lr, r.beta1, r.beta2, r.eps, r.weight_decay, r.bias_correction, param.tensor(),
                     grad.tensor(), exp_avg.tensor(), exp_avg_sq.tensor());
  }
  AdamTensors tensors() const { return {param.tensor(), grad.tensor(), exp_avg.tensor(), exp_avg_sq.tensor(), {}}; }
  void apply(const AdamReference& r) { r.apply(param_dtype, state_dtype, p, g, m, v); }
  void compare() const {
    EXPECT_SAME_BITS(param.values(), p);
    EXPECT_SAME_BITS(grad.values(), g);
    EXPECT_SAME_BITS(exp_avg.values(), m);
    EXPECT_SAME_BITS(exp_avg_sq.values(), v);
    EXPECT_TRUE(param.guards_hold() && grad.guards_hold() && exp_avg.guards_hold() && exp_avg_sq.guards_hold());
  }
};

TEST(CpuAdam, BitsOfTheReference) {
  for_each_isa([] {
    const auto op = adam();
    op->create_adam(1, 1e-3, 0.9, 0.999, 1e-8, 0, true);
    op->create_adam(2, 1e-3, 0.9, 0.999, 1e-8, 0, false);
    std::mt19937 engine(7);
    for (const Pair pair : dtype_pairs) {
      for (const DType gradient : gradient_dtypes(pair.param)) {
        for (const int64_t n : sizes) {
          for (const bool adamw : {true, false}) {
            SCOPED_TRACE("param " + std::string(dtype_name(pair.param)) + " grad " + std::string(dtype_name(gradient)) +
                         " state " + std::string(dtype_name(pair.state)) + " n " + std::to_string(n) +
                         (adamw ? " AdamW" : " L2"));
            AdamCase c(engine, n, pair, gradient, n % 2 ? 3 : 0);
            AdamReference reference;
            reference.adamw = adamw;
            for (reference.step = 1; reference.step <= 2; ++reference.step) {
              c.update(*op, adamw ? 1 : 2, reference);
              c.apply(reference);
            }
            c.compare();
            if (::testing::Test::HasFailure()) return;
          }
        }
      }
    }
  });
}

TEST(CpuAdam, StepsJumpAndRepeat) {
  const auto op = adam();
  op->create_adam(0);
  std::mt19937 engine(1);
  AdamCase c(engine, 100, dtype_pairs[0], DType::F32);
  AdamReference reference;
  for (const int64_t step : {1, 2, 2, 7, 3, 1'000'000}) {
    reference.step = step;
    reference.beta1 = step == 7 ? 0.8 : 0.9;
    c.update(*op, 0, reference);
    c.apply(reference);
    c.compare();
  }
  reference.bias_correction = false;
  c.update(*op, 0, reference);
  c.apply(reference);
  c.compare();
  EXPECT_ERROR(op->adam_update(0, 0, 1e-3, 0.9, 0.99, 1e-8, 0, true, c.param.tensor(), c.grad.tensor(),
                               c.exp_avg.tensor(), c.exp_avg_sq.tensor()),
               "step is 0; steps count from 1");
}

// Three steps, to a few units in the last place: PyTorch rounds in another order.
void expect_near(const Tensor& tensor, const float* expected) {
  const std::vector<float> values = tensor.to_vector<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], 1e-6 * std::abs(expected[i]) + 1e-9) << "element " << i;
  }
}
std::vector<float> torch_gradient(int step) {
  std::vector<float> g;
  for (int i = 0; i < 8; ++i) g.push_back(static_cast<float>((7 * i + 3 * step) % 11 - 5) / 16);
  return g;
}

TEST(CpuAdam, NumbersOfPyTorch) {
  const auto op = adam();
  for (const bool adamw : {false, true}) {
    op->create_adam(5, 0.01, 0.9, 0.99, 1e-6, 0.1, adamw);
    const std::vector<float> start(torch_values::params, torch_values::params + 8), zero(8);
    const Array p(DType::F32, start), m(DType::F32, zero), v(DType::F32, zero);
    for (int step = 1; step <= 3; ++step) {
      const Array g(DType::F32, torch_gradient(step));
      op->adam_update(5, step, 0.01, 0.9, 0.99, 1e-6, 0.1, true, p.tensor(), g.tensor(), m.tensor(), v.tensor());
    }
    expect_near(p.tensor(), adamw ? torch_values::adamw_params : torch_values::adam_params);
    expect_near(m.tensor(), adamw ? torch_values::adamw_state0 : torch_values::adam_state0);
    expect_near(v.tensor(), adamw ? torch_values::adamw_state1 : torch_values::adam_state1);
  }
}

TEST(CpuAdam, CopyOfTheNewParameters) {
  for_each_isa([] {
    const auto op = adam();
    op->create_adam(0);
    std::mt19937 engine(3);
    for (const DType copy_dtype : {DType::BF16, DType::F16, DType::F32}) {
      for (const int64_t n : {0, 5, 64, 1000, 5000, 40003}) {
        for (const int64_t lead : {0, 1}) {
          for (const Pair pair : {dtype_pairs[0], dtype_pairs[3]}) {
            AdamCase c(engine, n, pair, pair.param);
            const Array copy(copy_dtype, std::vector<float>(static_cast<size_t>(n), 5), lead);
            AdamReference reference;
            c.update(*op, 0, reference, copy.tensor());
            c.apply(reference);
            c.compare();
            // The copy of the float32 result, which equals the parameter if that is float32.
            if (pair.param == DType::F32) {
              std::vector<float> expected = c.p;
              for (float& x : expected) x = rounded(copy_dtype, x);
              EXPECT_SAME_BITS(copy.values(), expected);
            }
            EXPECT_TRUE(copy.guards_hold());
          }
        }
      }
    }
  });
}

TEST(CpuAdam, ManyAtOnceAsOneByOneOnAnyNumberOfThreads) {
  std::vector<std::vector<float>> expected;
  for (const int threads : {0, 1, 2, 3, 5}) {
    const Threads scope(std::max(1, threads));
    const auto op = adam();
    op->create_adam(0);
    std::mt19937 engine(11);
    std::vector<AdamCase> cases;
    for (int i = 0; i < 40; ++i) {
      const Pair pair = dtype_pairs[i % 5];
      cases.emplace_back(engine, sizes[static_cast<size_t>(i * 7) % std::size(sizes)], pair,
                         i % 2 ? pair.param : DType::F32);
    }
    AdamReference reference;
    if (threads == 0) {
      for (AdamCase& c : cases) c.update(*op, 0, reference);
    } else {
      AdamOptions options{
          reference.lr, reference.beta1, reference.beta2, reference.eps, reference.weight_decay, true, {}};
      std::vector<AdamTensors> list;
      for (const AdamCase& c : cases) list.push_back(c.tensors());
      EXPECT_EQ(op->adam_update_multi(0, 1, options, list), 0);
    }
    std::vector<std::vector<float>> results;
    for (AdamCase& c : cases) {
      c.apply(reference);
      c.compare();
      results.push_back(c.param.values());
      results.push_back(c.exp_avg_sq.values());
    }
    if (threads == 0) expected = results;
    for (size_t i = 0; i < results.size(); ++i) EXPECT_SAME_BITS(results[i], expected[i]);
  }
}

TEST(CpuAdam, ScaleAndClip) {
  std::vector<double> norms;
  for_each_isa([&] {
    for (const int threads : {1, 3}) {
      const Threads scope(threads);
      const auto op = adam();
      op->create_adam(0);
      std::mt19937 engine(5);
      std::vector<AdamCase> cases;
      for (const int64_t n : {40003, 0, 20, 16384}) {
        cases.emplace_back(engine, n, n == 20 ? dtype_pairs[4] : dtype_pairs[0], n == 20 ? DType::BF16 : DType::F32);
      }
      std::vector<AdamTensors> list;
      double squares = 0;
      for (const AdamCase& c : cases) {
        list.push_back(c.tensors());
        for (const float x : c.g) squares += static_cast<double>(x) * x;
      }
      AdamReference reference;
      AdamOptions options{
          reference.lr, reference.beta1, reference.beta2, reference.eps, reference.weight_decay, true, {}};
      options.gradients.scale = 0.125;
      options.gradients.max_norm = 1.5;
      const double norm = op->adam_update_multi(0, 1, options, list);
      EXPECT_NEAR(norm, 0.125 * std::sqrt(squares), 1e-12 * norm);
      norms.push_back(norm);
      EXPECT_EQ(norm, norms[0]);
      ASSERT_GT(norm, 1.5);
      reference.scale = static_cast<float>(0.125 * (1.5 / (norm + 1e-6)));
      for (AdamCase& c : cases) {
        c.apply(reference);
        c.compare();
      }
      // A bound that is not reached changes nothing but the scale.
      options.gradients.max_norm = 1e6;
      EXPECT_EQ(op->adam_update_multi(0, 1, options, list), norm);
      reference.scale = 0.125f;
      for (AdamCase& c : cases) {
        c.apply(reference);
        c.compare();
      }
    }
  });
}

TEST(CpuAdam, NormThatIsNotFiniteChangesNothing) {
  const auto op = adam();
  op->create_adam(0);
  for (const float bad : {INFINITY, NAN}) {
    std::mt19937 engine(5);
    AdamCase c(engine, 100, dtype_pairs[0], DType::F32);
    c.g[40] = bad;
    write(c.grad.tensor(), c.g);
    AdamOptions options;
    options.gradients.max_norm = 1;
    const std::vector<AdamTensors> list{c.tensors()};
    EXPECT_FALSE(std::isfinite(op->adam_update_multi(0, 1, options, list)));
    EXPECT_SAME_BITS(c.param.values(), c.p);
    EXPECT_SAME_BITS(c.exp_avg.values(), c.m);
    EXPECT_SAME_BITS(c.exp_avg_sq.values(), c.v);
  }
}

TEST(CpuAdam, RollbackUndoesTheStep) {
  for_each_isa([] {
    const auto op = adam();
    for (const bool adamw : {true, false}) {
      op->create_adam(0, 1e-3, 0.9, 0.999, 1e-8, 0, adamw);
      std::mt19937 engine(9);
      for (const Pair pair : dtype_pairs) {
        for (const bool bias_correction : {true, false}) {
          SCOPED_TRACE(std::string(dtype_name(pair.param)) + " " + std::string(dtype_name(pair.state)) +
                       (adamw ? " AdamW" : " L2"));
          AdamCase c(engine, 777, pair, pair.param);
          AdamReference reference;
          reference.adamw = adamw;
          reference.step = 3;
          reference.bias_correction = bias_correction;
          c.update(*op, 0, reference);
          c.rollback(*op, 0, reference);
          const auto unit = [](DType dtype) {
            return dtype == DType::F32 ? 0x1p-23 : dtype == DType::F16 ? 0x1p-10 : 0x1p-7;
          };
          const std::vector<float> p = c.param.values(), m = c.exp_avg.values(), v = c.exp_avg_sq.values();
          for (size_t i = 0; i < p.size(); ++i) {
            // The step's own rounding of p, m and v, and what it does to the step that is computed from them again
            // (at most a tenth here).
            const double param_slack = 4 * unit(pair.param) + 0.2 * 12 * unit(pair.state);
            EXPECT_NEAR(p[i], c.p[i], param_slack * (std::abs(c.p[i]) + 1)) << i;
            EXPECT_NEAR(m[i], c.m[i], 4 * unit(pair.state) * (std::abs(c.m[i]) + 0.2) + 0.01 * param_slack) << i;
            EXPECT_NEAR(v[i], c.v[i], 4 * unit(pair.state) * (std::abs(c.v[i]) + 0.2) + 0.01 * param_slack) << i;
            EXPECT_GE(v[i], 0) << i;
          }
        }
      }
    }
  });
}

TEST(CpuAdam, RollbackKeepsWhatIsNotFinite) {
  const auto op = adam();
  op->create_adam(0);
  std::mt19937 engine(9);
  AdamCase c(engine, 100, dtype_pairs[0], DType::F32);
  c.p[3] = INFINITY;
  c.p[4] = NAN;
  write(c.param.tensor(), c.p);
  AdamReference reference;
  c.update(*op, 0, reference);
  c.rollback(*op, 0, reference);
  const std::vector<float> p = c.param.values();
  EXPECT_FALSE(std::isfinite(p[3]));
  EXPECT_TRUE(std::isnan(p[4]));
  EXPECT_TRUE(std::isfinite(p[5]));
  reference.beta1 = 0;
  EXPECT_ERROR(c.rollback(*op, 0, reference), "a beta of 0");
  reference.beta1 = 0.9;
  reference.weight_decay = 1000;
  EXPECT_ERROR(c.rollback(*op, 0, reference), "leaves nothing of the parameters");
}

TEST(CpuAdam, TensorsThatAreNotContiguous) {
  const auto op = adam();
  op->create_adam(0);
  std::mt19937 engine(2);
  AdamCase dense(engine, 35 * 21, dtype_pairs[0], DType::F32);
  const auto spread = [&](const std::vector<float>& values, int kind) {
    // Every second column of a wider matrix, or a transposed one.
    const Tensor base = Tensor::empty(kind == 0 ? Shape{35, 42} : Shape{21, 35}, DType::F32);
    base.fill(77);
    const Tensor view = kind == 0 ? base.slice(1, 0, 42, 2) : base.transpose(0, 1);
    write(view, values);
    return std::pair(base, view);
  };
  const auto p = spread(dense.p, 0), g = spread(dense.g, 1), m = spread(dense.m, 1), v = spread(dense.v, 0);
  const auto copy = spread(dense.p, 1);
  AdamReference r;
  op->adam_update(0, 1, r.lr, r.beta1, r.beta2, r.eps, r.weight_decay, true, p.second, g.second, m.second, v.second,
                  copy.second);
  dense.apply(r);
  EXPECT_SAME_BITS(p.second.to_vector<float>(), dense.p);
  EXPECT_SAME_BITS(g.second.to_vector<float>(), dense.g);
  EXPECT_SAME_BITS(m.second.to_vector<float>(), dense.m);
  EXPECT_SAME_BITS(v.second.to_vector<float>(), dense.v);
  EXPECT_SAME_BITS(copy.second.to_vector<float>(), dense.p);
  const std::vector<float> between = p.first.slice(1, 1, 42, 2).to_vector<float>();
  EXPECT_EQ(std::count(between.begin(), between.end(), 77.0f), 35 * 21);
}

TEST(CpuAdam, DenormalsCountAsZeroWhateverTheThreads) {
  for_each_isa([] {
    for (const int threads : {1, 2}) {
      const Threads scope(threads);
      const auto op = adam();
      op->create_adam(0);
      std::mt19937 engine(2);
      for (const int64_t n : {100, 40000}) {
        AdamCase c(engine, n, dtype_pairs[0], DType::F32);
        for (size_t i = 0; i < c.v.size(); i += 2) c.v[i] = 1e-40f;
        for (size_t i = 0; i < c.m.size(); i += 3) c.m[i] = -1e-41f;
        for (size_t i = 0; i < c.g.size(); i += 5) c.g[i] = 1e-39f;
        std::memcpy(c.exp_avg_sq.tensor().data(), c.v.data(), c.v.size() * 4);
        std::memcpy(c.exp_avg.tensor().data(), c.m.data(), c.m.size() * 4);
        std::memcpy(c.grad.tensor().data(), c.g.data(), c.g.size() * 4);
        const AdamReference reference;
        c.update(*op, 0, reference);
        c.apply(reference);
        EXPECT_SAME_BITS(c.param.values(), c.p);
        EXPECT_EQ(std::memcmp(c.exp_avg.tensor().data(), c.m.data(), c.m.size() * 4), 0);
        EXPECT_EQ(std::memcmp(c.exp_avg_sq.tensor().data(), c.v.data(), c.v.size() * 4), 0);
        // The caller's own arithmetic is as it was.
        volatile float tiny = 1e-40f;
        EXPECT_NE(tiny * 0.5f, 0.0f);
      }
    }
  });
}

TEST(CpuAdam, NotFiniteGradientsShow) {
  for_each_isa([] {
    const auto op = adam();
    op->create_adam(0);
    std::mt19937 engine(2);
    for (const Pair pair : dtype_pairs) {
      AdamCase c(engine, 70, pair, pair.param);
      c.g[1] = NAN;
      c.g[69] = INFINITY;
      write(c.grad.tensor(), c.g);
      c.update(*op, 0, {});
      const std::vector<float> p = c.param.values();
      EXPECT_TRUE(std::isnan(p[1]));
      EXPECT_TRUE(std::isnan(p[69]));  // inf / inf
      EXPECT_TRUE(std::isfinite(p[0]) && std::isfinite(p[2]) && std::isfinite(p[68]));
    }
  });
}

TEST(CpuAdam, BadInputIsNamed) {
  const auto op = adam();
  op->create_adam(0);
  std::mt19937 engine(2);
  const AdamCase c(engine, 12, dtype_pairs[0], DType::F32);
  const Tensor &p = c.param.tensor(), &g = c.grad.tensor(), &m = c.exp_avg.tensor(), &v = c.exp_avg_sq.tensor();
  const auto update = [&](const Tensor& param, const Tensor& grad, const Tensor& first, const Tensor& second,
                          const Tensor& copy = {}) {
    op->adam_update(0, 1, 1e-3, 0.9, 0.999, 1e-8, 0, true, param, grad, first, second, copy);
  };
  EXPECT_ERROR(update({}, g, m, v), "param is empty");
  EXPECT_ERROR(update(p, {}, m, v), "grad is empty");
  EXPECT_ERROR(update(p, g, m, {}), "exp_avg_sq is empty");
  EXPECT_ERROR(update(p, g, m, v.slice(0, 0, 11)), "exp_avg_sq has shape [11], its parameter [12]");
  EXPECT_ERROR(update(p, g.to(DType::F64), m, v), "grad is float64");
  EXPECT_ERROR(update(p.to(DType::BF16), g.to(DType::F16), m, v), "grad is float16 and its parameter bfloat16");
  EXPECT_ERROR(update(p, g, m.to(DType::BF16), v.to(DType::BF16)), "exp_avg is bfloat16 and its parameter float32");
  EXPECT_ERROR(update(p.to(DType::BF16), g, m.to(DType::BF16), v), "the states of a parameter have one dtype");
  EXPECT_ERROR(update(p, g, m, m), "exp_avg_sq shares memory with exp_avg");
  EXPECT_ERROR(update(p, p, m, v), "grad shares memory with param");
  EXPECT_ERROR(update(p, g, m, v, g), "copy shares memory with grad");
  EXPECT_ERROR(update(p.slice(0, 0, 1).expand({12}), g, m, v), "param is expanded");
  EXPECT_ERROR(op->adam_update(4, 1, 1e-3, 0.9, 0.999, 1e-8, 0, true, p, g, m, v),
               "there is no optimizer 4; make it with create_adam(4, ...)");
  EXPECT_ERROR(op->adam_update(0, 1, NAN, 0.9, 0.999, 1e-8, 0, true, p, g, m, v), "lr is nan");
  EXPECT_ERROR(op->adam_update(0, 1, 1e-3, 1, 0.999, 1e-8, 0, true, p, g, m, v), "beta1 is 1");
  EXPECT_ERROR(op->create_adam(1, 1e-3, 0.9, 0.999, -1), "eps is -1");
  AdamOptions options;
  options.gradients.scale = 0;
  EXPECT_ERROR(op->adam_update_multi(0, 1, options, {}), "scale is 0");
  const std::vector<AdamTensors> list{{p, g, m, v, {}}, {p, g, m, v.slice(0, 0, 3), {}}};
  EXPECT_ERROR(op->adam_update_multi(0, 1, {}, list), "parameter 1: exp_avg_sq has shape");
  // Nothing was changed by any of these.
  EXPECT_SAME_BITS(p.to_vector<float>(), c.p);
  EXPECT_SAME_BITS(m.to_vector<float>(), c.m);
  // A gradient may be expanded: it is only read.
  update(p, Tensor::from_host(c.g.data(), {1}, DType::F32).expand({12}), m, v);
  op->destroy_adam(0);
  op->destroy_adam(0);
  EXPECT_ERROR(update(p, g, m, v), "there is no optimizer 0");
  EXPECT_EQ(op, adam());

  const Tensor far = Tensor::zeros({12}, DType::F32, far_accelerator().device());
  op->create_adam(0);
  EXPECT_ERROR(update(far, g, m, v), "which the host cannot reach");
}

TEST(CpuAdagrad, BitsOfTheReference) {
  for_each_isa([] {
    const auto op = load<CPUAdagrad>("CPUAdagradBuilder");
    op->create_adagrad(1);
    std::mt19937 engine(7);
    for (const Pair pair : dtype_pairs) {
      for (const int64_t n : sizes) {
        SCOPED_TRACE(std::string(dtype_name(pair.param)) + " " + std::to_string(n));
        std::vector<float> p = random_values(engine, n, pair.param, 1), g = random_values(engine, n, pair.param, 0.3f);
        std::vector<float> v = random_values(engine, n, pair.state, 0.5f, true);
        const Array param(pair.param, p), grad(pair.param, g), sum(pair.state, v);
        const AdagradReference r;
        op->adagrad_update(1, 1, r.lr, r.eps, r.weight_decay, param.tensor(), grad.tensor(), sum.tensor());
        r.apply(pair.param, pair.state, p, g, v);
        EXPECT_SAME_BITS(param.values(), p);
        EXPECT_SAME_BITS(grad.values(), g);
        EXPECT_SAME_BITS(sum.values(), v);
        EXPECT_TRUE(param.guards_hold() && sum.guards_hold());
      }
    }
  });
}

// The quotients that are hardest to round: a * 2^s - (2 q + 1) * b is 1 or -1 for mantissas a and odd b. With v = b^2 and small
// gradients, eps = 0 and lr = 1, a parameter of zero becomes 0 - g / b.
TEST(CpuAdagrad, HardestQuotients) {
  std::vector<float> g, v;
  const auto add = [&](int64_t b) {
    for (int s = 24; s <= 25; ++s) {
      int64_t inverse = 1;  // of 2^s modulo b
      for (int i = 0; i < s; ++i) inverse = (inverse % 2 == 0 ? inverse : inverse + b) / 2;
      for (int64_t a : {inverse, b - inverse}) {
        if (a < 1 << 23) a += b;
        if (a < 1 << 23 || a >= 1 << 24 || (a >= b) != (s == 24)) continue;
        const float divisor = std::ldexp(static_cast<float>(b), -23);
        g.push_back(std::ldexp(static_cast<float>(a), -45));
        v.push_back(divisor * divisor);
      }
    }
  };
  for (int64_t b = (1 << 24) - 1; b > (1 << 24) - 4000; b -= 2) add(b);
  for (int64_t b = (1 << 23) + 1; b < 1 << 24; b += 998) add(b);
  for (size_t i = 700; i < g.size(); i += 700) g[i] = i % 3 == 0 ? 0.0f : 0x1p-100f;
  std::vector<float> expected(g.size());
  for (size_t i = 0; i < g.size(); ++i) expected[i] = 0.0f - g[i] / std::sqrt(v[i]);
  for_each_isa([&] {
    const auto op = load<CPUAdagrad>("CPUAdagradBuilder");
    op->create_adagrad(3);
    const Array param(DType::F32, std::vector<float>(g.size())), grad(DType::F32, g), sum(DType::F32, v);
    op->adagrad_update(3, 1, 1.0, 0.0, 0.0, param.tensor(), grad.tensor(), sum.tensor());
    EXPECT_SAME_BITS(sum.values(), v);
    EXPECT_SAME_BITS(param.values(), expected);
  });
}

TEST(CpuAdagrad, NumbersOfPyTorch) {
  const auto op = load<CPUAdagrad>("CPUAdagradBuilder");
  op->create_adagrad(1);
  const std::vector<float> start(torch_values::params, torch_values::params + 8);
  const Array p(DType::F32, start), v(DType::F32, std::vector<float>(8));
  for (int step = 1; step <= 3; ++step) {
    const Array g(DType::F32, torch_gradient(step));
    const std::vector<AdagradTensors> list{{p.tensor(), g.tensor(), v.tensor(), {}}};
    AdagradOptions options{0.05, 1e-8, 0.1, {}};
    EXPECT_EQ(op->adagrad_update_multi(1, step, options, list), 0);
  }
  expect_near(p.tensor(), torch_values::adagrad_params);
  expect_near(v.tensor(), torch_values::adagrad_state0);
  EXPECT_ERROR(op->adagrad_update(2, 1, 0.1, 1e-8, 0, p.tensor(), v.tensor(), v.tensor()), "create_adagrad(2");
  EXPECT_ERROR(op->adagrad_update(1, 1, 0.1, 1e-8, 0, p.tensor(), v.tensor(), v.tensor()), "exp_avg_sq shares memory");
}

TEST(CpuLion, BitsOfTheReference) {
  for_each_isa([] {
    const auto op = load<CPULion>("CPULionBuilder");
    op->create_lion(1);
    std::mt19937 engine(7);
    for (const Pair pair : dtype_pairs) {
      for (const int64_t n : sizes) {
        SCOPED_TRACE(std::string(dtype_name(pair.param)) + " " + std::to_string(n));
        std::vector<float> p = random_values(engine, n, pair.param, 1), g = random_values(engine, n, pair.param, 0.3f);
        std::vector<float> m = random_values(engine, n, pair.state, 0.1f);
        // Zero moves nothing.
        for (size_t i = 0; i < p.size(); i += 4) g[i] = m[i] = i % 8 ? 0.0f : -0.0f;
        const Array param(pair.param, p), grad(pair.param, g), moment(pair.state, m);
        const LionReference r;
        op->lion_update(1, 1, r.lr, r.beta1, r.beta2, r.weight_decay, param.tensor(), grad.tensor(), moment.tensor());
        r.apply(pair.param, pair.state, p, g, m);
        EXPECT_SAME_BITS(param.values(), p);
        EXPECT_SAME_BITS(grad.values(), g);
        EXPECT_SAME_BITS(moment.values(), m);
        EXPECT_TRUE(param.guards_hold() && moment.guards_hold());
      }
    }
  });
}

TEST(CpuLion, ZeroDoesNotMoveAndNanShows) {
  for_each_isa([] {
    const auto op = load<CPULion>("CPULionBuilder");
    op->create_lion(1);
    const Array p(DType::F32, {1, 1, 1, 1}), g(DType::F32, {0, 2, -2, NAN}), m(DType::F32, {0, 0, 0, 0});
    const std::vector<LionTensors> list{{p.tensor(), g.tensor(), m.tensor(), {}}};
    op->lion_update_multi(1, 1, LionOptions{0.25, 0.9, 0.99, 0, {}}, list);
    const std::vector<float> values = p.values();
    EXPECT_EQ(values[0], 1);
    EXPECT_EQ(values[1], 0.75f);
    EXPECT_EQ(values[2], 1.25f);
    EXPECT_TRUE(std::isnan(values[3]));
    EXPECT_ERROR(op->lion_update(2, 1, 0.1, 0.9, 0.9, 0, p.tensor(), g.tensor(), m.tensor()), "create_lion(2");
  });
}

}  // namespace
}  // namespace anyaccel::ops::testing
