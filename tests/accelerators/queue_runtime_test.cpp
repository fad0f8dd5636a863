// The driver that several vendors share, over a runtime of the test's own that does everything at once and tells how it was
// called. What needs real asynchrony is tested on the simulated runtimes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <vector>

#include "accelerators/queue_runtime/device.h"
#include "accelerators/queue_runtime/library.h"
#include "accelerators/queue_runtime/ops.h"

namespace anyaccel::queue_runtime {
namespace {

constexpr int error_wrong_device = 10, error_memory = 11, error_lost = 12, error_failed = 13;

thread_local int current = -1;

// Streams and events are numbers. Work on a stream that has failed does nothing.
class FakeVendor final : public Vendor {
 public:
  std::map<std::string, int> calls;
  std::map<std::string, int> fails_next;  // by function
  std::string fails_always;               // for lack of memory
  std::map<void*, int> stream_errors;
  std::map<EventHandle, StreamHandle> recorded_on;
  StreamHandle lagging = nullptr;  // a query finds this stream's events not complete
  const OpSet* op_set = nullptr;
  size_t offset = 0;           // of new memory from what malloc gives
  bool takes_pageable = true;  // else a copy from or to memory that is not locked fails
  bool events_pass = true;     // else a query finds them not complete
  std::map<char*, size_t> locked;

  const char* accelerator() const override { return "fake"; }
  const char* vendor_name() const override { return "Test"; }
  std::string text(int result) override { return "FAKE_ERROR (" + std::to_string(result) + ")"; }
  aa_code code(int result) const override {
    return result == error_memory ? AA_RESOURCE_EXHAUSTED : result == error_lost ? AA_DEVICE_LOST : AA_INTERNAL;
  }
  bool is_wrong_device(int result) const override { return result == error_wrong_device; }

  Answer set_device(int ordinal) override {
    current = ordinal;
    return answer("set_device");
  }
  Answer get_device(int& ordinal) override {
    ordinal = current;
    return answer("get_device");
  }
  Answer release_device(int) override { return answer("release_device"); }
  Answer memory_info(size_t& free, size_t& total) override {
    free = 60;
    total = 100;
    return answer("memory_info");
  }
  Answer allocate(void*& pointer, size_t size) override {
    const Answer told = answer("allocate");
    if (told.result == 0)
      pointer = static_cast<char*>(std::aligned_alloc(64, (size + offset + 127) / 64 * 64)) + offset;
    return told;
  }
  Answer free(void* pointer) override {
    std::free(static_cast<char*>(pointer) - offset);
    return answer("free");
  }
  Answer allocate_pinned(void*& pointer, size_t size) override {
    const Answer told = answer("allocate_pinned");
    if (told.result != 0) return told;
    pointer = std::aligned_alloc(64, (size + 63) / 64 * 64);
    locked[static_cast<char*>(pointer)] = size;
    return told;
  }
  Answer free_pinned(void* pointer) override {
    locked.erase(static_cast<char*>(pointer));
    std::free(pointer);
    return answer("free_pinned");
  }
  bool copies_pageable() const override { return takes_pageable; }
  bool is_locked(const void* host, size_t size) const {
    const auto* const begin = static_cast<const char*>(host);
    return std::any_of(locked.begin(), locked.end(), [=](const auto& buffer) {
      return begin >= buffer.first && begin + size <= buffer.first + buffer.second;
    });
  }
  Answer copy_async(void* to, const void* from, size_t size, int32_t direction, StreamHandle stream) override {
    if (!takes_pageable && direction != AA_COPY_DEVICE_TO_DEVICE &&
        !is_locked(direction == AA_COPY_HOST_TO_DEVICE ? from : to, size)) {
      return {error_failed, "copy_async"};
    }
    return on(stream, "copy_async", [=] { std::memcpy(to, from, size); });
  }
  Answer fill_async(void* to, unsigned char value, size_t size, StreamHandle stream) override {
    return on(stream, "fill_async", [=] { std::memset(to, value, size); });
  }
  Answer stream_create(StreamHandle& stream, int32_t) override {
    stream = reinterpret_cast<void*>(++handles_);
    return answer("stream_create");
  }
  Answer stream_destroy(StreamHandle stream) override {
    stream_errors.erase(stream);
    return answer("stream_destroy");
  }
  Answer stream_query(StreamHandle stream, bool& done) override {
    done = true;
    return told("stream_query", stream);
  }
  Answer stream_synchronize(StreamHandle stream) override { return told("stream_synchronize", stream); }
  Answer stream_wait(StreamHandle, EventHandle) override { return answer("stream_wait"); }
  bool has_host_call() const override { return true; }
  Answer host_call(StreamHandle stream, void (*function)(void* user), void* user) override {
    return on(stream, "host_call", [=] { function(user); });
  }
  Answer event_create(EventHandle& event, bool) override {
    event = reinterpret_cast<void*>(++handles_);
    return answer("event_create");
  }
  Answer event_destroy(EventHandle) override { return answer("event_destroy"); }
  Answer event_record(EventHandle event, StreamHandle stream) override {
    recorded_on[event] = stream;
    return answer("event_record");
  }
  Answer event_query(EventHandle event, bool& done) override {
    done = events_pass &&
           (!lagging || recorded_on[event] != lagging);  // whatever happened before it: errors are the stream's
    return answer("event_query");
  }
  Answer event_synchronize(EventHandle) override { return answer("event_synchronize"); }
  Answer event_elapsed(float& milliseconds, EventHandle, EventHandle) override {
    milliseconds = 2.5;
    return answer("event_elapsed");
  }

