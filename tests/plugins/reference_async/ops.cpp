// Implements ops.h: plain loops over elements of any layout, in fp32.
#include "ops.h"

#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "anyaccel/abi/driver_class.hpp"
#include "device.h"
#include "mutations.h"

namespace reference {
namespace {

constexpr std::array<const char*, 6> names = {"add", "increment", "rms_norm", "argmax", "linear", "softmax"};
enum Op : int32_t { add, increment, rms_norm, argmax, linear, softmax };

size_t bytes_of(int32_t dtype) {
  switch (dtype) {
    case AA_DTYPE_F16:
    case AA_DTYPE_BF16: return 2;
    case AA_DTYPE_F32:
    case AA_DTYPE_I32: return 4;
    default: return 8;
  }
}

float load(const unsigned char* at, int32_t dtype) {
  if (dtype == AA_DTYPE_F32) {
    float value = 0;
    std::memcpy(&value, at, 4);
    return value;
  }
  if (dtype == AA_DTYPE_F16) {
    _Float16 value = 0;
    std::memcpy(&value, at, 2);
    return static_cast<float>(value);
  }
  uint16_t half = 0;
  std::memcpy(&half, at, 2);
  const uint32_t word = static_cast<uint32_t>(half) << 16;
  float value = 0;
  std::memcpy(&value, &word, 4);
  return value;
}

void store(unsigned char* at, int32_t dtype, float value) {
  if (dtype == AA_DTYPE_F32) {
    std::memcpy(at, &value, 4);
  } else if (dtype == AA_DTYPE_F16) {
    const auto half = static_cast<_Float16>(value);
    std::memcpy(at, &half, 2);
  } else {
    uint32_t word = 0;
    std::memcpy(&word, &value, 4);
    uint32_t rounded = (word + 0x7FFF + ((word >> 16) & 1)) >> 16;
    if (mutated(Mutation::bf16_is_cut_off)) rounded = word >> 16;
    if (value != value) rounded = (word >> 16) | 0x40;
    const auto half = static_cast<uint16_t>(rounded);
    std::memcpy(at, &half, 2);
  }
}

// A tensor as the worker sees it.
class View {
 public:
  View(Device& device, const aa_tensor& tensor) : tensor_(tensor) {
    if (tensor.dtype == AA_DTYPE_NONE || count() == 0) return;
    int64_t lowest = 0;
    int64_t highest = 0;
    for (int32_t d = 0; d < tensor.ndim; ++d) {
      const int64_t reach = (tensor.shape[d] - 1) * tensor.strides[d];
      (reach < 0 ? lowest : highest) += reach;
    }
    const auto width = static_cast<int64_t>(bytes_of(tensor.dtype));
    const auto* first = static_cast<const char*>(tensor.data) + lowest * width;
    unsigned char* const found = device.view(first, static_cast<size_t>((highest - lowest + 1) * width));
    if (!found) throw abi::Failure(AA_INTERNAL, "an op's tensor lies outside of the device's allocations");
    data_ = found - lowest * width;
  }

  const unsigned char* data() const { return data_; }
  bool absent() const { return tensor_.dtype == AA_DTYPE_NONE; }
  int64_t count() const {
    int64_t total = 1;
    for (int32_t d = 0; d < tensor_.ndim; ++d) total *= tensor_.shape[d];
    return total;
  }
  // The last dimension, and how many rows of it there are.
  int64_t width() const { return tensor_.ndim > 0 ? tensor_.shape[tensor_.ndim - 1] : 1; }
  int64_t rows() const { return width() > 0 ? count() / width() : 0; }
  int32_t dtype() const { return tensor_.dtype; }

  float get(int64_t row, int64_t column) const {
    const float value = load(at(row, column), tensor_.dtype);
    return mutated(Mutation::ops_take_nan_for_zero) && value != value ? 0 : value;
  }
  void set(int64_t row, int64_t column, float value) const { store(at(row, column), tensor_.dtype, value); }
  int64_t integer(int64_t row, int64_t column) const {
    if (tensor_.dtype == AA_DTYPE_I32) {
      int32_t value = 0;
      std::memcpy(&value, at(row, column), 4);
      return value;
    }
    int64_t value = 0;
    std::memcpy(&value, at(row, column), 8);
    return value;
  }
  void set_integer(int64_t row, int64_t column, int64_t value) const {
    std::memcpy(at(row, column), &value, bytes_of(tensor_.dtype));  // little endian
  }

