// The one table that lists the accelerators and op builders of this build, in detection order.
#include "runtime/builtins.h"

#include "accelerators/cpu/cpu_driver.h"
#include "accelerators/cpu/kernels/matmul_choice.h"
#include "accelerators/cpu/memory.h"
#include "accelerators/cuda/compile/nvcc.h"
#include "accelerators/cuda/cuda_driver.h"
#include "accelerators/hpu/hpu_driver.h"
#include "accelerators/mlu/mlu_driver.h"
#include "accelerators/mps/mps_driver.h"
#include "accelerators/npu/npu_driver.h"
#include "accelerators/null/null_driver.h"
#include "accelerators/sdaa/sdaa_driver.h"
#include "accelerators/xpu/xpu_driver.h"
#include "anyaccel/log.h"
#include "base/process/toolchain.h"
#include "base/simd/cpu_features.h"
#include "comm/builders.h"
#include "comm/comms_log.h"
#include "ops/build/source_languages.h"
#include "ops/builders.h"
#include "ops/dispatch/fallback.h"
#include "ops/portable/kernel_set.h"
#include "ops/portable/portable_ops.h"
#include "runtime/environment.h"
#include "runtime/layers/layers.h"
#include "runtime/layers/trace.h"
#include "runtime/range_trace.h"

