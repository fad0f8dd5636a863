// Simulates the operators of Huawei's library (libopapi.so) that go from element to element, spread small tensors over large ones,
// make masks, sum up, and move rows. Signatures and rules are those of the documentation of ops-math and ops-nn (docs/aclnn*.md): an
// output has the shape that the inputs are spread to, and an index is never out of range. Only the types that are named here are simulated.
#include <algorithm>
#include <cmath>

#include "simulators/ascend/operator.h"

namespace sim_library {
namespace {

using Dims = std::vector<std::int64_t>;

// The shape that both are spread to.
Dims joined(const Plan& p, const Dims& a, const Dims& b) {
  Dims shape(std::max(a.size(), b.size()), 1);
  const auto take = [&](const Dims& from) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      std::int64_t& size = shape[shape.size() - 1 - i];
      const std::int64_t own = from[from.size() - 1 - i];
      p.require(size == own || size == 1 || own == 1, "the shapes cannot be spread over each other");
      size = std::max(size, own);
    }
  };
  take(a);
  take(b);
  return shape;
}

bool numeric(int type) { return floating(type) || type == kNnInt32 || type == kNnInt64; }

// out = combine(self, other), each spread over the other. `type`: what out has; -1: that of self.
template <typename Combine>
int two(const char* function, ConstHandle self, ConstHandle other, ConstHandle out, int type, std::uint64_t* workspace,
        Handle* executor, const Combine& combine, bool logical = false) {
  return plan(function, workspace, executor, [&](Plan& p) {
    const Tensor a = p.input(self, "self"), b = p.input(other, "other"), d = p.output(out, "out");
    p.require((logical ? a->type == kNnBool : numeric(a->type)) && a->type == b->type, "the types do not fit");
    p.require(d->type == (type < 0 ? a->type : type), "the type of out does not fit");
    p.require(joined(p, a->dims, b->dims) == d->dims, "out does not have the shape that both are spread to");
    return p.finish(
        0, [=, n = d->elements(), left = Spread(a->dims, d->dims), right = Spread(b->dims, d->dims)](const Views& v) {
          for (std::int64_t i = 0; i < n; ++i) v[2].put(i, combine(v[0].value(left.at(i)), v[1].value(right.at(i))));
        });
  });
}

// out = change(self), of one shape.
template <typename Change>
int one(const char* function, ConstHandle self, ConstHandle out, std::uint64_t* workspace, Handle* executor,
        const Change& change) {
  return plan(function, workspace, executor, [&](Plan& p) {
    const Tensor a = p.input(self, "self"), d = p.output(out, "out");
    p.require(a->dims == d->dims, "the shapes differ");
    const auto run = change(p, a, d);
    return p.finish(0, [run, n = d->elements()](const Views& v) {
      for (std::int64_t i = 0; i < n; ++i) v[1].put(i, run(v[0].value(i)));
    });
  });
}

// Maps the elements of a tensor to those of its reduction.
struct Reduction {
  Dims shape;    // of the result
  Spread place;  // by element of the input
};
Reduction reduction(const Plan& p, const Tensor& a, const std::vector<std::int64_t>& over, bool keep) {
  std::vector<bool> reduced(a->dims.size(), over.empty());
  for (const std::int64_t axis : over) reduced[p.axis(axis, a)] = true;
  Dims shape, kept;  // the latter with 1 where it is reduced
  for (std::size_t i = 0; i < reduced.size(); ++i) {
    kept.push_back(reduced[i] ? 1 : a->dims[i]);
    if (!reduced[i] || keep) shape.push_back(kept.back());
  }
  return {shape, Spread(kept, a->dims)};
}

}  // namespace

