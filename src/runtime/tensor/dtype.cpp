// Names of element types: see anyaccel/dtype.h.
#include "anyaccel/dtype.h"

#include <utility>

namespace anyaccel {

std::optional<DType> parse_dtype(std::string_view name) noexcept {
  constexpr std::pair<std::string_view, DType> kAliases[] = {
      {"fp32", DType::F32},  {"f32", DType::F32}, {"float", DType::F32},
      {"fp64", DType::F64},  {"f64", DType::F64}, {"double", DType::F64},
      {"fp16", DType::F16},  {"f16", DType::F16}, {"half", DType::F16},
      {"bf16", DType::BF16}, {"int", DType::I32}, {"long", DType::I64},
      {"short", DType::I16}, {"byte", DType::U8}, {"float8_e4m3", DType::F8E4M3},
  };
  constexpr std::string_view kTorch = "torch.";
  if (name.starts_with(kTorch)) name.remove_prefix(kTorch.size());
  for (int32_t i = AA_DTYPE_BOOL; i <= AA_DTYPE_F8_E5M2; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (name == dtype_name(dtype)) return dtype;
  }
  for (const auto& [alias, dtype] : kAliases) {
    if (name == alias) return dtype;
  }
  return std::nullopt;
}

}  // namespace anyaccel
