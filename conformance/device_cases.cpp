// Cases of devices, their properties, and extensions.
#include <cstddef>
#include <cstring>

#include "anyaccel/abi/graph.h"
#include "conformance/context.h"

namespace anyaccel::conformance {
namespace device_group {
namespace {

template <size_t Size>
bool is_terminated(const char (&text)[Size]) {
  return std::memchr(text, '\0', Size) != nullptr;
}

constexpr uint64_t known_caps = (AA_CAP_GRID_ONLY << 1) - 1;

void count_is_what_probe_said(const Context& c) {
  int32_t count = -1;
  c.ok(c.driver.device_count(c.instance, &count), "device_count");
  c.expect(count == c.probe.device_count,
           "device_count is " + std::to_string(count) + ", probe said " + std::to_string(c.probe.device_count));
}

void facts_are_sane(const Context& c) {
  for (int32_t i = 0; i < c.probe.device_count; ++i) {
    aa_device_props props{};
    props.struct_size = sizeof(props);
    c.ok(c.driver.device_props(c.instance, i, &props), "device_props of device " + std::to_string(i));
    c.expect(is_terminated(props.name) && is_terminated(props.vendor) && is_terminated(props.arch) &&
                 is_terminated(props.pci_bus_id),
             "a text of device_props is not terminated");
    c.expect(props.name[0] != '\0', "the device has no name");
    c.expect(props.total_memory > 0, "total_memory is not positive");
    c.expect(props.max_allocation >= 0 && props.max_allocation <= props.total_memory,
             "max_allocation is negative or more than total_memory");
    c.expect(props.alignment > 0 && (props.alignment & (props.alignment - 1)) == 0,
             "alignment " + std::to_string(props.alignment) + " is not a power of two");
    c.expect(props.numa_node >= -1, "numa_node is less than -1");
    c.expect(props.compute_units >= 0, "compute_units is " + std::to_string(props.compute_units));
    c.expect((props.caps & ~known_caps) == 0, "caps has bits that are no capability");
    c.expect(((props.dtypes_storable | props.dtypes_computable | props.dtypes_matrix) >> (AA_DTYPE_F8_E5M2 + 1)) == 0,
             "a mask of dtypes has bits that are no dtype");
    c.expect(props.dlpack_device_type >= 0, "dlpack_device_type is negative");
    c.expect(props.open_limit >= 0, "open_limit is negative");
    c.expect(props.exclusive == 0 || props.exclusive == 1, "exclusive is neither 0 nor 1");
    c.expect(props.queue_depth >= 128 || (props.caps & AA_CAP_SYNCHRONOUS),
             "queue_depth is " + std::to_string(props.queue_depth) + ", and must be at least 128");
    c.expect(props.dtypes_storable != 0, "no dtype can be stored");
    c.expect((props.dtypes_computable & ~props.dtypes_storable) == 0, "a computable dtype is not storable");
    c.expect((props.dtypes_matrix & ~props.dtypes_storable) == 0, "a matrix dtype is not storable");
    c.expect((props.dtypes_storable & (1u << AA_DTYPE_NONE)) == 0, "AA_DTYPE_NONE is not a dtype");
    c.expect(props.struct_size == sizeof(props), "device_props changed struct_size");
  }
}

void facts_do_not_change(const Context& c) {
  aa_device_props props{};
  props.struct_size = sizeof(props);
  c.ok(c.driver.device_props(c.instance, 0, &props), "device_props");
  c.expect(props.caps == c.props.caps && std::strcmp(props.name, c.props.name) == 0 &&
               props.total_memory == c.props.total_memory && props.alignment == c.props.alignment,
           "device_props gave other facts the second time");
}

void refuses_bad_index(const Context& c) {
  for (const int32_t index : {-1, c.probe.device_count, INT32_MAX}) {
    const std::string text = " of device " + std::to_string(index);
    aa_device_props props{};
    props.struct_size = sizeof(props);
    c.error(c.driver.device_props(c.instance, index, &props), {AA_OUT_OF_RANGE, AA_INVALID_ARGUMENT},
            "device_props" + text);
    c.expect(props.name[0] == '\0' && props.caps == 0, "device_props" + text + " failed but wrote facts");
    aa_device* device = nullptr;
    c.error(c.driver.device_open(c.instance, index, &device), {AA_OUT_OF_RANGE, AA_INVALID_ARGUMENT},
            "device_open" + text);
    c.expect(device == nullptr, "device_open" + text + " failed but gave a device");
  }
}

void respects_struct_size(const Context& c) {
  aa_device_props props;
  std::memset(static_cast<void*>(&props), 0x5a, sizeof(props));
  constexpr uint32_t size = offsetof(aa_device_props, dtypes_storable);
  props.struct_size = size;
  c.ok(c.driver.device_props(c.instance, 0, &props), "device_props with a small struct_size");
  c.expect(props.struct_size == size, "device_props changed struct_size");
  const auto* bytes = reinterpret_cast<const unsigned char*>(&props);
  for (size_t i = size; i < sizeof(props); ++i) c.expect(bytes[i] == 0x5a, "device_props wrote beyond struct_size");
  c.expect(props.caps == c.props.caps, "device_props did not write what fits");
}

void every_device_opens(const Context& c) {
  for (int32_t i = 1; i < c.probe.device_count; ++i) {
    aa_device* device = nullptr;
    c.ok(c.driver.device_open(c.instance, i, &device), "device_open of device " + std::to_string(i));
    c.expect(device != nullptr && device != c.device, "device_open gave no device of its own");
    const bool synchronized = c.drop(c.driver.device_synchronize(device));
    c.ok(c.driver.device_close(device), "device_close of device " + std::to_string(i));
    c.expect(synchronized, "device_synchronize of device " + std::to_string(i) + " failed");
  }
}

void idle_device_synchronizes(const Context& c) { c.ok(c.driver.device_synchronize(c.device), "device_synchronize"); }

void memory_info_is_sane(const Context& c) {
  int64_t free = -1;
  int64_t total = -1;
  c.ok_or_unsupported(c.driver.device_memory_info(c.device, &free, &total), "device_memory_info");
  c.expect(total > 0 && free >= 0 && free <= total,
           "free " + std::to_string(free) + " of total " + std::to_string(total) + " bytes cannot be");
}

void unknown_extension_is_unimplemented(const Context& c) {
  const void* const untouched = &c;
  const void* table = untouched;
  c.error(c.driver.query_extension(c.instance, "no.such.extension", 1, &table), {AA_UNIMPLEMENTED},
          "query_extension of an unknown name");
  c.expect(table == untouched, "query_extension failed but wrote a table");
  // No driver has this version of anything.
  c.error(c.driver.query_extension(c.instance, AA_GRAPH_EXTENSION, UINT32_MAX, &table), {AA_UNIMPLEMENTED},
          "query_extension of a version far ahead");
  c.expect(table == untouched, "query_extension failed but wrote a table");
}

// Native handles, which a program passes to the vendor's other libraries; the driver decides which names exist.
void native_handles_have_names(const Context& c) {
  void* const untouched = const_cast<Context*>(&c);
  void* handle = untouched;
  aa_status* status = c.driver.device_native(c.device, "no such handle", &handle);
  if (status && c.host.status_code(&c.host, status) == AA_UNIMPLEMENTED) c.ok_or_unsupported(status, "device_native");
  c.error(status, {AA_NOT_FOUND}, "device_native of a name that nobody has");
  c.expect(handle == untouched, "device_native failed but wrote a handle");
}

constexpr Case cases[] = {
    {"devices", "count_is_what_probe_said", count_is_what_probe_said},
    {"devices", "facts_are_sane", facts_are_sane},
    {"devices", "facts_do_not_change", facts_do_not_change},
    {"devices", "refuses_bad_index", refuses_bad_index},
    {"devices", "respects_struct_size", respects_struct_size},
    {"devices", "every_device_opens", every_device_opens},
    {"devices", "idle_device_synchronizes", idle_device_synchronizes},
    {"devices", "memory_info_is_sane", memory_info_is_sane},
    {"devices", "native_handles_have_names", native_handles_have_names},
    {"devices", "unknown_extension_is_unimplemented", unknown_extension_is_unimplemented},
};

}  // namespace
}  // namespace device_group

std::span<const Case> device_cases() { return device_group::cases; }

}  // namespace anyaccel::conformance