// out = self + alpha * other.
int aclnnAddGetWorkspaceSize(ConstHandle self, ConstHandle other, ConstHandle alpha, ConstHandle out,
                             std::uint64_t* workspace, Handle* executor) {
  double factor = 0;
  const int status = plan("aclnnAdd", workspace, executor, [&](Plan& p) {
    factor = p.scalar(alpha, "alpha");
    return static_cast<int>(kNnSuccess);
  });
  if (status != kNnSuccess) return status;
  return two("aclnnAdd", self, other, out, -1, workspace, executor,
             [factor](double a, double b) { return a + factor * b; });
}
int aclnnMulGetWorkspaceSize(ConstHandle self, ConstHandle other, ConstHandle out, std::uint64_t* workspace,
                             Handle* executor) {
  return two("aclnnMul", self, other, out, -1, workspace, executor, [](double a, double b) { return a * b; });
}
int aclnnGtTensorGetWorkspaceSize(ConstHandle self, ConstHandle other, ConstHandle out, std::uint64_t* workspace,
                                  Handle* executor) {
  return two("aclnnGtTensor", self, other, out, kNnBool, workspace, executor,
             [](double a, double b) { return a > b ? 1.0 : 0.0; });
}
int aclnnLeTensorGetWorkspaceSize(ConstHandle self, ConstHandle other, ConstHandle out, std::uint64_t* workspace,
                                  Handle* executor) {
  return two("aclnnLeTensor", self, other, out, kNnBool, workspace, executor,
             [](double a, double b) { return a <= b ? 1.0 : 0.0; });
}
int aclnnEqTensorGetWorkspaceSize(ConstHandle self, ConstHandle other, ConstHandle out, std::uint64_t* workspace,
                                  Handle* executor) {
  return two("aclnnEqTensor", self, other, out, kNnBool, workspace, executor,
             [](double a, double b) { return a == b ? 1.0 : 0.0; });
}
int aclnnLogicalOrGetWorkspaceSize(ConstHandle self, ConstHandle other, ConstHandle out, std::uint64_t* workspace,
                                   Handle* executor) {
  return two(
      "aclnnLogicalOr", self, other, out, kNnBool, workspace, executor,
      [](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; }, true);
}

int aclnnMulsGetWorkspaceSize(ConstHandle self, ConstHandle other, ConstHandle out, std::uint64_t* workspace,
                              Handle* executor) {
  return one("aclnnMuls", self, out, workspace, executor, [&](Plan& p, const Tensor& a, const Tensor& d) {
    p.require(numeric(a->type) && a->type == d->type, "the types do not fit");
    const double factor = floating(a->type) ? static_cast<double>(static_cast<float>(p.scalar(other, "other")))
                                            : p.scalar(other, "other");
    return [factor](double value) { return value * factor; };
  });
}
int aclnnClampGetWorkspaceSize(ConstHandle self, ConstHandle low, ConstHandle high, ConstHandle out,
                               std::uint64_t* workspace, Handle* executor) {
  return one("aclnnClamp", self, out, workspace, executor, [&](Plan& p, const Tensor& a, const Tensor& d) {
    p.require(numeric(a->type) && a->type == d->type, "the types do not fit");
    const double least = p.scalar(low, "clipValueMin"), most = p.scalar(high, "clipValueMax");
    return [=](double value) { return std::max(std::min(value, most), least); };
  });
}
int aclnnNeScalarGetWorkspaceSize(ConstHandle self, ConstHandle other, ConstHandle out, std::uint64_t* workspace,
                                  Handle* executor) {
  return one("aclnnNeScalar", self, out, workspace, executor, [&](Plan& p, const Tensor& a, const Tensor& d) {
    p.require(numeric(a->type) && d->type == kNnBool, "the types do not fit");
    return [with = p.scalar(other, "other")](double value) { return value != with ? 1.0 : 0.0; };
  });
}
int aclnnNanToNumGetWorkspaceSize(ConstHandle self, float nan, float most, float least, ConstHandle out,
                                  std::uint64_t* workspace, Handle* executor) {
  return one("aclnnNanToNum", self, out, workspace, executor, [&](Plan& p, const Tensor& a, const Tensor& d) {
    p.require_float({a, d});
    return [=](double value) {
      return std::isnan(value) ? nan : std::isinf(value) ? (value > 0 ? most : least) : value;
    };
  });
}
// A number that becomes a whole one loses what is behind the point.
int aclnnCastGetWorkspaceSize(ConstHandle self, int type, ConstHandle out, std::uint64_t* workspace, Handle* executor) {
  return one("aclnnCast", self, out, workspace, executor, [&](Plan& p, const Tensor& a, const Tensor& d) {
    p.require(d->type == type, "out is not of the type that is asked for");
    p.require(nn_type_bytes(a->type) > 0 && a->type != kNnInt64 && type != kNnInt64,
              "64-bit numbers are not simulated");
    return [](double value) { return value; };
  });
}

