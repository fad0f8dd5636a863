// Checks one call against its OpSchema: number of tensors, parameters, dtypes, shapes, and the rules of
// runtime/ops/op_list.h.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "anyaccel/dtype.h"
#include "anyaccel/error.h"
#include "base/text/number_text.h"
#include "ops/dispatch/op_schema.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::ops {

// Returns "[2, 3]", for example.
std::string shape_text(const aa_tensor& t);
// Returns "int32 or int64", for example.
std::string dtypes_text(uint32_t mask);
// Returns "last", for example.
const char* position_text(int dimension, int ndim);

// The sizes that are bound to the letters of a call, and where each was found first.
struct Bindings {
  std::array<int64_t, 128> size;
  std::array<int8_t, 128> tensor;
  std::array<int8_t, 128> dimension;
  uint64_t bound[2] = {0, 0};
  int8_t lead_tensor = -1;
  int32_t lead_ndim = 0;

  bool has(char letter) const { return (bound[letter >> 6] >> (letter & 63)) & 1u; }
  void bind(char letter, int64_t value, int of_tensor, int of_dimension) {
    bound[letter >> 6] |= uint64_t{1} << (letter & 63);
    const size_t i = static_cast<size_t>(letter);
    size[i] = value;
    tensor[i] = static_cast<int8_t>(of_tensor);
    dimension[i] = static_cast<int8_t>(of_dimension);
  }
  // Binds 'x' and 'y' to their sizes, the products of heads and head size; returns false for other letters, and if
  // those two are not known yet.
  bool derive(char letter) {
    const char heads = letter == 'x' ? 'q' : 'k';
    if ((letter != 'x' && letter != 'y') || !has(heads) || !has('D')) return false;
    const auto i = static_cast<size_t>(heads);
    bind(letter, size[i] * (*this)['D'], tensor[i], dimension[i]);
    return true;
  }
  int64_t operator[](char letter) const { return size[static_cast<size_t>(letter)]; }
};

// Checks one call.
class Checker {
 public:
  Checker(const OpSchema& schema, const aa_op_call& call) : schema_(schema), call_(call) {}

  // Checks everything in the table: number of tensors, params, dtypes, shapes. `order` lists the tensors in the order
  // in which they bind the letters to sizes (inputs first give better error messages); null means the order of the
  // table.
  void run(const char* order) {
    check_count();
    check_params();
    for (uint32_t i = 0; i < call_.tensor_count; ++i) check_tensor(order ? static_cast<uint32_t>(order[i] - '0') : i);
  }

  int64_t size(char letter) const { return bindings_[letter]; }
  const aa_tensor& tensor(uint32_t i) const { return call_.tensors[i]; }
  bool present(uint32_t i) const { return call_.tensors[i].dtype != AA_DTYPE_NONE; }

  template <class Params>
  const Params& params() const {
    return params_of<Params>(call_);
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw InvalidArgument(std::string(schema_.name) + ": " + what);
  }

  void require(bool good, const char* parameter, double found, const char* expected) const {
    if (!good) [[unlikely]]
      fail("parameter " + std::string(parameter) + " is " + number_text(found) + ", expected " + expected);
  }

  // -- Rules of runtime/ops/op_list.h for parameters.
  void at_least_0(const char* parameter, int64_t found) const {
    require(found >= 0, parameter, static_cast<double>(found), "at least 0");
  }
  void flag(const char* parameter, int32_t found) const {
    require(found == 0 || found == 1, parameter, found, "0 or 1");
  }
  void finite(const char* parameter, double found) const {
    require(std::isfinite(found), parameter, found, "a finite number");
  }
  void not_negative(const char* parameter, double found) const {
    require(found >= 0 && std::isfinite(found), parameter, found, "a finite number, at least 0");
  }
  void positive(const char* parameter, double found) const {
    require(found > 0 && std::isfinite(found), parameter, found, "a finite number above 0");
  }
  void activation(int kind) const {
    require(kind >= AA_ACTIVATION_SILU && kind <= AA_ACTIVATION_TANH, "kind", kind, "an aa_activation, 0 to 5");
  }
  void random_kind(const aa_random_params& params) const;
  void normed(int32_t dtype) const {
    require(dtype == AA_DTYPE_F32 || dtype == AA_DTYPE_BF16 || dtype == AA_DTYPE_F16, "normed", dtype,
            "the number of AA_DTYPE_F32, AA_DTYPE_BF16 or AA_DTYPE_F16");
  }
  // -- Rules for sizes.
  // The rotated elements must fit in a head. `cos` is the number of that tensor.
  void rotation(int interleaved, uint32_t cos) const;
  // The number of key/value heads must divide the number of query heads.
  void heads() const;
  // The rows of tensor `w` must be whole blocks of the format that decode to rows of size K.
  void blocks(int32_t format_number, uint32_t w) const;
  // Checks the rounding too.
  template <class Params>
  void blocks(const Params& params, uint32_t w) const {
    blocks(params.format, w);
    rounding(params.rounding);
  }
  void rounding(int32_t rounding) const;
  // The rows of tensors `k_cache` and the one after it must be those of an aa_cache_format that decode to heads of size D.
  void cache_blocks(int32_t format, uint32_t k_cache) const;
  // norm_backward may write its gradient over dy only where no other gradient is computed from dy.
  void norm_gradients() const;
  // Tensor 1, or if it is absent the next one, must have a column to choose from.
  void vocabulary() const;

