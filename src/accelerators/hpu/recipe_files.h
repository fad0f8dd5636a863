// Keeps recipes in the cache folder (base/files/image_cache.h), so that a process compiles only what no earlier one has. A file is
// found by everything that a recipe depends on: the call's shapes and types, the kind of device, Synapse's library and driver.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "accelerators/hpu/hpu_api.h"

namespace anyaccel::hpu {

class RecipeFiles {
 public:
  // `device_type`: a synDeviceType.
  RecipeFiles(const Api& api, int device_type);

  // A recipe, which is then the caller's: the kept one of this op's name and of these shapes and types, else what `compile` gives,
  // which is kept. A file that is damaged, or that Synapse refuses, is made again; where none can be kept there is a warning.
  void* get(const char* op, const std::vector<int64_t>& shapes, const std::function<void*()>& compile) const;

 private:
  std::string serialized(void* recipe) const;

  const Api& api_;
  std::string maker_;  // what compiled it; empty: nothing is kept
};

}  // namespace anyaccel::hpu
