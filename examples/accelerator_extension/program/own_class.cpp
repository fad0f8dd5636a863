// Shows how a C++ program adds an accelerator: it opens a driver itself and wraps it in a class derived from
// DriverAccelerator that overrides what differs. set_accelerator() makes it the accelerator of the process, so that
// detection does not run.
//
//   ./own_class <folder>/acme.so
#include <anyaccel/detection.h>
#include <anyaccel/driver_accelerator.h>
#include <anyaccel/error.h>
#include <anyaccel/tensor.h>

#include <cstdio>
#include <memory>
#include <utility>

using namespace anyaccel;

namespace {

class MyAccelerator final : public DriverAccelerator {
 public:
  explicit MyAccelerator(const LoadedDriver& driver) : DriverAccelerator(driver.table, driver.origin) {}

  // Process groups use this backend unless a program names another one.
  std::string communication_backend_name() const override { return "shm"; }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "own_class PLUGIN\n");
    return 2;
  }
  try {
    set_accelerator(std::make_unique<MyAccelerator>(load_plugin(argv[1])));
    Accelerator* accelerator = get_accelerator();
    const float values[3] = {1, 2, 3};
    const Tensor tensor = Tensor::from_host(values, {3}, DType::F32, accelerator->device());
    std::printf("%s, %s, %g\n", detection_report().method.c_str(), accelerator->communication_backend_name().c_str(),
                static_cast<double>(tensor.to_vector<float>()[2]));
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
