// The one table that lists the accelerators and op builders of this build, in detection order.
#include "runtime/builtins.h"

#include "accelerators/cpu/cpu_features.h"
#include "accelerators/cpu/driver.h"
#include "accelerators/cpu/kernels/matmul_choice.h"
#include "accelerators/cpu/memory.h"
#include "accelerators/cuda/driver.h"
#include "accelerators/cuda/nvcc.h"
#include "accelerators/null/driver.h"
#include "accelerators/xpu/driver.h"
#include "anyaccel/log.h"
#include "comm/builders.h"
#include "comm/comms_log.h"
#include "ops/builders.h"
#include "ops/fallback.h"
#include "ops/portable/kernel_set.h"
#include "ops/portable/portable_ops.h"
#include "ops/toolchain.h"
#include "runtime/environment.h"
#include "runtime/layers/layers.h"
#include "runtime/layers/trace.h"
#include "runtime/trace.h"

namespace anyaccel {

std::span<const BuiltinDriver> builtin_drivers() {
  static constexpr BuiltinDriver drivers[] = {
      {"xpu", anyaccel_xpu_driver_query, "cuda", true, "an Intel GPU driver (Level Zero or OpenCL)"},
      {"npu", nullptr, nullptr, true, ""},
      {"sdaa", nullptr, nullptr, true, ""},
      {"mps", nullptr, nullptr, true, ""},
      {"hpu", nullptr, nullptr, true, ""},
      {"mlu", nullptr, nullptr, true, ""},
      {"cuda", anyaccel_cuda_driver_query, nullptr, true, "an NVIDIA driver (libcuda.so.1), or ROCm"},
      {"cpu", anyaccel_cpu_driver_query, nullptr, true, ""},
      {"null", anyaccel_null_driver_query, nullptr, false, ""},
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

std::span<const EnvironmentVariable> environment_variables() {
  static constexpr EnvironmentVariable variables[] = {
      {"ANYACCEL_AIO",
       [] {
         check_choice("ANYACCEL_AIO", {"auto", "uring", "threads"});
       }},
      {"ANYACCEL_CACHE_DIR", nullptr},
      {"ANYACCEL_COMMS_LOG", [] { comm::comms_log_from_environment(); }},
      {"ANYACCEL_CPU_ISA", [] { cpu::isa(); }},
      {"ANYACCEL_CPU_MATMUL", [] { cpu::matmul_mode(); }},
      {"ANYACCEL_CPU_OVERCOMMIT", [] { cpu::overcommits(); }},
      {"ANYACCEL_CUDA_DEVICES", [] { check_count("ANYACCEL_CUDA_DEVICES", "no device is shown"); }},
      {"ANYACCEL_CUDA_LIBRARY_PATH", nullptr},
      {"ANYACCEL_FALLBACK", [] { ops::fallback_is_error(); }},
      {"ANYACCEL_JOB_HOSTS", nullptr},
      {"ANYACCEL_JOB_TOKEN", nullptr},
      {"ANYACCEL_JOIN_TIMEOUT", nullptr},
      {"ANYACCEL_KERNEL_TUNING", ops::portable::check_tuning_variable},
      {"ANYACCEL_LAUNCH_JOB", nullptr},
      {"ANYACCEL_LAYERS", check_layers_variable},
      {"ANYACCEL_LOG", [] { log_level(); }},
      {"ANYACCEL_OPENCL_DEVICE_TYPE",
       [] {
         check_choice("ANYACCEL_OPENCL_DEVICE_TYPE", {"gpu", "cpu"});
       }},
      {"ANYACCEL_PLUGIN_PATH", nullptr},
      {"ANYACCEL_TRACE", check_trace_file},
      {"ANYACCEL_TRACE_CALLS", layers::check_trace_calls_file},
      {"ANYACCEL_XPU_RUNTIME",
       [] {
         check_choice("ANYACCEL_XPU_RUNTIME", {"level_zero", "opencl"});
       }},
      {"DS_ALLOW_DEPRECATED_FP16",
       [] {
         check_choice("DS_ALLOW_DEPRECATED_FP16", {"0", "1"});
       }},
      {"LOCAL_SIZE", [] { check_count("LOCAL_SIZE", "the CPU has one device for each NUMA node"); }},
      {"MAX_JOBS", [] { ops::max_jobs(); }},
      {"OMP_NUM_THREADS", [] { check_count("OMP_NUM_THREADS", "all processors of this process are used"); }},
  };
  return variables;
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
