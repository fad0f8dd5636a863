// The one table that lists the accelerators and op builders of this build, in detection order.
#include "runtime/builtins.h"

#include "accelerators/cpu/driver.h"
#include "accelerators/cuda/driver.h"
#include "accelerators/cuda/nvcc.h"
#include "accelerators/null/driver.h"
#include "accelerators/xpu/driver.h"
#include "comm/builders.h"
#include "ops/builders.h"
#include "ops/portable/portable_ops.h"
#include "ops/toolchain.h"

namespace anyaccel {

std::span<const BuiltinDriver> builtin_drivers() {
  static constexpr BuiltinDriver drivers[] = {
      {"xpu", anyaccel_xpu_driver_query, "cuda", true, "an Intel GPU driver (Level Zero or OpenCL)"},
      {"npu", nullptr, nullptr, true, "Ascend CANN (ASCEND_HOME_PATH)"},
      {"sdaa", nullptr, nullptr, true, "the Tecorigin driver (libsdaart.so)"},
      {"mps", nullptr, nullptr, true, "macOS on Apple silicon"},
      {"hpu", nullptr, nullptr, true, "Habana SynapseAI (libSynapse.so)"},
      {"mlu", nullptr, nullptr, true, "Cambricon Neuware (libcnrt.so)"},
      {"cuda", anyaccel_cuda_driver_query, nullptr, true, "an NVIDIA driver (libcuda.so.1), or ROCm"},
      {"cpu", anyaccel_cpu_driver_query, nullptr, true, "nothing"},
      {"null", anyaccel_null_driver_query, nullptr, false, "nothing"},
  };
  return drivers;
}

std::span<const BuiltinOpBuilder> builtin_op_builders() {
  static constexpr BuiltinOpBuilder builders[] = {
      {"AsyncIOBuilder", ops::make_async_io_builder},
      {"CCLCommBuilder", nullptr},
      {"CPUAdagradBuilder", ops::make_cpu_adagrad_builder},
      {"CPUAdamBuilder", ops::make_cpu_adam_builder},
      {"CPULionBuilder", ops::make_cpu_lion_builder},
      {"EvoformerAttnBuilder", nullptr},
      {"FPQuantizerBuilder", ops::make_fp_quantizer_builder},
      {"FusedAdamBuilder", ops::make_fused_adam_builder},
      {"FusedLambBuilder", ops::make_fused_lamb_builder},
      {"FusedLionBuilder", ops::make_fused_lion_builder},
      {"GDSBuilder", nullptr},
      {"InferenceBuilder", ops::make_inference_builder},
      {"InferenceCoreBuilder", nullptr},
      {"PinMemoryBuilder", ops::make_pin_memory_builder},
      {"QuantizerBuilder", ops::make_quantizer_builder},
      {"RaggedOpsBuilder", nullptr},
      {"RandomLTDBuilder", nullptr},
      {"ShareMemCommBuilder", ops::make_share_mem_comm_builder},
      {"SparseAttnBuilder", nullptr},
      {"SpatialInferenceBuilder", nullptr},
      {"StochasticTransformerBuilder", nullptr},
      {"TransformerBuilder", nullptr},
      {"UtilsBuilder", ops::make_utils_builder},
  };
  return builders;
}

std::unique_ptr<HostedOps> make_hosted_ops(DriverAccelerator& accelerator) {
  return ops::portable::make_portable_ops(accelerator);
}

std::span<const ops::SourceLanguage> ops::source_languages() {
  static constexpr SourceLanguage languages[] = {
      {".cu", cuda::nvcc, cuda::nvcc_flags, cuda::nvcc_command, cuda::nvcc_link_flags},
  };
  return languages;
}

}  // namespace anyaccel