// self = source, spread over it.
int aclnnInplaceCopyGetWorkspaceSize(ConstHandle self, ConstHandle source, std::uint64_t* workspace, Handle* executor) {
  return plan("aclnnInplaceCopy", workspace, executor, [&](Plan& p) {
    const Tensor a = p.input(source, "src"), d = p.output(self, "selfRef");
    const Spread spread(a->dims, d->dims);
    p.require(spread.fits(), "src cannot be spread over selfRef");
    p.require(a->type == d->type, "the simulator converts by aclnnCast only");
    return p.finish(0, [spread, n = d->elements(), bytes = nn_type_bytes(d->type)](const Views& v) {
      for (std::int64_t i = 0; i < n; ++i) std::memcpy(v[1].at(i), v[0].at(spread.at(i)), bytes);
    });
  });
}

// self = value where the mask, spread over it, is true.
int aclnnInplaceMaskedFillScalarGetWorkspaceSize(ConstHandle self, ConstHandle mask, ConstHandle value,
                                                 std::uint64_t* workspace, Handle* executor) {
  return plan("aclnnInplaceMaskedFillScalar", workspace, executor, [&](Plan& p) {
    const Tensor m = p.input(mask, "mask"), d = p.output(self, "selfRef");
    const Spread spread(m->dims, d->dims);
    p.require(m->type == kNnBool && spread.fits(), "the mask does not fit");
    return p.finish(kSomeWorkspace, [spread, n = d->elements(), fill = p.scalar(value, "value")](const Views& v) {
      for (std::int64_t i = 0; i < n; ++i) {
        if (v[0].value(spread.at(i)) != 0) v[1].put(i, fill);
      }
    });
  });
}

// self += alpha * other.
int aclnnInplaceAddsGetWorkspaceSize(ConstHandle self, ConstHandle other, ConstHandle alpha, std::uint64_t* workspace,
                                     Handle* executor) {
  return plan("aclnnInplaceAdds", workspace, executor, [&](Plan& p) {
    const Tensor d = p.output(self, "selfRef");
    p.require(d->type == kNnInt32 || d->type == kNnInt64, "only whole numbers are simulated");
    const auto more = static_cast<std::uint64_t>(p.whole_scalar(alpha, "alpha")) *
                      static_cast<std::uint64_t>(p.whole_scalar(other, "other"));
    return p.finish(0, [n = d->elements(), more](const Views& v) {
      for (std::int64_t i = 0; i < n; ++i) {
        v[0].put_index(i, static_cast<std::int64_t>(static_cast<std::uint64_t>(v[0].index(i)) + more));
      }
    });
  });
}

// start, start + step, ... below `end`.
int aclnnArangeGetWorkspaceSize(ConstHandle start, ConstHandle end, ConstHandle step, ConstHandle out,
                                std::uint64_t* workspace, Handle* executor) {
  return plan("aclnnArange", workspace, executor, [&](Plan& p) {
    const double first = p.scalar(start, "start"), last = p.scalar(end, "end"), by = p.scalar(step, "step");
    const Tensor d = p.output(out, "out");
    p.require(by != 0 && std::ceil((last - first) / by) == static_cast<double>(d->elements()),
              "out does not have as many elements as there are numbers");
    return p.finish(0, [first, by, n = d->elements()](const Views& v) {
      for (std::int64_t i = 0; i < n; ++i) v[0].put(i, first + by * static_cast<double>(i));
    });
  });
}