 private:
  unsigned char* at(int64_t row, int64_t column) const {
    int64_t offset = 0;
    if (tensor_.ndim > 0) offset = column * tensor_.strides[tensor_.ndim - 1];
    if (mutated(Mutation::ops_ignore_gaps_between_elements)) offset = column;
    for (int32_t d = tensor_.ndim - 2; d >= 0; --d) {
      int64_t stride = tensor_.strides[d];
      if (mutated(Mutation::ops_ignore_gaps_between_rows)) stride = tensor_.shape[d + 1] * tensor_.strides[d + 1];
      offset += row % tensor_.shape[d] * stride;
      row /= tensor_.shape[d];
    }
    return data_ + offset * static_cast<int64_t>(bytes_of(tensor_.dtype));
  }

  aa_tensor tensor_;
  unsigned char* data_ = nullptr;
};

// The end of loops over elements: some mutations are wrong only beyond a size.
int64_t rows_of(const View& view) {
  const int64_t rows = view.rows();
  if (mutated(Mutation::ops_forget_rows_from_128) && rows > 128) return 128;
  if (mutated(Mutation::ops_forget_rows_from_65536) && rows > 65536) return 65536;
  if (mutated(Mutation::ops_forget_the_last_of_odd_rows) && rows > 64 && rows % 2 == 1) return rows - 1;
  return rows;
}

int64_t width_of(const View& view) {
  const int64_t width = view.width();
  if (mutated(Mutation::ops_forget_columns_from_256) && width > 256) return 256;
  if (mutated(Mutation::ops_forget_the_tail_of_sixteens) && width > 100 && width % 16 != 0) return width / 16 * 16;
  if (mutated(Mutation::ops_forget_columns_from_4096) && width > 4096) return 4096;
  if (mutated(Mutation::ops_forget_columns_from_65536) && width > 65536) return 65536;
  return width;
}

void run_add(const std::vector<View>& t) {
  for (int64_t r = 0; r < rows_of(t[0]); ++r) {
    for (int64_t i = 0; i < width_of(t[0]); ++i) t[0].set(r, i, t[1].get(r, i) + t[2].get(r, i));
  }
  if (mutated(Mutation::ops_change_an_input) && t[2].count() > 0) t[2].set(0, 0, 0.5f);
}

void run_increment(const std::vector<View>& t, int64_t amount) {
  for (int64_t r = 0; r < t[0].rows(); ++r) {
    for (int64_t i = 0; i < t[0].width(); ++i) t[0].set_integer(r, i, t[0].integer(r, i) + amount);
  }
}

void run_rms_norm(const std::vector<View>& t, float eps) {
  const int64_t width = t[0].width();
  const View& source = t[3].absent() ? t[1] : t[3];
  for (int64_t r = 0; r < rows_of(t[0]); ++r) {
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) {
      if (!t[3].absent()) t[3].set(r, i, t[3].get(r, i) + t[1].get(r, i));
      const double value = source.get(r, i);
      squares += value * value;
    }
    if (mutated(Mutation::norms_forget_their_epsilon)) eps = 0;
    const float scale = 1 / std::sqrt(static_cast<float>(squares / static_cast<double>(width)) + eps);
    for (int64_t i = 0; i < width_of(t[0]); ++i) {
      const float weight = t[2].absent() || mutated(Mutation::norms_forget_their_weight) ? 1 : t[2].get(0, i);
      if (mutated(Mutation::norms_ignore_gaps_of_their_output)) {
        t[0].set(0, r * width + i, source.get(r, i) * scale * weight);
        continue;
      }
      t[0].set(r, i, source.get(r, i) * scale * weight);
    }
  }
}

void run_argmax(const std::vector<View>& t) {
  for (int64_t r = 0; r < t[1].rows(); ++r) {
    int64_t best = 0;
    float largest = t[1].get(r, 0);
    for (int64_t i = 1; i < width_of(t[1]) && largest == largest; ++i) {
      const float value = t[1].get(r, i);
      const bool better = mutated(Mutation::argmax_takes_the_last_of_equals) ? value >= largest : value > largest;
      if (better || value != value) {
        largest = value;
        best = i;
      }
    }
    t[0].set_integer(0, r, best);
  }
}

void run_linear(const std::vector<View>& t) {
  for (int64_t m = 0; m < rows_of(t[0]); ++m) {
    // Whole rows first: residual may be out.
    std::vector<float> row(static_cast<size_t>(t[0].width()));
    for (int64_t n = 0; n < width_of(t[0]); ++n) {
      float sum = 0;
      for (int64_t k = 0; k < width_of(t[1]); ++k) sum += t[1].get(m, k) * t[2].get(n, k);
      if (!t[3].absent() && !mutated(Mutation::products_forget_their_bias)) sum += t[3].get(0, n);
      if (!t[4].absent() && !mutated(Mutation::products_forget_what_they_add_to)) sum += t[4].get(m, n);
      row[static_cast<size_t>(n)] = sum;
    }
    for (int64_t n = 0; n < t[0].width(); ++n) t[0].set(m, n, row[static_cast<size_t>(n)]);
  }
}

// `scratch` has room for a row.
void run_softmax(const std::vector<View>& t, float scale, float* scratch) {
  for (int64_t r = 0; r < rows_of(t[0]); ++r) {
    float largest = -INFINITY;
    const int64_t width = width_of(t[0]);
    if (mutated(Mutation::softmax_forgets_its_scale)) scale = 1;
    for (int64_t i = 0; i < width; ++i) largest = std::max(largest, t[1].get(r, i) * scale);
    if (mutated(Mutation::softmax_subtracts_no_maximum)) largest = 0;
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) {
      if (!mutated(Mutation::scratch_is_taken_for_zeros)) scratch[i] = 0;
      scratch[i] += std::exp(t[1].get(r, i) * scale - largest);
      sum += scratch[i];
    }
    const bool forgets = mutated(Mutation::softmax_in_place_forgets_the_row) && t[0].data() == t[1].data();
    for (int64_t i = 0; i < width; ++i) {
      t[0].set(r, i, forgets ? 0 : static_cast<float>(scratch[i] / sum));
    }
  }
}

}  // namespace

