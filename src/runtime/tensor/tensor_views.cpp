// Tensor: views, which share memory.
#include <algorithm>
#include <optional>

#include "anyaccel/error.h"
#include "anyaccel/tensor.h"
#include "runtime/tensor/tensor_layout.h"

namespace anyaccel {

namespace {

std::string text_of(std::span<const int64_t> sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

// Replaces -1 by the size that follows from the others.
Shape infer(std::span<const int64_t> sizes, int64_t numel) {
  if (sizes.size() > AA_MAX_DIMS) return Shape(sizes);  // throws
  std::array<int64_t, AA_MAX_DIMS> known{};
  std::copy(sizes.begin(), sizes.end(), known.begin());
  const auto unknown = std::find(sizes.begin(), sizes.end(), -1);
  if (unknown != sizes.end()) {
    int64_t others = 1;
    bool fits = std::find(unknown + 1, sizes.end(), -1) == sizes.end();
    for (auto it = sizes.begin(); it != sizes.end(); ++it) {
      if (it != unknown) fits = fits && !__builtin_mul_overflow(others, *it, &others);
    }
    if (!fits || others <= 0 || numel % others != 0) {
      throw InvalidArgument("the shape " + text_of(sizes) + " leaves no size for -1 with " + std::to_string(numel) +
                            " elements");
    }
    known[static_cast<size_t>(unknown - sizes.begin())] = numel / others;
  }
  return Shape(std::span<const int64_t>(known.data(), sizes.size()));
}

// Returns strides that give the same elements in the same order under another shape; nothing if there are none.
std::optional<Strides> view_strides(const Tensor& t, const Shape& shape) {
  if (t.numel() == 0) return contiguous_strides(shape);
  Strides result{};
  // Walks both shapes from the innermost dimension. `run` is a group of old dimensions that are laid out like one.
  int to = shape.ndim() - 1;
  int64_t run = 1;
  int64_t filled = 1;
  int64_t step = t.ndim() > 0 ? t.stride(-1) : 1;
  for (int from = t.ndim() - 1; from >= 0; --from) {
    run *= t.shape()[from];
    const bool ends = from == 0 || (t.shape()[from - 1] != 1 && t.stride(from - 1) != run * step);
    if (!ends) continue;
    while (to >= 0 && (filled < run || shape[to] == 1)) {
      result[static_cast<size_t>(to)] = filled * step;
      filled *= shape[to];
      --to;
    }
    if (filled != run) return std::nullopt;
    if (from > 0) {
      step = t.stride(from - 1);
      run = 1;
      filled = 1;
    }
  }
  if (to >= 0) {  // a scalar that becomes [1, ..., 1]
    for (; to >= 0; --to) result[static_cast<size_t>(to)] = 1;
  }
  return result;
}

void check_handle(const Tensor& t, const char* what) {
  if (!t) throw InvalidArgument(std::string(what) + " of an empty tensor was asked for");
}

std::span<const int64_t> first(const Strides& strides, int n) { return {strides.data(), static_cast<size_t>(n)}; }

struct Layout {
  explicit Layout(const Tensor& t) : ndim(t.ndim()) {
    std::copy(t.shape().dims().begin(), t.shape().dims().end(), sizes.begin());
    std::copy(t.strides().begin(), t.strides().end(), strides.begin());
  }
  Tensor on(const Tensor& t, int64_t offset) const {
    const Shape shape(first(sizes, ndim));
    // A view without elements begins nowhere: the place to which its strides lead may be outside the storage.
    return Tensor(t.storage(), t.dtype(), shape, first(strides, ndim),
                  shape.numel() == 0 ? t.storage_offset() : offset);
  }

  int ndim;
  Strides sizes{};
  Strides strides{};
};

}  // namespace

int resolve_dim(int dim, int ndim) {
  const int resolved = dim < 0 ? dim + ndim : dim;
  if (resolved < 0 || resolved >= ndim) {
    throw InvalidArgument(
        "dimension " + std::to_string(dim) + " of a tensor with " + std::to_string(ndim) + " dimensions was asked for",
        AA_OUT_OF_RANGE);
  }
  return resolved;
}

Tensor Tensor::view(const Shape& shape) const {
  check_handle(*this, "a view");
  if (shape.numel() != numel()) {
    throw InvalidArgument("a view of " + shape_.to_string() + " as " + shape.to_string() +
                          " was asked for: the numbers of elements differ");
  }
  const auto strides = view_strides(*this, shape);
  if (!strides) {
    throw InvalidArgument("a view of " + shape_.to_string() + " as " + shape.to_string() + " with strides " +
                          text_of(this->strides()) + " needs a copy; use reshape() or contiguous()");
  }
  return Tensor(storage_, dtype_, shape, first(*strides, shape.ndim()), offset_);
}

Tensor Tensor::view(std::initializer_list<int64_t> sizes) const {
  check_handle(*this, "a view");
  return view(infer({sizes.begin(), sizes.size()}, numel()));
}

Tensor Tensor::reshape(const Shape& shape) const {
  check_handle(*this, "a reshape");
  if (shape.numel() == numel() && !view_strides(*this, shape)) return contiguous().view(shape);
  return view(shape);
}

Tensor Tensor::reshape(std::initializer_list<int64_t> sizes) const {
  check_handle(*this, "a reshape");
  return reshape(infer({sizes.begin(), sizes.size()}, numel()));
}

Tensor Tensor::slice(int dim, int64_t begin, int64_t end, int64_t step) const {
  check_handle(*this, "a slice");
  const int d = resolve_dim(dim, ndim());
  const int64_t n = shape_[d];
  const int64_t from = begin < 0 ? begin + n : begin;
  const int64_t to = end < 0 ? end + n : end;
  if (step < 1 || from < 0 || to < from || to > n) {
    throw InvalidArgument("the slice " + std::to_string(begin) + ":" + std::to_string(end) + ":" +
                              std::to_string(step) + " of dimension " + std::to_string(dim) + " of " +
                              shape_.to_string() + " does not fit",
                          AA_OUT_OF_RANGE);
  }
  Layout layout(*this);
  const auto i = static_cast<size_t>(d);
  layout.sizes[i] = to == from ? 0 : (to - from - 1) / step + 1;
  // The stride of a dimension with at most one element is never used, and must not overflow.
  if (layout.sizes[i] > 1) layout.strides[i] *= step;
  return layout.on(*this, layout.sizes[i] == 0 ? offset_ : offset_ + from * strides_[i]);
}

Tensor Tensor::select(int dim, int64_t index) const {
  check_handle(*this, "an element");
  const int d = resolve_dim(dim, ndim());
  const int64_t at = index < 0 ? index + shape_[d] : index;
  if (at < 0 || at >= shape_[d]) {
    throw InvalidArgument("index " + std::to_string(index) + " of dimension " + std::to_string(dim) + " of " +
                              shape_.to_string() + " was asked for",
                          AA_OUT_OF_RANGE);
  }
  Layout layout(*this);
  std::copy(layout.sizes.begin() + d + 1, layout.sizes.end(), layout.sizes.begin() + d);
  std::copy(layout.strides.begin() + d + 1, layout.strides.end(), layout.strides.begin() + d);
  --layout.ndim;
  return layout.on(*this, offset_ + at * strides_[static_cast<size_t>(d)]);
}

Tensor Tensor::transpose(int a, int b) const {
  check_handle(*this, "a transpose");
  const auto i = static_cast<size_t>(resolve_dim(a, ndim()));
  const auto j = static_cast<size_t>(resolve_dim(b, ndim()));
  Layout layout(*this);
  std::swap(layout.sizes[i], layout.sizes[j]);
  std::swap(layout.strides[i], layout.strides[j]);
  return layout.on(*this, offset_);
}

Tensor Tensor::permute(std::initializer_list<int> order) const {
  check_handle(*this, "a permutation");
  Layout layout(*this);
  unsigned seen = 0;
  size_t to = 0;
  for (const int dim : order) {
    const int d = resolve_dim(dim, ndim());
    seen |= 1u << d;
    if (to < static_cast<size_t>(ndim())) {
      layout.sizes[to] = shape_[d];
      layout.strides[to++] = strides_[static_cast<size_t>(d)];
    }
  }
  if (order.size() != static_cast<size_t>(ndim()) || seen != (1u << ndim()) - 1) {
    throw InvalidArgument("permute: each dimension of " + shape_.to_string() + " must be named once");
  }
  return layout.on(*this, offset_);
}

Tensor Tensor::expand(const Shape& shape) const {
  check_handle(*this, "an expanded view");
  const int added = shape.ndim() - ndim();
  bool fits = added >= 0;
  Strides strides{};
  for (int d = 0; fits && d < ndim(); ++d) {
    const auto to = static_cast<size_t>(d + added);
    if (shape_[d] == shape[d + added]) {
      strides[to] = strides_[static_cast<size_t>(d)];
    } else {
      fits = shape_[d] == 1;
    }
  }
  if (!fits) {
    throw InvalidArgument(shape_.to_string() + " cannot be expanded to " + shape.to_string() +
                          ": sizes must be equal or 1, aligned at the last dimension");
  }
  return Tensor(storage_, dtype_, shape, first(strides, shape.ndim()), offset_);
}

Tensor Tensor::squeeze(int dim) const {
  check_handle(*this, "a view");
  const int d = resolve_dim(dim, ndim());
  if (shape_[d] != 1) {
    throw InvalidArgument("squeeze: dimension " + std::to_string(dim) + " of " + shape_.to_string() +
                          " is not of size 1");
  }
  return select(d, 0);
}

Tensor Tensor::unsqueeze(int dim) const {
  check_handle(*this, "a view");
  const int d = resolve_dim(dim, ndim() + 1);
  if (ndim() == AA_MAX_DIMS) {
    throw InvalidArgument("unsqueeze: " + shape_.to_string() + " has as many dimensions as are possible");
  }
  Layout layout(*this);
  std::copy_backward(layout.sizes.begin() + d, layout.sizes.end() - 1, layout.sizes.end());
  std::copy_backward(layout.strides.begin() + d, layout.strides.end() - 1, layout.strides.end());
  const auto i = static_cast<size_t>(d);
  // As a contiguous tensor would have it.
  layout.strides[i] = d < ndim() ? layout.sizes[i + 1] * layout.strides[i + 1] : 1;
  layout.sizes[i] = 1;
  ++layout.ndim;
  return layout.on(*this, offset_);
}

}  // namespace anyaccel
