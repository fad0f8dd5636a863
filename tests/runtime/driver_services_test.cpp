// The services that the host lends to drivers: scratch memory, settings, a cache folder, and a second try when a
// resource is exhausted.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "anyaccel/abi/driver_class.hpp"
#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/files/files.h"
#include "runtime/driver/driver_options.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"

namespace anyaccel {
namespace {

using Settings = std::map<std::string, std::string>;

// Records the calls that the driver below received, and tells it how to answer.
struct Observed {
  int allocations = 0, frees = 0;
  int exhausted = 0;  // functions that are to fail before the next one works
  Settings driver, device;
  std::vector<void*> scratch;
  bool idle = false;  // scratch that no stream orders
  aa_host_device* host_device = nullptr;
};
Observed seen;

Settings settings(const aa_option* options, uint32_t count) {
  Settings all;
  for (uint32_t i = 0; i < count; ++i) all[options[i].key] = options[i].value;
  return all;
}

void maybe_exhausted() {
  if (seen.exhausted > 0 && seen.exhausted-- > 0) throw abi::Failure(AA_RESOURCE_EXHAUSTED, "no more of something");
}

class TestEvent final : public abi::Event {
 public:
  void record(abi::Stream&) override { maybe_exhausted(); }
  bool query() override { return true; }
  void synchronize() override {}
};

class TestStream final : public abi::Stream {
 public:
  explicit TestStream(aa_host_stream* host) : host_(host) {}
  void copy(const aa_copy& what) override {
    maybe_exhausted();
    std::memcpy(what.destination, what.source, what.size);
  }
  void synchronize() override {}
  bool query() override { return true; }
  // An op with two kernels: both want memory of their own at once.
  bool enqueue_op(const aa_op_call&) override {
    if (seen.idle) return enqueue_with_idle_scratch();
    const abi::Scratch first(host_, 5000), second(host_, 5000);
    std::memset(first.pointer(), 1, 5000);
    std::memset(second.pointer(), 2, 5000);
    EXPECT_EQ(static_cast<char*>(first.pointer())[4999], 1);
    seen.scratch = {first.pointer(), second.pointer()};
    return true;
  }

 private:
  static bool enqueue_with_idle_scratch() {
    const aa_host* host = services_for("services");
    auto scratch = abi::sized<aa_scratch>();
    scratch.flags = AA_SCRATCH_IDLE;
    scratch.size = 100;
    scratch.device = seen.host_device;
    const StatusRef status(host->scratch_acquire(host, &scratch));
    EXPECT_TRUE(status.ok()) << status.text();
    seen.scratch = {scratch.pointer};
    host->scratch_release(host, &scratch);
    EXPECT_EQ(scratch.pointer, nullptr);
    return true;
  }

  aa_host_stream* host_;
};

class TestDevice final : public abi::Device {
 public:
  void synchronize() override {}
  void mem_alloc(const aa_alloc& what, aa_allocation& out) override {
    ++seen.allocations;
    out.pointer = std::aligned_alloc(256, (what.size + 255) / 256 * 256);
  }
  void mem_free(const aa_allocation& what) override {
    ++seen.frees;
    std::free(what.pointer);
  }
  std::unique_ptr<abi::Stream> stream_create(const aa_stream_params& params) override {
    return std::make_unique<TestStream>(params.host_stream);
  }
  std::unique_ptr<abi::Event> event_create(const aa_event_params&) override {
    maybe_exhausted();
    return std::make_unique<TestEvent>();
  }
  bool supports_op(const aa_op_call&) override { return true; }
};

constexpr aa_option_info options[] = {{"mode", "how it works", "calm"}, {"depth", "how deep it goes", "3"}};

class TestDriver final : public abi::Driver {
 public:
  static constexpr abi::DriverFacts facts{
      .name = "services.test", .vendor = "tests", .version = "1", .options = options, .option_count = 2};
  static void probe(aa_probe& probe) {
    probe.state = AA_PROBE_USABLE;
    probe.device_count = 2;
  }
  static std::unique_ptr<abi::Driver> initialize(const aa_initialize_params& params) {
    seen.driver = settings(params.options, params.option_count);
    return std::make_unique<TestDriver>();
  }
  uint32_t extensions() const override { return abi::ops_extension; }
  int32_t device_count() override { return 2; }
  void device_props(int32_t, aa_device_props& props) override {
    abi::copy_text(props.name, "a device");
    props.total_memory = 1 << 30;
    props.alignment = 256;
    props.queue_depth = 1000;
    props.caps = AA_CAP_HOST_COHERENT;
    props.dtypes_storable = ~uint64_t{0};
  }
  std::unique_ptr<abi::Device> device_open(const aa_device_open_params& params) override {
    seen.device = settings(params.options, params.option_count);
    seen.host_device = params.host_device;
    return std::make_unique<TestDevice>();
  }
  int32_t find_op(const char*) override { return 4; }
};

class DriverServices : public ::testing::Test {
 protected:
  DriverServices() { seen = {}; }
  ~DriverServices() override { unsetenv("ANYACCEL_SERVICES_TEST_OPTIONS"); }