int32_t find_op(const char* name) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::strcmp(names[i], name) == 0) {
      static int32_t shift = 0;
      if (mutated(Mutation::numbers_of_ops_change)) return static_cast<int32_t>(i) + 6 * shift++;
      return static_cast<int32_t>(i);
    }
  }
  return mutated(Mutation::every_op_is_found) ? 0 : -1;
}

bool supports(const aa_op_call& call) {
  if (call.op < 0 || call.op >= static_cast<int32_t>(names.size())) return false;
  // Small matrices only: the loops are slow.
  return call.op != linear ||
         call.tensors[0].shape[0] * call.tensors[0].shape[1] * call.tensors[1].shape[1] < 100000000;
}

size_t scratch_bytes(const aa_op_call& call) {
  if (call.op != softmax || call.tensor_count == 0) return 0;
  const aa_tensor& out = call.tensors[0];
  return out.ndim > 0 ? static_cast<size_t>(out.shape[out.ndim - 1]) * sizeof(float) : sizeof(float);
}

std::function<void()> prepare_op(Device& device, const aa_op_call& call, void* scratch) {
  int32_t op = call.op;
  if (mutated(Mutation::unknown_numbers_run)) op %= static_cast<int32_t>(names.size());
  if (mutated(Mutation::unknown_numbers_run) && call.tensor_count == 0) return [] {};
  if (op < 0 || op >= static_cast<int32_t>(names.size())) {
    throw abi::Failure(AA_INVALID_ARGUMENT, "no op has the number " + std::to_string(call.op));
  }
  std::vector<aa_tensor> tensors(call.tensors, call.tensors + call.tensor_count);
  if (mutated(Mutation::ops_want_rows) && tensors[0].shape[0] == 0) {
    throw abi::Failure(AA_INVALID_ARGUMENT, "there is nothing to do");
  }
  const auto* params = static_cast<const unsigned char*>(call.params);
  std::vector<unsigned char> kept(params, params + call.params_size);
  const aa_tensor* const theirs = call.tensors;
  const size_t bytes = scratch_bytes(call);
  return [&device, op, tensors = std::move(tensors), kept = std::move(kept), theirs, params, scratch, bytes] {
    std::vector<View> views;
    for (size_t i = 0; i < tensors.size(); ++i) {
      views.emplace_back(device, mutated(Mutation::ops_refer_to_their_tensors) ? theirs[i] : tensors[i]);
    }
    const unsigned char* given = mutated(Mutation::ops_refer_to_their_parameters) ? params : kept.data();
    const auto param = [given]<class Params>(Params) {
      Params copied{};
      std::memcpy(&copied, given, sizeof(copied));
      return copied;
    };
    switch (op) {
      case add: run_add(views); break;
      case increment: run_increment(views, param(aa_increment_params{}).amount); break;
      case rms_norm: run_rms_norm(views, param(aa_norm_params{}).eps); break;
      case argmax: run_argmax(views); break;
      case linear: run_linear(views); break;
      case softmax: {
        std::vector<float> own(scratch ? 0 : bytes / sizeof(float));
        unsigned char* const lent = scratch ? device.view(scratch, bytes) : nullptr;
        if (scratch && !lent)
          throw abi::Failure(AA_INTERNAL, "scratch memory lies outside of the device's allocations");
        run_softmax(views, param(aa_softmax_params{}).scale, lent ? reinterpret_cast<float*>(lent) : own.data());
        break;
      }
      default: break;
    }
    if (mutated(Mutation::ops_write_beyond_their_output) && op == add) {
      const size_t size = static_cast<size_t>(views[0].count()) * bytes_of(views[0].dtype());
      if (unsigned char* beyond = device.view(static_cast<char*>(tensors[0].data) + size, 2)) beyond[1] ^= 0x55;
    }
  };
}

}  // namespace reference
