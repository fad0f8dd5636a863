// The objects that the layers of a model share: the ops, the device, the dtype of computation, and the parameters with
// their gradients.
//
// Layers (layers.h) have explicit forward and backward functions, and there is no tape: models of this library are
// chains of layers, so the order of their gradients is known in advance. Nothing is recorded, the source shows where
// memory is released, and each gradient is a function that a test can call.
//
// Mixed precision: a context of BF16 or FP16 keeps weights for products, activations and their gradients in that dtype.
// Master weights, gradients of weights, the residual stream of decoder layers, norms' sums and losses are FP32.
//
// Everything runs on the calling thread's current stream of the context's device and does not block, unless said
// otherwise. Threads: objects of one model belong to one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/ops/training.h"
#include "anyaccel/tensor.h"

namespace anyaccel::nn {

class Context {
 public:
  // Uses the accelerator's current device. Throws InvalidArgument for a dtype other than F32, BF16 and F16.
  explicit Context(Accelerator& accelerator, DType dtype = DType::F32);

  Accelerator& accelerator() const noexcept { return accelerator_; }
  ops::Training& ops() noexcept { return ops_; }
  Device device() const noexcept { return device_; }
  // Returns the dtype of weights in products and of activations.
  DType dtype() const noexcept { return dtype_; }
  // False: nothing is kept for gradients, and dropout is off.
  bool training = true;

  // Return an uninitialized tensor, of the context's dtype or another.
  Tensor empty(const Shape& shape) const { return Tensor::empty(shape, dtype_, device_); }
  Tensor empty(const Shape& shape, DType dtype) const { return Tensor::empty(shape, dtype, device_); }
  // Returns the tensor converted to the context's dtype; the tensor itself if it already has that dtype.
  Tensor in_dtype(const Tensor& tensor);

 private:
  Accelerator& accelerator_;
  ops::Training ops_;
  Device device_;
  DType dtype_;
};

// The initial values of a parameter: normal random numbers with mean 0 and a standard deviation above 0, else a
// constant.
struct Init {
  double deviation = 0.02;
  double constant = 0;
  static Init normal(double deviation) { return {deviation, 0}; }
  static Init value(double constant) { return {0, constant}; }
};

struct Parameter {
  std::string name;  // unique in its model; the tensor's name in a checkpoint
  Shape shape;
  Init init;
  bool decays = false;  // weight decay applies to it; true for matrices
  int group = 0;        // see Parameters::begin_group
  int64_t offset = 0;   // of the elements in the flat tensors
  Tensor weight;        // read by forward and backward: on the device, in the context's dtype
  Tensor gradient;      // F32 on the device; backward adds to it
  Tensor master;        // F32: changed by the optimizer. `weight` itself if that is F32 and in the same place
};

// The parameters of a model, in the order in which they were added. All tensors of one kind share one block of memory,
// in which every parameter begins at a multiple of 64 elements and the gaps are 0, so that one call can zero all
// gradients, sum them over ranks or compute their norm.
class Parameters {
 public:
  explicit Parameters(Context& context) : context_(context) {}
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  // Starts a new group for the parameters that are added from now on. The gradients of a group are complete at the same
  // time.
  void begin_group() { ++group_; }
  // Adds a parameter. The reference stays valid; its tensors exist after allocate(). Throws InvalidArgument for a name
  // that is taken, and after allocate().
  Parameter& add(std::string name, const Shape& shape, Init init, bool decays);

  // Allocates the tensors and sets the initial values, which depend only on `seed` and each parameter's position and
  // are the same on every accelerator. masters_on_host: master weights are in host memory, page-locked if possible, for
  // an optimizer on the host. Blocks. Throws InvalidArgument if it is called twice, or without parameters.
  void allocate(uint64_t seed, bool masters_on_host = false);

  std::deque<Parameter>& all() noexcept { return all_; }
  const std::deque<Parameter>& all() const noexcept { return all_; }
  int groups() const noexcept { return group_ + 1; }
  int64_t count() const noexcept;  // elements of all parameters
  // One-dimensional tensors with the same number of elements.
  const Tensor& weights() const noexcept { return weights_; }
  const Tensor& gradients() const noexcept { return gradients_; }
  const Tensor& masters() const noexcept { return masters_; }
  // A range [begin, end) of elements of the flat tensors; range_of() returns that of a group's parameters.
  struct Range {
    int64_t begin = 0, end = 0;
  };
  Range range_of(int group) const;

  void zero_gradients() { gradients_.fill(0); }
  // Copies the master weights to the weights, if they are separate tensors.
  void store_weights();

  // Models call ready() as soon as the gradients of a group are complete in a backward pass; the hook is called then.
  void ready(int group) const {
    if (hook_) hook_(group);
  }
  void set_ready_hook(std::function<void(int group)> hook) { hook_ = std::move(hook); }

  Context& context() noexcept { return context_; }

 private:
  Context& context_;
  std::deque<Parameter> all_;
  int group_ = 0;
  Tensor weights_, gradients_, masters_;
  std::function<void(int)> hook_;
};

}  // namespace anyaccel::nn
