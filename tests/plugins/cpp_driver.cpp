// A plugin written with the C++ helper, whose device cannot be used here: what a vendor's plugin says on a machine
// without the vendor's card.
#include "anyaccel/abi/driver_class.hpp"

namespace abi = anyaccel::abi;

class CppDriver final : public abi::Driver {
 public:
  static constexpr abi::DriverFacts facts{.name = "xpu", .vendor = "tests", .version = "1"};

  static void probe(aa_probe& probe) {
    probe.state = AA_PROBE_ABSENT;
    abi::copy_text(probe.reason, "no device node /dev/unicorn0");
  }
  static std::unique_ptr<abi::Driver> initialize(const aa_initialize_params&) {
    throw abi::Failure(AA_UNAVAILABLE, "libunicorn.so.1 cannot be opened: no such file");
  }
  int32_t device_count() override { return 0; }
  void device_props(int32_t, aa_device_props&) override { throw abi::Failure(AA_OUT_OF_RANGE, "there is no device"); }
  std::unique_ptr<abi::Device> device_open(const aa_device_open_params&) override {
    throw abi::Failure(AA_OUT_OF_RANGE, "no device");
  }
};

ANYACCEL_DEFINE_DRIVER_QUERY(CppDriver);
