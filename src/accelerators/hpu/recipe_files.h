// Keeps recipes in the cache folder (base/files/image_cache.h), so that a process compiles only recipes that no earlier
// process has compiled. A file is found by everything on which a recipe depends: the calls, their shapes and types, the
// kind of device, Synapse's library and driver.
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

  // Returns a recipe, which the caller then owns: the stored one for this key (Step::key()), else the result of
  // `compile`, which is then stored. A file that is damaged, or that Synapse rejects, is created again;
  // if none can be stored, a warning is logged.
  void* get(const std::vector<int64_t>& key, const std::function<void*()>& compile) const;

 private:
  std::string serialized(void* recipe) const;

  const Api& api_;
  std::string maker_;  // identifies library, driver and device type; empty: nothing is stored
};

}  // namespace anyaccel::hpu
