// Simulates Huawei's library of operators (libopapi.so) for those that a language model needs. Each function comes in
// two: the first checks the tensors and says how much workspace the second one needs, which runs the work in stream
// order. Sums are in fp32, and a result is rounded once, to the type of its tensor. Signatures are those of the
// documentation of ops-nn and ops-transformer.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "simulators/ascend/nn_objects.h"
#include "simulators/libraries/library.h"
#include "simulators/libraries/product.h"

namespace sim_library {

using Tensor = std::shared_ptr<const NnTensor>;
using Handle = void*;
using ConstHandle = const void*;

namespace {

// A failure of the first call; the violation was reported.
struct Refused {
  int status;
};

bool floating(int type) { return type == kNnFloat || type == kNnHalf || type == kNnBfloat16; }
int data_type(int type) { return type == kNnFloat ? kF32 : type == kNnHalf ? kF16 : kBf16; }

// The elements of a tensor as the engine reaches them.
class View {
 public:
  View(const NnTensor& tensor, char* first) : tensor_(&tensor), first_(first) {}

  // Of the element with this number in the order of the shape.
  char* at(std::int64_t number) const {
    std::int64_t place = 0;
    for (std::size_t i = tensor_->dims.size(); i-- > 0;) {
      place += number % tensor_->dims[i] * tensor_->strides[i];
      number /= tensor_->dims[i];
    }
    return first_ + place * static_cast<std::int64_t>(nn_type_bytes(tensor_->type));
  }
  float get(std::int64_t number) const { return load_number(at(number), data_type(tensor_->type)); }
  void set(std::int64_t number, float value) const { store_number(at(number), data_type(tensor_->type), value); }
  std::int64_t index(std::int64_t number) const {
    if (tensor_->type == kNnInt32) {
      std::int32_t value = 0;
      std::memcpy(&value, at(number), sizeof value);
      return value;
    }
    std::int64_t value = 0;
    std::memcpy(&value, at(number), sizeof value);
    return value;
  }

 private:
  const NnTensor* tensor_;
  char* first_;
};

using Views = std::vector<View>;

// One first call: it collects tensors, inputs before outputs, and makes the executor.
class Plan {
 public:
  Plan(const char* function, std::uint64_t* workspace, Handle* executor)
      : function_(function), workspace_(workspace), executor_(executor) {
    require(workspace != nullptr && executor != nullptr, "a result is null", kNnNullPointer);
  }

  void require(bool condition, const std::string& what, int status = kNnInvalid) const {
    if (condition) return;
    violation("bad-argument", std::string(function_) + "GetWorkspaceSize: " + what);
    throw Refused{status};
  }
  Tensor input(ConstHandle handle, const char* name) { return add(handle, name, false); }
  Tensor output(ConstHandle handle, const char* name) { return add(handle, name, true); }
  double scalar(ConstHandle handle, const char* name) const {
    require(handle != nullptr, std::string(name) + " is null", kNnNullPointer);
    const auto found = nn_scalar(handle, function_);
    if (found == nullptr) throw Refused{kNnInvalid};
    return found->value;
  }
  void require_float(const std::vector<Tensor>& tensors) const {
    for (const Tensor& tensor : tensors) {
      require(floating(tensor->type) && tensor->type == tensors[0]->type, "types differ, or are not floating point");
    }
  }
  // From the end, if it is negative.
  std::size_t axis(std::int64_t axis, const Tensor& tensor) const {
    const auto rank = static_cast<std::int64_t>(tensor->dims.size());
    require(axis >= -rank && axis < rank, "there is no dimension " + std::to_string(axis));
    return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
  }

  // `run` gets a view of each tensor, in the order in which they were added. The workspace is only written over, so that
  // one that is too small, or used by something else at the same time, is found.
  int finish(std::uint64_t workspace, std::function<void(const Views&)> run) {
    auto made = std::make_shared<NnExecutor>();
    made->function = function_;
    made->workspace = workspace;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const NnTensor& tensor = *tensors_[i];
      char* first = tensor.data + tensor.offset * static_cast<std::int64_t>(nn_type_bytes(tensor.type));
      made->ranges.push_back({reinterpret_cast<std::uint64_t>(first), tensor.bytes(), written_[i]});
    }
    made->body = [tensors = tensors_, run = std::move(run), workspace](char* const* bytes) {
      Views views;
      for (std::size_t i = 0; i < tensors.size(); ++i) views.emplace_back(*tensors[i], bytes[i]);
      run(views);
      if (workspace > 0) std::memset(bytes[tensors.size()], 0xEE, workspace);
    };
    made->tensors = handles_;
    *workspace_ = workspace;
    *executor_ = nn_add_executor(std::move(made));
    return kNnSuccess;
  }

