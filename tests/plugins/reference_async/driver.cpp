// The asynchronous reference driver: what a device may do to its host. Two devices, a thread for each stream, memory
// that the host cannot touch, copies that read the host's memory as late as they may, and work that fails when it
// strays outside of an allocation. Slow, for tests: the conformance suite is tried on it, and with mutations
// (mutations.h) the suite itself.
//
// With the option "lazy" (ANYACCEL_REFERENCE_ASYNC_OPTIONS=lazy=1) it holds work back until something asks for it, and has the
// extension "lazy". REFERENCE_ASYNC_MUTATION=NAME breaks it in one
// place.
#include <sys/types.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <thread>

#include "anyaccel/abi/driver_class.hpp"
#include "device.h"
#include "mutations.h"
#include "ops.h"

namespace reference {
namespace {

[[noreturn]] void hang() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

[[noreturn]] void crash() { std::abort(); }

constexpr aa_option_info option_list[] = {
    {"lazy", "1: hold work back until it is released", "0"},
    {"leaves_out", "host_calls: has none; all: can only allocate, copy and synchronize; nothing", "nothing"},
};

std::string setting(const aa_option* options, uint32_t count, const char* key) {
  for (uint32_t i = 0; i < count; ++i) {
    if (std::strcmp(options[i].key, key) == 0) return options[i].value;
  }
  return "";
}

class Driver final : public abi::Driver {
 public:
  static constexpr abi::DriverFacts facts{.name = "reference.async",
                                          .vendor = "anyaccel",
                                          .version = "1",
                                          .options = option_list,
                                          .option_count = std::size(option_list)};

  static void probe(aa_probe& probe) {
    if (mutated(Mutation::probe_crashes)) crash();
    if (mutated(Mutation::probe_fails)) throw abi::Failure(AA_INTERNAL, "no idea");
    if (mutated(Mutation::probe_starts_a_thread)) std::thread(hang).detach();
    if (std::getenv("REFERENCE_ASYNC_VENDOR_THREAD")) {
      std::thread vendors(hang);
      ::pthread_setname_np(vendors.native_handle(), "vendor-events");
      vendors.detach();
    }
    static int probes = 0;
    probe.state = mutated(Mutation::probe_gives_an_unknown_state) ? 7 : AA_PROBE_USABLE;
    probe.device_count = mutated(Mutation::probe_counts_no_device) ? 0 : Machine::device_count;
    if (mutated(Mutation::probe_changes_its_answer)) probe.device_count = 1 + probes++ % 2;
    abi::copy_text(probe.reason, "two devices made of threads");
  }

  static std::unique_ptr<abi::Driver> initialize(const aa_initialize_params& params) {
    if (mutated(Mutation::initialize_crashes)) crash();
    if (mutated(Mutation::initialize_exits)) std::exit(0);
    if (mutated(Mutation::initialize_hangs)) hang();
    if (mutated(Mutation::initialize_finds_nothing)) throw abi::Failure(AA_UNAVAILABLE, "no device after all");
    if (mutated(Mutation::settings_are_refused) && params.option_count > 0) {
      throw abi::Failure(AA_INVALID_ARGUMENT, "nobody tells me anything");
    }
    static int opened = 0;
    if (mutated(Mutation::shutdown_is_for_ever) && opened++ > 0) {
      throw abi::Failure(AA_FAILED_PRECONDITION, "the runtime was shut down");
    }
    static pid_t first = 0;
    if (mutated(Mutation::children_crash) && first != 0 && first != getpid()) crash();
    first = getpid();
    const std::string left_out = setting(params.options, params.option_count, "leaves_out");
    return std::make_unique<Driver>(Abilities{.lazy = setting(params.options, params.option_count, "lazy") == "1",
                                              .host_calls = left_out != "host_calls" && left_out != "all",
                                              .more_than_copies = left_out != "all"});
  }

  explicit Driver(const Abilities& abilities) : abilities_(abilities) {}

  void close() override {
    if (mutated(Mutation::shutdown_fails)) throw abi::Failure(AA_INTERNAL, "it goes on");
    if (mutated(Mutation::shutdown_crashes)) crash();
    if (mutated(Mutation::shutdown_hangs)) hang();
  }

  uint32_t extensions() const override {
    if (!abilities_.more_than_copies) return abi::no_extensions;
    return abi::graph_extension | abi::ops_extension | abi::fault_extension | abi::peer_extension |
           abi::memory_kinds_extension | abi::files_extension |
           (abilities_.lazy ? abi::lazy_extension : abi::no_extensions);
  }

  int32_t device_count() override {
    return Machine::device_count + (mutated(Mutation::device_count_is_not_what_probe_said) ? 1 : 0);
  }

