// Helpers that the tests of xpu over OpenCL share: the opened driver behind short calls that fail the test, and
// folders of .icd files.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "accelerators/xpu/xpu_driver.h"
#include "anyaccel/abi/compiler.h"
#include "anyaccel/abi/graph.h"
#include "base/files/files.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"
#include "this_build.h"

namespace anyaccel::xpu_test {

inline const abi::DriverCalls& table() {
  static const abi::DriverCalls* const driver = complete_table(
      anyaccel_xpu_driver_query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services()), "built in");
  return *driver;
}

// A status as an exception, so that a test ends at the first unexpected one.
struct Error : std::runtime_error {
  Error(int32_t status_code, const std::string& message) : std::runtime_error(message), code(status_code) {}
  int32_t code;
};

inline void ok(aa_status* status) {
  if (!status) return;
  const Error error(status_code(status), status_message(status));
  release_status(status);
  throw error;
}

// The error of a call that must fail; code AA_OK when it did not.
inline Error error_of(aa_status* status) {
  try {
    ok(status);
  } catch (const Error& error) {
    return error;
  }
  return Error(AA_OK, "no error");
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline aa_probe probed() {
  aa_probe probe{};
  probe.struct_size = sizeof(probe);
  ok(table().probe(&probe));
  return probe;
}

// A folder with one .icd file for each given library, removed at the end.
class IcdFolder {
 public:
  explicit IcdFolder(const std::vector<std::string>& libraries) {
    for (size_t i = 0; i < libraries.size(); ++i) {
      std::ofstream(folder_.file(std::to_string(i) + ".icd")) << libraries[i] << "\n";
    }
  }
  std::string path() const { return folder_.path().string(); }

 private:
  TemporaryFolder folder_{"icd"};
};

inline std::string fake_library() { return test::built("tests/plugins/fake_opencl_icd.so"); }

// The driver, initialized, with device 0 open.
class Opened {
 public:
  Opened() {
    aa_initialize_params params{};
    params.struct_size = sizeof(params);
    ok(table().initialize(&params, &instance));
    ok(table().device_open(instance, 0, &device));
    compiler = extension<aa_compiler_table>(AA_COMPILER_EXTENSION);
    graphs = extension<aa_graph_table>(AA_GRAPH_EXTENSION);
  }
  ~Opened() {
    release_status(table().device_close(device));
    release_status(table().shutdown(instance));
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  aa_instance* instance = nullptr;
  aa_device* device = nullptr;
  abi::Calls<aa_compiler_table> compiler{};
  abi::Calls<aa_graph_table> graphs{};

  // Compiles; the image, or throws Error with the log.
  std::string compile(const std::string& source, const std::vector<const char*>& options = {}) const {
    aa_compile_result result{};
    result.struct_size = sizeof(result);
    ok(compiler.compile(device, "opencl-c", "test", source.data(), source.size(), options.data(), options.size(),
                        &result));
    const std::string log = result.log;
    const std::string image(static_cast<const char*>(result.image), result.image_size);
    const bool succeeded = result.succeeded != 0;
    ok(compiler.release(&result));
    if (!succeeded) throw Error(AA_INVALID_ARGUMENT, log);
    return image;
  }

 private:
  template <class Table>
  abi::Calls<Table> extension(const char* name) const {
    const void* found = nullptr;
    ok(table().query_extension(instance, name, 1, &found));
    return abi::calls(*static_cast<const Table*>(found));
  }
};

class Stream {
 public:
  explicit Stream(aa_device* device) { ok(table().stream_create(device, 0, AA_STREAM_NON_BLOCKING, &stream_)); }
  ~Stream() { release_status(table().stream_destroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator aa_stream*() const { return stream_; }
  void synchronize() const { ok(table().stream_synchronize(stream_)); }

 private:
  aa_stream* stream_ = nullptr;
};

class Event {
 public:
  explicit Event(aa_device* device, uint32_t flags = AA_EVENT_DEFAULT) {
    ok(table().event_create(device, flags, &event_));
  }
  ~Event() { release_status(table().event_destroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator aa_event*() const { return event_; }

 private:
  aa_event* event_ = nullptr;
};

// Device memory holding `count` elements.
template <class T>
class Array {
 public:
  Array(aa_device* device, size_t count, int32_t kind = AA_MEMORY_DEVICE)
      : device_(device), kind_(kind), count_(count) {
    void* pointer = nullptr;
    ok(table().mem_alloc(device, kind, bytes(), &pointer));
    data_ = static_cast<T*>(pointer);
  }
  ~Array() { release_status(table().mem_free(device_, kind_, data_, bytes())); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data() const { return data_; }
  size_t bytes() const { return count_ * sizeof(T); }
  void upload(aa_stream* stream, const std::vector<T>& values) const {
    ok(table().copy_async(stream, data_, values.data(), bytes(), AA_COPY_HOST_TO_DEVICE));
    ok(table().stream_synchronize(stream));
  }
  std::vector<T> download(aa_stream* stream) const {
    std::vector<T> values(count_);
    ok(table().copy_async(stream, values.data(), data_, bytes(), AA_COPY_DEVICE_TO_HOST));
    ok(table().stream_synchronize(stream));
    return values;
  }

 private:
  aa_device* device_;
  int32_t kind_;
  size_t count_;
  T* data_ = nullptr;
};

class Module {
 public:
  Module(aa_device* device, const std::string& image) {
    ok(table().module_load(device, image.data(), image.size(), "opencl-binary", &module_));
  }
  ~Module() { release_status(table().module_unload(module_)); }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  aa_kernel* kernel(const char* name) const {
    aa_kernel* found = nullptr;
    ok(table().kernel_get(module_, name, &found, nullptr));
    return found;
  }
  aa_module* get() const { return module_; }

 private:
  aa_module* module_ = nullptr;
};

// Launches with arguments by value. The status is the caller's.
template <class... Arguments>
aa_status* launch(aa_stream* stream, aa_kernel* kernel, uint32_t grid, uint32_t block, const Arguments&... arguments) {
  const void* addresses[] = {&arguments...};
  const uint32_t sizes[] = {sizeof(arguments)...};
  const uint8_t kinds[] = {std::is_pointer_v<Arguments> ? AA_ARGUMENT_POINTER : AA_ARGUMENT_VALUE...};
  aa_launch shape{};
  shape.struct_size = sizeof(shape);
  shape.grid[0] = grid;
  shape.block[0] = block;
  shape.grid[1] = shape.grid[2] = shape.block[1] = shape.block[2] = 1;
  shape.argument_count = sizeof...(arguments);
  shape.arguments = addresses;
  shape.argument_sizes = sizes;
  shape.argument_kinds = kinds;
  return table().kernel_launch(stream, kernel, &shape);
}

}  // namespace anyaccel::xpu_test
