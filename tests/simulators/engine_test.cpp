// The simulator's engine: every rule that it promises to enforce is broken once and found, and programs that keep the
// rules are left alone, whatever the delays.
#include "simulators/engine/engine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

namespace {

using namespace sim;

constexpr std::uint64_t kOwner = 7;

std::shared_ptr<const Command> copy(void* to, const void* from, std::size_t bytes,
                                    std::vector<std::shared_ptr<Event>> waits = {},
                                    std::shared_ptr<Event> signal = nullptr) {
  Command command;
  command.what = "copy";
  command.waits = std::move(waits);
  command.signal = std::move(signal);
  command.run = [=](Execution& execution) {
    const char* source = execution.read(from, bytes);
    char* target = execution.write(to, bytes);
    if (source != nullptr && target != nullptr) std::memcpy(target, source, bytes);
  };
  return std::make_shared<const Command>(std::move(command));
}

struct Simulator {
  explicit Simulator(Settings settings = {}) : engine(std::move(settings)) {}

  char* allocate(std::size_t bytes, int device = 0, MemoryKind kind = MemoryKind::device) {
    std::shared_ptr<const Allocation> allocation;
    EXPECT_EQ(engine.allocate(kind, device, kOwner, bytes, 0, &allocation), Status::ok);
    return allocation->pointer;
  }
  // The kinds of all violations, in order, with commas.
  std::string kinds() {
    std::string text;
    for (const Violation& v : engine.report().violations()) text += (text.empty() ? "" : ",") + v.kind;
    return text;
  }
  // Until `count` commands have run, without the engine learning that anybody waited for them.
  void watch(std::uint64_t count) {
    while (engine.commands_run() < count) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }

  Engine engine;
};

Settings with_faults(const std::string& text) {
  Settings settings;
  settings.faults = parse_faults(text);
  return settings;
}

int seeds() {
  const char* text = std::getenv("ANYACCEL_TEST_SEEDS");
  return text == nullptr ? 5 : std::atoi(text);
}

TEST(Engine, CopiesThereAndBackUnderManyDelays) {
  for (int seed = 0; seed < seeds(); ++seed) {
    Settings settings;
    settings.seed = static_cast<std::uint64_t>(seed);
    Simulator s(settings);
    std::vector<int> in(1000), out(1000);
    std::iota(in.begin(), in.end(), seed);
    char* a = s.allocate(4000);
    char* b = s.allocate(4000, 1);
    {
      Stream first(s.engine, 0, true), second(s.engine, 1, true);
      auto event = std::make_shared<Event>(), late = std::make_shared<Event>();
      // The wait is submitted before what it waits for.
      ASSERT_EQ(second.submit({copy(b, a, 4000, {event}), copy(out.data(), b, 4000, {}, late)}), Status::ok);
      ASSERT_EQ(first.submit({copy(a, in.data(), 4000, {}, event)}), Status::ok);
      ASSERT_EQ(s.engine.wait(*late, kForever), Status::ok);
      ASSERT_EQ(first.wait(kForever), Status::ok);
    }
    EXPECT_EQ(in, out);
    EXPECT_EQ(s.engine.free(a, kOwner), Status::ok);
    EXPECT_EQ(s.engine.free(b, kOwner), Status::ok);
    EXPECT_EQ(s.kinds(), "");
    EXPECT_TRUE(s.engine.memory().live().empty());
  }
}

TEST(Engine, FindsAMissingEventWhateverTheTiming) {
  Simulator s;
  std::vector<char> in(64), out(64);
  char* a = s.allocate(64);
  Stream first(s.engine, 0, true), second(s.engine, 0, true);
  ASSERT_EQ(first.submit({copy(a, in.data(), 64)}), Status::ok);
  s.watch(1);  // it has run long ago, and still nothing orders the next one after it
  ASSERT_EQ(second.submit({copy(out.data(), a, 64)}), Status::ok);
  second.wait(kForever);
  EXPECT_EQ(s.kinds(), "race");
}

TEST(Engine, WaitingOnTheHostIsAnOrder) {
  Simulator s;
  std::vector<char> in(64), out(64);
  char* a = s.allocate(64);
  Stream first(s.engine, 0, true), second(s.engine, 0, true);
  first.submit({copy(a, in.data(), 64)});
  first.wait(kForever);
  second.submit({copy(out.data(), a, 64)});
  second.wait(kForever);
  EXPECT_EQ(s.kinds(), "");
}

TEST(Engine, ReadersMayOverlapAWriterMayNot) {
  Simulator s;
  std::vector<char> in(64), out(128);
  char* a = s.allocate(64);
  Stream first(s.engine, 0, true), second(s.engine, 0, true);
  first.submit({copy(a, in.data(), 64)});
  first.wait(kForever);
  first.submit({copy(out.data(), a, 64)});
  s.watch(2);
  second.submit({copy(out.data() + 64, a, 64)});
  s.watch(3);
  EXPECT_EQ(s.kinds(), "");
  first.submit({copy(a, in.data(), 32)});  // second reads these bytes too
  s.watch(4);
  EXPECT_EQ(s.kinds(), "race");
  first.wait(kForever);
  second.wait(kForever);
}

TEST(Engine, DisjointRangesDoNotRace) {
  Simulator s;
  std::vector<char> in(64);
  char* a = s.allocate(64);
  Stream first(s.engine, 0, true), second(s.engine, 0, true);
  first.submit({copy(a, in.data(), 32)});
  second.submit({copy(a + 32, in.data() + 32, 32)});
  first.wait(kForever);
  second.wait(kForever);
  EXPECT_EQ(s.kinds(), "");
}

TEST(Engine, StreamsWithoutOrderNeedBarriers) {
  Command barrier;
  barrier.what = "barrier";
  barrier.barrier = true;
  const auto between = std::make_shared<const Command>(barrier);
  for (const bool with : {true, false}) {
    Simulator s;
    std::vector<char> in(64), out(64);
    char* a = s.allocate(64);
    Stream stream(s.engine, 0, false);
    stream.submit({copy(a, in.data(), 64)});
    if (with) stream.submit({between});
    stream.submit({copy(out.data(), a, 64)});
    stream.wait(kForever);
    EXPECT_EQ(s.kinds(), with ? "" : "race");
  }
}

TEST(Engine, HostBuffersAreReadWhenTheCommandRuns) {
  Simulator s;
  std::vector<char> in(8, 1), out(8);
  char* a = s.allocate(8);
  Stream stream(s.engine, 0, true);
  auto gate = std::make_shared<Event>();
  stream.submit({copy(a, in.data(), 8, {gate}), copy(out.data(), a, 8)});
  in.assign(8, 2);
  s.engine.signal(*gate);
  stream.wait(kForever);
  EXPECT_EQ(out, std::vector<char>(8, 2));
}

TEST(Engine, NewMemoryIsPoisoned) {
  Simulator s;
  std::vector<unsigned char> out(100);
  char* a = s.allocate(100);
  Stream stream(s.engine, 0, true);
  stream.submit({copy(out.data(), a, 100)});
  stream.wait(kForever);
  EXPECT_EQ(out, std::vector<unsigned char>(100, kFresh));
}

TEST(Engine, WrongFrees) {
  Simulator s;
  char* a = s.allocate(64);
  EXPECT_EQ(s.engine.free(a + 1, kOwner), Status::refused);
  EXPECT_EQ(s.engine.free(a, kOwner + 1), Status::refused);
  EXPECT_EQ(s.engine.free(&s, kOwner), Status::refused);
  EXPECT_EQ(s.engine.free(a, kOwner), Status::ok);
  EXPECT_EQ(s.engine.free(a, kOwner), Status::refused);
  EXPECT_EQ(s.kinds(), "bad-free,wrong-owner,bad-free,double-free");
}

TEST(Engine, FreeNeedsAWait) {
  Simulator s;
  std::vector<char> in(64);
  char* a = s.allocate(64);
  Stream stream(s.engine, 0, true);
  stream.submit({copy(a, in.data(), 64)});
  s.watch(1);
  s.engine.free(a, kOwner);
  EXPECT_EQ(s.kinds(), "free-while-in-use");
  stream.wait(kForever);
}

TEST(Engine, UseAfterFreeAndOutOfBounds) {
  Simulator s;
  std::vector<char> buffer(128, 1);
  char* a = s.allocate(64);
  char* b = s.allocate(64);
  Stream stream(s.engine, 0, true);
  stream.submit({copy(a, buffer.data(), 65)});
  stream.submit({copy(a - 1, buffer.data(), 1)});
  stream.wait(kForever);
  s.engine.free(b, kOwner);
  stream.submit({copy(buffer.data(), b, 64)});
  stream.wait(kForever);
  EXPECT_EQ(s.kinds(), "out-of-bounds,out-of-bounds,use-after-free");
  EXPECT_EQ(buffer[0], 1);
}

TEST(Engine, OverwrittenGuardOfHostMemory) {
  Simulator s;
  char* host = s.allocate(100, -1, MemoryKind::host);
  host[99] = 1;
  host[100] = 1;
  s.engine.free(host, kOwner);
  EXPECT_EQ(s.kinds(), "guard-overwritten");
}

TEST(EngineDeathTest, TheHostFaultsOnDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Simulator s;
        *static_cast<volatile char*>(s.allocate(64)) = 1;
      },
      "");
  EXPECT_DEATH(
      {
        Simulator s;
        volatile char* a = s.allocate(64);
        std::exit(*a == 0 ? 0 : 1);
      },
      "");
}