 private:
  Tensor add(ConstHandle handle, const char* name, bool written) {
    require(handle != nullptr, std::string(name) + " is null", kNnNullPointer);
    Tensor tensor = nn_tensor(handle, function_);
    if (tensor == nullptr) throw Refused{kNnInvalid};
    require(tensor->elements() > 0, std::string(name) + " is empty, which is not simulated");
    tensors_.push_back(tensor);
    handles_.push_back(handle);
    written_.push_back(written);
    return tensor;
  }

  const char* const function_;
  std::uint64_t* const workspace_;
  Handle* const executor_;
  std::vector<Tensor> tensors_;
  std::vector<ConstHandle> handles_;
  std::vector<bool> written_;
};

template <typename Make>
int plan(const char* function, std::uint64_t* workspace, Handle* executor, const Make& make) {
  try {
    Plan plan(function, workspace, executor);
    return make(plan);
  } catch (const Refused& refused) {
    return refused.status;
  }
}

// The second call of every function.
int run(const char* function, void* workspace, std::uint64_t bytes, Handle handle, Handle stream) {
  const auto refuse = [&](const char* kind, const std::string& what) {
    violation(kind, std::string(function) + ": " + what);
    return static_cast<int>(kNnInvalid);
  };
  if (handle == nullptr) return kNnNullPointer;
  const auto executor = nn_executor(handle, function);
  if (executor == nullptr) return kNnInvalid;
  if (executor->function != function) return refuse("bad-handle", "the executor is that of " + executor->function);
  if (bytes < executor->workspace || (workspace == nullptr && executor->workspace > 0)) {
    return refuse("bad-argument", std::to_string(bytes) + " bytes of workspace, and " +
                                      std::to_string(executor->workspace) + " are needed");
  }
  for (const void* tensor : executor->tensors) {
    if (nn_tensor(tensor, function) == nullptr) return kNnInvalid;  // destroyed between the two calls
  }
  std::vector<sim_hooks::Range> ranges = executor->ranges;
  if (executor->workspace > 0)
    ranges.push_back({reinterpret_cast<std::uint64_t>(workspace), executor->workspace, true});
  if (!executor->repeatable) nn_remove_executor(handle);
  static const char what[] = "an aclnn operator";
  if (driver() == nullptr) return kNnInner;
  const int result = driver()->enqueue(stream, what, ranges, executor->body);
  return result == 0 ? kNnSuccess : kNnInner;
}

constexpr std::uint64_t kSomeWorkspace = 1024;

int product(const char* function, ConstHandle self, ConstHandle other, ConstHandle out, std::int8_t math,
            std::uint64_t* workspace, Handle* executor) {
  return plan(function, workspace, executor, [&](Plan& p) {
    const Tensor a = p.input(self, "self"), b = p.input(other, "mat2"), d = p.output(out, "out");
    p.require_float({a, b, d});
    p.require(math >= 0 && math <= 3, "the type of calculation must be 0 to 3");
    const std::size_t rank = a->dims.size();
    p.require((rank == 2 || rank == 3) && b->dims.size() == rank && d->dims.size() == rank,
              "the simulator multiplies matrices, and batches of them of the same size");
    const std::size_t r = rank - 2, c = rank - 1;
    p.require(a->dims[c] == b->dims[r] && d->dims[r] == a->dims[r] && d->dims[c] == b->dims[c],
              "the shapes do not fit");
    p.require(rank == 2 || (a->dims[0] == b->dims[0] && a->dims[0] == d->dims[0]),
              "the batches are of different sizes");
    Product made;
    made.m = d->dims[r];
    made.n = d->dims[c];
    made.k = a->dims[c];
    made.batch = rank == 3 ? d->dims[0] : 1;
    const auto strided = [&](const NnTensor& t) {
      return Strided{data_type(t.type), t.strides[r], t.strides[c], rank == 3 ? t.strides[0] : 0};
    };
    made.a = strided(*a);
    made.b = strided(*b);
    made.c = made.d = strided(*d);
    return p.finish(kSomeWorkspace,
                    [made](const Views& v) { compute(made, v[0].at(0), v[1].at(0), nullptr, nullptr, v[2].at(0)); });
  });
}

float silu(float x) { return x / (1 + std::exp(-x)); }

}  // namespace

