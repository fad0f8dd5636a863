// Simulates Huawei's library of operators (libopapi.so) for those that a language model needs; those that go from element to
// element, and those that move rows, are in elements.cpp. Each function comes in two: the first checks the tensors and says how much
// workspace the second one needs, which runs the work in stream order. Sums are in fp32, and a result is rounded once, to the type of its tensor. Signatures are those of the
// documentation of ops-nn and ops-transformer.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "simulators/ascend/operator.h"

namespace sim_library {

namespace {

int product(const char* function, ConstHandle self, ConstHandle other, ConstHandle out, std::int8_t math,
            std::uint64_t* workspace, Handle* executor) {
  return plan(function, workspace, executor, [&](Plan& p) {
    const Tensor a = p.input(self, "self"), b = p.input(other, "mat2"), d = p.output(out, "out");
    p.require_float({a, b});
    // On the simulated cores (910B) a product of 16-bit matrices may be fp32 (ops-nn, matmul_util.cpp:
    // NeedEnableFp32Output).
    p.require(d->type == a->type || d->type == kNnFloat, "the type of out is neither that of the matrices nor fp32");
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
    p.require(a->dims.size() == 4 && a->dims[3] % 2 == 0 && a->dims[3] < 896 && a->dims == d->dims &&
                  c->dims == s->dims && c->dims.size() == 4 && c->dims[3] == a->dims[3],
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

// For the layouts BNSD and BSND. Modes: 0 with no mask, or, as 1, with a mask of every score (true: left out); 2 and 3
// are causal from the upper left and to the lower right corner, and want the mask of 2048 x 2048 that the real one
// reads. Bands, shifts, dropout and padding are not simulated.
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
        bool any = false;
        for (std::int64_t j = 0; j < columns; ++j) {
          float& score = scores[static_cast<std::size_t>(j)];
          score = -INFINITY;
          if (left_out(b, head, i, j)) continue;
          any = true;
          const std::int64_t at = place(b, own_head, own, j, columns);
          score = 0;
          for (std::int64_t c = 0; c < width; ++c) score += views[0].get(from + c) * views[1].get(at + c);
          score *= static_cast<float>(scale);
          highest = std::max(highest, score);
        }
        if (!any) {
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

SIM_OPERATOR(aclnnMatmul)
SIM_OPERATOR(aclnnMm)
SIM_OPERATOR(aclnnSilu)
SIM_OPERATOR(aclnnSwiGlu)
SIM_OPERATOR(aclnnSoftmax)
SIM_OPERATOR(aclnnRmsNorm)
SIM_OPERATOR(aclnnEmbedding)
SIM_OPERATOR(aclnnRotaryPositionEmbedding)
SIM_OPERATOR(aclnnFlashAttentionScore)

}  // namespace sim_library

SIM_EXPORT_OPERATOR(aclnnMatmul)
SIM_EXPORT_OPERATOR(aclnnMm)
SIM_EXPORT_OPERATOR(aclnnSilu)
SIM_EXPORT_OPERATOR(aclnnSwiGlu)
SIM_EXPORT_OPERATOR(aclnnSoftmax)
SIM_EXPORT_OPERATOR(aclnnRmsNorm)
SIM_EXPORT_OPERATOR(aclnnEmbedding)
SIM_EXPORT_OPERATOR(aclnnRotaryPositionEmbedding)
SIM_EXPORT_OPERATOR(aclnnFlashAttentionScore)