namespace anyaccel {

std::span<const BuiltinDriver> builtin_drivers() {
  static constexpr BuiltinDriver drivers[] = {
      {"xpu", anyaccel_xpu_driver_query, 90, "cuda", true, "an Intel GPU driver (Level Zero or OpenCL)"},
      {"npu", anyaccel_npu_driver_query, 80, nullptr, true, "CANN (libascendcl.so)"},
      {"sdaa", anyaccel_sdaa_driver_query, 70, nullptr, true, "Tecorigin's runtime (libsdaart.so)"},
      {"mps", anyaccel_mps_driver_query, 60, nullptr, true, "macOS on Apple silicon (Metal)"},
      {"hpu", anyaccel_hpu_driver_query, 50, nullptr, true, "Synapse (libSynapse.so)"},
      {"mlu", anyaccel_mlu_driver_query, 40, nullptr, true, "Neuware (libcnrt.so)"},
      {"cuda", anyaccel_cuda_driver_query, 30, nullptr, true, "an NVIDIA driver (libcuda.so.1), or ROCm"},
      {"cpu", anyaccel_cpu_driver_query, 10, nullptr, true, ""},
      {"null", anyaccel_null_driver_query, 0, nullptr, false, ""},
  };
  return drivers;
}

std::span<const BuiltinOpBuilder> builtin_op_builders() {
  static constexpr BuiltinOpBuilder builders[] = {
      {"AsyncIOBuilder", "async_io", "DS_BUILD_AIO", ops::make_async_io_builder},
      {"CCLCommBuilder", "deepspeed_ccl_comm", "DS_BUILD_CCL_COMM", ops::make_ccl_comm_builder},
      {"CPUAdagradBuilder", "cpu_adagrad", "DS_BUILD_CPU_ADAGRAD", ops::make_cpu_adagrad_builder},
      {"CPUAdamBuilder", "cpu_adam", "DS_BUILD_CPU_ADAM", ops::make_cpu_adam_builder},
      {"CPULionBuilder", "cpu_lion", "DS_BUILD_CPU_LION", ops::make_cpu_lion_builder},
      {"DeepCompileBuilder", "dc", "DS_BUILD_DEEP_COMPILE", ops::make_deep_compile_builder},
      {"EvoformerAttnBuilder", "evoformer_attn", "DS_BUILD_EVOFORMER_ATTN", ops::make_evoformer_attn_builder},
      {"FPQuantizerBuilder", "fp_quantizer", "DS_BUILD_FP_QUANTIZER", ops::make_fp_quantizer_builder},
      {"FlashAttentionBuilder", "flash_attn", "DS_BUILD_FlashAttention", ops::make_flash_attention_builder},
      {"FusedAdamBuilder", "fused_adam", "DS_BUILD_FUSED_ADAM", ops::make_fused_adam_builder},
      {"FusedLambBuilder", "fused_lamb", "DS_BUILD_FUSED_LAMB", ops::make_fused_lamb_builder},
      {"FusedLionBuilder", "fused_lion", "DS_BUILD_FUSED_LION", ops::make_fused_lion_builder},
      {"GDSBuilder", "gds", "DS_BUILD_GDS", ops::make_gds_builder},
      {"InferenceBuilder", "transformer_inference", "DS_BUILD_TRANSFORMER_INFERENCE", ops::make_inference_builder},
      {"InferenceCoreBuilder", "inference_core_ops", "DS_BUILD_INFERENCE_CORE_OPS", ops::make_inference_core_builder},
      {"InferenceCutlassBuilder", "cutlass_ops", "DS_BUILD_CUTLASS_OPS", ops::make_inference_cutlass_builder},
      {"PackbitsBuilder", "pack_bits", "DS_BUILD_PACK_BITS", ops::make_packbits_builder},
      {"PinMemoryBuilder", "pin_memory", "DS_BUILD_PIN_MEMORY", ops::make_pin_memory_builder},
      {"QuantizerBuilder", "quantizer", "DS_BUILD_QUANTIZER", ops::make_quantizer_builder},
      {"RaggedOpsBuilder", "ragged_device_ops", "DS_BUILD_RAGGED_DEVICE_OPS", ops::make_ragged_ops_builder},
      {"RaggedUtilsBuilder", "ragged_ops", "DS_BUILD_RAGGED_OPS", ops::make_ragged_utils_builder},
      {"RandomLTDBuilder", "random_ltd", "DS_BUILD_RANDOM_LTD", ops::make_random_ltd_builder},
      {"ShareMemCommBuilder", "deepspeed_shm_comm", "DS_BUILD_SHM_COMM", ops::make_share_mem_comm_builder},
      {"SparseAttnBuilder", "sparse_attn", "DS_BUILD_SPARSE_ATTN", ops::make_sparse_attn_builder},
      {"SpatialInferenceBuilder", "spatial_inference", "DS_BUILD_SPATIAL_INFERENCE",
       ops::make_spatial_inference_builder},
      {"StochasticTransformerBuilder", "stochastic_transformer", "DS_BUILD_STOCHASTIC_TRANSFORMER",
       ops::make_stochastic_transformer_builder},
      {"TransformerBuilder", "transformer", "DS_BUILD_TRANSFORMER", ops::make_transformer_builder},
      {"UtilsBuilder", "utils", "DS_BUILD_UTILS", ops::make_utils_builder},
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
      {"ANYACCEL_COMM_BACKEND", nullptr},
      {"ANYACCEL_CPU_ISA", [] { cpu::isa(); }},
      {"ANYACCEL_CPU_MATMUL", [] { cpu::matmul_mode(); }},
      {"ANYACCEL_CPU_OVERCOMMIT", [] { cpu::overcommits(); }},
      {"ANYACCEL_CUDA_DEVICES", [] { check_count("ANYACCEL_CUDA_DEVICES", "no device is shown"); }},
      {"ANYACCEL_CUDA_LIBRARY_PATH", nullptr},
      {"ANYACCEL_FALLBACK", [] { ops::fallback_is_error(); }},
      {"ANYACCEL_HPU_LIBRARY_PATH", nullptr},
      {"ANYACCEL_JOB_HOSTS", nullptr},
      {"ANYACCEL_JOB_TOKEN", nullptr},
      {"ANYACCEL_JOIN_TIMEOUT", nullptr},
      {"ANYACCEL_KERNEL_TUNING", ops::portable::check_tuning_variable},
      {"ANYACCEL_LAUNCH_JOB", nullptr},
      {"ANYACCEL_LAYERS", check_layers_variable},
      {"ANYACCEL_LOG", [] { log_level(); }},
      {"ANYACCEL_MLU_LIBRARY_PATH", nullptr},
      {"ANYACCEL_MPS_LIBRARY_PATH", nullptr},
      {"ANYACCEL_NPU_LIBRARY_PATH", nullptr},
      {"ANYACCEL_OPENCL_DEVICE_TYPE",
       [] {
         check_choice("ANYACCEL_OPENCL_DEVICE_TYPE", {"gpu", "cpu"});
       }},
      {"ANYACCEL_PLUGIN_PATH", nullptr},
      {"ANYACCEL_SDAA_LIBRARY_PATH", nullptr},
      {"ANYACCEL_TRACE", check_trace_file},
      {"ANYACCEL_TRACE_CALLS", layers::check_trace_calls_file},
      {"ANYACCEL_WEIGHT_PAGES",
       [] {
         check_choice("ANYACCEL_WEIGHT_PAGES", {"file", "large"});
       }},
      {"ANYACCEL_XPU_RUNTIME",
       [] {
         check_choice("ANYACCEL_XPU_RUNTIME", {"level_zero", "opencl"});
       }},
      {"DS_ALLOW_DEPRECATED_FP16",
       [] {
         check_choice("DS_ALLOW_DEPRECATED_FP16", {"0", "1"});
       }},
      {"LOCAL_SIZE", [] { check_count("LOCAL_SIZE", "the CPU has one device for each NUMA node"); }},
      {"MAX_JOBS", [] { max_jobs(); }},
      {"OMP_NUM_THREADS", [] { check_count("OMP_NUM_THREADS", "one thread is used for each core of this process"); }},
  };
  return variables;
}

std::unique_ptr<PortableOps> make_portable_ops(DriverAccelerator& accelerator) {
  return ops::portable::make_portable_ops(accelerator);
}

std::unique_ptr<OpBuilder> make_driver_op_builder(const DriverOpBuilder& builder, DriverAccelerator& accelerator) {
  return ops::make_driver_op_builder(builder, accelerator);
}

std::span<const ops::SourceLanguage> ops::source_languages() {
  static constexpr SourceLanguage languages[] = {
      {".cu", cuda::nvcc, cuda::nvcc_flags, cuda::nvcc_command, cuda::nvcc_link_flags},
  };
  return languages;
}

}  // namespace anyaccel
