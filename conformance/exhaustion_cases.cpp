// Cases of running out of memory.
#include <algorithm>
#include <fstream>
#include <vector>

#include "conformance/context.h"

namespace anyaccel::conformance {
namespace exhaustion_group {
namespace {

constexpr int64_t megabyte = int64_t{1} << 20;

// Bytes of host memory that this process occupies; 0 if the system does not report it.
int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  return file >> total >> resident ? resident * 4096 : 0;
}

// Raw allocations of one size, freed in the destructor.
class Blocks {
 public:
  Blocks(const Context& c, size_t size) : c_(c), size_(size) {}
  ~Blocks() { free(); }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  // The status of mem_alloc; checks that an error wrote nothing.
  aa_status* add() {
    int place = 0;
    void* const untouched = &place;
    void* pointer = untouched;
    aa_status* status = c_.driver.mem_alloc(c_.device, AA_MEMORY_DEVICE, size_, &pointer);
    if (status) {
      wrote_ = wrote_ || pointer != untouched;
    } else {
      blocks_.push_back(pointer);
    }
    return status;
  }
  bool free() noexcept {
    bool good = true;
    for (void* block : blocks_) good &= c_.drop(c_.driver.mem_free(c_.device, AA_MEMORY_DEVICE, block, size_));
    blocks_.clear();
    return good;
  }
  size_t count() const noexcept { return blocks_.size(); }
  bool wrote() const noexcept { return wrote_; }

 private:
  const Context& c_;
  size_t size_;
  std::vector<void*> blocks_;
  bool wrote_ = false;
};

void is_usable(const Context& c, const std::string& when) {
  Memory memory(c, 100000);
  const Bytes data = pattern(100000, 1);
  c.upload(memory.data(), data.data(), data.size());
  expect_equal(c.download(memory.data(), data.size()), data, "a copy " + when);
}

void until_exhausted(const Context& c) {
  // Host memory is not exhausted on purpose, because other programs need it.
  if (c.has(AA_CAP_IS_HOST) || c.has(AA_CAP_HOST_COHERENT)) c.unavailable("the device's memory is the host's own");
  const int64_t total = c.props.total_memory;
  const int64_t most = c.props.max_allocation ? c.props.max_allocation : total;
  const int64_t size = std::min(most, std::max(megabyte, total / 16));
  const int64_t resident_before = resident_bytes();
  Blocks blocks(c, static_cast<size_t>(size));
  // A runtime may keep some memory in reserve, or provide a little more than it reports.
  const int64_t bound = total + total / 4 + size;
  bool exhausted = false;
  for (int64_t taken = 0; taken < bound && !exhausted; taken += size) {
    aa_status* status = blocks.add();
    if (status) {
      c.error(status, {AA_RESOURCE_EXHAUSTED}, "mem_alloc of block " + std::to_string(blocks.count() + 1));
      c.expect(!blocks.wrote(), "mem_alloc failed but wrote a pointer");
      exhausted = true;
    } else if (resident_bytes() - resident_before > 512 * megabyte) {
      c.expect(blocks.free(), "mem_free failed");
      c.unavailable("the device's memory takes the host's own: " + std::to_string(blocks.count()) + " blocks of " +
                    std::to_string(size / megabyte) + " MiB");
    }
  }
  const std::string figures =
      std::to_string(blocks.count()) + " blocks of " + std::to_string(size) + " bytes of " + std::to_string(total);
  c.expect(blocks.free(), "mem_free failed after the memory was used up");
  is_usable(c, "after the memory was used up and given back");
  if (!exhausted) c.unavailable("the runtime gave more than there is, " + figures + "; it over-commits");
  c.note = figures + ", then AA_RESOURCE_EXHAUSTED";
  // Freed memory can be allocated again.
  Blocks again(c, static_cast<size_t>(size));
  c.ok(again.add(), "mem_alloc after the memory was given back");
}

void more_than_one_allocation_may_have(const Context& c) {
  // One block larger than the device's limit: either refused or really allocated; the device stays usable in both
  // cases.
  const int64_t most = c.props.max_allocation ? c.props.max_allocation : c.props.total_memory;
  for (const int64_t size : {most + most / 2, most * 4, int64_t{1} << 52}) {
    Blocks blocks(c, static_cast<size_t>(size));
    aa_status* status = blocks.add();
    if (status) {
      c.error(status, {AA_RESOURCE_EXHAUSTED}, "mem_alloc of " + std::to_string(size) + " bytes");
      c.expect(!blocks.wrote(), "mem_alloc failed but wrote a pointer");
    } else {
      c.expect(size < int64_t{1} << 52, "mem_alloc gave 4 PiB");
      c.expect(blocks.free(), "mem_free of " + std::to_string(size) + " bytes failed");
    }
    is_usable(c, "after mem_alloc of " + std::to_string(size) + " bytes");
  }
}

void many_small_ones(const Context& c) {
  constexpr size_t count = 500;
  Blocks blocks(c, 256);
  for (size_t i = 0; i < count; ++i) c.ok(blocks.add(), "mem_alloc of small block " + std::to_string(i + 1));
  c.expect(blocks.free(), "mem_free of one of " + std::to_string(count) + " small blocks failed");
  is_usable(c, "after many small blocks");
}

constexpr Case cases[] = {
    {"exhaustion", "until_exhausted", until_exhausted},
    {"exhaustion", "more_than_one_allocation_may_have", more_than_one_allocation_may_have},
    {"exhaustion", "many_small_ones", many_small_ones},
};

}  // namespace
}  // namespace exhaustion_group

std::span<const Case> exhaustion_cases() { return exhaustion_group::cases; }

}  // namespace anyaccel::conformance
