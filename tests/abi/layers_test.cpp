// The validate and trace layers, around a driver that would believe everything.
#include "runtime/layers/layers.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "abi/fake_driver.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"

namespace anyaccel {
namespace {

const abi::DriverCalls* bare() { return complete_table(fake::raw_table(), "test"); }

// A device and a stream of the fake driver behind the validate layer.
class Validate : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::off);
    fake::events_complete = true;
    aa_initialize_params params{};
    params.struct_size = sizeof(params);
    ASSERT_EQ(table_->initialize(&params, &instance_), nullptr);
    ASSERT_EQ(table_->device_open(instance_, 0, &device_), nullptr);
    ASSERT_EQ(table_->stream_create(device_, 0, 0, &stream_), nullptr);
  }
  void TearDown() override {
    if (stream_) {
      ok(table_->stream_destroy(stream_));
    }
    ok(table_->device_close(device_));
    ok(table_->shutdown(instance_));
    EXPECT_EQ(live_status_count(), 0);
    set_log_level(LogLevel::warning);
  }

  static void ok(aa_status* status) {
    const StatusRef owner(status);
    EXPECT_TRUE(owner.ok()) << owner.text();
  }
  static void refused(aa_status* status, aa_code code, const std::string& part) {
    const StatusRef owner(status);
    EXPECT_EQ(owner.code(), code) << owner.text();
    EXPECT_EQ(owner.message().substr(0, 10), "validate: ");
    EXPECT_NE(owner.message().find(part), std::string_view::npos) << owner.text();
  }
  static void wrong(aa_status* status, const std::string& part) { refused(status, AA_INVALID_ARGUMENT, part); }
  static void wrong_now(aa_status* status, const std::string& part) { refused(status, AA_FAILED_PRECONDITION, part); }

  template <class Table>
  const abi::Calls<Table>& extension(const char* name) {
    const void* table = nullptr;
    ok(table_->query_extension(instance_, name, 1, &table));
    return *static_cast<const abi::Calls<Table>*>(table);
  }
  char* alloc(size_t size, int32_t kind = AA_MEMORY_DEVICE) {
    void* pointer = nullptr;
    ok(table_->mem_alloc(device_, kind, size, &pointer));
    return static_cast<char*>(pointer);
  }
  void free(void* pointer, size_t size, int32_t kind = AA_MEMORY_DEVICE) {
    ok(table_->mem_free(device_, kind, pointer, size));
  }

  const abi::DriverCalls* table_ = apply_layers(bare(), "validate");
  aa_instance* instance_ = nullptr;
  aa_device* device_ = nullptr;
  aa_stream* stream_ = nullptr;
};

TEST_F(Validate, Handles) {
  wrong(table_->stream_synchronize(nullptr), "stream is null");
  int foreign = 0;
  wrong(table_->stream_synchronize(reinterpret_cast<aa_stream*>(&foreign)), "not made by this driver");
  // A handle of another kind.
  wrong(table_->event_synchronize(reinterpret_cast<aa_event*>(stream_)), "not made by this driver as a event");
  aa_event* event = nullptr;
  ok(table_->event_create(device_, 0, &event));
  ok(table_->event_destroy(event));
  wrong(table_->event_destroy(event), "destroyed before");
  wrong(table_->event_record(event, stream_), "destroyed before");
}

// A function of the driver that stays in progress on another thread until it is released.
class HeldCall {
 public:
  HeldCall(const std::function<void()>& call, const std::function<void(std::function<void()>)>& hook) {
    hook([this] {
      entered_.set_value();
      opened_.get_future().wait();
    });
    thread_ = std::thread(call);
    entered_.get_future().wait();
  }
  void end() {
    opened_.set_value();
    thread_.join();
  }

 private:
  std::promise<void> entered_, opened_;
  std::thread thread_;
};

TEST_F(Validate, WhatIsDestroyedIsNobodyElses) {
  const auto hook = [](std::function<void()> function) { fake::on_call = std::move(function); };
  aa_event* event = nullptr;
  ok(table_->event_create(device_, 0, &event));
  {
    HeldCall held([&] { ok(table_->stream_synchronize(stream_)); }, hook);
    fake::on_call = nullptr;
    wrong_now(table_->stream_destroy(stream_), "threads: 1 other call is under way with this stream");
    int32_t done = 0;
    ok(table_->stream_query(stream_, &done));  // marked T
    held.end();
  }
  {
    HeldCall held([&] { ok(table_->event_synchronize(event)); }, hook);
    fake::on_call = nullptr;
    wrong_now(table_->event_destroy(event), "threads: 1 other call is under way with this event");
    held.end();
  }
  ok(table_->event_destroy(event));
}