int aclnnMatmulGetWorkspaceSize(ConstHandle self, ConstHandle other, ConstHandle out, std::int8_t math,
                                std::uint64_t* workspace, Handle* executor) {
  return product("aclnnMatmul", self, other, out, math, workspace, executor);
}
int aclnnMmGetWorkspaceSize(ConstHandle self, ConstHandle other, ConstHandle out, std::int8_t math,
                            std::uint64_t* workspace, Handle* executor) {
  return product("aclnnMm", self, other, out, math, workspace, executor);
}

// out = self + alpha * other, of one shape.
int aclnnAddGetWorkspaceSize(ConstHandle self, ConstHandle other, ConstHandle alpha, ConstHandle out,
                             std::uint64_t* workspace, Handle* executor) {
  return plan("aclnnAdd", workspace, executor, [&](Plan& p) {
    const Tensor a = p.input(self, "self"), b = p.input(other, "other"), d = p.output(out, "out");
    p.require_float({a, b, d});
    p.require(a->dims == b->dims && a->dims == d->dims, "the simulator adds tensors of one shape");
    const auto factor = static_cast<float>(p.scalar(alpha, "alpha"));
    return p.finish(0, [factor, n = a->elements()](const Views& v) {
      for (std::int64_t i = 0; i < n; ++i) v[2].set(i, v[0].get(i) + factor * v[1].get(i));
    });
  });
}

int aclnnSiluGetWorkspaceSize(ConstHandle self, ConstHandle out, std::uint64_t* workspace, Handle* executor) {
  return plan("aclnnSilu", workspace, executor, [&](Plan& p) {
    const Tensor a = p.input(self, "self"), d = p.output(out, "out");
    p.require_float({a, d});
    p.require(a->dims == d->dims, "the shapes differ");
    return p.finish(0, [n = a->elements()](const Views& v) {
      for (std::int64_t i = 0; i < n; ++i) v[1].set(i, silu(v[0].get(i)));
    });
  });
}

// The first half of a dimension is the gate of the second one.
int aclnnSwiGluGetWorkspaceSize(ConstHandle x, std::int64_t dim, ConstHandle out, std::uint64_t* workspace,
                                Handle* executor) {
  return plan("aclnnSwiGlu", workspace, executor, [&](Plan& p) {
    const Tensor a = p.input(x, "x"), d = p.output(out, "out");
    p.require_float({a, d});
    const std::size_t axis = p.axis(dim, a);
    std::vector<std::int64_t> half = a->dims;
    p.require(half[axis] % 2 == 0, "the dimension cannot be halved");
    half[axis] /= 2;
    p.require(d->dims == half, "the result is not half of the input");
    std::int64_t inner = 1;
    for (std::size_t i = axis; i < half.size(); ++i) inner *= half[i];
    return p.finish(0, [inner, n = d->elements()](const Views& v) {
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t gate = i / inner * 2 * inner + i % inner;
        v[1].set(i, silu(v[0].get(gate)) * v[0].get(gate + inner));
      }
    });
  });
}

int aclnnSoftmaxGetWorkspaceSize(ConstHandle self, std::int64_t dim, ConstHandle out, std::uint64_t* workspace,
                                 Handle* executor) {
  return plan("aclnnSoftmax", workspace, executor, [&](Plan& p) {
    const Tensor a = p.input(self, "self"), d = p.output(out, "out");
    p.require(floating(a->type) && floating(d->type) && a->dims == d->dims, "shapes differ, or types do not fit");
    const std::size_t axis = p.axis(dim, a);
    std::int64_t step = 1;
    for (std::size_t i = axis + 1; i < a->dims.size(); ++i) step *= a->dims[i];
    return p.finish(kSomeWorkspace, [step, length = a->dims[axis], n = a->elements()](const Views& v) {
      for (std::int64_t row = 0; row < n / length; ++row) {
        const std::int64_t first = row / step * step * length + row % step;
        float most = -INFINITY, sum = 0;
        for (std::int64_t i = 0; i < length; ++i) most = std::max(most, v[0].get(first + i * step));
        for (std::int64_t i = 0; i < length; ++i) sum += std::exp(v[0].get(first + i * step) - most);
        for (std::int64_t i = 0; i < length; ++i) {
          v[1].set(first + i * step, std::exp(v[0].get(first + i * step) - most) / sum);
        }
      }
    });
  });
}

