// xpu over OpenCL when the device fails: errors of work that was enqueued, a lost device, a small device. On the fake GPU
// driver, whose commands end as the test says.
#include <dlfcn.h>

#include <memory>

#include "xpu/opencl_test_support.h"

namespace anyaccel::xpu_test {
namespace {

constexpr int32_t out_of_resources = -5;
constexpr int32_t device_not_available = -2;

class OpenClFaults : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<IcdFolder>(std::vector<std::string>{fake_library()});
    setenv("ANYACCEL_XPU_RUNTIME", "opencl", 1);
    unsetenv("ANYACCEL_OPENCL_DEVICE_TYPE");
    setenv("OCL_ICD_VENDORS", folder_->path().c_str(), 1);
    setenv("FAKE_OPENCL", "small_memory", 1);
    opened_ = std::make_unique<Opened>();
    void* library = dlopen(fake_library().c_str(), RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(library, nullptr);
    fail_ = reinterpret_cast<void (*)(int32_t)>(dlsym(library, "fake_opencl_fail"));
    refuse_markers_ = reinterpret_cast<void (*)(int32_t)>(dlsym(library, "fake_opencl_refuse_markers"));
    ASSERT_TRUE(fail_ && refuse_markers_);
  }
  static void TearDownTestSuite() {
    opened_.reset();
    folder_.reset();
  }
  void TearDown() override {
    fail_(0);
    refuse_markers_(0);
  }

  static aa_device* device() { return opened_->device; }
  // The status with which further commands end; 0 means success.
  static void commands_end_with(int32_t status) { fail_(status); }

