// Optimizers of a model's parameters, by the op builders that the accelerator offers.
//
//   placement  weights   masters  states             ops
//   Device     device    device   device             FusedAdam, FusedLamb, FusedLion (Adagrad: CPUAdagrad, on copies)
//   Host       device    host     host               CPUAdam, CPULion, CPUAdagrad
//   Files      device    host     files              the same, with AsyncIO
//
// On the host and in files the work is done group by group of the parameters: while the device computes the gradients of one
// group, those of a finished one are copied to page-locked memory of the host on a stream of their own; while the host updates a
// group, the new weights of the one before are copied back, and from files the states of the next are read and those of the last
// written. DeepSpeed calls this offload. Weights are new on the device when work that is enqueued after step() begins.
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
  std::string name = "adam";  // adam (that is AdamW), lamb, lion or adagrad
  double beta1 = 0.9;
  double beta2 = 0.95;  // Adagrad has no betas
  double eps = 1e-8;
  double weight_decay = 0.05;  // of parameters that decay
  Placement placement = Placement::Device;
  // Of Placement::Files: an existing directory on a disk, in which the optimizer makes a file of its own and removes it at its end.
  std::filesystem::path directory;
};

class Optimizer {
 public:
  // For allocated parameters, whose masters must be on the host unless the placement is Device. Loads the builders' libraries,
  // which may compile. InvalidArgument for an unknown name or one that the placement does not have; what loading throws.
  static std::unique_ptr<Optimizer> make(Parameters& parameters, const OptimizerOptions& options);
  virtual ~Optimizer() = default;

  // The next backward pass is the last before step(): groups are copied to the host as they become ready. Without this call
  // step() copies them.
  virtual void expect_step() {}
  // Step number `step`, from 1 on: masters and weights are changed by the gradients times `scale`. Blocks where the host does the
  // work.
  virtual void step(int64_t step, double rate, double scale) = 0;

  // States by number: each is F32 of a parameter's shape, and its name is "exp_avg." and the parameter's name, or another word.
  virtual size_t state_count() const = 0;
  virtual std::string state_name(size_t index) const = 0;
  virtual const Parameter& state_of(size_t index) const = 0;
  // Host memory, contiguous. Block.
  virtual Tensor state(size_t index) = 0;
  virtual void set_state(size_t index, const Tensor& value) = 0;
};

}  // namespace anyaccel::nn
