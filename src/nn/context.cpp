// Implements the context of a model's layers, and its parameters.
#include "anyaccel/nn/context.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

#include "anyaccel/error.h"
#include "anyaccel/philox.h"

namespace anyaccel::nn {
namespace {

constexpr int64_t kAlignment = 64;  // elements; each parameter's offset is a multiple of it
constexpr int64_t kWholeRows =
    1024;  // elements of a row; the flat tensors consist of whole rows (Trainer computes norms row by row)

int64_t rounded_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Draws normal numbers with Box-Muller from Philox's numbers, on the host, so that they do not depend on an
// accelerator's logarithm.
void fill_normal(std::span<float> to, double deviation, uint64_t seed, uint64_t first_counter) {
  for (size_t i = 0; i < to.size(); i += 4) {
    const auto words = philox_words(seed, first_counter + i / 4);
    for (size_t pair = 0; pair < 2; ++pair) {
      const double u = (static_cast<double>(words[2 * pair] >> 8) + 1) * 0x1p-24;
      const double angle = 2 * std::numbers::pi * static_cast<double>(words[2 * pair + 1] >> 8) * 0x1p-24;
      const double radius = std::sqrt(-2 * std::log(u)) * deviation;
      if (i + 2 * pair < to.size()) to[i + 2 * pair] = static_cast<float>(radius * std::cos(angle));
      if (i + 2 * pair + 1 < to.size()) to[i + 2 * pair + 1] = static_cast<float>(radius * std::sin(angle));
    }
  }
}

}  // namespace

Context::Context(Accelerator& accelerator, DType dtype)
    : accelerator_(accelerator), ops_(accelerator), device_(accelerator.device()), dtype_(dtype) {
  if (dtype != DType::F32 && dtype != DType::BF16 && dtype != DType::F16) {
    throw InvalidArgument("nn::Context: dtype is " + std::string(dtype_name(dtype)) +
                          ", expected float32, bfloat16 or float16");
  }
}

Tensor Context::in_dtype(const Tensor& tensor) {
  if (tensor.dtype() == dtype_) return tensor;
  const Tensor out = empty(tensor.shape());
  ops_.copy(out, tensor);
  return out;
}

Parameter& Parameters::add(std::string name, const Shape& shape, Init init, bool decays) {
  if (weights_) throw InvalidArgument("nn::Parameters: " + name + " is added after allocate()", AA_FAILED_PRECONDITION);
  for (const Parameter& other : all_) {
    if (other.name == name) throw InvalidArgument("nn::Parameters: two parameters have the name " + name);
  }
  int64_t offset = 0;
  if (!all_.empty()) offset = rounded_up(all_.back().offset + all_.back().shape.numel(), kAlignment);
  return all_.emplace_back(Parameter{std::move(name), shape, init, decays, group_, offset, {}, {}, {}});
}

void Parameters::allocate(uint64_t seed, bool masters_on_host) {
  if (weights_) throw InvalidArgument("nn::Parameters: allocate() called twice", AA_FAILED_PRECONDITION);
  if (all_.empty()) throw InvalidArgument("nn::Parameters: allocate() without parameters", AA_FAILED_PRECONDITION);
  const int64_t total = rounded_up(all_.back().offset + all_.back().shape.numel(), kWholeRows);
  const Device device = context_.device();
  std::vector<float> first(static_cast<size_t>(total), 0.0f);
  for (const Parameter& parameter : all_) {
    const std::span<float> to(&first[static_cast<size_t>(parameter.offset)],
                              static_cast<size_t>(parameter.shape.numel()));
    if (parameter.init.deviation > 0) {
      fill_normal(to, parameter.init.deviation, seed, static_cast<uint64_t>(parameter.offset) / 4);
    } else {
      std::fill(to.begin(), to.end(), static_cast<float>(parameter.init.constant));
    }
  }
  const Tensor host = Tensor::from_blob(first.data(), {total}, DType::F32, nullptr);
  gradients_ = Tensor::zeros({total}, DType::F32, device);
  if (masters_on_host) {
    masters_ = context_.accelerator().pin_memory(Tensor::empty({total}, DType::F32), false, true, false);
    masters_.copy_from(host);
    weights_ = Tensor::empty({total}, context_.dtype(), device);
  } else {
    masters_ = Tensor::empty({total}, DType::F32, device);
    masters_.copy_from(host);
    weights_ = context_.dtype() == DType::F32 ? masters_ : Tensor::empty({total}, context_.dtype(), device);
  }
  for (Parameter& parameter : all_) {
    const int64_t end = parameter.offset + parameter.shape.numel();
    const auto view = [&](const Tensor& flat) { return flat.slice(0, parameter.offset, end).view(parameter.shape); };
    parameter.weight = view(weights_);
    parameter.gradient = view(gradients_);
    parameter.master = view(masters_);
  }
  store_weights();
}

int64_t Parameters::count() const noexcept {
  int64_t sum = 0;
  for (const Parameter& parameter : all_) sum += parameter.shape.numel();
  return sum;
}

Parameters::Range Parameters::range_of(int group) const {
  Range range;
  bool found = false;
  for (const Parameter& parameter : all_) {
    if (parameter.group != group) continue;
    if (!found) range.begin = parameter.offset;
    found = true;
    range.end = parameter.offset + parameter.shape.numel();
  }
  return range;
}

void Parameters::store_weights() {
  if (weights_.storage() != masters_.storage()) weights_.copy_from(masters_);
}

}  // namespace anyaccel::nn