int aclnnReduceSumGetWorkspaceSize(ConstHandle self, ConstHandle dims, bool keep, int type, ConstHandle out,
                                   std::uint64_t* workspace, Handle* executor) {
  return plan("aclnnReduceSum", workspace, executor, [&](Plan& p) {
    const Tensor a = p.input(self, "self"), d = p.output(out, "out");
    p.require_float({a, d});
    p.require(d->type == type, "out is not of the type that is asked for");
    const Reduction over = reduction(p, a, p.integers(dims, "dims"), keep);
    p.require(over.shape == d->dims, "the shape of out does not fit");
    return p.finish(kSomeWorkspace, [place = over.place, all = a->elements(), n = d->elements()](const Views& v) {
      std::vector<float> sums(static_cast<std::size_t>(n), 0.0F);
      for (std::int64_t i = 0; i < all; ++i) sums[static_cast<std::size_t>(place.at(i))] += v[0].get(i);
      for (std::int64_t i = 0; i < n; ++i) v[1].set(i, sums[static_cast<std::size_t>(i)]);
    });
  });
}
int aclnnAmaxGetWorkspaceSize(ConstHandle self, ConstHandle dims, bool keep, ConstHandle out, std::uint64_t* workspace,
                              Handle* executor) {
  return plan("aclnnAmax", workspace, executor, [&](Plan& p) {
    const Tensor a = p.input(self, "self"), d = p.output(out, "out");
    p.require(numeric(a->type) && a->type == d->type, "the types do not fit");
    const Reduction over = reduction(p, a, p.integers(dims, "dim"), keep);
    p.require(over.shape == d->dims, "the shape of out does not fit");
    return p.finish(kSomeWorkspace, [place = over.place, all = a->elements(), n = d->elements()](const Views& v) {
      std::vector<double> most(static_cast<std::size_t>(n), -INFINITY);
      for (std::int64_t i = 0; i < all; ++i) {
        double& known = most[static_cast<std::size_t>(place.at(i))];
        known = std::max(known, v[0].value(i));
      }
      for (std::int64_t i = 0; i < n; ++i) v[1].put(i, most[static_cast<std::size_t>(i)]);
    });
  });
}

// out[.., i, ..] = self[.., index[i], ..] in one dimension.
int aclnnIndexSelectGetWorkspaceSize(ConstHandle self, std::int64_t dim, ConstHandle index, ConstHandle out,
                                     std::uint64_t* workspace, Handle* executor) {
  return plan("aclnnIndexSelect", workspace, executor, [&](Plan& p) {
    const Tensor a = p.input(self, "self"), at = p.input(index, "index"), d = p.output(out, "out");
    const std::size_t axis = p.axis(dim, a);
    Dims shape = a->dims;
    shape[axis] = at->elements();
    p.require(at->dims.size() <= 1 && (at->type == kNnInt32 || at->type == kNnInt64), "the index does not fit");
    p.require(d->dims == shape && d->type == a->type, "out does not fit");
    std::int64_t inner = 1;
    for (std::size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
    return p.finish(0, [inner, from = a->dims[axis], to = shape[axis], n = d->elements(),
                        bytes = nn_type_bytes(a->type)](const Views& v) {
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t row = v[1].index(i / inner % to);
        if (row < 0 || row >= from) {
          violation("out-of-bounds", "aclnnIndexSelect: index " + std::to_string(row) + " of " + std::to_string(from));
          continue;
        }
        std::memcpy(v[2].at(i), v[0].at((i / inner / to * from + row) * inner + i % inner), bytes);
      }
    });
  });
}