// Over the dimensions that gamma has. rstd is fp32, one number for each row.
int aclnnRmsNormGetWorkspaceSize(ConstHandle x, ConstHandle gamma, double epsilon, ConstHandle y, ConstHandle rstd,
                                 std::uint64_t* workspace, Handle* executor) {
  return plan("aclnnRmsNorm", workspace, executor, [&](Plan& p) {
    const Tensor a = p.input(x, "x"), g = p.input(gamma, "gamma"), d = p.output(y, "y"), s = p.output(rstd, "rstd");
    p.require_float({a, d});
    p.require(g->type == a->type || g->type == kNnFloat, "the type of gamma is neither that of x nor fp32");
    const std::int64_t length = g->elements();
    p.require(a->dims == d->dims && g->dims.size() <= a->dims.size() &&
                  std::equal(g->dims.rbegin(), g->dims.rend(), a->dims.rbegin()),
              "the shapes do not fit");
    p.require(s->type == kNnFloat && s->elements() == a->elements() / length, "rstd is not one fp32 for each row");
    return p.finish(kSomeWorkspace, [epsilon, length, rows = a->elements() / length](const Views& v) {
      for (std::int64_t row = 0; row < rows; ++row) {
        float sum = 0;
        for (std::int64_t i = 0; i < length; ++i) {
          const float value = v[0].get(row * length + i);
          sum += value * value;
        }
        const float factor = 1 / std::sqrt(sum / static_cast<float>(length) + static_cast<float>(epsilon));
        v[3].set(row, factor);
        for (std::int64_t i = 0; i < length; ++i) {
          v[2].set(row * length + i, v[0].get(row * length + i) * factor * v[1].get(i));
        }
      }
    });
  });
}

int aclnnEmbeddingGetWorkspaceSize(ConstHandle weight, ConstHandle indices, ConstHandle out, std::uint64_t* workspace,
                                   Handle* executor) {
  return plan("aclnnEmbedding", workspace, executor, [&](Plan& p) {
    const Tensor w = p.input(weight, "weight"), at = p.input(indices, "indices"), d = p.output(out, "out");
    p.require(w->type == d->type && (at->type == kNnInt32 || at->type == kNnInt64), "the types do not fit");
    std::vector<std::int64_t> shape = at->dims;
    p.require(w->dims.size() == 2, "the weight is no matrix");
    shape.push_back(w->dims[1]);
    p.require(d->dims == shape, "the shapes do not fit");
    const std::size_t bytes = nn_type_bytes(w->type);
    return p.finish(0, [bytes, rows = w->dims[0], width = w->dims[1], n = at->elements()](const Views& v) {
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t row = v[1].index(i);
        if (row < 0 || row >= rows) {
          violation("out-of-bounds", "aclnnEmbedding: index " + std::to_string(row) + " of " + std::to_string(rows));
          continue;
        }
        for (std::int64_t k = 0; k < width; ++k) std::memcpy(v[2].at(i * width + k), v[0].at(row * width + k), bytes);
      }
    });
  });
}

// x of four dimensions; cos and sin have one or x's size in each but the last. Mode 0 turns halves, 1 neighbours.
int aclnnRotaryPositionEmbeddingGetWorkspaceSize(ConstHandle x, ConstHandle cosines, ConstHandle sines,
                                                 std::int64_t mode, ConstHandle out, std::uint64_t* workspace,
                                                 Handle* executor) {
  return plan("aclnnRotaryPositionEmbedding", workspace, executor, [&](Plan& p) {
    const Tensor a = p.input(x, "x"), c = p.input(cosines, "cos"), s = p.input(sines, "sin"), d = p.output(out, "out");
    p.require_float({a, c, s, d});
    p.require(mode == 0 || mode == 1, "the simulator knows the modes 0 (half) and 1 (interleaved)");
    p.require(a->dims.size() == 4 && a->dims[3] % 2 == 0 && a->dims == d->dims && c->dims == s->dims &&
                  c->dims.size() == 4 && c->dims[3] == a->dims[3],
              "the shapes do not fit");
    for (std::size_t i = 0; i < 3; ++i) {
      p.require(c->dims[i] == 1 || c->dims[i] == a->dims[i], "cos and sin cannot be spread over x");
    }
    return p.finish(0, [mode, dims = a->dims, angles = c->dims, n = a->elements()](const Views& v) {
      const std::int64_t width = dims[3];
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t k = i % width, row = i - k;
        std::int64_t rest = i / width, angle = 0, step = 1;
        for (std::size_t axis = 3; axis-- > 0;) {
          const std::int64_t place = rest % dims[axis];
          rest /= dims[axis];
          if (angles[axis] != 1) angle += place * step;
          step *= angles[axis];
        }
        const std::int64_t other = mode == 0 ? (k < width / 2 ? k + width / 2 : k - width / 2) : k ^ 1;
        const bool first = mode == 0 ? k < width / 2 : k % 2 == 0;
        const float turned = first ? -v[0].get(row + other) : v[0].get(row + other);
        v[3].set(i, v[0].get(i) * v[1].get(angle * width + k) + turned * v[2].get(angle * width + k));
      }
    });
  });
}