TEST_F(Validate, AGraphIsLaunchedByOneThread) {
  const auto& graphs = extension<aa_graph_table>(AA_GRAPH_EXTENSION);
  aa_graph* graph = nullptr;
  ok(graphs.capture_begin(stream_));
  ok(graphs.capture_end(stream_, &graph));
  HeldCall held([&] { ok(graphs.launch(graph, stream_)); },
                [](std::function<void()> function) { fake::on_call = std::move(function); });
  fake::on_call = nullptr;
  wrong_now(graphs.launch(graph, stream_), "threads: another thread is inside this graph");
  wrong_now(graphs.destroy(graph), "threads: 1 other call is under way with this graph");
  held.end();
  ok(graphs.launch(graph, stream_));
  ok(graphs.destroy(graph));
}

TEST_F(Validate, OneThreadEnqueuesWhileAStreamCaptures) {
  const auto& graphs = extension<aa_graph_table>(AA_GRAPH_EXTENSION);
  char* memory = alloc(64);
  const unsigned char value = 1;
  ok(graphs.capture_begin(stream_));
  std::thread([&] {
    wrong_now(table_->fill_async(stream_, memory, &value, 1, 64),
              "threads: another thread captures a graph on the stream");
  }).join();
  ok(table_->fill_async(stream_, memory, &value, 1, 64));
  ok(graphs.capture_end(stream_, nullptr));
  std::thread([&] { ok(table_->fill_async(stream_, memory, &value, 1, 64)); }).join();
  free(memory, 64);
}

// Behind the same layer, a driver with the extensions "lazy" and "collectives" too.
class ValidateGroups : public Validate {
 protected:
  ValidateGroups() { table_ = apply_layers(complete_table(fake::raw_group_table(), "test"), "validate"); }
};

TEST_F(ValidateGroups, OneThreadEnqueuesInAStep) {
  const auto& lazy = extension<aa_lazy_table>(AA_LAZY_EXTENSION);
  char* memory = alloc(64);
  const unsigned char value = 1;
  auto step = abi::sized<aa_step>();
  wrong_now(lazy.step_end(stream_), "the stream is in no step");
  ok(lazy.step_begin(stream_, &step));
  wrong_now(lazy.step_begin(stream_, &step), "steps do not nest");
  std::thread([&] {
    wrong_now(table_->fill_async(stream_, memory, &value, 1, 64),
              "threads: another thread is inside a step on the stream");
  }).join();
  ok(table_->fill_async(stream_, memory, &value, 1, 64));
  ok(lazy.flush(stream_));
  ok(lazy.step_end(stream_));
  std::thread([&] { ok(table_->fill_async(stream_, memory, &value, 1, 64)); }).join();
  free(memory, 64);
}

TEST_F(ValidateGroups, ACommunicatorIsCalledByOneThread) {
  const auto& groups = extension<aa_collectives_table>(AA_COLLECTIVES_EXTENSION);
  const char id[8] = {};
  aa_comm* comm = nullptr;
  ok(groups.comm_create(device_, id, 0, 1, &comm));
  void* data = alloc(64);
  const auto sum = [&] { return groups.all_reduce(comm, stream_, data, data, 16, AA_DTYPE_F32, AA_REDUCE_SUM); };
  HeldCall held([&] { ok(sum()); }, [](std::function<void()> function) { fake::on_call = std::move(function); });
  fake::on_call = nullptr;
  wrong_now(sum(), "threads: another thread is inside this communicator");
  wrong_now(groups.comm_destroy(comm), "threads: 1 other call is under way with this communicator");
  held.end();
  ok(sum());
  ok(groups.comm_destroy(comm));
  free(data, 64);
}

TEST_F(Validate, DoubleDestroyDoesNotReachTheDriver) {
  fake::destroyed_streams = 0;
  ok(table_->stream_destroy(stream_));
  wrong(table_->stream_destroy(stream_), "destroyed before");
  EXPECT_EQ(fake::destroyed_streams, 1);
  stream_ = nullptr;
}

