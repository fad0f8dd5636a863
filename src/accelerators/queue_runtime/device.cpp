// Implements device.h: an opened device, and the driver.
#include "accelerators/queue_runtime/device.h"

#include <fstream>
#include <optional>

#include "accelerators/queue_runtime/collectives.h"
#include "accelerators/queue_runtime/ops.h"

namespace anyaccel::queue_runtime {
namespace {

// -1 when unknown.
int32_t numa_node_of(const std::string& pci_bus_id) {
  std::ifstream stream("/sys/bus/pci/devices/" + pci_bus_id + "/numa_node");
  int32_t node = -1;
  return !pci_bus_id.empty() && stream >> node ? node : -1;
}

}  // namespace

// ---- device ----------------------------------------------------------------------------------------------------------

// Waits for all, even if an earlier one failed.
void Device::synchronize() {
  state_->usable();
  std::optional<abi::Failure> first;
  for (const std::shared_ptr<StreamCore>& stream : streams_.all()) {
    try {
      stream->release_held();
      stream->wait();
    } catch (const abi::Failure& failure) {
      if (!first) first = failure;
    }
  }
  if (first) throw abi::Failure(*first);
}

void Device::memory_info(int64_t& free, int64_t& total) {
  size_t free_bytes = 0, total_bytes = 0;
  state_->bind_surely();
  state_->run([&] { return state_->vendor().memory_info(free_bytes, total_bytes); });
  free = static_cast<int64_t>(free_bytes);
  total = static_cast<int64_t>(total_bytes);
}

void Device::mem_alloc(const aa_alloc& what, aa_allocation& out) {
  if (what.kind != AA_MEMORY_DEVICE && what.kind != AA_MEMORY_PINNED) {
    throw abi::Failure(AA_UNIMPLEMENTED, state_->label() + " has no memory of kind " + std::to_string(what.kind));
  }
  out.pointer = state_->allocate(what.kind, what.size);
}

void Device::mem_free(const aa_allocation& what) { state_->free(what.kind, what.pointer); }

std::unique_ptr<abi::Stream> Device::stream_create(const aa_stream_params& params) {
  return std::make_unique<Stream>(state_, streams_, params);
}

std::unique_ptr<abi::Event> Device::event_create(const aa_event_params& params) {
  state_->usable();
  return std::make_unique<Event>((params.flags & AA_EVENT_TIMING) != 0);
}

bool Device::supports_op(const aa_op_call& call) {
  const OpSet* ops = state_->vendor().ops();
  return ops && ops->supports(call);
}

size_t Device::packed_size(const aa_pack& what) {
  const OpSet* ops = state_->vendor().ops();
  return ops ? ops->packed_size(what) : 0;
}

std::unique_ptr<abi::Communicator> Device::comm_create(const void* id, int32_t rank, int32_t size) {
  const collectives::Library& library = collectives_();
  state_->bind_surely();
  return std::make_unique<Communicator>(library, state_, id, rank, size);
}

// ---- driver ----------------------------------------------------------------------------------------------------------

Driver::Driver(std::unique_ptr<Vendor> vendor, std::vector<DeviceFacts> devices, Device::CollectiveLibrary collectives)
    : runtime_(std::make_shared<Runtime>()), collectives_(collectives) {
  runtime_->vendor = std::move(vendor);
  runtime_->devices = std::move(devices);
}

uint32_t Driver::extensions() const {
  uint32_t offered = abi::graph_extension;
  if (collectives_) offered |= abi::collectives_extension;
  if (const OpSet* ops = runtime_->vendor->ops()) {
    offered |= abi::ops_extension;
    if (ops->merges()) offered |= abi::lazy_extension;
  }
  return offered;
}

const DeviceFacts& Driver::facts_of(int32_t index) const {
  const std::vector<DeviceFacts>& devices = runtime_->devices;
  if (index >= 0 && static_cast<size_t>(index) < devices.size()) return devices[static_cast<size_t>(index)];
  throw abi::Failure(AA_OUT_OF_RANGE, std::string(runtime_->vendor->accelerator()) + ":" + std::to_string(index) +
                                          " was asked for; there are " + std::to_string(devices.size()) + " devices");
}

void Driver::device_props(int32_t index, aa_device_props& props) {
  const DeviceFacts& facts = facts_of(index);
  abi::copy_text(props.name, facts.name);
  abi::copy_text(props.vendor, runtime_->vendor->vendor_name());
  abi::copy_text(props.arch, facts.arch);
  abi::copy_text(props.pci_bus_id, facts.pci_bus_id);
  props.numa_node = numa_node_of(facts.pci_bus_id);
  props.caps = AA_CAP_EVENT_TIMING | AA_CAP_PINNED_HOST | AA_CAP_CONCURRENT_STREAMS;
  if (runtime_->vendor->has_host_call()) props.caps |= AA_CAP_HOST_CALL;
  props.total_memory = static_cast<int64_t>(facts.total_memory);
  props.alignment = facts.alignment;
  // These vendors do not document theirs: the number that every driver must accept, or that of the ops that are held back.
  const OpSet* ops = runtime_->vendor->ops();
  props.queue_depth = ops && ops->merges() ? Stream::most_held : 128;
  props.compute_units = facts.compute_units;
  for (int dtype = AA_DTYPE_BOOL; dtype <= AA_DTYPE_F8_E5M2; ++dtype) props.dtypes_storable |= uint64_t{1} << dtype;
  props.dtypes_computable = facts.dtypes_computable;
  props.dtypes_matrix = facts.dtypes_matrix;
}

std::unique_ptr<abi::Device> Driver::device_open(const aa_device_open_params& params) {
  facts_of(params.index);
  return std::make_unique<Device>(std::make_shared<DeviceState>(runtime_, params.index), collectives_);
}

bool Driver::mem_query(const void* pointer, aa_memory_info& info) {
  Allocation found;
  if (!pointer || runtime_->process.is_forked_child() || !runtime_->allocations.find(pointer, found)) return false;
  info.kind = found.kind;
  info.device_index = found.kind == AA_MEMORY_PINNED ? -1 : found.device;
  info.base = found.base;
  info.size = found.size;
  // These vendors do not document whether kernels can access locked host memory by its own address.
  info.device_address = found.kind == AA_MEMORY_PINNED ? nullptr : const_cast<void*>(pointer);
  return true;
}

int32_t Driver::find_op(const char* name) {
  const OpSet* ops = runtime_->vendor->ops();
  return ops ? ops->find(name) : -1;
}

void Driver::collectives_library(const char*& name, const char*& version) {
  name = collectives_().name();
  version = collectives_().version().c_str();
}

}  // namespace anyaccel::queue_runtime