  static const abi::DriverCalls* table() {
    const aa_host* host = services_for("services");
    const abi::DriverCalls* made = complete_table(
        abi::driver_query<TestDriver>(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host), "services");
    name_services(host, made->name);
    return made;
  }
  static void run_op(DriverAccelerator& accelerator) {
    aa_op_call call{};
    call.struct_size = sizeof(call);
    call.op = accelerator.find_op("add");
    accelerator.enqueue_op(accelerator.resolve_op(call, 0), call, 0);
  }
};

TEST_F(DriverServices, ScratchComesFromTheCachingAllocator) {
  DriverAccelerator accelerator(table());
  run_op(accelerator);
  ASSERT_EQ(seen.scratch.size(), 2u);
  EXPECT_NE(seen.scratch[0], seen.scratch[1]);
  for (void* pointer : seen.scratch) EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % 256, 0u);
  const std::vector<void*> first = seen.scratch;
  const int allocations = seen.allocations;
  for (int i = 0; i < 10; ++i) run_op(accelerator);
  EXPECT_EQ(seen.allocations, allocations) << "the driver was asked for memory again";
  EXPECT_EQ(accelerator.memory_allocated(), 0) << "scratch memory was not given back";
  EXPECT_TRUE(std::ranges::is_permutation(seen.scratch, first)) << "it was cached and not used again";
}

TEST_F(DriverServices, IdleScratchNeedsNoStream) {
  DriverAccelerator accelerator(table());
  seen.idle = true;
  run_op(accelerator);
  ASSERT_EQ(seen.scratch.size(), 1u);
  EXPECT_NE(seen.scratch[0], nullptr);
  EXPECT_EQ(accelerator.memory_allocated(), 0);
}

TEST_F(DriverServices, ScratchWithoutAStreamIsRefused) {
  const aa_host* host = services_for("services");
  auto scratch = abi::sized<aa_scratch>();
  scratch.size = 64;
  const StatusRef status(host->scratch_acquire(host, &scratch));
  EXPECT_EQ(status.code(), AA_INVALID_ARGUMENT);
  scratch.flags = 1u << 20;
  EXPECT_EQ(StatusRef(host->scratch_acquire(host, &scratch)).code(), AA_UNIMPLEMENTED);
}

// A call that reports success without its result would otherwise be noticed by a crash in the driver, or not at all.
TEST_F(DriverServices, SuccessWithoutAnObjectIsAnError) {
  const auto nothing = [](auto...) -> aa_status* { return nullptr; };
  const auto with = [](auto aa_driver::*function, auto lie) {
    aa_driver raw =
        *abi::driver_query<TestDriver>(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, services_for("services"));
    raw.*function = lie;
    return complete_table(&raw, "services");
  };
  const auto failure = [](const abi::DriverCalls* driver) -> std::string {
    DriverAccelerator accelerator(driver);
    try {
      accelerator.FloatTensor({4});
      accelerator.Event();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(failure(table()), "");
  for (const std::string& text :
       {failure(with(&aa_driver::initialize, nothing)), failure(with(&aa_driver::device_open, nothing)),
        failure(with(&aa_driver::mem_alloc, nothing)), failure(with(&aa_driver::stream_create, nothing)),
        failure(with(&aa_driver::event_create, nothing))})
    EXPECT_NE(text.find(" reported success but made nothing (null)"), std::string::npos) << text;
  EXPECT_TRUE(failure(with(&aa_driver::event_create, nothing)).starts_with("services.test: event_create "));
  const auto many = [](void*, aa_instance*, int32_t* count) -> aa_status* {
    *count = INT32_MAX;
    return nullptr;
  };
  EXPECT_NE(failure(with(&aa_driver::device_count, many)).find("device_count gave 2147483647 devices"),
            std::string::npos);
}

// Whatever function is out of whatever resource: cached memory goes back to the driver, and it is asked once more.
TEST_F(DriverServices, AnExhaustedResourceIsTriedOnceMore) {
  const LogLevel level = log_level();
  set_log_level(LogLevel::off);
  DriverAccelerator accelerator(table());
  run_op(accelerator);
  EXPECT_GT(accelerator.memory_reserved(), 0);
  seen.exhausted = 1;
  EXPECT_TRUE(accelerator.Event());
  EXPECT_EQ(accelerator.memory_reserved(), 0) << "cached memory was kept";
  EXPECT_EQ(seen.frees, seen.allocations);
  char from[4] = "abc", to[4] = "";
  seen.exhausted = 1;
  accelerator.copy(to, from, 4, AA_COPY_DEVICE_TO_DEVICE, 0);
  EXPECT_STREQ(to, "abc");
  anyaccel::Event event = accelerator.Event();
  seen.exhausted = 1;
  event.record(accelerator.current_stream());
  EXPECT_EQ(seen.exhausted, 0);
  EXPECT_TRUE(event.query());
  seen.exhausted = 2;
  EXPECT_THROW(accelerator.Event(), OutOfMemoryError);
  EXPECT_EQ(seen.exhausted, 0) << "it was tried more than twice, or once";
  set_log_level(level);
}

TEST_F(DriverServices, SettingsReachDriverAndDevices) {
  setenv("ANYACCEL_SERVICES_TEST_OPTIONS", "mode=wild,1.depth=9", 1);
  set_driver_options("services.test", "depth=5");
  DriverAccelerator accelerator(table());
  accelerator.device_handle(0);
  EXPECT_EQ(seen.driver, (Settings{{"mode", "wild"}, {"depth", "5"}}));
  EXPECT_EQ(seen.device, (Settings{{"mode", "wild"}, {"depth", "5"}}));
  accelerator.device_handle(1);
  EXPECT_EQ(seen.device, (Settings{{"mode", "wild"}, {"depth", "9"}}));
}

TEST_F(DriverServices, UnknownAndMalformedSettingsAreErrors) {
  const auto refusal = [](const char* text) -> std::string {
    setenv("ANYACCEL_SERVICES_TEST_OPTIONS", text, 1);
    DriverAccelerator accelerator(table());
    try {
      accelerator.instance();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal("speed=7").find("has no option \"speed\"; it has mode, depth"), std::string::npos);
  EXPECT_NE(refusal("mode").find("has no '='"), std::string::npos);
  EXPECT_NE(refusal("x.mode=1").find("no device index"), std::string::npos);
  EXPECT_NE(refusal("=1").find("has no key"), std::string::npos);
  EXPECT_EQ(refusal("mode=a=b,,"), "");
  EXPECT_EQ(seen.driver["mode"], "a=b");
  EXPECT_THROW(set_driver_options("services.test", "nonsense"), InvalidArgument);
  EXPECT_THROW(set_driver_options("nope", "nonsense"), InvalidArgument);
  EXPECT_EQ(options_variable("xpu.external"), "ANYACCEL_XPU_EXTERNAL_OPTIONS");
}

TEST(DriverOptionsOfTheProgram, AnUnknownAcceleratorIsNamedInAWarning) {
  const auto warning = [](const char* accelerator, const char* options) {
    ::testing::internal::CaptureStderr();
    set_driver_options(accelerator, options);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(warning("coda", "sync=1").find("no accelerator is called \"coda\"; known accelerators: "),
            std::string::npos);
  EXPECT_NE(warning("coda", "sync=1").find("; did you mean 'cuda'?"), std::string::npos);
  EXPECT_EQ(warning("coda", ""), "");
  EXPECT_EQ(warning("mlu", "depth=5"), "");
}

TEST_F(DriverServices, TheCacheFolderIsTheDriversOwn) {
  const TemporaryFolder folder("services-test");
  const std::string top = folder.file("cache");
  setenv("ANYACCEL_CACHE_DIR", top.c_str(), 1);
  table();
  const aa_host* host = services_for("services");
  char path[512] = "";
  const StatusRef status(host->cache_dir(host, path, sizeof(path)));
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(std::string(path), top + "/drivers/services.test");
  char small[8] = "";
  EXPECT_EQ(StatusRef(host->cache_dir(host, small, sizeof(small))).code(), AA_OUT_OF_RANGE);
  unsetenv("ANYACCEL_CACHE_DIR");
}

TEST_F(DriverServices, LogLinesCarryTheDriversName) {
  table();
  const aa_host* host = services_for("services");
  ::testing::internal::CaptureStderr();
  host->log(host, AA_LOG_WARNING, "the fan is loud", 15);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("services.test: the fan is loud"), std::string::npos);
}

}  // namespace
}  // namespace anyaccel