TEST_F(Validate, PointersAndSizes) {
  wrong(table_->device_count(instance_, nullptr), "out_count is null");
  auto what = abi::sized<aa_alloc>();
  what.size = 64;
  wrong(table_->mem_alloc(device_, &what, nullptr), "out_allocation is null");
  wrong(table_->mem_alloc(device_, nullptr, nullptr), "what is null");
  wrong(table_->stream_host_call(stream_, nullptr, nullptr), "function is null");
  wrong(table_->query_extension(instance_, nullptr, 1, nullptr), "name is null");
  aa_device_props props{};
  wrong(table_->device_props(instance_, 0, &props), "struct_size is 0");
  wrong(table_->initialize(nullptr, nullptr), "params is null");
}

TEST_F(Validate, LeaksAreNamed) {
  char* memory = alloc(100);
  aa_event* event = nullptr;
  ok(table_->event_create(device_, 0, &event));
  wrong_now(table_->device_close(device_), "1 stream, 1 event, 1 allocation (100 bytes)");
  wrong_now(table_->shutdown(instance_), "1 device");
  ok(table_->event_destroy(event));
  free(memory, 100);
}

TEST_F(Validate, Freeing) {
  char* memory = alloc(100);
  wrong(table_->mem_free(device_, AA_MEMORY_DEVICE, memory, 101), "100 bytes were allocated");
  wrong(table_->mem_free(device_, AA_MEMORY_PINNED, memory, 100), "kind");
  wrong(table_->mem_free(device_, AA_MEMORY_DEVICE, memory + 1, 99), "not the start");
  aa_device* other = nullptr;
  ok(table_->device_open(instance_, 1, &other));
  wrong(table_->mem_free(other, AA_MEMORY_DEVICE, memory, 100), "another device");
  ok(table_->device_close(other));
  free(memory, 100);
  wrong(table_->mem_free(device_, AA_MEMORY_DEVICE, memory, 100), "freed before");
  wrong(table_->mem_free(device_, AA_MEMORY_DEVICE, nullptr, 100), "pointer is null");
  wrong(table_->mem_alloc(device_, AA_MEMORY_DEVICE, 0, reinterpret_cast<void**>(&memory)), "size is 0");
}

TEST_F(Validate, CopiesStayInsideAllocations) {
  char* memory = alloc(100);
  char host[200] = {};
  ok(table_->copy_async(stream_, memory, host, 100, AA_COPY_HOST_TO_DEVICE));
  ok(table_->copy_async(stream_, host, memory + 50, 50, AA_COPY_DEVICE_TO_HOST));
  ok(table_->copy_async(stream_, memory, memory + 50, 50, AA_COPY_DEVICE_TO_DEVICE));
  ok(table_->copy_async(stream_, nullptr, nullptr, 0, AA_COPY_DEVICE_TO_DEVICE));
  wrong(table_->copy_async(stream_, memory, host, 101, AA_COPY_HOST_TO_DEVICE), "runs over an end");
  wrong(table_->copy_async(stream_, host, memory + 50, 51, AA_COPY_DEVICE_TO_HOST), "runs over an end");
  wrong(table_->copy_async(stream_, memory, host, SIZE_MAX, AA_COPY_HOST_TO_DEVICE), "runs over an end");
  wrong(table_->copy_async(stream_, host, host + 100, 10, AA_COPY_HOST_TO_DEVICE), "no allocation");
  wrong(table_->copy_async(stream_, memory, nullptr, 10, AA_COPY_HOST_TO_DEVICE), "source: the pointer is null");
  wrong(table_->copy_async(stream_, memory, memory + 50, 10, AA_COPY_HOST_TO_DEVICE), "is device memory");
  wrong(table_->copy_async(stream_, memory, memory + 49, 50, AA_COPY_DEVICE_TO_DEVICE), "overlap");
  wrong(table_->copy_async(stream_, memory, host, 10, 7), "direction 7");
  free(memory, 100);
  wrong(table_->copy_async(stream_, memory, host, 10, AA_COPY_HOST_TO_DEVICE), "no allocation");
}

TEST_F(Validate, CopiesOfOtherDevicesAreRefused) {
  aa_device* other = nullptr;
  void* far = nullptr;
  char host[64] = {};
  ok(table_->device_open(instance_, 1, &other));
  ok(table_->mem_alloc(other, AA_MEMORY_DEVICE, 64, &far));
  wrong(table_->copy_async(stream_, far, host, 64, AA_COPY_HOST_TO_DEVICE), "another device");
  ok(table_->mem_free(other, AA_MEMORY_DEVICE, far, 64));
  ok(table_->device_close(other));
}