// self[index[i]] = source[i] in the first dimension. Which of several rows with the same index stays is not promised:
// here it is the first one, so that no program can rely on the last one.
int aclnnInplaceIndexCopyGetWorkspaceSize(ConstHandle self, std::int64_t dim, ConstHandle index, ConstHandle source,
                                          std::uint64_t* workspace, Handle* executor) {
  return plan("aclnnInplaceIndexCopy", workspace, executor, [&](Plan& p) {
    const Tensor at = p.input(index, "index"), a = p.input(source, "source"), d = p.output(self, "selfRef");
    p.require(dim == 0, "the simulator copies in the first dimension");
    p.require(at->dims.size() <= 1 && (at->type == kNnInt32 || at->type == kNnInt64), "the index does not fit");
    Dims shape = d->dims;
    shape[0] = at->elements();
    p.require(a->dims == shape && a->type == d->type, "source does not fit");
    return p.finish(kSomeWorkspace, [rows = d->dims[0], n = at->elements(), inner = a->elements() / at->elements(),
                                     bytes = nn_type_bytes(d->type)](const Views& v) {
      for (std::int64_t i = n; i-- > 0;) {
        const std::int64_t row = v[0].index(i);
        if (row < 0 || row >= rows) {
          violation("out-of-bounds",
                    "aclnnInplaceIndexCopy: index " + std::to_string(row) + " of " + std::to_string(rows));
          continue;
        }
        for (std::int64_t k = 0; k < inner; ++k) std::memcpy(v[2].at(row * inner + k), v[1].at(i * inner + k), bytes);
      }
    });
  });
}

SIM_OPERATOR(aclnnAdd)
SIM_OPERATOR(aclnnMul)
SIM_OPERATOR(aclnnGtTensor)
SIM_OPERATOR(aclnnLeTensor)
SIM_OPERATOR(aclnnEqTensor)
SIM_OPERATOR(aclnnLogicalOr)
SIM_OPERATOR(aclnnMuls)
SIM_OPERATOR(aclnnClamp)
SIM_OPERATOR(aclnnNeScalar)
SIM_OPERATOR(aclnnNanToNum)
SIM_OPERATOR(aclnnCast)
SIM_OPERATOR(aclnnInplaceCopy)
SIM_OPERATOR(aclnnInplaceMaskedFillScalar)
SIM_OPERATOR(aclnnInplaceAdds)
SIM_OPERATOR(aclnnArange)
SIM_OPERATOR(aclnnReduceSum)
SIM_OPERATOR(aclnnAmax)
SIM_OPERATOR(aclnnIndexSelect)
SIM_OPERATOR(aclnnInplaceIndexCopy)

}  // namespace sim_library

SIM_EXPORT_OPERATOR(aclnnAdd)
SIM_EXPORT_OPERATOR(aclnnMul)
SIM_EXPORT_OPERATOR(aclnnGtTensor)
SIM_EXPORT_OPERATOR(aclnnLeTensor)
SIM_EXPORT_OPERATOR(aclnnEqTensor)
SIM_EXPORT_OPERATOR(aclnnLogicalOr)
SIM_EXPORT_OPERATOR(aclnnMuls)
SIM_EXPORT_OPERATOR(aclnnClamp)
SIM_EXPORT_OPERATOR(aclnnNeScalar)
SIM_EXPORT_OPERATOR(aclnnNanToNum)
SIM_EXPORT_OPERATOR(aclnnCast)
SIM_EXPORT_OPERATOR(aclnnInplaceCopy)
SIM_EXPORT_OPERATOR(aclnnInplaceMaskedFillScalar)
SIM_EXPORT_OPERATOR(aclnnInplaceAdds)
SIM_EXPORT_OPERATOR(aclnnArange)
SIM_EXPORT_OPERATOR(aclnnReduceSum)
SIM_EXPORT_OPERATOR(aclnnAmax)
SIM_EXPORT_OPERATOR(aclnnIndexSelect)
SIM_EXPORT_OPERATOR(aclnnInplaceIndexCopy)
