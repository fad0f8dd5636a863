// The C++ helper for drivers: exceptions become statuses, structs are written no further than they reach, versions are
// negotiated.
#include "anyaccel/abi/driver_class.hpp"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "abi/fake_driver.h"

namespace {

using anyaccel::host_services;
using anyaccel::StatusRef;

class DriverClass : public ::testing::Test {
 protected:
  void SetUp() override {
    aa_initialize_params params{};
    params.struct_size = sizeof(params);
    ASSERT_EQ(table_->initialize(&params, &instance_), nullptr);
    ASSERT_EQ(table_->device_open(instance_, 0, &device_), nullptr);
  }
  void TearDown() override {
    fake::on_alloc = nullptr;
    EXPECT_EQ(table_->device_close(device_), nullptr);
    EXPECT_EQ(table_->shutdown(instance_), nullptr);
    EXPECT_EQ(anyaccel::live_status_count(), 0);
  }

  StatusRef alloc_throwing(std::function<void()> thrower) {
    fake::on_alloc = std::move(thrower);
    void* pointer = &pointer;
    StatusRef status(table_->mem_alloc(device_, AA_MEMORY_DEVICE, 64, &pointer));
    EXPECT_EQ(pointer, &pointer) << "an out parameter was written though the call failed";
    return status;
  }