TEST_F(Validate, PinnedAndRegisteredMemory) {
  const auto& host_memory = extension<aa_host_memory_table>(AA_HOST_MEMORY_EXTENSION);
  char* pinned = alloc(64, AA_MEMORY_PINNED);
  char* memory = alloc(64);
  ok(table_->copy_async(stream_, memory, pinned, 64, AA_COPY_HOST_TO_DEVICE));
  wrong(table_->copy_async(stream_, memory, pinned + 1, 64, AA_COPY_HOST_TO_DEVICE), "runs over an end");
  char range[256] = {};
  ok(host_memory.register_range(device_, range, sizeof(range)));
  ok(table_->fill_async(stream_, range, "x", 1, 256));  // the device may reach it now
  wrong_now(table_->device_close(device_), "1 registered range");
  wrong(host_memory.unregister_range(device_, range + 1), "not registered");
  ok(host_memory.unregister_range(device_, range));
  wrong(host_memory.unregister_range(device_, range), "not registered");
  wrong(table_->fill_async(stream_, range, "x", 1, 256), "no allocation");
  free(pinned, 64, AA_MEMORY_PINNED);
  free(memory, 64);
}

TEST_F(Validate, Fills) {
  char* memory = alloc(64);
  ok(table_->fill_async(stream_, memory, "abcd", 4, 64));
  wrong(table_->fill_async(stream_, memory, "abcd", 3, 63), "pattern_size is 3");
  wrong(table_->fill_async(stream_, memory, "abcd", 4, 63), "is not a multiple of pattern_size 4");
  wrong(table_->fill_async(stream_, memory + 4, "abcd", 4, 64), "runs over an end");
  free(memory, 64);
}

TEST_F(Validate, Events) {
  aa_event* start = nullptr;
  aa_event* end = nullptr;
  aa_event* untimed = nullptr;
  double milliseconds = 0;
  ok(table_->event_create(device_, AA_EVENT_TIMING, &start));
  ok(table_->event_create(device_, AA_EVENT_TIMING, &end));
  ok(table_->event_create(device_, 0, &untimed));
  wrong_now(table_->event_elapsed(start, end, &milliseconds), "never recorded");
  ok(table_->event_record(start, stream_));
  ok(table_->event_record(end, stream_));
  ok(table_->event_record(untimed, stream_));
  wrong_now(table_->event_elapsed(start, untimed, &milliseconds), "without AA_EVENT_TIMING");
  fake::events_complete = false;
  wrong_now(table_->event_elapsed(start, end, &milliseconds), "not complete");
  fake::events_complete = true;
  ok(table_->event_elapsed(start, end, &milliseconds));
  EXPECT_EQ(milliseconds, 1.5);

  aa_device* other = nullptr;
  aa_stream* far = nullptr;
  ok(table_->device_open(instance_, 1, &other));
  ok(table_->stream_create(other, 0, 0, &far));
  wrong(table_->event_record(start, far), "different devices");
  ok(table_->stream_wait_event(far, start));  // waiting across devices is what events are for
  ok(table_->stream_destroy(far));
  ok(table_->device_close(other));
  for (aa_event* event : {start, end, untimed}) ok(table_->event_destroy(event));
}

TEST_F(Validate, Captures) {
  const auto& graphs = extension<aa_graph_table>(AA_GRAPH_EXTENSION);
  aa_graph* graph = nullptr;
  aa_event* event = nullptr;
  int32_t done = 0;
  ok(table_->event_create(device_, 0, &event));
  wrong_now(graphs.capture_end(stream_, &graph), "does not capture");
  ok(graphs.capture_begin(stream_));
  wrong_now(graphs.capture_begin(stream_), "captures already");
  wrong_now(table_->stream_synchronize(stream_), "synchronized");
  wrong_now(table_->stream_destroy(stream_), "destroyed");
  ok(table_->event_record(event, stream_));
  wrong_now(table_->event_synchronize(event), "captured a graph");
  wrong_now(table_->event_query(event, &done), "captured a graph");
  int calls = 0;
  ok(table_->stream_host_call(
      stream_, [](void* user) { ++*static_cast<int*>(user); }, &calls));
  ok(graphs.capture_end(stream_, &graph));
  EXPECT_EQ(calls, 0);
  ok(graphs.launch(graph, stream_));
  ok(graphs.launch(graph, stream_));
  EXPECT_EQ(calls, 2);
  wrong_now(table_->device_close(device_), "1 graph");
  ok(graphs.destroy(graph));
  wrong(graphs.launch(graph, stream_), "destroyed before");
  ok(graphs.capture_begin(stream_));
  ok(graphs.capture_end(stream_, nullptr));  // abandoned
  ok(table_->stream_synchronize(stream_));
  ok(table_->event_destroy(event));
}