  static inline std::unique_ptr<IcdFolder> folder_;
  static inline std::unique_ptr<Opened> opened_;
  static inline void (*fail_)(int32_t) = nullptr;
  static inline void (*refuse_markers_)(int32_t) = nullptr;
};

aa_status* copy(aa_stream* stream, const Array<int32_t>& destination, const std::vector<int32_t>& values) {
  return table().copy_async(stream, destination.data(), values.data(), destination.bytes(), AA_COPY_HOST_TO_DEVICE);
}

TEST_F(OpenClFaults, ErrorsStickToTheirStream) {
  const Array<int32_t> memory(device(), 4);
  const std::vector<int32_t> values{1, 2, 3, 4};
  const Event after(device());
  const Event elsewhere(device());
  const Stream sound(device());
  int32_t done = 0;
  {
    const Stream broken(device());
    commands_end_with(out_of_resources);
    ok(copy(broken, memory, values));  // found later
    ok(table().event_record(after, broken));
    const Error first = error_of(table().stream_synchronize(broken));
    EXPECT_EQ(first.code, AA_INTERNAL);
    EXPECT_TRUE(contains(first.what(), "CL_OUT_OF_RESOURCES (-5)")) << first.what();
    commands_end_with(0);  // what is enqueued now succeeds, and the stream stays as it is
    ok(table().event_record(elsewhere, sound));
    EXPECT_STREQ(error_of(table().stream_synchronize(broken)).what(), first.what());
    EXPECT_STREQ(error_of(table().stream_query(broken, &done)).what(), first.what());
    EXPECT_STREQ(error_of(table().event_query(after, &done)).what(), first.what());
    EXPECT_STREQ(error_of(table().event_synchronize(after)).what(), first.what());
    EXPECT_STREQ(error_of(table().device_synchronize(device())).what(), first.what());
    // Other streams go on.
    ok(copy(sound, memory, values));
    sound.synchronize();
    ok(table().stream_query(sound, &done));
    EXPECT_EQ(done, 1);
    ok(table().event_synchronize(elsewhere));
  }
  ok(table().device_synchronize(device()));
  EXPECT_EQ(memory.download(sound), values);
}

TEST_F(OpenClFaults, DestroyingABrokenStreamReportsItOnce) {
  aa_stream* stream = nullptr;
  ok(table().stream_create(device(), 0, AA_STREAM_NON_BLOCKING, &stream));
  const Array<int32_t> memory(device(), 4);
  commands_end_with(out_of_resources);
  ok(copy(stream, memory, {1, 2, 3, 4}));
  EXPECT_EQ(error_of(table().stream_destroy(stream)).code, AA_INTERNAL);
  commands_end_with(0);
  ok(table().device_synchronize(device()));
}

TEST_F(OpenClFaults, LostDevice) {
  const Stream stream(device());
  const Array<int32_t> memory(device(), 4);
  commands_end_with(device_not_available);
  ok(copy(stream, memory, {1, 2, 3, 4}));
  const Error error = error_of(table().stream_synchronize(stream));
  EXPECT_EQ(error.code, AA_DEVICE_LOST);
  EXPECT_TRUE(contains(error.what(), "CL_DEVICE_NOT_AVAILABLE")) << error.what();
}

TEST_F(OpenClFaults, FailuresInAReplayedGraph) {
  const Stream stream(device());
  const Module module(device(), opened_->compile("any source"));
  const Array<int32_t> memory(device(), 4);
  aa_graph* graph = nullptr;
  ok(opened_->graphs.capture_begin(stream));
  ok(launch(stream, module.kernel("nothing"), 4, 256, memory.data(), 1));
  ok(opened_->graphs.capture_end(stream, &graph));
  ok(opened_->graphs.launch(graph, stream));
  stream.synchronize();
  commands_end_with(out_of_resources);
  ok(opened_->graphs.launch(graph, stream));
  EXPECT_EQ(error_of(table().stream_synchronize(stream)).code, AA_INTERNAL);
  commands_end_with(0);
  ok(opened_->graphs.destroy(graph));
}

TEST_F(OpenClFaults, AFailedLaunchDoesNotFailThoseOnOtherStreams) {
  const Stream sound(device());
  const Stream broken(device());
  const Module module(device(), opened_->compile("any source"));
  const Array<int32_t> memory(device(), 4);
  aa_graph* graph = nullptr;
  ok(opened_->graphs.capture_begin(sound));
  ok(launch(sound, module.kernel("nothing"), 4, 256, memory.data(), 1));
  ok(opened_->graphs.capture_end(sound, &graph));
  commands_end_with(out_of_resources);
  ok(opened_->graphs.launch(graph, broken));
  EXPECT_EQ(error_of(table().stream_synchronize(broken)).code, AA_INTERNAL);
  commands_end_with(0);
  ok(opened_->graphs.launch(graph, sound));
  sound.synchronize();
  ok(opened_->graphs.destroy(graph));
}

// AA_RESOURCE_EXHAUSTED would make the host launch the graph again, which runs already.
TEST_F(OpenClFaults, LaunchesThatFailAfterTheirWorkWasEnqueuedAreNotRepeated) {
  const Stream stream(device());
  const Module module(device(), opened_->compile("any source"));
  const Array<int32_t> memory(device(), 4);
  aa_graph* graph = nullptr;
  ok(opened_->graphs.capture_begin(stream));
  ok(launch(stream, module.kernel("nothing"), 4, 256, memory.data(), 1));
  ok(opened_->graphs.capture_end(stream, &graph));
  refuse_markers_(out_of_resources);
  const Error error = error_of(opened_->graphs.launch(graph, stream));
  EXPECT_EQ(error.code, AA_INTERNAL);
  EXPECT_TRUE(contains(error.what(), "the stream had taken 1 of its 1 items")) << error.what();
  EXPECT_TRUE(contains(error.what(), "CL_OUT_OF_RESOURCES")) << error.what();
  refuse_markers_(0);
  ok(opened_->graphs.launch(graph, stream));
  stream.synchronize();
  ok(opened_->graphs.destroy(graph));
}

TEST_F(OpenClFaults, SmallDeviceRunsOutOfMemory) {
  void* pointer = nullptr;
  const Error large = error_of(table().mem_alloc(device(), AA_MEMORY_DEVICE, 600000, &pointer));
  EXPECT_EQ(large.code, AA_RESOURCE_EXHAUSTED);
  for (const char* part : {"600000 bytes", "Fake Device", "524288"}) {
    EXPECT_TRUE(contains(large.what(), part)) << large.what();
  }
  const Array<char> first(device(), 500000);
  const Array<char> second(device(), 500000);
  const Error full = error_of(table().mem_alloc(device(), AA_MEMORY_DEVICE, 100000, &pointer));
  EXPECT_EQ(full.code, AA_RESOURCE_EXHAUSTED);
  for (const char* part : {"100000 bytes", "Fake Device", "48576 of 1048576"}) {
    EXPECT_TRUE(contains(full.what(), part)) << full.what();
  }
  const Array<char> third(device(), 48576);
  EXPECT_NE(third.data(), nullptr);
}

// No fine-grained memory: no memory that both sides can use.
TEST_F(OpenClFaults, NoPinnedMemoryWithoutFineGrain) {
  void* pointer = nullptr;
  EXPECT_EQ(error_of(table().mem_alloc(device(), AA_MEMORY_PINNED, 4096, &pointer)).code, AA_UNIMPLEMENTED);
}

// The driver itself refuses a binary whose head is right.
TEST_F(OpenClFaults, BinaryThatTheDriverRefuses) {
  std::string image = opened_->compile("any source");
  image[image.size() - 5] ^= 1;
  aa_module* module = nullptr;
  const Error error = error_of(table().module_load(device(), image.data(), image.size(), "opencl-binary", &module));
  EXPECT_EQ(error.code, AA_INCOMPATIBLE);
  EXPECT_TRUE(contains(error.what(), "CL_INVALID_BINARY")) << error.what();
}

}  // namespace
}  // namespace anyaccel::xpu_test
