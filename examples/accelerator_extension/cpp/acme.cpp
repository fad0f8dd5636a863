// Implements the accelerator "acme" in C++: a complete driver for a device that does not exist, to be replaced piece by
// piece with calls of your vendor's runtime. ../c is the same driver in C.
//
// The device's memory is memory of this process and its work is done by the calling thread before a call returns, which
// AA_CAP_SYNCHRONOUS says. It has two devices, its own op "add", and collectives (communicator.cpp). The host does
// everything else that a model needs.
//
// The classes of driver_class.hpp build the driver's table, check arguments, and turn exceptions into status objects.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "anyaccel/abi/driver_class.hpp"
#include "communicator.h"

namespace acme {
namespace {

namespace abi = anyaccel::abi;

constexpr int32_t device_total = 2;
constexpr int64_t device_memory = int64_t{4} << 30;
constexpr size_t alignment = 64;
constexpr int32_t op_add = 0;

int64_t elements_of(const aa_tensor& tensor) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor.ndim; ++i) count *= tensor.shape[i];
  return count;
}

// True for a row-major tensor without gaps.
bool is_contiguous(const aa_tensor& tensor) {
  int64_t stride = 1;
  for (int32_t i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != stride) return false;
    stride *= tensor.shape[i];
  }
  return true;
}

// The op computes out = a + b for F32 tensors without gaps; the host runs every other call elsewhere.
bool can_add(const aa_op_call& call) {
  if (call.op != op_add || call.tensor_count != 3) return false;
  for (uint32_t i = 0; i < 3; ++i) {
    if (call.tensors[i].dtype != AA_DTYPE_F32 || !is_contiguous(call.tensors[i])) return false;
  }
  return true;
}

// An event does nothing, because work is complete before it could be recorded.
class Event final : public abi::Event {
 public:
  void record(abi::Stream& /*stream*/) override {}
  bool query() override { return true; }
  void synchronize() override {}
};

// Yours: the vendor's queue. Two threads may enqueue on one stream at once: each item runs as a whole.
class Stream final : public abi::Stream {
 public:
  void copy(const aa_copy& what) override {
    const std::lock_guard lock(mutex_);
    std::memcpy(what.destination, what.source, what.size);
  }
  void fill(const aa_fill& what) override {
    const std::lock_guard lock(mutex_);
    auto* bytes = static_cast<unsigned char*>(what.destination);
    for (size_t i = 0; i < what.size; i += what.pattern_size) std::memcpy(bytes + i, what.pattern, what.pattern_size);
  }
  bool query() override { return true; }
  void synchronize() override {}
  void wait_event(abi::Event& /*event*/) override {}
  void host_call(void (*function)(void* user), void* user) override { function(user); }

  bool enqueue_op(const aa_op_call& call) override {
    if (!can_add(call)) return false;
    auto* out = static_cast<float*>(call.tensors[0].data);
    const auto* a = static_cast<const float*>(call.tensors[1].data);
    const auto* b = static_cast<const float*>(call.tensors[2].data);
    const int64_t count = elements_of(call.tensors[0]);
    const std::lock_guard lock(mutex_);
    for (int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
    return true;
  }

 private:
  std::mutex mutex_;
};

// Yours: the vendor's context.
class Device final : public abi::Device {
 public:
  void synchronize() override {}

  void memory_info(int64_t& free, int64_t& total) override {
    const std::lock_guard lock(mutex_);
    free = device_memory - allocated_;
    total = device_memory;
  }

  void mem_alloc(const aa_alloc& what, aa_allocation& out) override {
    if (what.kind != AA_MEMORY_DEVICE) abi::unimplemented("mem_alloc of this kind of memory");
    const std::lock_guard lock(mutex_);
    if (what.size <= static_cast<size_t>(device_memory - allocated_)) {
      out.pointer = std::aligned_alloc(alignment, (what.size + alignment - 1) / alignment * alignment);
    }
    if (!out.pointer) throw abi::Failure(AA_RESOURCE_EXHAUSTED, "the device has no memory of that size left");
    allocated_ += static_cast<int64_t>(what.size);
  }