TEST_F(Validate, NoCallsFromHostCalls) {
  struct Inside {
    const abi::DriverCalls* table;
    aa_stream* stream;
    aa_code code = AA_OK;
  } inside{table_, stream_};
  ok(table_->stream_host_call(
      stream_,
      [](void* user) {
        auto* self = static_cast<Inside*>(user);
        self->code = StatusRef(self->table->stream_synchronize(self->stream)).code();
      },
      &inside));
  EXPECT_EQ(inside.code, AA_FAILED_PRECONDITION);
  ok(table_->stream_synchronize(stream_));
}

TEST_F(Validate, KernelsAndModules) {
  aa_module* module = nullptr;
  aa_kernel* kernel = nullptr;
  wrong(table_->module_load(device_, "x", 0, "f", &module), "size is 0");
  ok(table_->module_load(device_, "x", 1, "f", &module));
  ok(table_->kernel_get(module, "known", &kernel, nullptr));
  aa_launch launch{};
  launch.struct_size = sizeof(launch);
  for (int i = 0; i < 3; ++i) launch.grid[i] = launch.block[i] = 1;
  ok(table_->kernel_launch(stream_, kernel, &launch));
  launch.grid[1] = 0;
  wrong(table_->kernel_launch(stream_, kernel, &launch), "is 0");
  launch.grid[1] = 1;
  launch.argument_count = 1;
  wrong(table_->kernel_launch(stream_, kernel, &launch), "null");
  launch.argument_count = 0;
  aa_device* other = nullptr;
  aa_stream* far = nullptr;
  ok(table_->device_open(instance_, 1, &other));
  ok(table_->stream_create(other, 0, 0, &far));
  wrong(table_->kernel_launch(far, kernel, &launch), "different devices");
  ok(table_->stream_destroy(far));
  ok(table_->device_close(other));
  wrong_now(table_->device_close(device_), "1 module");
  ok(table_->module_unload(module));
  wrong(table_->kernel_launch(stream_, kernel, &launch), "not made by this driver");
}

TEST_F(Validate, Ops) {
  const auto& ops = extension<aa_ops_table>(AA_OPS_EXTENSION);
  int32_t op = -1;
  ok(ops.find(instance_, "add", &op));
  char* memory = alloc(256);
  aa_tensor tensors[3] = {};
  for (aa_tensor& tensor : tensors) {
    tensor.data = memory;
    tensor.dtype = AA_DTYPE_F32;
    tensor.ndim = 2;
    tensor.shape[0] = tensor.shape[1] = 8;
    tensor.strides[0] = 8;
    tensor.strides[1] = 1;
  }
  aa_op_call call{};
  call.struct_size = sizeof(call);
  call.op = op;
  call.tensors = tensors;
  call.tensor_count = 3;
  ok(ops.enqueue(stream_, &call));
  tensors[1].strides[0] = 9;
  wrong(ops.enqueue(stream_, &call), "tensor 1: ");
  tensors[1].strides[0] = -8;
  wrong(ops.enqueue(stream_, &call), "tensor 1: ");
  tensors[1].data = memory + 7 * 8 * 4;
  ok(ops.enqueue(stream_, &call));
  tensors[1].strides[0] = INT64_MAX / 2;
  wrong(ops.enqueue(stream_, &call), "spans more");
  tensors[1].strides[0] = -8;
  tensors[2].dtype = 99;
  wrong(ops.enqueue(stream_, &call), "unknown dtype 99");
  tensors[2].dtype = AA_DTYPE_F32;
  tensors[2].ndim = 7;
  wrong(ops.enqueue(stream_, &call), "ndim 7");
  tensors[2].ndim = 2;
  tensors[2].data = nullptr;
  wrong(ops.enqueue(stream_, &call), "no data");
  int32_t supported = 0;
  ok(ops.supports(device_, &call, &supported));  // may lack data
  call.op = op + 1;
  wrong(ops.supports(device_, &call, &supported), "never given by find");
  call.op = op;
  set_op_validator([](const char* name, const aa_op_call* checked) {
    return std::string(name) == "add" && checked->params_size == 0 ? make_status(AA_OUT_OF_RANGE, "as the test wants")
                                                                   : nullptr;
  });
  refused(ops.supports(device_, &call, &supported), AA_OUT_OF_RANGE, "\"add\": as the test wants");
  set_op_validator(nullptr);
  ok(ops.supports(device_, &call, &supported));
  free(memory, 256);
}

