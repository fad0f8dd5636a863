// Every op of the host's list has a case in the conformance suite.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "accelerators/cpu/cpu_driver.h"
#include "anyaccel/driver_accelerator.h"
#include "conformance/suite.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"
#include "runtime/ops/op_list.h"

namespace anyaccel {
namespace {

// An accelerator without ops, which records the names that are looked up.
class NoOps final : public conformance::OpProvider {
 public:
  NoOps(const abi::DriverCalls* driver, std::set<std::string>& asked)
      : accelerator_(driver, "built in"), stream_(accelerator_.Stream()), asked_(asked) {}
  aa_instance* instance() override { return accelerator_.instance(); }
  aa_device* device() override { return accelerator_.device_handle(); }
  aa_stream* stream() override { return DriverAccelerator::handle(stream_); }
  int32_t find(const char* name) override {
    asked_.insert(name);
    return -1;
  }
  bool supports(const aa_op_call&) override { return false; }
  aa_status* enqueue(const aa_op_call&) override { return nullptr; }
  std::string source(const aa_op_call&) override { return {}; }

 private:
  DriverAccelerator accelerator_;
  Stream stream_;
  std::set<std::string>& asked_;
};

TEST(OpCoverage, EveryOpHasACase) {
  const abi::DriverCalls* cpu =
      complete_table(anyaccel_cpu_driver_query(AA_ABI_VERSION(1, 0), AA_ABI_CURRENT, host_services()), "built in");
  std::set<std::string> asked;
  const auto report = conformance::run_conformance(
      cpu, host_services(), "op.",
      [&](const abi::DriverCalls* driver) { return std::make_unique<NoOps>(driver, asked); }, {.in_process = true});
  EXPECT_FALSE(report.cases.empty());
  for (size_t i = 0; i < op_count; ++i) {
    EXPECT_TRUE(asked.contains(op_names[i]))
        << "no case of conformance/*_cases.cpp runs the op \"" << op_names[i] << '"';
  }
}

}  // namespace
}  // namespace anyaccel