// Of the layouts BNSD and BSND. Modes: 0 with no mask, or, as 1, with a mask of every score (true: left out); 2 and 3 are
// causal from the upper left and to the lower right corner, and want the mask of 2048 x 2048 that the real one reads.
// Bands, shifts, dropout and padding are not simulated.
int aclnnFlashAttentionScoreGetWorkspaceSize(ConstHandle query, ConstHandle key, ConstHandle value, ConstHandle shift,
                                             ConstHandle drop_mask, ConstHandle padding, ConstHandle mask,
                                             ConstHandle prefix, double scale, double keep, std::int64_t before,
                                             std::int64_t after, std::int64_t heads, char* layout, std::int64_t,
                                             std::int64_t mode, ConstHandle softmax_max, ConstHandle softmax_sum,
                                             ConstHandle, ConstHandle out, std::uint64_t* workspace, Handle* executor) {
  return plan("aclnnFlashAttentionScore", workspace, executor, [&](Plan& p) {
    p.require(shift == nullptr && drop_mask == nullptr && padding == nullptr && prefix == nullptr && keep == 1,
              "the simulator knows no shift, dropout, padding or prefix");
    p.require(layout != nullptr, "the layout is null", kNnNullPointer);
    const std::string order = layout;
    p.require(order == "BNSD" || order == "BSND", "the simulator knows the layouts BNSD and BSND");
    p.require(mode >= 0 && mode <= 3, "the simulator knows the modes 0 to 3");
    const Tensor q = p.input(query, "query"), k = p.input(key, "key"), v = p.input(value, "value");
    const Tensor most = p.output(softmax_max, "softmaxMax"), sum = p.output(softmax_sum, "softmaxSum");
    const Tensor d = p.output(out, "attentionOut");
    p.require_float({q, k, v, d});
    p.require(q->dims.size() == 4 && k->dims.size() == 4 && k->dims == v->dims && q->dims == d->dims,
              "the shapes do not fit");
    const std::size_t n = order == "BNSD" ? 1 : 2, s = 3 - n;
    const std::int64_t batch = q->dims[0], rows = q->dims[s], width = q->dims[3];
    const std::int64_t own = k->dims[n], columns = k->dims[s];
    p.require(heads == q->dims[n] && k->dims[0] == batch && k->dims[3] == width && heads % own == 0,
              "the numbers of heads or sizes do not fit");
    const std::vector<std::int64_t> statistics = {batch, heads, rows, 8};
    p.require(most->type == kNnFloat && sum->type == kNnFloat && most->dims == statistics && sum->dims == statistics,
              "softmaxMax and softmaxSum are not fp32 of [batch, heads, rows, 8]");
    std::int64_t mask_batch = 0, mask_head = 0;  // steps, in elements
    const bool given = mask != nullptr;
    p.require(given || mode == 0, "this mode wants a mask");
    if (given) {
      const Tensor m = p.input(mask, "attenMask");
      p.require(m->type == kNnBool, "the mask is not of bool");
      if (mode >= 2) {
        p.require(m->dims == std::vector<std::int64_t>{2048, 2048}, "a causal mask is 2048 x 2048");
      } else {
        p.require(mode == 1 || (before >= rows && after >= columns), "the simulator knows no bands");
        std::vector<std::int64_t> full = m->dims;
        if (full.size() == 2) full.insert(full.begin(), {1, 1});
        p.require(full.size() == 4 && (full[0] == 1 || full[0] == batch) && (full[1] == 1 || full[1] == heads) &&
                      full[2] == rows && full[3] == columns,
                  "the mask's shape does not fit");
        mask_head = full[1] == 1 ? 0 : rows * columns;
        mask_batch = full[0] == 1 ? 0 : full[1] * rows * columns;
      }
    }
    const auto run = [=](const Views& views) {
      const auto place = [&](std::int64_t b, std::int64_t head, std::int64_t count, std::int64_t row,
                             std::int64_t length) {
        return (n == 1 ? (b * count + head) * length + row : (b * length + row) * count + head) * width;
      };
      const auto left_out = [&](std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t j) {
        if (mode >= 2) return j > i + (mode == 3 ? columns - rows : 0);
        return given && *views[6].at(b * mask_batch + head * mask_head + i * columns + j) != 0;
      };
      std::vector<float> scores(static_cast<std::size_t>(columns));
      for (std::int64_t line = 0; line < batch * heads * rows; ++line) {
        const std::int64_t b = line / (heads * rows), head = line / rows % heads, i = line % rows;
        const std::int64_t from = place(b, head, heads, i, rows), own_head = head / (heads / own);
        float highest = -INFINITY, total = 0;
        for (std::int64_t j = 0; j < columns; ++j) {
          float& score = scores[static_cast<std::size_t>(j)];
          score = -INFINITY;
          if (left_out(b, head, i, j)) continue;
          const std::int64_t at = place(b, own_head, own, j, columns);
          score = 0;
          for (std::int64_t c = 0; c < width; ++c) score += views[0].get(from + c) * views[1].get(at + c);
          score *= static_cast<float>(scale);
          highest = std::max(highest, score);
        }
        if (highest == -INFINITY) {
          violation("bad-argument", "aclnnFlashAttentionScore: a row is masked as a whole, which is not simulated");
          return;
        }
        for (float& score : scores) total += score = std::exp(score - highest);
        for (std::int64_t c = 0; c < width; ++c) {
          float result = 0;
          for (std::int64_t j = 0; j < columns; ++j) {
            const float weight = scores[static_cast<std::size_t>(j)];
            if (weight != 0) result += weight * views[2].get(place(b, own_head, own, j, columns) + c);
          }
          views[5].set(from + c, result / total);
        }
        for (std::int64_t c = 0; c < 8; ++c) {
          views[3].set(line * 8 + c, highest);
          views[4].set(line * 8 + c, total);
        }
      }
    };
    return p.finish(kSomeWorkspace, run);
  });
}

