// Optimizers of a model's parameters, implemented with the accelerator's op builders.
//
//   placement  weights   masters  states             ops
//   Device     device    device   device             FusedAdam, FusedLamb, FusedLion (Adagrad: CPUAdagrad, on copies)
//   Host       device    host     host               CPUAdam, CPULion, CPUAdagrad
//   Files      device    host     files              the same, with AsyncIO
//
// With Host and Files the parameters are processed group by group: while the device computes the gradients of one
// group, those of a finished one are copied to page-locked host memory on a separate stream; while the host updates a
// group, the new weights of the previous one are copied back, and with Files the states of the next one are read and
// those of the previous one written. DeepSpeed calls this offload. Work that is enqueued after step() sees the new
// weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "anyaccel/nn/context.h"

namespace anyaccel::nn {

enum class Placement { Device, Host, Files };

struct OptimizerOptions {
  std::string name = "adam";  // adam (which is AdamW), lamb, lion or adagrad
  double beta1 = 0.9;
  double beta2 = 0.95;  // Adagrad has no betas
  double eps = 1e-8;
  double weight_decay = 0.05;  // of parameters that decay
  Placement placement = Placement::Device;
  // For Placement::Files: an existing directory on a disk, in which the optimizer creates a file that it removes when
  // it is destroyed.
  std::filesystem::path directory = {};
};

class Optimizer {
 public:
  // Creates an optimizer for allocated parameters, whose masters must be on the host unless the placement is Device.
  // Loads the builders' libraries, which may compile them. Throws InvalidArgument for an unknown name or one that the
  // placement does not have, and any exception of loading.
  static std::unique_ptr<Optimizer> make(Parameters& parameters, const OptimizerOptions& options);
  virtual ~Optimizer() = default;

  // Announces that the next backward pass is the last before step(): groups are then copied to the host as they become
  // ready. Without this call step() copies them.
  virtual void expect_step() {}
  // Makes step number `step`, counted from 1: updates masters and weights by the gradients times `scale`. Blocks if the
  // host does the work.
  virtual void step(int64_t step, double rate, double scale) = 0;

  // The states, by index: each is F32 of a parameter's shape, and its name is "exp_avg." or another prefix followed by
  // the parameter's name.
  virtual size_t state_count() const = 0;
  virtual std::string state_name(size_t index) const = 0;
  virtual const Parameter& state_of(size_t index) const = 0;
  // The tensors are contiguous, in host memory. Both functions block.
  virtual Tensor state(size_t index) = 0;
  virtual void set_state(size_t index, const Tensor& value) = 0;
};

}  // namespace anyaccel::nn
