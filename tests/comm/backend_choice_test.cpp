// Tests which backends a process group can be asked for by name, on accelerators with a library of collectives,
// without one, and with one that cannot be used.
#include "comm/backend_choice.h"

#include <gtest/gtest.h>

#include "accelerators/host_collectives_driver.h"
#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"

namespace anyaccel::comm {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// An accelerator that names a library as its own.
class Named final : public DriverAccelerator {
 public:
  Named(const abi::DriverCalls* driver, std::string backend)
      : DriverAccelerator(driver), backend_(std::move(backend)) {}
  std::string communication_backend_name() const override { return backend_; }

 private:
  std::string backend_;
};

// Returns the message that asking for the backend throws; "" when it throws nothing.
template <class Kind>
std::string error_of(const std::string& asked, Accelerator& accelerator) {
  try {
    choose_backend(asked, accelerator);
    return "";
  } catch (const Kind& error) {
    return error.what();
  }
}

TEST(BackendChoice, HostBackendsRunOnEveryAccelerator) {
  DriverAccelerator with(host_collectives::table());
  for (const char* name : {"shm", "gloo", "mpi", "ccl"}) {
    EXPECT_FALSE(choose_backend(name, with).device_library) << name;
    EXPECT_EQ(choose_backend(name, *get_accelerator()).notice, "") << name;
  }
}

TEST(BackendChoice, TheAcceleratorsOwnLibraryByItsNames) {
  Named accelerator(host_collectives::table(), "pigeons");
  // The accelerator's name for it, and the library's.
  for (const char* name : {"pigeons", "hccl"}) EXPECT_TRUE(choose_backend(name, accelerator).device_library) << name;
  EXPECT_TRUE(choose_backend("", accelerator).device_library);
  EXPECT_EQ(choose_backend("", accelerator).notice, "");
}

TEST(BackendChoice, AnOwnLibraryThatIsNotThere) {
  DriverAccelerator* const cpu = dynamic_cast<DriverAccelerator*>(get_accelerator());
  ASSERT_NE(cpu, nullptr);
  Named accelerator(&cpu->driver(), "pigeons");
  const std::string error = error_of<UnavailableError>("pigeons", accelerator);
  EXPECT_HAS(error, "the backend \"pigeons\" was requested and cannot be used: the driver of cpu has no collectives");
  EXPECT_HAS(error, "What could run: shm (inside one host)");
  EXPECT_EQ(error.find(", pigeons"), std::string::npos) << error;
  // It was not requested by name: another backend runs, which is logged.
  const BackendChoice choice = choose_backend("", accelerator);
  EXPECT_FALSE(choice.device_library);
  EXPECT_HAS(choice.notice, "the library of collectives of cpu, pigeons, cannot be used, and process groups carry");
  // An accelerator of the host has nothing to say.
  EXPECT_EQ(choose_backend("", *cpu).notice, "");
}

TEST(BackendChoice, NamesThatAreNobodys) {
  DriverAccelerator with(host_collectives::table());
  for (const char* name : {"xccl", "nccl", "shm ", "tcp", "none"}) {
    const std::string error = error_of<InvalidArgument>(name, with);
    EXPECT_HAS(error, "there is no backend \"" + std::string(name) + "\" for process groups of fake");
    EXPECT_HAS(error, "What could run: shm (inside one host)");
    EXPECT_HAS(error, ", hccl");
  }
  EXPECT_HAS(error_of<InvalidArgument>("Gloo", with), "it is written \"gloo\"");
  EXPECT_HAS(error_of<InvalidArgument>("HCCL", with), "it is written \"hccl\"");
  EXPECT_HAS(error_of<InvalidArgument>("CCL", *get_accelerator()), "it is written \"ccl\"");
}

}  // namespace
}  // namespace anyaccel::comm
