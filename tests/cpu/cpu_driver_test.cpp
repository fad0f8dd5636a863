// The CPU accelerator through the public interface: devices, memory, streams, events, graphs.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "accelerators/cpu/memory.h"
#include "accelerators/cpu/topology.h"
#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/ops/inference.h"
#include "base/files/files.h"
#include "this_build.h"

namespace anyaccel {
namespace {

class CpuDriver : public ::testing::Test {
 protected:
  void SetUp() override { cpu = make_accelerator("cpu"); }
  std::unique_ptr<Accelerator> cpu;
};

TEST_F(CpuDriver, FactsAreThoseOfACpu) {
  EXPECT_EQ(cpu->name(), "cpu");
  EXPECT_EQ(cpu->device_name(), "cpu");
  EXPECT_EQ(cpu->device_name(0), "cpu");
  EXPECT_EQ(cpu->current_device(), 0);
  EXPECT_TRUE(cpu->is_synchronized_device());
  EXPECT_TRUE(cpu->use_host_timers());
  EXPECT_TRUE(cpu->resolves_data_dependency());
  EXPECT_TRUE(cpu->handles_memory_backpressure());
  EXPECT_TRUE(cpu->is_fp64_supported());
  EXPECT_FALSE(cpu->is_triton_supported());
  EXPECT_EQ(cpu->supported_dtypes().front(), DType::F32);
  EXPECT_GE(cpu->device_count(), 1);
  EXPECT_GT(cpu->total_memory(), 0);
  EXPECT_GT(cpu->available_memory(), 0);
  EXPECT_LE(cpu->available_memory(), cpu->total_memory());
}

TEST_F(CpuDriver, LocalSizeGivesTheDeviceCount) {
  setenv("LOCAL_SIZE", "3", 1);
  EXPECT_EQ(cpu::device_count(), 3);
  auto three = make_accelerator("cpu");
  EXPECT_EQ(three->device_count(), 3);
  three->set_device(2);
  EXPECT_EQ(three->current_device(), 2);
  EXPECT_THROW(three->set_device(3), InvalidArgument);
  EXPECT_EQ(three->current_device(), 2);
  setenv("LOCAL_SIZE", "many", 1);
  EXPECT_GE(cpu::device_count(), 1);
  setenv("LOCAL_SIZE", "-1", 1);
  EXPECT_GE(cpu::device_count(), 1);
  unsetenv("LOCAL_SIZE");
}

TEST_F(CpuDriver, CurrentDeviceBelongsToTheThread) {
  setenv("LOCAL_SIZE", "2", 1);
  auto two = make_accelerator("cpu");
  two->set_device(1);
  int seen = -1;
  std::thread([&] { seen = two->current_device(); }).join();
  EXPECT_EQ(seen, 0);
  EXPECT_EQ(two->current_device(), 1);
  unsetenv("LOCAL_SIZE");
}

TEST_F(CpuDriver, StreamsAndEventsAreRealObjects) {
  const Stream s = cpu->Stream();
  ASSERT_TRUE(s);
  EXPECT_FALSE(s == cpu->default_stream());
  EXPECT_TRUE(cpu->current_stream() == cpu->default_stream());
  {
    auto guard = cpu->stream(s);
    EXPECT_TRUE(cpu->current_stream() == s);
  }
  EXPECT_TRUE(cpu->current_stream() == cpu->default_stream());

  Event start = cpu->Event(true);
  Event end = cpu->Event(true);
  EXPECT_TRUE(start.query());
  EXPECT_THROW(start.elapsed_time(end), InvalidArgument);
  start.record(s);
  usleep(2000);
  end.record(s);
  s.wait_event(end);
  EXPECT_GE(start.elapsed_time(end), 1.9);
  const Event untimed = cpu->Event();
  EXPECT_THROW(untimed.elapsed_time(end), InvalidArgument);

  bool called = false;
  s.host_call([&] { called = true; });
  s.synchronize();
  EXPECT_TRUE(called);
}

TEST_F(CpuDriver, ACapturedHostCallRunsAtEveryReplay) {
  Graph graph = cpu->create_graph();
  auto count = std::make_shared<int>(0);
  {
    auto capture = cpu->capture_to_graph(graph);
    cpu->current_stream().host_call([count] { ++*count; });
  }
  EXPECT_EQ(*count, 0);
  for (int i = 0; i < 3; ++i) cpu->replay_graph(graph);
  EXPECT_EQ(*count, 3);
  graph = {};
  EXPECT_EQ(count.use_count(), 1) << "the graph's functions outlive it";
}

TEST_F(CpuDriver, GraphRecordsAndReplays) {
  ASSERT_TRUE(cpu->supports_graphs());
  auto ops = cpu->create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  const Tensor counter = Tensor::zeros({4}, DType::I32, cpu->device());
  const Tensor copy = Tensor::zeros({4}, DType::I32, cpu->device());
  Graph graph = cpu->create_graph();
  EXPECT_FALSE(graph.ready());
  EXPECT_THROW(cpu->replay_graph(graph), InvalidArgument);
  {
    auto capture = cpu->capture_to_graph(graph);
    ops->increment(counter, 5);
    copy.copy_from(counter);
    EXPECT_THROW(cpu->current_stream().synchronize(), InvalidArgument);
  }
  EXPECT_TRUE(graph.ready());
  EXPECT_EQ(counter.to_vector<int32_t>()[0], 0) << "capturing must not run the work";
  for (int i = 0; i < 3; ++i) cpu->replay_graph(graph);
  EXPECT_EQ(copy.to_vector<int32_t>(), (std::vector<int32_t>{15, 15, 15, 15}));
}

// So many that they may be copied past the caches, to and from places within cache lines.
TEST_F(CpuDriver, CopiesOfManyBytes) {
  constexpr int64_t kCount = (int64_t{64} << 20) + 4099, kRoom = kCount + 200;
  const Tensor source = Tensor::empty({kRoom}, DType::U8, cpu->device());
  const Tensor target = Tensor::zeros({kRoom}, DType::U8, cpu->device());
  auto* const from = source.data_as<uint8_t>();
  for (int64_t i = 0; i < kRoom; ++i) from[i] = static_cast<uint8_t>(1 + i % 251);
  target.slice(0, 77, 77 + kCount).copy_from(source.slice(0, 5, 5 + kCount));
  cpu->current_stream().synchronize();
  const auto* const to = target.data_as<uint8_t>();
  EXPECT_EQ(std::memcmp(to + 77, from + 5, static_cast<size_t>(kCount)), 0);
  EXPECT_EQ(std::count(to, to + 77, 0), 77);
  EXPECT_EQ(std::count(to + 77 + kCount, to + kRoom, 0), kRoom - kCount - 77);
}

TEST_F(CpuDriver, AbandonedCaptureLeavesTheStreamUsable) {
  Graph graph = cpu->create_graph();
  try {
    auto capture = cpu->capture_to_graph(graph);
    throw std::runtime_error("a mistake while capturing");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(graph.ready());
  cpu->current_stream().synchronize();
}

TEST_F(CpuDriver, MemoryOfACaptureIsNotGivenToOthers) {
  auto ops = cpu->create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  const Tensor in = Tensor::zeros({64}, DType::F32, cpu->device());
  const Tensor out = Tensor::zeros({64}, DType::F32, cpu->device());
  Graph graph = cpu->create_graph();
  void* inner = nullptr;
  {
    auto capture = cpu->capture_to_graph(graph);
    const Tensor temporary = Tensor::empty({64}, DType::F32, cpu->device());
    inner = temporary.data();
    ops->add(temporary, in, in);
    ops->add(out, temporary, in);
  }
  for (int i = 0; i < 64; ++i) {
    EXPECT_NE(Tensor::empty({64}, DType::F32, cpu->device()).data(), inner);
  }
  in.fill(2.0);
  cpu->replay_graph(graph);
  EXPECT_EQ(out.to_vector<float>()[63], 6.0f);
}

TEST_F(CpuDriver, PinnedMemoryIsLocked) {
  const Tensor ordinary = Tensor::zeros({1024}, DType::F32);
  EXPECT_FALSE(cpu->is_pinned(ordinary));
  const Tensor pinned = cpu->pin_memory(ordinary);
  EXPECT_TRUE(cpu->is_pinned(pinned));
  EXPECT_TRUE(cpu->is_pinned(pinned.slice(0, 10, 20)));
  EXPECT_EQ(pinned.to_vector<float>(), ordinary.to_vector<float>());
  EXPECT_FALSE(cpu->unpin_memory(ordinary));
}

// Registered ranges may touch. One that reaches into another is refused, from either side, and changes nothing.
TEST(CpuMemory, KnowsWhereRegisteredRangesEnd) {
  constexpr size_t page = 4096;
  alignas(page) static char memory[4 * page];
  for (const size_t begin : {1, 2, 0}) cpu::register_range(memory + begin * page, page);
  aa_memory_info info{};
  ASSERT_TRUE(cpu::query(memory + 2 * page - 1, info));
  EXPECT_EQ(info.base, memory + page);
  EXPECT_EQ(info.size, page);
  EXPECT_FALSE(cpu::query(memory + 3 * page, info));
  for (const size_t begin : {0, 1, 2}) cpu::unregister_range(memory + begin * page);

  cpu::register_range(memory + page, 2 * page);
  for (const size_t begin : {0, 1, 2}) {
    try {
      cpu::register_range(memory + begin * page, 2 * page);
      ADD_FAILURE() << "two ranges share page " << begin;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.code(), AA_ALREADY_EXISTS) << error.what();
    }
  }
  EXPECT_FALSE(cpu::query(memory, info));
  EXPECT_FALSE(cpu::query(memory + 3 * page, info));
  cpu::unregister_range(memory + page);
}

// Over the limit: in a child process, because a limit once lowered stays. Root may lock without limit, so it becomes
// another user first.
TEST_F(CpuDriver, PinningOverTheLimitNamesUlimit) {
  if (test::sanitizer() != test::Sanitizer::none) GTEST_SKIP() << "the sanitizers' runtime makes mlock do nothing";
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit{65536, 65536};
    setrlimit(RLIMIT_MEMLOCK, &limit);
    if (getuid() == 0 && setuid(65534) != 0) _exit(77);
    const Tensor large = Tensor::zeros({1 << 20}, DType::F32);
    int result = 1;
    try {
      cpu->pin_memory(large);
    } catch (const OutOfMemoryError& error) {
      result = std::string(error.what()).find("ulimit -l") != std::string::npos ? 0 : 2;
    }
    if (result == 0) {
      const Tensor unlocked = cpu->pin_memory(large, true, true, false);
      if (cpu->is_pinned(unlocked)) result = 3;
    }
    _exit(result);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "cannot change the user here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(CpuDriver, MemoryStatisticsHavePyTorchKeysAndProcessMemory) {
  const Tensor t = Tensor::zeros({1 << 20}, DType::F32, cpu->device());
  const auto stats = cpu->memory_stats();
  EXPECT_GE(stats.at("allocated_bytes.all.current"), 4 << 20);
  EXPECT_GE(stats.at("reserved_bytes.all.current"), stats.at("allocated_bytes.all.current"));
  EXPECT_GT(stats.at("process_rss.current"), 0);
  EXPECT_GE(stats.at("process_rss.peak"), stats.at("process_rss.current"));
  EXPECT_EQ(cpu->memory_allocated(), stats.at("allocated_bytes.all.current"));
}

TEST_F(CpuDriver, AnImpossibleAllocationIsAnErrorWithNumbers) {
  try {
    Tensor::empty({int64_t{1} << 46}, DType::F32, cpu->device());
    FAIL() << "2^48 bytes were given";
  } catch (const OutOfMemoryError& error) {
    EXPECT_NE(std::string(error.what()).find("reserved"), std::string::npos) << error.what();
  }
  // The device is still usable.
  EXPECT_EQ(Tensor::zeros({4}, DType::F32, cpu->device()).to_vector<float>()[3], 0.0f);
}

TEST_F(CpuDriver, ForkedChildCanWork) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer lets no forked child start threads";
#endif
  auto ops = cpu->create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  const Tensor a = Tensor::zeros({1 << 18}, DType::F32, cpu->device());
  ops->add(a, a, a);
  const pid_t child = fork();
  if (child == 0) {
    a.fill(1.5);
    ops->add(a, a, a);
    _exit(a.to_vector<float>().back() == 3.0f ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Two groups of two cores. Nodes 0 and 1 share the first group (flat-mode high-bandwidth memory, or a node that fake
// NUMA repeats), node 8 has the second (numbers may have gaps), node 9 is memory without cores.
constexpr const char* topology_xml = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" allowed_cpuset="0x0000000f" nodeset="0x00000303" complete_nodeset="0x00000303" allowed_nodeset="0x00000303" gp_index="1">
    <object type="NUMANode" os_index="9" cpuset="0x0" complete_cpuset="0x0" nodeset="0x00000200" complete_nodeset="0x00000200" gp_index="20" local_memory="500000"/>
    <object type="Group" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000003" complete_nodeset="0x00000003" gp_index="5" kind="1001" subkind="0">
      <object type="NUMANode" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4" local_memory="1000000"/>
      <object type="NUMANode" os_index="1" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="21" local_memory="500000"/>
      <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000003" complete_nodeset="0x00000003" gp_index="2"/>
      <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000003" complete_nodeset="0x00000003" gp_index="3"/>
    </object>
    <object type="Group" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000100" complete_nodeset="0x00000100" gp_index="9" kind="1001" subkind="0">
      <object type="NUMANode" os_index="8" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000100" complete_nodeset="0x00000100" gp_index="8" local_memory="1000000"/>
      <object type="PU" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000100" complete_nodeset="0x00000100" gp_index="6"/>
      <object type="PU" os_index="3" cpuset="0x00000008" complete_cpuset="0x00000008" nodeset="0x00000100" complete_nodeset="0x00000100" gp_index="7"/>
    </object>
  </object>
</topology>
)";

TEST(Topology, MemoryOnlyAndDuplicateNodesAreNotDevices) {
  const TemporaryFolder folder("topology");
  const std::string path = folder.file("topology.xml");
  std::ofstream(path) << topology_xml;
  const auto nodes = cpu::numa_nodes_from_xml(path);
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].os_index, 0);
  EXPECT_EQ(nodes[0].cores, 2);
  EXPECT_EQ(nodes[1].os_index, 8);
  EXPECT_EQ(nodes[1].cores, 2);
  std::ofstream(path) << "<topology";
  EXPECT_THROW(cpu::numa_nodes_from_xml(path), InvalidArgument);
}

TEST(Topology, ThisMachineHasANode) {
  ASSERT_GE(cpu::numa_nodes().size(), 1u);
  EXPECT_GE(cpu::numa_nodes()[0].cores, 1);
}

TEST(Topology, NonsenseIsRefused) {
  EXPECT_THROW(cpu::numa_nodes_from_xml("/nonexistent/topology.xml"), InvalidArgument);
}

}  // namespace
}  // namespace anyaccel
