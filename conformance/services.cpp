// Implements services.h. Memory comes from the driver and is kept in one list for each stream until the device is
// closed.
#include "conformance/services.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "anyaccel/abi/driver_class.hpp"
#include "anyaccel/abi/sized.hpp"
#include "runtime/driver/host_services.h"

namespace anyaccel::conformance {
namespace {

const aa_driver* driver = nullptr;
const aa_host* services = nullptr;
OpenedWith opened_with;

struct Block {
  void* pointer;
  size_t size;
};

class HostDevice;

struct HostStream final : aa_host_stream {
  HostDevice* owner = nullptr;
  bool captures = false;
  std::vector<Block> free;   // in the stream's order
  std::vector<Block> spoil;  // the part of `free` that was released since spoil_scratch
};

// One block in use.
struct Lent {
  Block block;
  HostStream* stream;  // null: idle memory
};

std::mutex mutex;  // of all lists below; no function of the driver is called under it
std::map<aa_device*, std::unique_ptr<HostDevice>> devices;
std::map<aa_stream*, std::unique_ptr<HostStream>> streams;
std::atomic<int64_t> ordered_in_use{0};
// Requests that are granted before one is refused; negative: all are.
std::atomic<int64_t> requests_left{-1};
std::atomic<bool> has_refused{false};

aa_status* failure(aa_code code, const std::string& message) {
  return services->status_create(services, code, 0, message.data(), message.size());
}

class HostDevice final : public aa_host_device {
 public:
  virtual ~HostDevice() = default;

  void acquire_scratch(aa_scratch& scratch) override {
    auto* stream = static_cast<HostStream*>(scratch.stream);
    const bool idle = (scratch.flags & AA_SCRATCH_IDLE) != 0;
    if (idle == (stream != nullptr)) {
      throw abi::Failure(AA_INVALID_ARGUMENT,
                         "scratch memory is ordered by a stream, or it is idle memory of a device");
    }
    if (stream && requests_left >= 0 && requests_left-- == 0) {
      has_refused = true;
      throw abi::Failure(AA_RESOURCE_EXHAUSTED, "no scratch memory: the conformance suite refuses this request");
    }
    Block found{nullptr, 0};
    {
      const std::lock_guard lock(mutex);
      std::vector<Block>& free = stream ? stream->free : free_;
      const auto fits = [&](const Block& block) {
        return block.size >= scratch.size && block.size / 2 <= scratch.size;
      };
      const auto place = std::ranges::find_if(free, fits);
      if (place != free.end()) {
        found = *place;
        free.erase(place);
        if (stream) std::erase_if(stream->spoil, [&](const Block& block) { return block.pointer == found.pointer; });
      }
    }
    if (!found.pointer) found = allocate(scratch.size);
    const std::lock_guard lock(mutex);
    lent_.push_back({found, stream});
    if (stream) ++ordered_in_use;
    scratch.pointer = found.pointer;
    scratch.owner = this;
  }

  void release_scratch(aa_scratch& scratch) noexcept override {
    const std::lock_guard lock(mutex);
    const auto place = std::ranges::find_if(lent_, [&](const Lent& l) { return l.block.pointer == scratch.pointer; });
    if (place == lent_.end()) return;
    const Lent lent = *place;
    lent_.erase(place);
    if (!lent.stream) {
      free_.push_back(lent.block);
      return;
    }
    --ordered_in_use;
    if (lent.stream->captures) {
      of_graphs_.push_back(lent.block);
    } else {
      lent.stream->free.push_back(lent.block);
      lent.stream->spoil.push_back(lent.block);
    }
  }

  size_t reclaim() override {
    std::vector<Block> blocks;
    {
      const std::lock_guard lock(mutex);
      blocks = std::exchange(free_, {});
    }
    return give_back(blocks);
  }

  // The stream has been destroyed, so its work is complete.
  void take_over(const HostStream& stream) { free_.insert(free_.end(), stream.free.begin(), stream.free.end()); }

  // Called before the device is closed. Returns the number of blocks that were not released.
  size_t end() {
    std::vector<Block> blocks;
    size_t missing = 0;
    {
      const std::lock_guard lock(mutex);
      blocks = std::exchange(free_, {});
      blocks.insert(blocks.end(), of_graphs_.begin(), of_graphs_.end());
      missing = lent_.size();
      for (const Lent& lent : lent_) blocks.push_back(lent.block);
    }
    give_back(blocks);
    return missing;
  }

  aa_device* device = nullptr;

 private:
  Block allocate(size_t size) {
    aa_status* status = nullptr;
    for (int attempt = 0; attempt < 2; ++attempt) {
      auto what = abi::sized<aa_alloc>();
      what.kind = AA_MEMORY_DEVICE;
      what.numa_node = -1;
      what.size = size;
      auto given = abi::sized<aa_allocation>();
      status = driver->mem_alloc(driver->self, device, &what, &given);
      if (!status) return {given.pointer, size};
      if (attempt == 1 || status_code(status) != AA_RESOURCE_EXHAUSTED || reclaim() == 0) break;
      release_status(status);
    }
    const abi::Failure refused(status_code(status), std::string("no scratch memory: ") + status_message(status));
    release_status(status);
    throw refused;
  }