TEST(EngineDeathTest, StrictAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Settings settings;
        settings.abort_on_violation = true;
        Simulator s(settings);
        s.engine.free(&s, kOwner);
      },
      "violation: bad-free");
}

TEST(Engine, PeersReachEachOtherUnlessTheyDoNot) {
  for (const bool reach : {true, false}) {
    Simulator s(reach ? Settings{} : with_faults("no_peer"));
    std::vector<char> in(64);
    char* a = s.allocate(64, 1);
    Stream stream(s.engine, 0, true);
    stream.submit({copy(a, in.data(), 64)});
    stream.wait(kForever);
    EXPECT_EQ(s.kinds(), reach ? "" : "no-peer-access");
  }
}

TEST(Engine, OutOfMemoryAtACallAndAboveASize) {
  std::shared_ptr<const Allocation> out;
  Simulator call(with_faults("oom:call=2"));
  EXPECT_EQ(call.engine.allocate(MemoryKind::device, 0, kOwner, 10, 0, &out), Status::ok);
  EXPECT_EQ(call.engine.allocate(MemoryKind::device, 0, kOwner, 10, 0, &out), Status::out_of_memory);
  EXPECT_EQ(call.engine.allocate(MemoryKind::device, 0, kOwner, 10, 0, &out), Status::ok);
  Simulator bytes(with_faults("oom:bytes=1k"));
  EXPECT_EQ(bytes.engine.allocate(MemoryKind::device, 0, kOwner, 1000, 0, &out), Status::ok);
  EXPECT_EQ(bytes.engine.allocate(MemoryKind::device, 0, kOwner, 25, 0, &out), Status::out_of_memory);
  EXPECT_EQ(bytes.engine.allocate(MemoryKind::device, 1, kOwner, 1024, 0, &out), Status::ok);
  Settings small;
  small.memory = 4096;
  Simulator full(small);
  EXPECT_EQ(full.engine.allocate(MemoryKind::device, 0, kOwner, 4097, 0, &out), Status::out_of_memory);
  char* all = full.allocate(4096);
  EXPECT_EQ(full.engine.used(0), 4096u);
  EXPECT_EQ(full.engine.allocate(MemoryKind::device, 0, kOwner, 1, 0, &out), Status::out_of_memory);
  full.engine.free(all, kOwner);
  EXPECT_EQ(full.engine.used(0), 0u);
  full.allocate(4096);
}

TEST(Engine, ALostDeviceFailsEverythingOnIt) {
  Simulator s(with_faults("device_lost:command=2"));
  std::vector<char> in(64, 1), out(64);
  char* a = s.allocate(64);
  Stream stream(s.engine, 0, true), other(s.engine, 1, true);
  auto event = std::make_shared<Event>();
  stream.submit({copy(a, in.data(), 64), copy(out.data(), a, 64, {}, event)});
  EXPECT_EQ(s.engine.wait(*event, kForever), Status::device_lost);
  EXPECT_EQ(stream.wait(kForever), Status::device_lost);
  EXPECT_EQ(out[0], 0) << "a command ran on a lost device";
  EXPECT_EQ(stream.submit({copy(a, in.data(), 64)}), Status::device_lost);
  Event never;
  EXPECT_EQ(s.engine.wait(never, kForever), Status::device_lost);
  std::shared_ptr<const Allocation> allocation;
  EXPECT_EQ(s.engine.allocate(MemoryKind::device, 0, kOwner, 1, 0, &allocation), Status::device_lost);
  EXPECT_EQ(other.submit({copy(out.data(), in.data(), 64)}), Status::ok);
  EXPECT_EQ(other.wait(kForever), Status::ok);
}

