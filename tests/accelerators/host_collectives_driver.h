// A driver of two devices on host memory whose collectives are those of fake_collectives.cpp, by the table `library_table`.
// Work runs at once, on the caller's thread, so a collective returns when every member has called it.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "accelerators/fake_collectives.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"

namespace host_collectives {

namespace abi = anyaccel::abi;
namespace collectives = anyaccel::collectives;

inline const collectives::LibraryTable* library_table = &collectives::habana;

class Event final : public abi::Event {
 public:
  void record(abi::Stream&) override {}
  bool query() override { return true; }
  void synchronize() override {}
};

class Device final : public abi::Device {
 public:
  Device(const collectives::Library& library, int number) : library_(library), number_(number) {}
  void synchronize() override {}
  void mem_alloc(const aa_alloc& what, aa_allocation& out) override {
    out.pointer = std::aligned_alloc(64, (what.size + 63) / 64 * 64);
  }
  void mem_free(const aa_allocation& what) override { std::free(what.pointer); }
  std::unique_ptr<abi::Stream> stream_create(const aa_stream_params&) override {
    return std::make_unique<collectives::HostStream>();
  }
  std::unique_ptr<abi::Event> event_create(const aa_event_params&) override { return std::make_unique<Event>(); }
  std::unique_ptr<abi::Communicator> comm_create(const void* id, int32_t rank, int32_t size) override {
    return std::make_unique<collectives::LibraryCommunicator>(
        library_, std::make_unique<collectives::HostDevice>(number_), id, rank, size);
  }

 private:
  const collectives::Library& library_;
  const int number_;
};

class Driver final : public abi::Driver {
 public:
  static constexpr abi::DriverFacts facts{.name = "fake", .vendor = "tests", .version = "1"};
  static void probe(aa_probe& probe) {
    probe.state = AA_PROBE_USABLE;
    probe.device_count = 2;
  }
  static std::unique_ptr<abi::Driver> initialize(const aa_initialize_params&) { return std::make_unique<Driver>(); }

  Driver() {
    std::string problem;
    library_ = collectives::Library::bind(*library_table, collectives::fake_library(), problem);
    if (!library_) throw abi::Failure(AA_UNAVAILABLE, problem);
  }
  uint32_t extensions() const override { return abi::collectives_extension; }
  int32_t device_count() override { return 2; }
  void device_props(int32_t, aa_device_props& props) override {
    abi::copy_text(props.name, "host memory");
    props.total_memory = 1 << 30;
    props.alignment = 64;
    props.queue_depth = 1000;
    props.dtypes_storable = ~uint64_t{0};
  }
  std::unique_ptr<abi::Device> device_open(const aa_device_open_params& params) override {
    return std::make_unique<Device>(*library_, params.index);
  }
  void collectives_library(const char*& name, const char*& version) override {
    name = library_->name();
    version = library_->version().c_str();
  }
  size_t collectives_id_size() override { return library_->id_size(); }
  void collectives_id_create(void* id) override { library_->id_create(id); }
  void collectives_group_begin() override { library_->group_begin(); }
  void collectives_group_end() override { library_->group_end(); }

 private:
  std::unique_ptr<collectives::Library> library_;
};

inline const abi::DriverCalls* table() {
  return anyaccel::complete_table(
      abi::driver_query<Driver>(AA_ABI_VERSION(2, 0), AA_ABI_CURRENT, anyaccel::host_services()), "tests");
}

}  // namespace host_collectives
