// Implements quantizers.h, the functions behind ops::Quantizer and ops::FPQuantizer as portable kernels.
#include "ops/portable/quantizers.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "anyaccel/tensor.h"
#include "runtime/ops/kernel_arguments.h"

namespace anyaccel::ops::portable {
namespace {

using aa_u64 = uint64_t;
#include "kernels/portable/quantizer_arguments.h"

// The kernels of quantizer.cl and of fp_quantizer.cl.
enum Integers : size_t { quant_scales, quant_store, quant_fake, quant_load, quant_sum, quant_to_half };
enum Floats : size_t { fp_scales, fp_store, fp_load };
// Those of quant_teams.cl, and of fp_teams.cl.
enum OfTeams : size_t { team_store, team_store_random, team_load };

// AA_FOURS of quant_teams.cl and of fp_teams.cl.
int32_t fours_of_integers(int32_t dtype) { return dtype == AA_DTYPE_F32 ? 4 : 8; }
constexpr int32_t fours_of_floats = 4;
constexpr int64_t most_grid_parts = 65535;  // that dimension 1 of a grid takes everywhere

LaunchShape items_shape(int64_t count, const aa_kernel_tuning& tuning) {
  return {.grid = {groups_for(count, tuning.items), 1, 1}, .block = {static_cast<uint32_t>(tuning.items), 1, 1}};
}

aa_quant_groups cut(int64_t groups, int64_t group_size, int64_t part) {
  return {groups, group_size, part, (group_size + part - 1) / part};
}
// Cuts groups for items that work alone, into parts of a whole number of bytes in every format. An item that is a
// thread of a processor takes a larger part.
aa_quant_groups cut_for_items(int64_t groups, int64_t group_size, const aa_kernel_tuning& tuning) {
  return cut(groups, group_size, tuning.group_size == 1 ? 256 : 8);
}

// Enqueues the kernel of quant_ranges.cl. Its result, and the groups as they are cut here, are inputs of the kernel
// that computes the scales.
Tensor find_ranges(DriverAccelerator& accelerator, KernelSet& kernels, const void* x, const void* error,
                   aa_quant_groups& groups, const aa_quant_options& options, int device) {
  // Groups are cut so that more than one group of items works on each; not into more parts than one item can combine.
  constexpr int64_t most_parts = 1024;
  const int64_t smallest = int64_t{256} * std::max(kernels.tuning(device).group_size, 16);
  groups = cut(groups.groups, groups.group_size, std::max(smallest, (groups.group_size + most_parts - 1) / most_parts));
  const int64_t count = groups.groups * groups.parts;
  Tensor ranges = Tensor::empty({count, 2}, DType::F32, accelerator.device(device));
  const auto group_size = static_cast<uint32_t>(kernels.tuning(device).group_size);
  kernels.launch(0, device, {.grid = {groups_for(count, 1), 1, 1}, .block = {group_size, 1, 1}}, x, error, groups,
                 options, ranges.data());
  return ranges;
}

bool aligned(const void* array, size_t bytes) { return reinterpret_cast<uintptr_t>(array) % bytes == 0; }

// A launch of teams (kernels/portable/quant_teams.h).
struct Teams {
  aa_quant_teams kernel;
  LaunchShape shape;
  bool hold_groups;  // a team holds all of its group, as it must to compute the scale
};

// Returns the teams that read or write `floats` of `dtype`, each of their items up to `fours` fours at once, or nothing if
// kernels with teams do not take the call. They are for devices with sub-groups. `codes` are aligned to `code_bytes`.
std::optional<Teams> teams_for(int64_t groups, int64_t group_size, const void* floats, int32_t dtype, int32_t fours,
                               const void* codes, size_t code_bytes, const aa_kernel_tuning& tuning) {
  if (tuning.subgroup_size == 0 || tuning.group_size == 1 || group_size % 4 != 0 ||
      !aligned(floats, dtype == AA_DTYPE_F32 ? 16 : 8) || !aligned(codes, code_bytes)) {
    return {};
  }
  const int64_t all = group_size / 4;
  const auto wanted = std::bit_ceil(static_cast<uint64_t>((all + fours - 1) / fours));
  const auto width = static_cast<int32_t>(
      std::clamp<uint64_t>(wanted, static_cast<uint64_t>(tuning.lanes), static_cast<uint64_t>(tuning.group_size)));
  const int64_t at_once = int64_t{fours} * width, parts = (all + at_once - 1) / at_once;
  if (parts > most_grid_parts) return {};
  const int64_t teams = tuning.group_size / width;
  return Teams{{groups, all, width, std::countr_zero(static_cast<uint32_t>(width)), teams},
               {.grid = {groups_for(groups, teams), static_cast<uint32_t>(parts), 1},
                .block = {static_cast<uint32_t>(tuning.group_size), 1, 1}},
               parts == 1};
}

aa_quant_options options_of(const aa_quantize_args& a) {
  return {a.bits, a.asymmetric, a.dtype, a.error ? a.error_dtype : 0, a.error_beta, a.stochastic, a.seed, a.offset};
}

// Returns the options of a call that only reads quantized values.
aa_quant_options options_of(int32_t bits, int32_t asymmetric, int32_t dtype) {
  return {bits, asymmetric, dtype, 0, 0, 0, 0, 0};
}

}  // namespace

QuantizerKernels::QuantizerKernels(DriverAccelerator& accelerator)
    : accelerator_(accelerator),
      ranges_(accelerator, "quant_ranges.cl", {"quant_ranges"}),
      kernels_(accelerator, "quantizer.cl",
               {"quant_scales", "quant_store", "quant_fake", "quant_load", "quant_sum", "quant_to_half"}),
      teams_(accelerator, "quant_teams.cl", {"quant_team", "quant_team_random", "quant_team_load"},
             KernelSet::Types::x) {}

void QuantizerKernels::quantize(const aa_quantize_args& a, int device) {
  const aa_kernel_tuning& tuning = kernels_.tuning(device);
  const aa_quant_options options = options_of(a);
  const aa_quant_order order{a.nodes, a.devices, a.pipeline, a.groups / (a.nodes * a.devices * a.pipeline)};
  const auto teams = teams_for(a.groups, a.group_size, a.x, a.dtype, fours_of_integers(a.dtype), a.values,
                               a.bits == 8 ? 4 : 2, tuning);
  if (teams && teams->hold_groups && a.error == nullptr) {
    const Element x = element_of(a.dtype);
    teams_.launch_for(a.stochastic ? team_store_random : team_store, device, x, x, teams->shape, a.x, teams->kernel,
                      order, options, a.values, a.params);
    return;
  }
  aa_quant_groups groups{a.groups, a.group_size, 0, 0};
  const Tensor ranges = find_ranges(accelerator_, ranges_, a.x, a.error, groups, options, device);
  kernels_.launch(quant_scales, device, items_shape(a.groups, tuning), ranges.data(), groups, order, options, a.params);
  const aa_quant_groups parts = cut_for_items(a.groups, a.group_size, tuning);
  kernels_.launch(quant_store, device, items_shape(parts.groups * parts.parts, tuning), a.x, a.error, a.params, parts,
                  order, options, a.values);
}

void QuantizerKernels::fake(const aa_quantize_args& a, int device) {
  const aa_kernel_tuning& tuning = kernels_.tuning(device);
  const aa_quant_options options = options_of(a);
  const aa_quant_order order{1, 1, 1, a.groups};
  const Tensor params = Tensor::empty({a.groups, 2}, DType::F32, accelerator_.device(device));
  aa_quant_groups groups{a.groups, a.group_size, 0, 0};
  const Tensor ranges = find_ranges(accelerator_, ranges_, a.x, nullptr, groups, options, device);
  kernels_.launch(quant_scales, device, items_shape(a.groups, tuning), ranges.data(), groups, order, options,
                  params.data());
  const aa_quant_groups parts = cut_for_items(a.groups, a.group_size, tuning);
  kernels_.launch(quant_fake, device, items_shape(parts.groups * parts.parts, tuning), a.x, params.data(), parts,
                  options);
}

void QuantizerKernels::dequantize(const aa_dequantize_args& a, int device) {
  const aa_kernel_tuning& tuning = kernels_.tuning(device);
  const auto teams = teams_for(a.groups, a.group_size, a.out, a.dtype, fours_of_integers(a.dtype), a.values,
                               a.bits == 8 ? 4 : 2, tuning);
  if (teams) {
    const Element x = element_of(a.dtype);
    teams_.launch_for(team_load, device, x, x, teams->shape, a.values, a.params, teams->kernel,
                      options_of(a.bits, a.asymmetric, a.dtype), a.out);
    return;
  }
  const aa_quant_groups parts = cut_for_items(a.groups, a.group_size, tuning);
  kernels_.launch(quant_load, device, items_shape(parts.groups * parts.parts, tuning), a.values, a.params, parts,
                  options_of(a.bits, a.asymmetric, a.dtype), a.out);
}

void QuantizerKernels::quantized_reduction(const aa_quantized_reduction_args& a, int device) {
  const aa_kernel_tuning& tuning = kernels_.tuning(device);
  const Tensor sum = Tensor::empty({a.count}, DType::F32, accelerator_.device(device));
  const aa_quant_chunks chunks{a.chunks, a.count, a.in_group_size, cut_for_items(1, a.count, tuning).part};
  kernels_.launch(quant_sum, device, items_shape((a.count + chunks.part - 1) / chunks.part, tuning), a.values, a.params,
                  chunks, options_of(a.bits, a.asymmetric, AA_DTYPE_F32), sum.data());
  aa_quantize_args quantized{};
  quantized.x = sum.data();
  quantized.dtype = AA_DTYPE_F32;
  quantized.bits = a.bits;
  quantized.asymmetric = a.asymmetric;
  quantized.groups = a.count / a.out_group_size;
  quantized.group_size = a.out_group_size;
  quantized.values = a.out_values;
  quantized.params = a.out_params;
  quantized.nodes = quantized.devices = quantized.pipeline = 1;
  quantized.error = a.error;
  quantized.error_dtype = a.error_dtype;
  quantized.error_beta = a.error_beta;
  quantize(quantized, device);
}

void QuantizerKernels::dequantize_to_half(const aa_dequantize_to_half_args& a, int device) {
  const aa_kernel_tuning& tuning = kernels_.tuning(device);
  const aa_quant_groups parts = cut_for_items(a.groups, a.group_size, tuning);
  kernels_.launch(quant_to_half, device, items_shape(parts.groups * parts.parts, tuning), a.values, a.scale, a.minimum,
                  parts, options_of(a.bits, 0, AA_DTYPE_F16), a.out);
}

FPQuantizerKernels::FPQuantizerKernels(DriverAccelerator& accelerator)
    : accelerator_(accelerator),
      ranges_(accelerator, "quant_ranges.cl", {"quant_ranges"}),
      kernels_(accelerator, "fp_quantizer.cl", {"fp_scales", "fp_store", "fp_load"}),
      teams_(accelerator, "fp_teams.cl", {"fp_team", "fp_team_random", "fp_team_load"}, KernelSet::Types::x) {}

void FPQuantizerKernels::quantize(const aa_fp_quantize_args& a, int device) {
  const aa_kernel_tuning& tuning = kernels_.tuning(device);
  const aa_quant_options options{a.format.bits, 0, a.dtype, 0, 0, a.stochastic, a.seed, a.offset};
  const auto numbers = std::bit_cast<aa_fp_numbers>(a.format);
  const auto teams = teams_for(a.groups, a.group_size, a.x, a.dtype, fours_of_floats, a.out, 4, tuning);
  if (teams && teams->hold_groups) {
    const Element x = element_of(a.dtype);
    teams_.launch_for(a.stochastic ? team_store_random : team_store, device, x, x, teams->shape, a.x, teams->kernel,
                      numbers, options, a.out);
    return;
  }
  aa_quant_groups groups{a.groups, a.group_size, 0, 0};
  const Tensor ranges = find_ranges(accelerator_, ranges_, a.x, nullptr, groups, options, device);
  kernels_.launch(fp_scales, device, items_shape(a.groups, tuning), ranges.data(), groups, numbers, a.out);
  const aa_quant_groups parts = cut_for_items(a.groups, a.group_size, tuning);
  kernels_.launch(fp_store, device, items_shape(parts.groups * parts.parts, tuning), a.x, parts, numbers, options,
                  a.out);
}

void FPQuantizerKernels::dequantize(const aa_fp_dequantize_args& a, int device) {
  const aa_kernel_tuning& tuning = kernels_.tuning(device);
  const int64_t groups_per_row = a.rows == nullptr ? 0 : a.groups_per_row;
  const auto teams = teams_for(a.groups, a.group_size, a.out, a.dtype, fours_of_floats, a.codes, 4, tuning);
  if (teams) {
    const Element x = element_of(a.dtype);
    teams_.launch_for(team_load, device, x, x, teams->shape, a.codes, a.rows, groups_per_row, teams->kernel,
                      std::bit_cast<aa_fp_numbers>(a.format), a.out);
    return;
  }
  const aa_quant_groups parts = cut_for_items(a.groups, a.group_size, tuning);
  kernels_.launch(fp_load, device, items_shape(parts.groups * parts.parts, tuning), a.codes, a.rows, groups_per_row,
                  parts, std::bit_cast<aa_fp_numbers>(a.format), int64_t{a.dtype}, a.out);
}

}  // namespace anyaccel::ops::portable