  std::string quoted(uint32_t i) const { return std::string("tensor \"") + schema_.tensors[i].name + "\""; }

 private:
  void check_count() const {
    const uint32_t count = call_.tensor_count;
    const uint32_t most = static_cast<uint32_t>(schema_.tensors.size());
    bool good = count >= schema_.min_tensors && count <= most;
    if (schema_.min_tensors != most) good = good && (count - 1) % 3 == 0;
    if (good && (call_.tensors != nullptr)) [[likely]]
      return;
    std::string names;
    for (uint32_t i = 0; i < most; ++i) names += (i ? ", " : "") + std::string(schema_.tensors[i].name);
    fail(std::to_string(call_.tensors ? count : 0) + " tensors were passed, expected " +
         (schema_.min_tensors == most ? std::to_string(most) : "4, 7, 10 or 13") + " (" + names +
         "), absent optional ones included");
  }

  void check_params() const {
    if (schema_.params_size == 0) return;
    if (call_.params == nullptr || call_.params_size < schema_.params_size ||
        *static_cast<const uint32_t*>(call_.params) < schema_.params_size) [[unlikely]] {
      fail("params of " + std::to_string(call_.params ? call_.params_size : 0) + " bytes were passed, expected " +
           std::to_string(schema_.params_size) + " with struct_size set");
    }
  }

  void check_tensor(uint32_t i) {
    const aa_tensor& t = call_.tensors[i];
    if (t.dtype == AA_DTYPE_NONE) {
      if (schema_.tensors[i].optional) return;
      fail(quoted(i) + " is absent, but it is not optional");
    }
    if (t.dtype < 0 || t.dtype > AA_DTYPE_F8_E5M2 || !((schema_.tensors[i].dtypes >> t.dtype) & 1u)) [[unlikely]] {
      fail(quoted(i) + " has dtype " + std::string(dtype_name(static_cast<DType>(t.dtype))) + ", expected " +
           (schema_.tensors[i].dtypes == any_dtype ? "a dtype of abi/base.h" : dtypes_text(schema_.tensors[i].dtypes)));
    }
    if (t.ndim < 0 || t.ndim > AA_MAX_DIMS) [[unlikely]]
      fail(quoted(i) + " has " + std::to_string(t.ndim) + " dimensions, expected 0 to " + std::to_string(AA_MAX_DIMS));
    const bool written = schema_.tensors[i].role != Role::In;
    for (int d = 0; d < t.ndim; ++d) {
      if (t.shape[d] < 0) [[unlikely]]
        fail(quoted(i) + " has the negative size " + std::to_string(t.shape[d]));
      if (written && t.shape[d] > 1 && t.strides[d] <= 0) [[unlikely]]
        fail(quoted(i) + " is written, but its stride in the " + position_text(d, t.ndim) + " dimension is " +
             std::to_string(t.strides[d]) + "; expected a positive one");
    }
    check_shape(i);
  }

  void check_shape(uint32_t i) {
    const aa_tensor& t = call_.tensors[i];
    const char* pattern = schema_.tensors[i].shape;
    int d = 0;
    if (*pattern == '.') {
      ++pattern;
      int trailing = 0;
      while (pattern[trailing]) ++trailing;
      const int lead = t.ndim - trailing;
      if (lead < 0) [[unlikely]]
        fail_shape(i, -1);
      if (bindings_.lead_tensor < 0) {
        bindings_.lead_tensor = static_cast<int8_t>(i);
        bindings_.lead_ndim = lead;
      } else {
        if (lead != bindings_.lead_ndim) [[unlikely]]
          fail_shape(i, -1);
        for (int l = 0; l < lead; ++l) {
          if (t.shape[l] != call_.tensors[bindings_.lead_tensor].shape[l]) [[unlikely]]
            fail_shape(i, l);
        }
      }
      d = lead;
    }
    for (; *pattern; ++pattern, ++d) {
      if (d >= t.ndim) [[unlikely]]
        fail_shape(i, -1);
      const char letter = *pattern;
      if (letter >= '0' && letter <= '9') {
        if (t.shape[d] != letter - '0') [[unlikely]]
          fail_shape(i, -1);
      } else if (!bindings_.has(letter) && !bindings_.derive(letter)) {
        bindings_.bind(letter, t.shape[d], static_cast<int>(i), d);
      } else if (t.shape[d] != bindings_[letter]) [[unlikely]] {
        fail_shape(i, d);
      }
    }
    if (d != t.ndim) [[unlikely]]
      fail_shape(i, -1);
  }

  // `wrong` is the first dimension that does not match an earlier tensor; -1 if the rank or a fixed size is wrong.
  [[noreturn]] void fail_shape(uint32_t i, int wrong) const;

  const OpSchema& schema_;
  const aa_op_call& call_;
  Bindings bindings_;
};

}  // namespace anyaccel::ops
