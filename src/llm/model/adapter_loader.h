// Loads LoRA adapters that are kept apart from a model's matrices: for each matrix, the factors of all adapters that change
// it, side by side (LowRank).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "anyaccel/device.h"
#include "anyaccel/dtype.h"
#include "anyaccel/llm/model.h"
#include "llm/model/decoder_tensors.h"
#include "llm/model/lora_adapter.h"

namespace anyaccel::llm {

class AdapterLoader {
 public:
  // Reads the adapters and checks that each changes matrices of these slots only; throws as LoadOptions::adapters says.
  AdapterLoader(const std::vector<NamedAdapter>& adapters, const std::vector<TensorSlot>& slots);

  std::vector<std::string> names() const;
  // Returns each adapter's range of the rows and columns that the factors of all have together.
  const std::vector<Slice>& ranks() const noexcept { return ranks_; }
  // Returns notes for the user.
  std::vector<std::string> notes() const;

  // Puts the factors for the rank's part of the slot's matrix on the device; without elements if no adapter changes it.
  // `part` is the range of the slot's split_dim. Not 0: `paired_rows` rows of each head are stored as pairs.
  LowRank place(const TensorSlot& slot, const Slice& part, int64_t paired_rows, DType dtype, Device device) const;

 private:
  struct Loaded {
    std::string name;
    LoraAdapter adapter;
  };
  std::vector<Loaded> adapters_;
  std::vector<Slice> ranks_;
};

// Returns the place of the factors for a slot's matrix; null if no adapter may change it.
LowRank LayerAdapters::*adapters_of(const TensorSlot& slot);

}  // namespace anyaccel::llm