  void device_props(int32_t index, aa_device_props& props) override {
    if (!mutated(Mutation::bad_indexes_have_facts)) check_index(index);
    abi::copy_text(props.name, "asynchronous reference device");
    if (mutated(Mutation::devices_have_no_name)) props.name[0] = '\0';
    if (mutated(Mutation::the_second_device_has_no_name) && index == 1) props.name[0] = '\0';
    abi::copy_text(props.vendor, "anyaccel");
    abi::copy_text(props.arch, "threads");
    props.caps = AA_CAP_EVENT_TIMING | AA_CAP_PINNED_HOST | AA_CAP_CONCURRENT_STREAMS | AA_CAP_HOST_CALL;
    if (!abilities_.more_than_copies) props.caps = 0;
    if (!abilities_.host_calls) props.caps &= ~AA_CAP_HOST_CALL;
    if (mutated(Mutation::host_calls_are_not_promised)) props.caps &= ~AA_CAP_HOST_CALL;
    if (mutated(Mutation::timing_is_not_promised)) props.caps &= ~AA_CAP_EVENT_TIMING;
    if (mutated(Mutation::managed_memory_is_promised)) props.caps |= AA_CAP_MANAGED_MEMORY;
    if (mutated(Mutation::synchronous_work_is_promised)) props.caps |= AA_CAP_SYNCHRONOUS;
    if (mutated(Mutation::dependencies_are_promised)) props.caps |= AA_CAP_RESOLVES_DEPENDENCIES;
    if (mutated(Mutation::coherent_memory_is_promised)) props.caps |= AA_CAP_HOST_COHERENT;
    if (mutated(Mutation::being_the_host_is_promised)) props.caps |= AA_CAP_IS_HOST;
    props.uuid[0] = static_cast<uint8_t>(mutated(Mutation::devices_share_a_uuid) ? 1 : index + 1);
    props.total_memory = Device::total_memory;
    if (mutated(Mutation::facts_change)) props.total_memory += 4096 * calls_++;
    props.max_allocation = mutated(Mutation::one_allocation_may_exceed_the_total) ? 2 * props.total_memory : 0;
    props.alignment = mutated(Mutation::the_alignment_is_no_power_of_two) ? 96 : DeviceMemory::alignment;
    if (mutated(Mutation::the_alignment_is_zero)) props.alignment = 0;
    if (mutated(Mutation::capabilities_nobody_knows_are_promised)) props.caps |= 1ull << 40;
    props.compute_units = mutated(Mutation::compute_units_are_negative) ? -1 : 1;
    props.queue_depth = mutated(Mutation::few_items_are_taken) ? 64 : static_cast<int32_t>(Queue::depth);
    props.dtypes_storable = mutated(Mutation::dtypes_nobody_knows_are_storable) ? 0x3FFE : 0x1FFE;
    props.dtypes_computable = (1u << AA_DTYPE_F32) | (1u << AA_DTYPE_BF16) | (1u << AA_DTYPE_F16);
  }

  std::unique_ptr<abi::Device> device_open(const aa_device_open_params& params) override {
    int32_t index = params.index;
    if (mutated(Mutation::bad_indexes_open) && (index < 0 || index >= Machine::device_count)) index = 0;
    check_index(index);
    if (mutated(Mutation::opening_a_device_finds_nothing)) throw abi::Failure(AA_UNAVAILABLE, "it fell off");
    if (mutated(Mutation::the_second_device_does_not_open) && index == 1) throw abi::Failure(AA_INTERNAL, "no");
    if (mutated(Mutation::the_second_device_needs_the_first) && index == 1 && machine_.opened.empty()) {
      throw abi::Failure(AA_FAILED_PRECONDITION, "device 0 is not open");
    }
    static int opened[Machine::device_count];
    if (mutated(Mutation::closing_a_device_is_for_ever) && opened[index]++ > 0) {
      throw abi::Failure(AA_FAILED_PRECONDITION, "the device was closed");
    }
    return std::make_unique<Device>(machine_, index, abilities_, params.host_device);
  }

  bool mem_query(const void* pointer, aa_memory_info& info) override {
    if (!abilities_.more_than_copies) abi::unimplemented("mem_query");
    const std::lock_guard lock(machine_.mutex);
    info.kind = AA_MEMORY_DEVICE;
    info.device_index = -1;
    for (const Device* device : machine_.opened) {
      if (device->memory().find(pointer, info.base, info.size)) info.device_index = device->index();
      if (device->spare().find(pointer, info.base, info.size)) {
        info.device_index = device->index();
        if (!mutated(Mutation::spare_memory_is_said_to_be_the_devices)) info.kind = Device::spare_kind;
      }
    }
    if (info.device_index < 0) {
      if (!machine_.pinned.find(pointer, info.base, info.size)) {
        return mutated(Mutation::a_query_finds_foreign_memory) && pointer != nullptr;
      }
      if (!mutated(Mutation::pinned_memory_is_said_to_be_the_devices)) info.kind = AA_MEMORY_PINNED;
    }
    info.device_address = const_cast<void*>(pointer);
    if (mutated(Mutation::a_query_gives_the_pointer_as_base)) info.base = const_cast<void*>(pointer);
    if (mutated(Mutation::a_query_gives_a_small_size)) info.size /= 2;
    if (mutated(Mutation::a_query_gives_another_kind)) info.kind = AA_MEMORY_MANAGED;
    if (mutated(Mutation::a_query_gives_another_device)) info.device_index = 1;
    if (mutated(Mutation::memory_is_said_to_be_the_first_devices)) info.device_index = 0;
    return true;
  }

  int32_t find_op(const char* name) override { return reference::find_op(name); }

 private:
  static void check_index(int32_t index) {
    if (index >= 0 && index < Machine::device_count) return;
    if (mutated(Mutation::errors_leave_a_status_behind)) abi::detail::make_status(AA_INTERNAL, 0, "forgotten");
    if (mutated(Mutation::bad_indexes_are_internal_errors)) throw abi::Failure(AA_INTERNAL, "no such device");
    throw abi::Failure(AA_OUT_OF_RANGE, "there are devices 0 and 1, and none with the index " + std::to_string(index));
  }

  const Abilities abilities_;
  Machine machine_;
  int64_t calls_ = 0;
};

}  // namespace
}  // namespace reference

ANYACCEL_DEFINE_DRIVER_QUERY(reference::Driver);