TEST(Engine, AStickyErrorStaysWithItsStream) {
  Simulator s(with_faults("sticky:command=1"));
  std::vector<char> in(64, 1), out(64);
  Stream stream(s.engine, 0, true), other(s.engine, 0, true);
  stream.submit({copy(out.data(), in.data(), 64)});
  EXPECT_EQ(stream.wait(kForever), Status::failed);
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(stream.submit({copy(out.data(), in.data(), 64)}), Status::failed);
  other.submit({copy(out.data(), in.data(), 64)});
  EXPECT_EQ(other.wait(kForever), Status::ok);
}

TEST(Engine, EventsAreSetOnce) {
  Simulator s;
  Stream stream(s.engine, 0, true);
  auto event = std::make_shared<Event>();
  Command command;
  command.what = "signal";
  command.signal = event;
  const auto signal = std::make_shared<const Command>(command);
  EXPECT_EQ(s.engine.wait(*event, 0), Status::not_ready);
  EXPECT_FALSE(s.engine.times(*event));
  stream.submit({signal});
  EXPECT_EQ(s.engine.wait(*event, kForever), Status::ok);
  s.engine.reset(*event);
  EXPECT_EQ(s.engine.wait(*event, 1000), Status::not_ready);
  stream.submit({signal});
  stream.wait(kForever);
  EXPECT_EQ(s.kinds(), "");
  stream.submit({signal});
  stream.wait(kForever);
  EXPECT_EQ(s.kinds(), "event-set-twice");
}

TEST(Engine, ADestroyedStreamMustBeIdle) {
  Simulator s;
  auto never = std::make_shared<Event>();
  std::vector<char> in(8), out(8);
  {
    Stream stream(s.engine, 0, true);
    stream.submit({copy(out.data(), in.data(), 8, {never})});
    EXPECT_FALSE(stream.idle());
  }
  EXPECT_EQ(s.kinds(), "destroyed-busy");
}

TEST(Engine, AHangIsReported) {
  Settings settings;
  settings.hang_seconds = 0;
  Simulator s(settings);
  Event never;
  EXPECT_EQ(s.engine.wait(never, kForever), Status::not_ready);
  EXPECT_EQ(s.kinds(), "hang");
}

TEST(Handles, TellsDestroyedForeignAndMadeUpApart) {
  struct Cat : Object {
    Cat() : Object("cat") {}
  };
  struct Dog : Object {
    Dog() : Object("dog") {}
  };
  HandleTable table;
  const auto handle = [](std::uint64_t token) { return reinterpret_cast<const void*>(token); };
  const auto cat = std::make_shared<Cat>();
  const void* first = handle(table.add(cat, true));
  const void* dog = handle(table.add(std::make_shared<Dog>(), false));
  std::string problem;
  EXPECT_EQ(table.get<Cat>(first, &problem), cat);
  EXPECT_EQ(table.get<Cat>(dog, &problem), nullptr);
  EXPECT_NE(problem.find("dog"), std::string::npos);
  EXPECT_EQ(table.live().size(), 1u);
  table.remove(*cat);
  EXPECT_EQ(table.get<Cat>(first, &problem), nullptr);
  EXPECT_NE(problem.find("destroyed (cat)"), std::string::npos);
  const auto second = std::make_shared<Cat>();
  EXPECT_NE(handle(table.add(second, true)), first) << "a new object got an old handle";
  EXPECT_EQ(table.get<Cat>(first, &problem), nullptr);
  EXPECT_EQ(table.get<Cat>(&table, &problem), nullptr);
  EXPECT_NE(problem.find("not a handle"), std::string::npos);
}

TEST(Settings, FaultsThatCannotBeReadAreErrors) {
  for (const char* text :
       {"oom", "oom:call=x", "nonsense", "fail:zeInit", "hide", "oom:calls=1", "sticky", "oom:call=-1"}) {
    EXPECT_THROW(parse_faults(text), std::invalid_argument) << text;
  }
  const auto faults = parse_faults("oom:call=7;hide:a,b;fail:c,call=2;oom:bytes=2m");
  ASSERT_EQ(faults.size(), 4u);
  EXPECT_EQ(faults[0].call, 7u);
  EXPECT_EQ(faults[1].words, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(faults[3].bytes, 2u << 20);
}

TEST(Report, IsJson) {
  Report report(false);
  report.violation("race", "a \"quoted\"\nline");
  report.calls("f") += 3;
  report.calls("g");
  EXPECT_EQ(report.json({"memory"}),
            "{\"violations\": [\n  {\"kind\": \"race\", \"message\": \"a \\\"quoted\\\"\\u000aline\"}],\n"
            "\"leaks\": [\n  \"memory\"],\n\"calls\": {\n  \"f\": 3,\n  \"g\": 0}}\n");
}

}  // namespace