#define SIM_OPERATOR(name)                                                         \
  int name(void* workspace, std::uint64_t bytes, Handle executor, Handle stream) { \
    return run(#name, workspace, bytes, executor, stream);                         \
  }
SIM_OPERATOR(aclnnMatmul)
SIM_OPERATOR(aclnnMm)
SIM_OPERATOR(aclnnAdd)
SIM_OPERATOR(aclnnSilu)
SIM_OPERATOR(aclnnSwiGlu)
SIM_OPERATOR(aclnnSoftmax)
SIM_OPERATOR(aclnnRmsNorm)
SIM_OPERATOR(aclnnEmbedding)
SIM_OPERATOR(aclnnRotaryPositionEmbedding)
SIM_OPERATOR(aclnnFlashAttentionScore)

}  // namespace sim_library

#define SIM_EXPORT_OPERATOR(name)         \
  SIM_EXPORT(name, sim_library::kNnInner) \
  SIM_EXPORT(name##GetWorkspaceSize, sim_library::kNnInner)
SIM_EXPORT_OPERATOR(aclnnMatmul)
SIM_EXPORT_OPERATOR(aclnnMm)
SIM_EXPORT_OPERATOR(aclnnAdd)
SIM_EXPORT_OPERATOR(aclnnSilu)
SIM_EXPORT_OPERATOR(aclnnSwiGlu)
SIM_EXPORT_OPERATOR(aclnnSoftmax)
SIM_EXPORT_OPERATOR(aclnnRmsNorm)
SIM_EXPORT_OPERATOR(aclnnEmbedding)
SIM_EXPORT_OPERATOR(aclnnRotaryPositionEmbedding)
SIM_EXPORT_OPERATOR(aclnnFlashAttentionScore)