  const OpSet* ops() override { return op_set; }

 private:
  Answer answer(const char* name) {
    ++calls[name];
    const int result = fails_always == name ? error_memory : fails_next[name];
    fails_next[name] = 0;
    return {result, name};
  }
  Answer told(const char* name, StreamHandle stream) {
    if (current != 1) return {error_wrong_device, name};
    const Answer plain = answer(name);
    const auto error = stream_errors.find(stream);
    if (error == stream_errors.end()) return plain;
    const int result = error->second;
    error->second = 0;  // told once, as some runtimes do
    return {result, name};
  }
  template <class Work>
  Answer on(StreamHandle stream, const char* name, Work&& work) {
    if (current != 1) return {error_wrong_device, name};
    const Answer told = answer(name);
    if (told.result == 0 && !stream_errors.contains(stream)) work();
    return told;
  }

  uintptr_t handles_ = 0;
};

// One op, number 7: adds aa_increment_params::amount to the bytes of a tensor, by way of a workspace.
class FakeOps : public OpSet {
 public:
  mutable std::vector<void*> taken;
  mutable aa_packed* packed = nullptr;  // of the latest call

  int find(const char* name) const override { return std::string(name) == "increment" ? 7 : -1; }
  bool supports(const aa_op_call& call) const override { return call.op == 7; }
  void run(const aa_op_call& call, StreamHandle, Workspace& workspace) const override {
    const aa_tensor& x = call.tensors[0];
    auto* const between = static_cast<unsigned char*>(workspace.take(64));
    taken.push_back(between);
    packed = call.packed != nullptr ? call.packed[0] : nullptr;
    auto* const bytes = static_cast<unsigned char*>(x.data);
    const auto amount = static_cast<const aa_increment_params*>(call.params)->amount;
    for (int64_t i = 0; i < x.shape[0]; ++i) between[i] = static_cast<unsigned char>(bytes[i] + amount);
    std::memcpy(bytes, between, static_cast<size_t>(x.shape[0]));
  }
};

// Holds the calls of a step back.
class StepOps final : public FakeOps {
 public:
  bool merges() const override { return true; }
};

template <class Call>
abi::Failure failure_of(Call&& call) {
  try {
    call();
  } catch (const abi::Failure& failure) {
    return failure;
  }
  ADD_FAILURE() << "it succeeded";
  return {AA_OK, ""};
}

// Device 1 of two.
class QueueRuntime : public ::testing::Test {
 protected:
  QueueRuntime() {
    auto owned = std::make_unique<FakeVendor>();
    vendor = owned.get();
    std::vector<DeviceFacts> devices(2);
    devices[1].ordinal = 1;
    devices[1].name = "Fake 1";
    devices[1].alignment = 64;
    driver = std::make_unique<Driver>(std::move(owned), std::move(devices), nullptr);
    aa_device_open_params params{};
    params.index = 1;
    device = driver->device_open(params);
    stream = device->stream_create({});
  }
  ~QueueRuntime() override {
    stream.reset();
    device.reset();
  }

  aa_allocation allocate(size_t size, int32_t kind = AA_MEMORY_DEVICE) {
    aa_alloc what{};
    what.kind = kind;
    what.size = size;
    aa_allocation out{};
    out.kind = kind;
    out.size = size;
    device->mem_alloc(what, out);
    return out;
  }
  static aa_copy copying(void* to, const void* from, size_t size, aa_copy_direction direction) {
    aa_copy copy{};
    copy.destination = to;
    copy.source = from;
    copy.size = size;
    copy.direction = direction;
    return copy;
  }
  void fail_stream() { vendor->stream_errors[stream->native()] = error_failed; }

