// Implements checks.h: checks of values inside tensors.
#include "accelerators/cpu/kernels/checks.h"

#include <string>

#include "anyaccel/error.h"

namespace anyaccel::cpu {

void check_indices(const char* op, const char* name, const aa_tensor& indices, int64_t bound, const char* bound_text) {
  for (int64_t i = 0; i < indices.shape[0]; ++i) {
    const int64_t value = index_at(indices, i);
    if (value >= 0 && value < bound) [[likely]]
      continue;
    throw InvalidArgument(std::string(op) + ": " + name + "[" + std::to_string(i) + "] is " + std::to_string(value) +
                              ", expected 0 to " + std::to_string(bound - 1) + " (" + std::to_string(bound) + " " +
                              bound_text + ")",
                          AA_OUT_OF_RANGE);
  }
}

void check_targets(const char* op, const aa_tensor& targets, int64_t bound) {
  for (int64_t i = 0; i < targets.shape[0]; ++i) {
    const int64_t value = index_at(targets, i);
    if (value < bound) [[likely]]
      continue;
    throw InvalidArgument(std::string(op) + ": targets[" + std::to_string(i) + "] is " + std::to_string(value) +
                              ", expected at most " + std::to_string(bound - 1) + ", or below 0 for none",
                          AA_OUT_OF_RANGE);
  }
}

}  // namespace anyaccel::cpu
