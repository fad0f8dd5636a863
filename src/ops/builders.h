// Declares the op builders of this folder.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "anyaccel/op_builder.h"
#include "runtime/driver/driver_op_builders.h"
#include "runtime/ops/included_op_builder.h"

namespace anyaccel::ops {

// Builds a library of this project that is compiled on the machine where it runs, from kernels/host. `Wrapper` is
// constructed with the accelerator and the loaded functions.
template <class Wrapper>
class BundledOpBuilder final : public HostOpBuilder {
 public:
  BundledOpBuilder(std::string name, std::vector<std::string> sources, Accelerator& accelerator)
      : HostOpBuilder(std::move(name)), sources_(std::move(sources)), accelerator_(accelerator) {}
  std::vector<std::string> sources() const override { return sources_; }
  std::string folder() const override;

 protected:
  std::shared_ptr<OpLibrary> make_library(std::shared_ptr<HostOpLibrary> code) override {
    return std::make_shared<Wrapper>(accelerator_, std::move(code));
  }
  const void* wrapper_context() const override { return &accelerator_; }

 private:
  std::vector<std::string> sources_;
  Accelerator& accelerator_;
};

// Returns the folder with the sources of the bundled host ops: kernels/host of the source tree or of the installed
// package.
std::string bundled_sources_dir();

template <class Wrapper>
std::string BundledOpBuilder<Wrapper>::folder() const {
  return bundled_sources_dir();
}

// See runtime/driver/driver_op_builders.h.
std::unique_ptr<OpBuilder> make_driver_op_builder(const DriverOpBuilder& entry, DriverAccelerator& accelerator);

// "InferenceBuilder" loads ops::TransformerInference, which is an ops::Inference. Every accelerator has it, because
// each op falls back to the CPU.
std::unique_ptr<OpBuilder> make_inference_builder(Accelerator& accelerator);

// Optimizers, from kernels/host: ops::CPUAdam and so on.
std::unique_ptr<OpBuilder> make_cpu_adam_builder(Accelerator& accelerator);
std::unique_ptr<OpBuilder> make_cpu_adagrad_builder(Accelerator& accelerator);
std::unique_ptr<OpBuilder> make_cpu_lion_builder(Accelerator& accelerator);
std::unique_ptr<OpBuilder> make_fused_adam_builder(Accelerator& accelerator);
std::unique_ptr<OpBuilder> make_fused_lamb_builder(Accelerator& accelerator);
std::unique_ptr<OpBuilder> make_fused_lion_builder(Accelerator& accelerator);
// "AsyncIOBuilder", "PinMemoryBuilder", "UtilsBuilder".
std::unique_ptr<OpBuilder> make_async_io_builder(Accelerator& accelerator);
std::unique_ptr<OpBuilder> make_pin_memory_builder(Accelerator& accelerator);
std::unique_ptr<OpBuilder> make_utils_builder(Accelerator& accelerator);
// "TransformerBuilder", "StochasticTransformerBuilder": ops::Transformer.
std::unique_ptr<OpBuilder> make_transformer_builder(Accelerator& accelerator);
std::unique_ptr<OpBuilder> make_stochastic_transformer_builder(Accelerator& accelerator);
// "RandomLTDBuilder", "SpatialInferenceBuilder", "InferenceCoreBuilder", "FlashAttentionBuilder", "PackbitsBuilder".
std::unique_ptr<OpBuilder> make_random_ltd_builder(Accelerator& accelerator);
std::unique_ptr<OpBuilder> make_spatial_inference_builder(Accelerator& accelerator);
std::unique_ptr<OpBuilder> make_inference_core_builder(Accelerator& accelerator);
std::unique_ptr<OpBuilder> make_flash_attention_builder(Accelerator& accelerator);
std::unique_ptr<OpBuilder> make_packbits_builder(Accelerator& accelerator);
// "DeepCompileBuilder" says why it cannot be loaded.
std::unique_ptr<OpBuilder> make_deep_compile_builder(Accelerator& accelerator);
// "QuantizerBuilder", "FPQuantizerBuilder".
std::unique_ptr<OpBuilder> make_quantizer_builder(Accelerator& accelerator);
std::unique_ptr<OpBuilder> make_fp_quantizer_builder(Accelerator& accelerator);
// "SparseAttnBuilder", "EvoformerAttnBuilder".
std::unique_ptr<OpBuilder> make_sparse_attn_builder(Accelerator& accelerator);
std::unique_ptr<OpBuilder> make_evoformer_attn_builder(Accelerator& accelerator);
// "InferenceCutlassBuilder", "GDSBuilder".
std::unique_ptr<OpBuilder> make_inference_cutlass_builder(Accelerator& accelerator);
std::unique_ptr<OpBuilder> make_gds_builder(Accelerator& accelerator);
// "RaggedOpsBuilder", "RaggedUtilsBuilder".
std::unique_ptr<OpBuilder> make_ragged_ops_builder(Accelerator& accelerator);
std::unique_ptr<OpBuilder> make_ragged_utils_builder(Accelerator& accelerator);

}  // namespace anyaccel::ops