  FakeVendor* vendor;
  std::unique_ptr<Driver> driver;
  std::unique_ptr<abi::Device> device;
  std::unique_ptr<abi::Stream> stream;
};

TEST_F(QueueRuntime, PutsTheDeviceBackThatOtherCodeChanged) {
  const aa_allocation memory = allocate(64);
  const int before = vendor->calls["set_device"];
  stream->synchronize();
  stream->synchronize();
  EXPECT_EQ(vendor->calls["set_device"], before);  // remembered
  current = 0;
  stream->synchronize();  // refused, and done once more
  EXPECT_EQ(vendor->calls["set_device"], before + 1);
  current = 0;
  const aa_allocation other = allocate(64);  // requested first
  EXPECT_EQ(current, 1);
  device->mem_free(memory);
  device->mem_free(other);
}

TEST_F(QueueRuntime, FillsPatternsOfEverySize) {
  const aa_allocation memory = allocate(4096);
  auto* bytes = static_cast<unsigned char*>(memory.pointer);
  for (const uint32_t pattern_size : {1u, 2u, 4u, 8u}) {
    for (const size_t count : {size_t{1}, size_t{3}, size_t{100}}) {
      std::memset(bytes, 0xee, 4096);
      aa_fill fill{};
      fill.destination = bytes + 8;
      fill.size = count * pattern_size;
      fill.pattern_size = pattern_size;
      for (uint8_t i = 0; i < pattern_size; ++i) fill.pattern[i] = static_cast<uint8_t>(i + 1);
      stream->fill(fill);
      for (size_t i = 0; i < fill.size; ++i) ASSERT_EQ(bytes[8 + i], i % pattern_size + 1) << pattern_size << " " << i;
      EXPECT_EQ(bytes[7], 0xee);
      EXPECT_EQ(bytes[8 + fill.size], 0xee);
    }
  }
  device->mem_free(memory);
}

TEST_F(QueueRuntime, WaitsAroundCopiesOfPageableMemoryOnly) {
  const aa_allocation memory = allocate(256);
  const aa_allocation pinned = allocate(256, AA_MEMORY_PINNED);
  std::vector<char> pageable(256);
  const int before = vendor->calls["stream_synchronize"];
  stream->copy(copying(memory.pointer, pinned.pointer, 256, AA_COPY_HOST_TO_DEVICE));
  stream->copy(copying(static_cast<char*>(pinned.pointer) + 8, memory.pointer, 248, AA_COPY_DEVICE_TO_HOST));
  EXPECT_EQ(vendor->calls["stream_synchronize"], before);
  stream->copy(copying(pageable.data(), memory.pointer, 256, AA_COPY_DEVICE_TO_HOST));
  EXPECT_EQ(vendor->calls["stream_synchronize"], before + 2);
  // Memory that is locked at its beginning only.
  const aa_allocation shorter = allocate(250, AA_MEMORY_PINNED);
  stream->copy(copying(static_cast<char*>(shorter.pointer) + 8, memory.pointer, 248, AA_COPY_DEVICE_TO_HOST));
  EXPECT_EQ(vendor->calls["stream_synchronize"], before + 4);
  device->mem_free(memory);
  device->mem_free(pinned);
  device->mem_free(shorter);
}

TEST_F(QueueRuntime, StagesPageableMemoryWhereTheVendorTakesNone) {
  vendor->takes_pageable = false;
  constexpr size_t most = (size_t{5} << 20) + 3;
  const aa_allocation memory = allocate(most);
  std::vector<char> source(most + 64), destination(most + 64);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<char>(i * 31 + i / 4096);
  for (const size_t size : {size_t{1}, size_t{1} << 20, (size_t{1} << 20) + 1, size_t{2} << 20, most}) {
    std::fill(destination.begin(), destination.end(), char{0});
    stream->copy(copying(memory.pointer, source.data() + 1, size, AA_COPY_HOST_TO_DEVICE));
    stream->copy(copying(destination.data() + 3, memory.pointer, size, AA_COPY_DEVICE_TO_HOST));
    EXPECT_EQ(std::memcmp(destination.data() + 3, source.data() + 1, size), 0) << size;
    EXPECT_EQ(destination[2], 0);
    EXPECT_EQ(destination[3 + size], 0) << size;
  }
  EXPECT_EQ(vendor->calls["allocate_pinned"], 2);  // used again
  // Copies of locked memory use no staging buffer.
  const aa_allocation pinned = allocate(256, AA_MEMORY_PINNED);
  stream->copy(copying(memory.pointer, pinned.pointer, 256, AA_COPY_HOST_TO_DEVICE));
  EXPECT_EQ(vendor->calls["allocate_pinned"], 3);
  // An error leaves the buffers in order, and nothing waiting to be copied.
  const int waits = vendor->calls["stream_synchronize"];
  vendor->fails_next["copy_async"] = error_failed;
  EXPECT_EQ(
      failure_of([&] { stream->copy(copying(memory.pointer, source.data(), most, AA_COPY_HOST_TO_DEVICE)); }).code(),
      AA_INTERNAL);
  EXPECT_EQ(vendor->calls["stream_synchronize"], waits + 1);
  stream->copy(copying(memory.pointer, source.data(), most, AA_COPY_HOST_TO_DEVICE));
  stream->copy(copying(destination.data(), memory.pointer, most, AA_COPY_DEVICE_TO_HOST));
  EXPECT_EQ(std::memcmp(destination.data(), source.data(), most), 0);
  // No buffer: an error, and the next copy asks again.
  const std::unique_ptr<abi::Stream> other = device->stream_create({});
  vendor->fails_next["allocate_pinned"] = error_memory;
  EXPECT_EQ(failure_of([&] { other->copy(copying(memory.pointer, source.data(), 8, AA_COPY_HOST_TO_DEVICE)); }).code(),
            AA_RESOURCE_EXHAUSTED);
  other->copy(copying(memory.pointer, source.data(), 8, AA_COPY_HOST_TO_DEVICE));
  device->mem_free(memory);
  device->mem_free(pinned);
  stream.reset();
  EXPECT_EQ(vendor->locked.size(), 1u);  // the other stream's
}

TEST_F(QueueRuntime, KnowsEveryByteOfItsMemory) {
  const aa_allocation memory = allocate(100);
  const aa_allocation pinned = allocate(64, AA_MEMORY_PINNED);
  aa_memory_info info{};
  ASSERT_TRUE(driver->mem_query(static_cast<char*>(memory.pointer) + 99, info));
  EXPECT_EQ(info.base, memory.pointer);
  EXPECT_EQ(info.size, 100u);
  EXPECT_EQ(info.kind, AA_MEMORY_DEVICE);
  EXPECT_EQ(info.device_index, 1);
  ASSERT_TRUE(driver->mem_query(pinned.pointer, info));
  EXPECT_EQ(info.kind, AA_MEMORY_PINNED);
  EXPECT_EQ(info.device_index, -1);
  int other = 0;
  EXPECT_FALSE(driver->mem_query(&other, info));
  device->mem_free(pinned);
  device->mem_free(memory);
  EXPECT_FALSE(driver->mem_query(memory.pointer, info));
  EXPECT_EQ(failure_of([&] { device->mem_free(memory); }).code(), AA_INVALID_ARGUMENT);
}

TEST_F(QueueRuntime, SaysWhatIsLeftWhenMemoryIsExhausted) {
  vendor->fails_next["allocate"] = error_memory;
  const abi::Failure failure = failure_of([&] { allocate(1000); });
  EXPECT_EQ(failure.code(), AA_RESOURCE_EXHAUSTED);
  EXPECT_EQ(failure.native_code(), error_memory);
  for (const char* part : {"fake:1 (Fake 1)", "1000 bytes", "60 of 100"}) {
    EXPECT_NE(std::string(failure.what()).find(part), std::string::npos) << failure.what();
  }
}

TEST_F(QueueRuntime, RefusesMemoryThatIsLessAlignedThanPromised) {
  vendor->offset = 16;
  EXPECT_EQ(failure_of([&] { allocate(64); }).code(), AA_INTERNAL);
  EXPECT_EQ(vendor->calls["free"], 1);
}

TEST_F(QueueRuntime, KeepsAnErrorThatTheVendorTellsOnce) {
  const auto event = device->event_create({});
  const auto earlier = device->event_create({});
  earlier->record(*stream);
  EXPECT_TRUE(earlier->query());
  fail_stream();
  event->record(*stream);
  EXPECT_EQ(failure_of([&] { event->synchronize(); }).native_code(), error_failed);  // by asking the stream
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(failure_of([&] { stream->synchronize(); }).native_code(), error_failed);
    EXPECT_EQ(failure_of([&] { stream->query(); }).native_code(), error_failed);
    EXPECT_EQ(failure_of([&] { event->query(); }).native_code(), error_failed);
    EXPECT_EQ(failure_of([&] { device->synchronize(); }).native_code(), error_failed);
  }
  EXPECT_TRUE(earlier->query());  // it was complete before
  EXPECT_EQ(failure_of([&] { stream->close(); }).native_code(), error_failed);
}

// Nobody asked about the record itself before the stream failed, and the runtime does not tell where it failed.
TEST_F(QueueRuntime, ARecordThatAWaitForTheStreamCoversStaysGood) {
  for (const auto& [by_query, known] : {std::pair(false, true), {true, true}, {true, false}}) {
    const auto failing = device->stream_create({});
    const auto waiting = device->stream_create({});
    const auto covered = device->event_create({});
    const auto behind = device->event_create({});
    covered->record(*failing);
    if (by_query) {
      EXPECT_TRUE(failing->query());
    } else {
      failing->synchronize();
    }
    vendor->stream_errors[failing->native()] = error_failed;
    behind->record(*failing);
    if (known) {
      EXPECT_EQ(failure_of([&] { failing->synchronize(); }).native_code(), error_failed);
    }
    EXPECT_TRUE(covered->query());
    covered->synchronize();
    waiting->wait_event(*covered);
    waiting->synchronize();
    EXPECT_EQ(failure_of([&] { behind->query(); }).native_code(), error_failed);
    vendor->stream_errors.erase(failing->native());
  }
}

// That a stream was found without an error of its own says nothing about those that it waited for.
TEST_F(QueueRuntime, ARecordBehindAWaitForAFailedStreamIsNotCovered) {
  const auto failing = device->stream_create({});
  const auto waiting = device->stream_create({});
  const auto before = device->event_create({});
  const auto event = device->event_create({});
  const auto behind = device->event_create({});
  event->record(*failing);
  vendor->stream_errors[failing->native()] = error_failed;
  before->record(*waiting);
  waiting->wait_event(*event);
  behind->record(*waiting);
  EXPECT_EQ(failure_of([&] { waiting->synchronize(); }).native_code(), error_failed);
  EXPECT_EQ(failure_of([&] { behind->query(); }).native_code(), error_failed);
  EXPECT_TRUE(before->query());
}

// The caller frees what the work uses, which must have ended.
TEST_F(QueueRuntime, WaitsOnceMoreAfterAWaitThatFailed) {
  fail_stream();
  const int before = vendor->calls["stream_synchronize"];
  EXPECT_EQ(failure_of([&] { stream->synchronize(); }).native_code(), error_failed);
  EXPECT_EQ(vendor->calls["stream_synchronize"], before + 2);
}

TEST_F(QueueRuntime, ClosingAStreamTellsItsError) {
  fail_stream();
  EXPECT_EQ(failure_of([&] { stream->close(); }).native_code(), error_failed);
}

TEST_F(QueueRuntime, AStreamThatWaitsForAFailedOneFails) {
  const auto waiting = device->stream_create({});
  const auto bystander = device->stream_create({});
  const auto event = device->event_create({});
  fail_stream();
  event->record(*stream);
  waiting->wait_event(*event);
  EXPECT_EQ(failure_of([&] { waiting->synchronize(); }).native_code(), error_failed);
  bystander->synchronize();
  // The records that were waited for are given back when a later one of the stream has passed.
  const auto busy = device->stream_create({});
  const auto later = device->event_create({});
  busy->wait_event(*event);
  for (int i = 0; i < 3; ++i) later->record(*busy);
  EXPECT_EQ(failure_of([&] { busy->synchronize(); }).native_code(), error_failed);
}

// However it is asked, every time, and whoever waits for it in turn.
TEST_F(QueueRuntime, AFailureIsPassedOnByEveryCallThatTells) {
  struct Telling {
    const char* name;
    void (*tell)(abi::Stream& stream);
  };
  for (const Telling& way : {Telling{"query", [](abi::Stream& s) { s.query(); }},
                             {"synchronize", [](abi::Stream& s) { s.synchronize(); }},
                             {"close", [](abi::Stream& s) { s.close(); }}}) {
    const auto failing = device->stream_create({});
    const auto waiting = device->stream_create({});
    const auto behind = device->stream_create({});
    const auto event = device->event_create({});
    const auto later = device->event_create({});
    vendor->events_pass = false;  // so that nothing is known to have failed while it is waited for
    event->record(*failing);
    waiting->wait_event(*event);
    later->record(*waiting);
    behind->wait_event(*later);
    vendor->events_pass = true;
    vendor->stream_errors[failing->native()] = error_failed;
    EXPECT_EQ(failure_of([&] { way.tell(*behind); }).native_code(), error_failed) << way.name << " behind";
    EXPECT_EQ(failure_of([&] { way.tell(*waiting); }).native_code(), error_failed) << way.name;
    EXPECT_EQ(failure_of([&] { waiting->synchronize(); }).native_code(), error_failed)
        << way.name << ", then synchronize";
    EXPECT_EQ(failure_of([&] { later->synchronize(); }).native_code(), error_failed) << way.name << ", then its event";
    vendor->stream_errors.erase(failing->native());
  }
}

// The end of what waited is not known to be without a failure before the query of what it waited for has answered.
TEST_F(QueueRuntime, AFailureIsNotLostWhereAQueryLagsBehind) {
  for (const bool by_stream : {false, true}) {
    const auto failing = device->stream_create({});
    const auto waiting = device->stream_create({});
    const auto event = device->event_create({});
    const auto later = device->event_create({});
    vendor->lagging = failing->native();
    event->record(*failing);
    waiting->wait_event(*event);
    later->record(*waiting);
    EXPECT_FALSE(by_stream ? waiting->query() : later->query());
    vendor->stream_errors[failing->native()] = error_failed;
    vendor->lagging = nullptr;
    const abi::Failure failure = failure_of([&] { by_stream ? waiting->query() : later->query(); });
    EXPECT_EQ(failure.native_code(), error_failed);
    vendor->stream_errors.erase(failing->native());
  }
}

// As copies and computation do, without waiting for the host in between.
TEST_F(QueueRuntime, StreamsThatWaitForEachOtherInTurnsKeepNoChainOfRecords) {
  for (const bool fails : {false, true}) {
    const auto failing = device->stream_create({});
    const std::unique_ptr<abi::Stream> streams[] = {device->stream_create({}), device->stream_create({})};
    auto last = device->event_create({});
    vendor->events_pass = false;
    last->record(*failing);
    streams[0]->wait_event(*last);
    for (int i = 0; i < 200'000; ++i) {
      last = device->event_create({});
      last->record(*streams[i % 2]);
      streams[1 - i % 2]->wait_event(*last);
    }
    if (fails) vendor->stream_errors[failing->native()] = error_failed;
    vendor->events_pass = true;
    const int before = vendor->calls["event_query"];
    if (fails) {
      EXPECT_EQ(failure_of([&] { last->query(); }).native_code(), error_failed);
    } else {
      EXPECT_TRUE(last->query());
    }
    EXPECT_LE(vendor->calls["event_query"] - before, 3);  // one for each stream
    vendor->stream_errors.erase(failing->native());
  }
}

// Each record is of later work than the one before, which need not be asked for.
TEST_F(QueueRuntime, OfManyWaitsForOneStreamTheLastIsAsked) {
  const auto waiting = device->stream_create({});
  const auto event = device->event_create({});
  const auto older = device->event_create({});
  const auto later = device->event_create({});
  vendor->events_pass = false;
  older->record(*stream);
  for (int i = 0; i < 1000; ++i) {
    event->record(*stream);
    waiting->wait_event(*event);
  }
  waiting->wait_event(*older);
  later->record(*waiting);
  vendor->events_pass = true;
  const int before = vendor->calls["event_query"];
  EXPECT_TRUE(later->query());
  EXPECT_EQ(vendor->calls["event_query"], before + 2);
  EXPECT_TRUE(event->query());
  EXPECT_EQ(vendor->calls["event_query"], before + 2);  // it was the last
}

TEST_F(QueueRuntime, WaitsStayBoundToTheirRecord) {
  const auto event = device->event_create({});
  const auto waiting = device->stream_create({});
  waiting->wait_event(*event);  // never recorded
  EXPECT_EQ(vendor->calls["stream_wait"], 0);
  event->record(*stream);
  stream->wait_event(*event);  // its own
  EXPECT_EQ(vendor->calls["stream_wait"], 0);
  waiting->wait_event(*event);
  EXPECT_EQ(vendor->calls["stream_wait"], 1);
  event->record(*stream);
  EXPECT_EQ(vendor->calls["event_create"], 2);  // the first is still waited for
}

TEST_F(QueueRuntime, EventsAreUsedAgain) {
  const auto event = device->event_create({});
  for (int i = 0; i < 100; ++i) event->record(*stream);
  EXPECT_LE(vendor->calls["event_create"], 3);
}

TEST_F(QueueRuntime, TimesOnlyWhatHasTimes) {
  aa_event_params timed{};
  timed.flags = AA_EVENT_TIMING;
  const auto start = device->event_create(timed);
  const auto end = device->event_create(timed);
  const auto plain = device->event_create({});
  start->record(*stream);
  EXPECT_EQ(failure_of([&] { start->elapsed(*end); }).code(), AA_FAILED_PRECONDITION);
  end->record(*stream);
  plain->record(*stream);
  EXPECT_EQ(start->elapsed(*end), 2.5);
  EXPECT_EQ(failure_of([&] { start->elapsed(*plain); }).code(), AA_FAILED_PRECONDITION);
  vendor->events_pass = false;
  start->record(*stream);
  end->record(*stream);
  EXPECT_EQ(failure_of([&] { start->elapsed(*end); }).code(), AA_FAILED_PRECONDITION);
  vendor->events_pass = true;
}

TEST_F(QueueRuntime, ReplaysWhatItRecorded) {
  const aa_allocation memory = allocate(64);
  const aa_allocation other = allocate(64);
  std::vector<char> source(64), destination(64);
  int count = 0;
  stream->capture_begin();
  EXPECT_TRUE(stream->capturing());
  stream->copy(copying(memory.pointer, source.data(), 64, AA_COPY_HOST_TO_DEVICE));
  stream->copy(copying(other.pointer, memory.pointer, 64, AA_COPY_DEVICE_TO_DEVICE));
  stream->host_call([](void* user) { ++*static_cast<int*>(user); }, &count);
  stream->copy(copying(destination.data(), other.pointer, 64, AA_COPY_DEVICE_TO_HOST));
  EXPECT_EQ(failure_of([&] { stream->synchronize(); }).code(), AA_FAILED_PRECONDITION);
  EXPECT_EQ(failure_of([&] { stream->capture_begin(); }).code(), AA_FAILED_PRECONDITION);
  const std::unique_ptr<abi::Graph> graph = stream->capture_end();
  EXPECT_EQ(graph->node_count(), 4);
  EXPECT_EQ(count, 0);
  const int waits = vendor->calls["stream_synchronize"];
  for (char round = 1; round < 4; ++round) {
    std::iota(source.begin(), source.end(), round);
    graph->launch(*stream);
    EXPECT_EQ(vendor->calls["stream_synchronize"], waits);  // launching waits for nothing, pageable memory or not
    EXPECT_EQ(destination, source);
    EXPECT_EQ(count, round);
  }
  EXPECT_EQ(failure_of([&] { stream->capture_end(); }).code(), AA_FAILED_PRECONDITION);
  device->mem_free(memory);
  device->mem_free(other);
}

// They share the graph's memory.
TEST_F(QueueRuntime, LaunchesOfAGraphFollowEachOther) {
  const aa_allocation memory = allocate(64), other = allocate(64);
  const auto second = device->stream_create({});
  stream->capture_begin();
  stream->copy(copying(other.pointer, memory.pointer, 64, AA_COPY_DEVICE_TO_DEVICE));
  std::unique_ptr<abi::Graph> graph = stream->capture_end();
  vendor->events_pass = false;
  graph->launch(*stream);
  EXPECT_EQ(vendor->calls["stream_wait"], 0);
  graph->launch(*second);
  EXPECT_EQ(vendor->calls["stream_wait"], 1);
  const int waits = vendor->calls["event_synchronize"];
  graph.reset();                                             // nothing of it may be running then
  EXPECT_EQ(vendor->calls["event_synchronize"], waits + 2);  // of both launches
  vendor->events_pass = true;
  device->mem_free(memory);
  device->mem_free(other);
}

TEST_F(QueueRuntime, AFailedLaunchDoesNotFailThoseOnOtherStreams) {
  const aa_allocation memory = allocate(64), other = allocate(64);
  const auto second = device->stream_create({});
  stream->capture_begin();
  stream->copy(copying(other.pointer, memory.pointer, 64, AA_COPY_DEVICE_TO_DEVICE));
  const std::unique_ptr<abi::Graph> graph = stream->capture_end();
  vendor->events_pass = false;
  graph->launch(*stream);
  vendor->events_pass = true;
  fail_stream();
  EXPECT_EQ(failure_of([&] { stream->synchronize(); }).code(), AA_INTERNAL);
  static_cast<char*>(memory.pointer)[3] = 77;
  graph->launch(*second);
  second->synchronize();
  EXPECT_EQ(static_cast<char*>(other.pointer)[3], 77);
  EXPECT_EQ(failure_of([&] { stream->close(); }).code(), AA_INTERNAL);
  device->mem_free(memory);
  device->mem_free(other);
}

// Both would use the graph's memory at the same time.
TEST_F(QueueRuntime, ALaunchIsRefusedWhileAFailedOneMayStillRun) {
  const aa_allocation memory = allocate(64);
  char text[64] = "pageable";
  auto failing = device->stream_create({});
  stream->capture_begin();
  stream->copy(copying(memory.pointer, text, sizeof(text), AA_COPY_HOST_TO_DEVICE));
  const std::unique_ptr<abi::Graph> graph = stream->capture_end();
  for (const bool destroys : {false, true}) {
    vendor->events_pass = false;
    graph->launch(*failing);
    vendor->stream_errors[failing->native()] = error_failed;
    EXPECT_EQ(failure_of([&] { static_cast<void>(failing->query()); }).code(), AA_INTERNAL);
    static_cast<char*>(memory.pointer)[0] = '?';
    const abi::Failure refused = failure_of([&] { graph->launch(*stream); });
    EXPECT_EQ(refused.code(), AA_FAILED_PRECONDITION);
    EXPECT_NE(std::string(refused.what()).find("earlier launch"), std::string::npos) << refused.what();
    EXPECT_EQ(static_cast<char*>(memory.pointer)[0], '?');
    // The stream's own launches follow each other anyway.
    graph->launch(*failing);
    if (destroys) {
      failure_of([&] { failing->close(); });  // waits for its work
      failing.reset();
    } else {
      vendor->events_pass = true;
    }
    graph->launch(*stream);
    stream->synchronize();
    EXPECT_STREQ(static_cast<char*>(memory.pointer), "pageable");
    if (!destroys) {
      failure_of([&] { failing->close(); });
      failing = device->stream_create({});
    }
  }
  vendor->events_pass = true;
  device->mem_free(memory);
}

// A launch whose end cannot be recorded has been enqueued: the host must not launch the graph again, and nothing of it may be
// running when the graph is destroyed.
TEST_F(QueueRuntime, ALaunchWhoseEndIsNotRecordedIsNotRepeated) {
  const aa_allocation memory = allocate(64), other = allocate(64);
  stream->capture_begin();
  stream->copy(copying(other.pointer, memory.pointer, 64, AA_COPY_DEVICE_TO_DEVICE));
  std::unique_ptr<abi::Graph> graph = stream->capture_end();
  vendor->fails_next["event_record"] = error_memory;
  const abi::Failure once = failure_of([&] { graph->launch(*stream); });
  EXPECT_EQ(once.code(), AA_INTERNAL);
  EXPECT_NE(std::string(once.what()).find("1 of its 1 items"), std::string::npos) << once.what();
  vendor->fails_always = "event_record";
  const int waits = vendor->calls["stream_synchronize"];
  EXPECT_EQ(failure_of([&] { graph->launch(*stream); }).code(), AA_INTERNAL);
  EXPECT_EQ(vendor->calls["stream_synchronize"], waits + 1);
  vendor->fails_always.clear();
  device->mem_free(memory);
  device->mem_free(other);
}

// The caller may be the one who lets the stream's earlier work go on.
TEST_F(QueueRuntime, ALaunchOfWhichNothingWasTakenWaitsForNothing) {
  const aa_allocation memory = allocate(64), other = allocate(64);
  stream->capture_begin();
  stream->copy(copying(other.pointer, memory.pointer, 64, AA_COPY_DEVICE_TO_DEVICE));
  const std::unique_ptr<abi::Graph> graph = stream->capture_end();
  const int waits = vendor->calls["stream_synchronize"];
  vendor->fails_next["copy_async"] = error_memory;
  vendor->fails_always = "event_record";
  EXPECT_EQ(failure_of([&] { graph->launch(*stream); }).code(), AA_RESOURCE_EXHAUSTED);
  EXPECT_EQ(vendor->calls["stream_synchronize"], waits);
  vendor->fails_always.clear();
  device->mem_free(memory);
  device->mem_free(other);
}

// The launch may use the graph's memory until its end has come, also after the stream has told an error.
TEST_F(QueueRuntime, AGraphWaitsForAFailedLaunchBeforeItsMemoryIsFreed) {
  const aa_allocation memory = allocate(64);
  char text[64] = "pageable";
  stream->capture_begin();
  stream->copy(copying(memory.pointer, text, sizeof(text), AA_COPY_HOST_TO_DEVICE));
  std::unique_ptr<abi::Graph> graph = stream->capture_end();
  vendor->events_pass = false;
  graph->launch(*stream);
  fail_stream();
  EXPECT_EQ(failure_of([&] { static_cast<void>(stream->query()); }).code(), AA_INTERNAL);
  const int waits = vendor->calls["event_synchronize"];
  graph.reset();
  EXPECT_EQ(vendor->calls["event_synchronize"], waits + 1);
  vendor->events_pass = true;
  device->mem_free(memory);
}

// The host launches a graph again after AA_RESOURCE_EXHAUSTED, so that nothing of it may have run.
TEST_F(QueueRuntime, ALaunchWithoutMemoryBehindItsFirstItemIsNotRepeated) {
  const FakeOps ops;
  vendor->op_set = &ops;
  const aa_allocation memory = allocate(64);
  std::memset(memory.pointer, 1, 64);
  aa_tensor tensor{};
  tensor.data = memory.pointer;
  tensor.ndim = 1;
  tensor.shape[0] = 10;
  auto params = abi::sized<aa_increment_params>();
  params.amount = 5;
  aa_op_call call{};
  call.op = 7;
  call.tensors = &tensor;
  call.tensor_count = 1;
  call.params = &params;
  call.params_size = sizeof(params);
  for (const bool first : {true, false}) {
    stream->capture_begin();
    if (!first) {
      aa_fill fill{};
      fill.destination = memory.pointer;
      fill.size = 64;
      fill.pattern_size = 1;
      fill.pattern[0] = 3;
      stream->fill(fill);
    }
    EXPECT_TRUE(stream->enqueue_op(call));
    const std::unique_ptr<abi::Graph> graph = stream->capture_end();
    vendor->fails_next["allocate"] = error_memory;
    const abi::Failure failure = failure_of([&] { graph->launch(*stream); });
    EXPECT_EQ(failure.code(), first ? AA_RESOURCE_EXHAUSTED : AA_INTERNAL);
    EXPECT_EQ(static_cast<char*>(memory.pointer)[0], first ? 1 : 3);
    if (first) continue;
    EXPECT_NE(std::string(failure.what()).find("1 of its 2 items"), std::string::npos) << failure.what();
  }
  device->mem_free(memory);
}

TEST_F(QueueRuntime, RecordsOpsWithWhatTheyWereGiven) {
  const FakeOps ops;
  vendor->op_set = &ops;
  EXPECT_EQ(driver->find_op("increment"), 7);
  EXPECT_EQ(driver->find_op("add"), -1);
  EXPECT_NE(driver->extensions() & abi::ops_extension, 0u);
  const aa_allocation memory = allocate(64);
  auto* const bytes = static_cast<unsigned char*>(memory.pointer);
  std::memset(bytes, 1, 64);
  aa_tensor tensor{};
  tensor.data = bytes;
  tensor.ndim = 1;
  tensor.shape[0] = 10;
  auto params = abi::sized<aa_increment_params>();
  params.amount = 5;
  aa_op_call call{};
  call.op = 7;
  call.tensors = &tensor;
  call.tensor_count = 1;
  call.params = &params;
  call.params_size = sizeof(params);
  int weight = 0;
  auto* packed = reinterpret_cast<aa_packed*>(&weight);
  call.packed = &packed;
  EXPECT_TRUE(device->supports_op(call));
  stream->capture_begin();
  EXPECT_TRUE(stream->enqueue_op(call));
  std::unique_ptr<abi::Graph> graph = stream->capture_end();
  tensor = {};  // lent for the call only
  params = {};
  packed = nullptr;
  EXPECT_EQ(bytes[0], 1);
  graph->launch(*stream);
  graph->launch(*stream);
  EXPECT_EQ(bytes[9], 11);
  EXPECT_EQ(ops.packed, reinterpret_cast<aa_packed*>(&weight));
  EXPECT_EQ(bytes[10], 1);
  ASSERT_EQ(ops.taken.size(), 2u);
  EXPECT_EQ(ops.taken[0], ops.taken[1]);  // the graph's own
  const int frees = vendor->calls["free"];
  graph.reset();
  EXPECT_EQ(vendor->calls["free"], frees + 1);
  call.op = 8;
  EXPECT_FALSE(stream->enqueue_op(call));
  device->mem_free(memory);
}

// A step that found no memory is computed later.
TEST_F(QueueRuntime, AStepWithoutMemoryIsTriedAgain) {
  const StepOps ops;
  vendor->op_set = &ops;
  const aa_allocation memory = allocate(64);
  auto* const bytes = static_cast<unsigned char*>(memory.pointer);
  std::memset(bytes, 1, 64);
  aa_tensor tensor{};
  tensor.data = bytes;
  tensor.ndim = 1;
  tensor.shape[0] = 10;
  auto params = abi::sized<aa_increment_params>();
  params.amount = 5;
  aa_op_call call{};
  call.op = 7;
  call.tensors = &tensor;
  call.tensor_count = 1;
  call.params = &params;
  call.params_size = sizeof(params);
  stream->step_begin({});
  EXPECT_TRUE(stream->enqueue_op(call));
  EXPECT_EQ(bytes[0], 1);
  vendor->fails_next["allocate"] = error_memory;
  EXPECT_EQ(failure_of([&] { stream->step_end(); }).code(), AA_RESOURCE_EXHAUSTED);
  stream->synchronize();
  EXPECT_EQ(bytes[0], 6);
  device->mem_free(memory);
}

TEST_F(QueueRuntime, ALostDeviceSaysSoEveryTime) {
  const aa_allocation memory = allocate(64);
  vendor->fails_next["stream_synchronize"] = error_lost;
  const std::string first = failure_of([&] { stream->synchronize(); }).what();
  for (int i = 0; i < 2; ++i) {
    const abi::Failure failure = failure_of([&] { allocate(64); });
    EXPECT_EQ(failure.code(), AA_DEVICE_LOST);
    EXPECT_EQ(failure.native_code(), error_lost);
    EXPECT_EQ(failure.what(), first);
  }
  device->mem_free(memory);  // address ranges are freed all the same
  EXPECT_EQ(vendor->calls["free"], 1);
}

TEST_F(QueueRuntime, RefusesAForkedChild) {
  const pid_t child = fork();
  if (child == 0) {
    int code = 0;
    try {
      stream->synchronize();
      code = 1;
    } catch (const abi::Failure& failure) {
      if (failure.code() != AA_FAILED_PRECONDITION) code = 2;
    }
    _exit(code);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  stream->synchronize();  // the parent can still use it
}

TEST_F(QueueRuntime, NamesTheDevicesThatThereAre) {
  aa_device_props props{};
  EXPECT_NE(std::string(failure_of([&] { driver->device_props(2, props); }).what()).find("2 devices"),
            std::string::npos);
}

TEST(LibrarySearch, SaysWhereItLooked) {
  const LibrarySearch search{"ANYACCEL_FAKE_LIBRARY_PATH", {"ANYACCEL_FAKE_HOME"}, "/nowhere/fake", "stubs"};
  setenv("ANYACCEL_FAKE_LIBRARY_PATH", "/nowhere/asked:/nowhere/twice", 1);
  const OpenedLibrary opened = open_library(search, {"libanyaccel_fake.so"});
  unsetenv("ANYACCEL_FAKE_LIBRARY_PATH");
  EXPECT_EQ(opened.handle, nullptr);
  EXPECT_EQ(opened.tried,
            "looked for libanyaccel_fake.so in /nowhere/asked, /nowhere/twice, /nowhere/fake/lib64, /nowhere/fake/lib, "
            "/nowhere/fake, "
            "LD_LIBRARY_PATH and the system's library folders");
}

}  // namespace
}  // namespace anyaccel::queue_runtime