TEST_F(Validate, ManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        void* pointer = nullptr;
        ok(table_->mem_alloc(device_, AA_MEMORY_DEVICE, 64, &pointer));
        ok(table_->mem_free(device_, AA_MEMORY_DEVICE, pointer, 64));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Validate, ErrorsOfTheDriverPassThrough) {
  aa_device_props props{};
  props.struct_size = sizeof(props);
  const StatusRef status(table_->device_props(instance_, 5, &props));
  EXPECT_EQ(status.text(), "OUT_OF_RANGE: no such device (vendor error 7)");
}

TEST(Layers, Specifications) {
  const abi::DriverCalls* table = bare();
  EXPECT_EQ(apply_layers(table, ""), table);
  EXPECT_EQ(apply_layers(table, " , "), table);
  const abi::DriverCalls* validated = apply_layers(table, "validate");
  EXPECT_NE(validated, table);
  EXPECT_EQ(apply_layers(table, " validate "), validated) << "the same layers gave another table";
  EXPECT_NE(apply_layers(table, "validate,trace"), apply_layers(table, "trace,validate"));
  EXPECT_STREQ(validated->name, "fake");
  try {
    apply_layers(table, "validate,speed");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "ANYACCEL_LAYERS: there is no layer \"speed\"; known are validate and trace");
  }
}

TEST(Layers, SeveralDriversAreKeptApart) {
  const abi::DriverCalls* table = bare();
  aa_driver renamed = *table;
  renamed.name = "second";
  const abi::DriverCalls* first = apply_layers(table, "validate");
  const abi::DriverCalls* second = apply_layers(complete_table(&renamed, "test"), "validate");
  ASSERT_NE(first, second);
  aa_initialize_params params{};
  params.struct_size = sizeof(params);
  aa_instance* instance = nullptr;
  ASSERT_EQ(first->initialize(&params, &instance), nullptr);
  int32_t count = 0;
  set_log_level(LogLevel::off);
  EXPECT_EQ(StatusRef(second->device_count(instance, &count)).code(), AA_INVALID_ARGUMENT);
  set_log_level(LogLevel::warning);
  EXPECT_EQ(first->device_count(instance, &count), nullptr);
  EXPECT_EQ(first->shutdown(instance), nullptr);
}

TEST(Trace, WritesOneLineForEachCall) {
  const abi::DriverCalls* table = apply_layers(bare(), "trace");
  aa_initialize_params params{};
  params.struct_size = sizeof(params);
  aa_instance* instance = nullptr;
  int32_t count = 0;
  aa_device_props props{};
  props.struct_size = sizeof(props);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(table->initialize(&params, &instance), nullptr);
  EXPECT_EQ(table->device_count(instance, &count), nullptr);
  EXPECT_EQ(StatusRef(table->device_props(instance, 9, &props)).code(), AA_OUT_OF_RANGE);
  const void* extension = nullptr;
  EXPECT_EQ(table->query_extension(instance, "profiler", 1, &extension), nullptr);
  const auto& profiler = *static_cast<const abi::Calls<aa_profiler_table>*>(extension);
  EXPECT_EQ(profiler.range_push(instance, "two\nlines", "", ""), nullptr);
  EXPECT_EQ(profiler.range_pop(instance, ""), nullptr);
  EXPECT_EQ(table->shutdown(instance), nullptr);
  const std::string output = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 7) << output;
  for (const char* part :
       {"fake.initialize(params=0x", ") = OK -> 0x", "fake.device_count(instance=0x", "OK -> 2, ", "index=9, ",
        "= OUT_OF_RANGE: no such device (vendor error 7), ", "name=\"profiler\", min_version=1",
        "fake.profiler.range_push(", "message=\"two lines\"", " us\n"}) {
    EXPECT_NE(output.find(part), std::string::npos) << part << "\n" << output;
  }
}

}  // namespace
}  // namespace anyaccel
