// Implements common_bytes.h: finds bytes that two views, or two elements of one view, share.
#include "runtime/tensor/common_bytes.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace anyaccel {
namespace {

int64_t element_size(const aa_tensor& t) { return static_cast<int64_t>(dtype_size(static_cast<DType>(t.dtype))); }

// Each byte of a view is at its base plus a multiple of each stride, so a common byte of two is a solution of
// sum(coefficient * x) = distance with bounded x >= 0. Strides nest in practice, so that only a few x are possible for
// each; after many steps it counts as none.
class BoundedSum {
 public:
  explicit BoundedSum(int64_t distance) : distance_(distance) {}

  // Adds coefficient * x for x from 0 to `most`; a negative coefficient counts x from the other end.
  void add(int64_t coefficient, int64_t most) {
    if (coefficient == 0 || most == 0) return;
    if (coefficient < 0) {
      coefficient = -coefficient;
      distance_ += coefficient * most;
    }
    for (size_t i = 0; i < count_; ++i) {
      if (terms_[i].coefficient != coefficient) continue;
      terms_[i].most += most;
      return;
    }
    terms_[count_++] = {coefficient, most};
  }
  void add_bytes_of_element(const aa_tensor& t, int64_t sign) { add(sign, element_size(t) - 1); }
  void add_dimension(const aa_tensor& t, int32_t d, int64_t sign) {
    add(sign * t.strides[d] * element_size(t), t.shape[d] - 1);
  }

  bool is_solvable() {
    std::sort(terms_.begin(), terms_.begin() + count_,
              [](const Term& x, const Term& y) { return x.coefficient > y.coefficient; });
    reach_[count_] = 0;
    for (size_t i = count_; i-- > 0;) reach_[i] = reach_[i + 1] + terms_[i].coefficient * terms_[i].most;
    return solve(0, distance_);
  }

 private:
  struct Term {
    int64_t coefficient;
    int64_t most;
  };

  bool solve(size_t term, int64_t left) {
    if (left < 0 || left > reach_[term] || ++steps_ > 10000) return false;
    if (term == count_) return left == 0;
    const auto [coefficient, most] = terms_[term];
    for (int64_t x = std::min(most, left / coefficient); x >= 0 && left - x * coefficient <= reach_[term + 1]; --x) {
      if (solve(term + 1, left - x * coefficient)) return true;
    }
    return false;
  }

  int64_t distance_;
  size_t count_ = 0;
  std::array<Term, 2 * AA_MAX_DIMS + 2> terms_;
  std::array<int64_t, 2 * AA_MAX_DIMS + 3> reach_;
  int steps_ = 0;
};

// Returns whether each stride is larger than what all later dimensions span, as in a dense row-major tensor.
bool is_nested(const aa_tensor& t) {
  int64_t span = 1;
  for (int32_t d = t.ndim - 1; d >= 0; --d) {
    if (t.shape[d] == 1) continue;
    if (t.strides[d] < span) return false;
    span += (t.shape[d] - 1) * t.strides[d];
  }
  return true;
}

}  // namespace

bool are_same_elements(const aa_tensor& a, const aa_tensor& b) noexcept {
  if (a.data != b.data || a.dtype != b.dtype) return false;
  for (int32_t d = 0; d < a.ndim; ++d) {
    if (a.shape[d] > 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

bool have_common_bytes(const aa_tensor& a, const aa_tensor& b) {
  if (!address_range(a).meets(address_range(b))) return false;
  BoundedSum sum(reinterpret_cast<intptr_t>(b.data) - reinterpret_cast<intptr_t>(a.data));
  sum.add_bytes_of_element(a, 1);
  sum.add_bytes_of_element(b, -1);
  for (int32_t d = 0; d < a.ndim; ++d) sum.add_dimension(a, d, 1);
  for (int32_t d = 0; d < b.ndim; ++d) sum.add_dimension(b, d, -1);
  return sum.is_solvable();
}

bool repeats_bytes(const aa_tensor& t) {
  if (std::any_of(t.shape, t.shape + t.ndim, [](int64_t size) { return size == 0; })) return false;
  if (is_nested(t)) return false;
  // Of two elements, one has the larger index in some dimension: by 1 plus a number that is at least 0.
  for (int32_t larger = 0; larger < t.ndim; ++larger) {
    if (t.shape[larger] < 2) continue;
    const int64_t stride = t.strides[larger] * element_size(t);
    BoundedSum sum(-stride);
    sum.add(stride, t.shape[larger] - 2);
    sum.add_bytes_of_element(t, 1);
    sum.add_bytes_of_element(t, -1);
    for (int32_t d = 0; d < t.ndim; ++d) {
      if (d == larger) continue;
      sum.add_dimension(t, d, 1);
      sum.add_dimension(t, d, -1);
    }
    if (sum.is_solvable()) return true;
  }
  return false;
}

}  // namespace anyaccel