  const anyaccel::abi::DriverCalls calls_ = anyaccel::abi::calls(*fake::raw_table());
  const anyaccel::abi::DriverCalls* table_ = &calls_;
  aa_instance* instance_ = nullptr;
  aa_device* device_ = nullptr;
};

TEST_F(DriverClass, FailureKeepsCodesAndText) {
  const StatusRef status =
      alloc_throwing([] { throw anyaccel::abi::Failure(AA_DEVICE_LOST, "the device fell off", 719); });
  EXPECT_EQ(status.code(), AA_DEVICE_LOST);
  EXPECT_EQ(status.native_code(), 719);
  EXPECT_EQ(status.message(), "the device fell off");
}

TEST_F(DriverClass, BadAllocIsResourceExhausted) {
  EXPECT_EQ(alloc_throwing([] { throw std::bad_alloc(); }).code(), AA_RESOURCE_EXHAUSTED);
}

TEST_F(DriverClass, OtherExceptionsAreInternal) {
  const StatusRef status = alloc_throwing([] { throw std::runtime_error("a bug"); });
  EXPECT_EQ(status.code(), AA_INTERNAL);
  EXPECT_EQ(status.message(), "a bug");
  EXPECT_EQ(alloc_throwing([] { throw 42; }).code(), AA_INTERNAL);
  // A failure that says "success" is a failure all the same.
  EXPECT_EQ(alloc_throwing([] { throw anyaccel::abi::Failure(AA_OK, "?"); }).code(), AA_INTERNAL);
}

TEST_F(DriverClass, StructsAreWrittenAsFarAsTheyReach) {
  aa_device_props props;
  std::memset(static_cast<void*>(&props), 0x5a, sizeof(props));
  props.struct_size = offsetof(aa_device_props, vendor);
  ASSERT_EQ(table_->device_props(instance_, 1, &props), nullptr);
  EXPECT_STREQ(props.name, "fake device");
  EXPECT_EQ(props.numa_node, -1);
  EXPECT_EQ(props.vendor[0], 0x5a);
  EXPECT_EQ(props.struct_size, offsetof(aa_device_props, vendor));
}

TEST_F(DriverClass, LargerStructsOfNewerHostsAreFine) {
  struct Newer {
    aa_probe probe;
    uint64_t member_of_the_future;
  } newer{};
  newer.member_of_the_future = 77;
  newer.probe.struct_size = sizeof(newer);
  ASSERT_EQ(table_->probe(&newer.probe), nullptr);
  EXPECT_EQ(newer.probe.state, AA_PROBE_USABLE);
  EXPECT_EQ(newer.probe.struct_size, sizeof(newer));
  EXPECT_EQ(newer.member_of_the_future, 77u);
}

TEST_F(DriverClass, ExtensionsAreFoundByNameAndVersion) {
  const void* found = nullptr;
  for (const char* name :
       {AA_GRAPH_EXTENSION, AA_HOST_MEMORY_EXTENSION, AA_OPS_EXTENSION, AA_COMPILER_EXTENSION, AA_PROFILER_EXTENSION}) {
    EXPECT_EQ(table_->query_extension(instance_, name, 1, &found), nullptr) << name;
    EXPECT_EQ(StatusRef(table_->query_extension(instance_, name, 2, &found)).code(), AA_UNIMPLEMENTED) << name;
  }
  EXPECT_EQ(StatusRef(table_->query_extension(instance_, "teleport", 1, &found)).code(), AA_UNIMPLEMENTED);
}

TEST_F(DriverClass, ModulesKernelsAndNotFound) {
  aa_module* module = nullptr;
  ASSERT_EQ(table_->module_load(device_, "x", 1, "fake", &module), nullptr);
  aa_kernel* kernel = nullptr;
  aa_kernel_info info{};
  info.struct_size = sizeof(info);
  ASSERT_EQ(table_->kernel_get(module, "known", &kernel, &info), nullptr);
  EXPECT_NE(kernel, nullptr);
  EXPECT_EQ(info.max_threads_per_block, 64);
  EXPECT_EQ(info.argument_count, -1);
  EXPECT_EQ(table_->kernel_get(module, "known", &kernel, nullptr), nullptr);
  EXPECT_EQ(StatusRef(table_->kernel_get(module, "unknown", &kernel, nullptr)).code(), AA_NOT_FOUND);
  EXPECT_EQ(table_->module_unload(module), nullptr);
}

TEST_F(DriverClass, CompileResultsAreGivenBack) {
  const void* found = nullptr;
  ASSERT_EQ(table_->query_extension(instance_, AA_COMPILER_EXTENSION, 1, &found), nullptr);
  const auto compiler = anyaccel::abi::calls(*static_cast<const aa_compiler_table*>(found));
  aa_compile_result result{};
  result.struct_size = sizeof(result);
  ASSERT_EQ(compiler.compile(device_, "c", "name", "good", 4, nullptr, 0, &result), nullptr);
  EXPECT_TRUE(result.succeeded);
  EXPECT_EQ(result.image_size, 3u);
  EXPECT_STREQ(result.format, "fake");
  EXPECT_EQ(compiler.release(&result), nullptr);
  ASSERT_EQ(compiler.compile(device_, "c", "name", "error", 5, nullptr, 0, &result), nullptr);
  EXPECT_FALSE(result.succeeded);
  EXPECT_EQ(result.image, nullptr);
  EXPECT_STREQ(result.log, "line 1: wrong");
  EXPECT_EQ(compiler.release(&result), nullptr);
  char small[4];
  EXPECT_EQ(StatusRef(compiler.fingerprint(device_, small, sizeof(small))).code(), AA_OUT_OF_RANGE);
}

TEST_F(DriverClass, RefusesWhatNoDriverNeedsToCheck) {
  aa_stream* stream = nullptr;
  ASSERT_EQ(table_->stream_create(device_, 0, 0, &stream), nullptr);
  char bytes[16] = {};
  const char other[16] = "abc";
  EXPECT_EQ(StatusRef(table_->copy_async(stream, bytes, other, 16, 3)).code(), AA_INVALID_ARGUMENT);
  EXPECT_EQ(StatusRef(table_->fill_async(stream, bytes, other, 3, 15)).code(), AA_INVALID_ARGUMENT);
  EXPECT_EQ(StatusRef(table_->fill_async(stream, bytes, other, 4, 15)).code(), AA_INVALID_ARGUMENT);
  EXPECT_EQ(table_->copy_async(stream, nullptr, nullptr, 0, AA_COPY_HOST_TO_DEVICE), nullptr);
  EXPECT_EQ(bytes[0], 0);
  // Flags of the future are refused, with nothing done.
  auto copy = anyaccel::abi::sized<aa_copy>();
  copy.destination = bytes;
  copy.source = other;
  copy.size = 16;
  copy.flags = 1u << 7;
  EXPECT_EQ(StatusRef(table_->copy_async(stream, &copy)).code(), AA_UNIMPLEMENTED);
  EXPECT_EQ(bytes[0], 0);
  auto params = anyaccel::abi::sized<aa_stream_params>();
  params.flags = 1u << 9;
  aa_stream* second = nullptr;
  EXPECT_EQ(StatusRef(table_->stream_create(device_, &params, &second)).code(), AA_UNIMPLEMENTED);
  EXPECT_EQ(table_->stream_destroy(stream), nullptr);
}

// A caller built for an older version has shorter structs: what they lack is zero.
TEST_F(DriverClass, ShorterStructsOfOlderHostsAreCompleted) {
  struct Guarded {
    aa_copy copy;
    unsigned char beyond[64];
  } guarded{};
  char bytes[8] = {}, source[8] = "seven..";
  guarded.copy.struct_size = offsetof(aa_copy, destination_memory);
  guarded.copy.destination = bytes;
  guarded.copy.source = source;
  guarded.copy.size = sizeof(bytes);
  guarded.copy.direction = AA_COPY_HOST_TO_DEVICE;
  std::memset(static_cast<void*>(&guarded.copy.destination_memory), 0x5a, 16);  // not the caller's
  aa_stream* stream = nullptr;
  ASSERT_EQ(table_->stream_create(device_, 0, 0, &stream), nullptr);
  EXPECT_EQ(table_->copy_async(stream, &guarded.copy), nullptr);
  EXPECT_STREQ(bytes, "seven..");
  EXPECT_EQ(table_->stream_destroy(stream), nullptr);
}

// A driver that overrides no optional function gives these answers.
class BareStream final : public anyaccel::abi::Stream {
 public:
  void copy(const aa_copy&) override {}
  void synchronize() override {}
  void close() override { throw anyaccel::abi::Failure(AA_INTERNAL, "the last call failed"); }
};
class BareDevice final : public anyaccel::abi::Device {
 public:
  void synchronize() override {}
  void mem_alloc(const aa_alloc&, aa_allocation&) override {}
  void mem_free(const aa_allocation&) override {}
  std::unique_ptr<anyaccel::abi::Stream> stream_create(const aa_stream_params&) override {
    return std::make_unique<BareStream>();
  }
};
class BareDriver final : public anyaccel::abi::Driver {
 public:
  static constexpr anyaccel::abi::DriverFacts facts{.name = "bare", .sanitizer = "none"};
  static void probe(aa_probe&) {}
  static std::unique_ptr<anyaccel::abi::Driver> initialize(const aa_initialize_params&) {
    return std::make_unique<BareDriver>();
  }
  int32_t device_count() override { return 1; }
  void device_props(int32_t, aa_device_props&) override {}
  std::unique_ptr<anyaccel::abi::Device> device_open(const aa_device_open_params& params) override {
    return params.index == 0 ? std::make_unique<BareDevice>() : nullptr;
  }
};

TEST(DriverClassDefaults, OptionalFunctionsAreUnimplemented) {
  const aa_driver* raw =
      anyaccel::abi::driver_query<BareDriver>(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services());
  ASSERT_NE(raw, nullptr);
  const auto bare = anyaccel::abi::calls(*raw);
  const auto* table = &bare;
  EXPECT_STREQ(table->name, "bare");
  EXPECT_STREQ(table->vendor, "");
  EXPECT_STREQ(table->sanitizer, "none");
  aa_initialize_params params{};
  params.struct_size = sizeof(params);
  aa_instance* instance = nullptr;
  aa_device* device = nullptr;
  aa_stream* stream = nullptr;
  aa_event* event = nullptr;
  aa_module* module = nullptr;
  int64_t bytes = 0;
  int32_t done = 0;
  ASSERT_EQ(table->initialize(&params, &instance), nullptr);
  EXPECT_EQ(StatusRef(table->device_open(instance, 1, &device)).code(), AA_INTERNAL);  // returned null
  ASSERT_EQ(table->device_open(instance, 0, &device), nullptr);
  ASSERT_EQ(table->stream_create(device, 0, 0, &stream), nullptr);
  const StatusRef statuses[] = {
      StatusRef(table->device_memory_info(device, &bytes, &bytes)),
      StatusRef(table->stream_query(stream, &done)),
      StatusRef(table->event_create(device, 0, &event)),
      StatusRef(table->module_load(device, "x", 1, "elf-so", &module)),
      StatusRef(table->fill_async(stream, &bytes, "x", 1, 8)),
      StatusRef(table->stream_host_call(
          stream, [](void*) {}, nullptr)),
  };
  for (const StatusRef& status : statuses) EXPECT_EQ(status.code(), AA_UNIMPLEMENTED) << status.text();
  // The object is destroyed even though its last call fails.
  EXPECT_EQ(StatusRef(table->stream_destroy(stream)).message(), "the last call failed");
  EXPECT_EQ(table->device_close(device), nullptr);
  EXPECT_EQ(table->shutdown(instance), nullptr);
}

TEST(DriverClassQuery, NegotiatesVersions) {
  const auto query = anyaccel::abi::driver_query<BareDriver>;
  const aa_host* host = host_services();
  EXPECT_NE(query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_VERSION(AA_ABI_MAJOR, 0), host), nullptr);
  EXPECT_NE(query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_VERSION(AA_ABI_MAJOR, 99), host), nullptr);
  EXPECT_EQ(query(AA_ABI_VERSION(AA_ABI_MAJOR + 1, 0), AA_ABI_VERSION(AA_ABI_MAJOR + 1, 0), host), nullptr);
  EXPECT_EQ(query(AA_ABI_VERSION(0, 1), AA_ABI_VERSION(0, 9), host), nullptr);
  EXPECT_EQ(query(AA_ABI_VERSION(AA_ABI_MAJOR, AA_ABI_MINOR + 1), AA_ABI_VERSION(AA_ABI_MAJOR, 99), host), nullptr);
  EXPECT_EQ(query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, nullptr), nullptr);
  aa_host small = *host;
  small.struct_size = offsetof(aa_host, status_message);
  EXPECT_EQ(query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, &small), nullptr);
}

TEST(DriverClassText, CopyTextCutsAndTerminates) {
  char text[5] = "xxxx";
  anyaccel::abi::copy_text(text, "abcdefgh");
  EXPECT_STREQ(text, "abcd");
  anyaccel::abi::copy_text(text, "");
  EXPECT_STREQ(text, "");
}

}  // namespace