  size_t give_back(const std::vector<Block>& blocks) const {
    size_t bytes = 0;
    for (const Block& block : blocks) {
      auto what = abi::sized<aa_allocation>();
      what.kind = AA_MEMORY_DEVICE;
      what.pointer = block.pointer;
      what.size = block.size;
      release_status(driver->mem_free(driver->self, device, &what));
      bytes += block.size;
    }
    return bytes;
  }

  std::vector<Block> free_;  // idle
  std::vector<Block> of_graphs_;
  std::vector<Lent> lent_;
};

HostDevice* host_device(aa_device* device) {
  const std::lock_guard lock(mutex);
  const auto found = devices.find(device);
  return found == devices.end() ? nullptr : found->second.get();
}

}  // namespace

void use_services(const aa_driver* next, const aa_host* host, const OpenedWith& with) {
  driver = next;
  services = host;
  opened_with = with;
  streams.clear();
  devices.clear();
  ordered_in_use = 0;
  requests_left = -1;
}

aa_status* initialize_with_services(const aa_initialize_params* params, aa_instance** out_instance) {
  aa_initialize_params all = *params;
  std::vector<aa_option> options;
  if (opened_with.options && params->option_count == 0) {
    options = opened_with.options->for_driver();
    all.options = options.data();
    all.option_count = static_cast<uint32_t>(options.size());
  }
  if (!all.library_path) all.library_path = opened_with.library_path;
  return driver->initialize(driver->self, &all, out_instance);
}

aa_status* open_with_services(aa_instance* instance, const aa_device_open_params* params, aa_device** out_device) {
  if (params->host_device) return driver->device_open(driver->self, instance, params, out_device);
  auto side = std::make_unique<HostDevice>();
  aa_device_open_params all = *params;
  all.host_device = side.get();
  std::vector<aa_option> options;
  if (opened_with.options && params->option_count == 0) {
    options = opened_with.options->for_device(params->index);
    all.options = options.data();
    all.option_count = static_cast<uint32_t>(options.size());
  }
  aa_status* status = driver->device_open(driver->self, instance, &all, out_device);
  if (!status && *out_device) {
    const std::lock_guard lock(mutex);
    side->device = *out_device;
    devices[*out_device] = std::move(side);
  }
  return status;
}

aa_status* close_with_services(aa_device* device) {
  HostDevice* side = host_device(device);
  const size_t missing = side ? side->end() : 0;
  aa_status* status = driver->device_close(driver->self, device);
  {
    const std::lock_guard lock(mutex);
    devices.erase(device);
  }
  if (status || missing == 0) return status;
  return failure(AA_FAILED_PRECONDITION, "device_close itself went well, but the driver had not given back " +
                                             std::to_string(missing) + " blocks of scratch memory");
}

aa_status* create_stream_with_services(aa_device* device, const aa_stream_params* params, aa_stream** out_stream) {
  HostDevice* owner = host_device(device);
  if (params->host_stream || !owner) return driver->stream_create(driver->self, device, params, out_stream);
  auto side = std::make_unique<HostStream>();
  side->device = owner;
  side->owner = owner;
  aa_stream_params all = *params;
  all.host_stream = side.get();
  aa_status* status = driver->stream_create(driver->self, device, &all, out_stream);
  if (!status && *out_stream) {
    const std::lock_guard lock(mutex);
    streams[*out_stream] = std::move(side);
  }
  return status;
}

aa_status* destroy_stream_with_services(aa_stream* stream) {
  std::unique_ptr<HostStream> side;
  {
    // Another stream may receive the same address before the call returns.
    const std::lock_guard lock(mutex);
    if (const auto found = streams.find(stream); found != streams.end()) {
      side = std::move(found->second);
      streams.erase(found);
    }
  }
  aa_status* status = driver->stream_destroy(driver->self, stream);
  if (side) {
    const std::lock_guard lock(mutex);
    side->owner->take_over(*side);
  }
  return status;
}

void note_capture(aa_stream* stream, bool captures) {
  const std::lock_guard lock(mutex);
  if (const auto found = streams.find(stream); found != streams.end()) found->second->captures = captures;
}

void refuse_scratch(int64_t requests) {
  has_refused = false;
  requests_left = requests;
}

bool end_refusing_scratch() {
  requests_left = -1;
  return has_refused;
}

int64_t scratch_in_use() { return ordered_in_use; }

void spoil_scratch(aa_stream* stream) {
  std::vector<Block> blocks;
  {
    const std::lock_guard lock(mutex);
    const auto found = streams.find(stream);
    if (found == streams.end() || found->second->captures) return;
    blocks = std::exchange(found->second->spoil, {});
  }
  for (const Block& block : blocks) {
    auto fill = abi::sized<aa_fill>();
    fill.destination = block.pointer;
    fill.size = block.size;
    fill.pattern_size = 1;
    fill.pattern[0] = 0xFF;
    release_status(driver->fill_async(driver->self, stream, &fill));
  }
}

}  // namespace anyaccel::conformance