  void mem_free(const aa_allocation& what) override {
    const std::lock_guard lock(mutex_);
    allocated_ -= static_cast<int64_t>(what.size);
    std::free(what.pointer);
  }

  std::unique_ptr<abi::Stream> stream_create(const aa_stream_params& /*params*/) override {
    return std::make_unique<Stream>();
  }
  std::unique_ptr<abi::Event> event_create(const aa_event_params& /*params*/) override {
    return std::make_unique<Event>();
  }
  bool supports_op(const aa_op_call& call) override { return can_add(call); }
  std::unique_ptr<abi::Communicator> comm_create(const void* id, int32_t rank, int32_t size) override {
    return join(id, rank, size);
  }

 private:
  std::mutex mutex_;
  int64_t allocated_ = 0;  // bytes
};

// Describes libraries of ops, which programs request by these names: one is prebuilt, the other is compiled when a
// program first requests it on a machine. The paths are relative to the folder "acme" beside this plugin.
constexpr aa_op_builder builder(const char* name, const char* library, const char* const* sources) {
  auto made = abi::sized<aa_op_builder>();
  made.name = name;
  made.folder = "acme";
  made.library = library;
  made.sources = sources;
  return made;
}
constexpr const char* clip_sources[] = {"clip.cpp", nullptr};
constexpr aa_op_builder scale_builder = builder("AcmeScaleBuilder", "scale.so", nullptr);
constexpr aa_op_builder clip_builder = builder("AcmeClipBuilder", "", clip_sources);
constexpr const aa_op_builder* op_builders[] = {&scale_builder, &clip_builder, nullptr};

class Driver final : public abi::Driver {
 public:
  static constexpr abi::DriverFacts facts{.name = "acme",
                                          .vendor = "Acme",
                                          .version = "1.0",
                                          .communication_backend = library_name,
                                          .op_builders = op_builders};

  // Yours: look for the device node and the vendor's library, and say what was looked for when one is missing.
  static void probe(aa_probe& probe) {
    probe.state = AA_PROBE_USABLE;
    probe.device_count = device_total;
    abi::copy_text(probe.reason, "two devices made of this machine's memory");
  }

  // Yours: open the vendor's library; throw a Failure with AA_UNAVAILABLE when that fails.
  static std::unique_ptr<abi::Driver> initialize(const aa_initialize_params& /*params*/) {
    return std::make_unique<Driver>();
  }

  uint32_t extensions() const override { return abi::ops_extension | abi::collectives_extension; }
  int32_t device_count() override { return device_total; }

  void device_props(int32_t index, aa_device_props& props) override {
    check_index(index);
    abi::copy_text(props.name, "Acme device");
    abi::copy_text(props.vendor, facts.vendor);
    abi::copy_text(props.arch, "acme1");
    props.caps = AA_CAP_SYNCHRONOUS | AA_CAP_HOST_TIMERS | AA_CAP_RESOLVES_DEPENDENCIES | AA_CAP_HOST_CALL;
    props.total_memory = device_memory;
    props.alignment = alignment;
    props.compute_units = 1;
    props.dtypes_storable = ((uint64_t{1} << (AA_DTYPE_F8_E5M2 + 1)) - 1) & ~(uint64_t{1} << AA_DTYPE_NONE);
    props.dtypes_computable = uint64_t{1} << AA_DTYPE_F32;
    props.queue_depth = INT32_MAX;
  }

  std::unique_ptr<abi::Device> device_open(const aa_device_open_params& params) override {
    check_index(params.index);
    return std::make_unique<Device>();
  }

  int32_t find_op(const char* name) override { return std::strcmp(name, "add") == 0 ? op_add : -1; }

  void collectives_library(const char*& name, const char*& version) override {
    name = library_name;
    version = "1.0";
  }
  size_t collectives_id_size() override { return id_bytes; }
  void collectives_id_create(void* id) override { create_id(id); }

 private:
  static void check_index(int32_t index) {
    if (index >= 0 && index < device_total) return;
    throw abi::Failure(AA_OUT_OF_RANGE, "there are the devices 0 and 1 only, not " + std::to_string(index));
  }
};

}  // namespace
}  // namespace acme

ANYACCEL_DEFINE_DRIVER_QUERY(acme::Driver);
