// Cores and memory of ranks: DeepSpeed's vectors, and whole machines that this one is not, as hwloc describes them.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>

#include "anyaccel/error.h"
#include "base/files/files.h"
#include "launcher/plan/binding.h"
#include "launcher/plan/core_list.h"
#include "launcher/plan/topology.h"

namespace anyaccel::launcher {
namespace {

// Nodes of the kernel's numbers 0, 1, ... with these processors, each a core.
Machine machine_of(const std::vector<std::vector<int>>& nodes) {
  Machine machine;
  std::set<int> seen;
  for (size_t i = 0; i < nodes.size(); ++i) {
    machine.nodes.push_back({static_cast<int>(i), nodes[i]});
    for (const int processor : nodes[i]) {
      if (seen.insert(processor).second) machine.cores.push_back({{processor}});
    }
  }
  machine.processors.assign(seen.begin(), seen.end());
  machine.present = machine.processors;
  return machine;
}

std::string bound(const Machine& machine, int ranks, const std::string& list, int rank) {
  return describe(bind_ranks(machine, ranks, list)[static_cast<size_t>(rank)]);
}

std::string error_of(const Machine& machine, int ranks, const std::string& list) {
  try {
    bind_ranks(machine, ranks, list);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(Binding, Vectors) {
  const Machine normal = machine_of({{0, 1, 2, 3}, {4, 5, 6, 7}});
  EXPECT_EQ(bound(normal, 2, "0-7", 0), "cores 0-3, memory bound to node 0");
  EXPECT_EQ(bound(normal, 2, "0-7", 1), "cores 4-7, memory bound to node 1");
  EXPECT_EQ(bound(normal, 2, "0-5", 0), "cores 0-2, memory bound to node 0");
  EXPECT_EQ(bound(normal, 2, "0-5", 1), "cores 3-5, memory anywhere");
  const Machine flat = machine_of({{0, 1, 2, 3}, {4, 5, 6, 7}, {}, {}});
  EXPECT_EQ(bound(flat, 2, "0-7", 0), "cores 0-3, memory preferred on node 2");
  EXPECT_EQ(bound(flat, 2, "0-7", 1), "cores 4-7, memory preferred on node 3");
  const Machine fake = machine_of({{0, 1, 2, 3}, {0, 1, 2, 3}, {4, 5, 6, 7}, {4, 5, 6, 7}});
  EXPECT_EQ(bound(fake, 2, "0-7", 0), "cores 0-3, memory bound to node 0,1");
  EXPECT_EQ(bound(fake, 2, "0-7", 1), "cores 4-7, memory bound to node 2,3");
  const Machine one_empty = machine_of({{0, 1, 2, 3}, {4, 5, 6, 7}, {}});
  EXPECT_EQ(bound(one_empty, 2, "0-7", 1), "cores 4-7, memory bound to node 1");
  Machine no_nodes = machine_of({{0, 1, 2, 3, 4, 5, 6}});
  no_nodes.nodes.clear();
  EXPECT_EQ(bound(no_nodes, 1, "0,2,4-6", 0), "cores 0,2,4-6, memory anywhere");
}

TEST(Binding, LeftoversStayIdle) {
  const Machine machine = machine_of({{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}});
  const auto bindings = bind_ranks(machine, 3, "");
  EXPECT_EQ(format_core_list(bindings[2].processors), "6-8");
  EXPECT_EQ(bindings[2].threads, 3);
}

TEST(Binding, RefusesWhatCannotBe) {
  const Machine two = machine_of({{0, 1}});
  EXPECT_NE(error_of(two, 3, "0-1").find("each of 3 ranks needs a core of its own, and there are 2 in \"0-1\""),
            std::string::npos);
  EXPECT_NE(error_of(two, 3, "").find("there are 2"), std::string::npos);
  EXPECT_NE(error_of(two, 1, "1-2").find("names core 2, which this machine lacks; it may use 0-1"), std::string::npos);
  Machine some = machine_of({{0, 1}});
  some.present = {0, 1, 2};
  EXPECT_NE(error_of(some, 1, "2").find("core 2, which is offline or not allowed"), std::string::npos);
}

TEST(Binding, WithoutItRanksShareThreads) {
  const Machine machine = machine_of({{0, 1, 2, 3, 4, 5, 6}});
  EXPECT_EQ(share_threads(machine, 2)[1].threads, 3);
  EXPECT_EQ(share_threads(machine, 9)[8].threads, 1);
  EXPECT_TRUE(share_threads(machine, 2)[1].processors.empty());
}

// Describes another machine to hwloc while it lives.
class OtherMachine {
 public:
  static OtherMachine synthetic(const std::string& text) { return {"HWLOC_SYNTHETIC", text, nullptr}; }
  static OtherMachine xml(const std::string& text) {
    auto folder = std::make_unique<TemporaryFolder>("topology");
    const std::string path = folder->file("topology.xml");
    std::ofstream(path) << text;
    return {"HWLOC_XMLFILE", path, std::move(folder)};
  }
  ~OtherMachine() { unsetenv(name_); }
  OtherMachine(const OtherMachine&) = delete;
  OtherMachine& operator=(const OtherMachine&) = delete;

 private:
  OtherMachine(const char* name, const std::string& value, std::unique_ptr<TemporaryFolder> folder)
      : name_(name), folder_(std::move(folder)) {
    setenv(name, value.c_str(), 1);
  }
  const char* name_;
  std::unique_ptr<TemporaryFolder> folder_;
};

size_t distinct_masks(const std::vector<Binding>& bindings) {
  std::set<std::vector<int>> masks;
  for (const Binding& binding : bindings) masks.insert(binding.processors);
  return masks.size();
}

TEST(Topology, TwoSocketsOf56Cores) {
  const OtherMachine other = OtherMachine::synthetic("pack:2 [numa] core:56 pu:1");
  const Machine machine = read_machine();
  EXPECT_FALSE(machine.this_machine);
  EXPECT_EQ(machine.cores.size(), 112U);
  ASSERT_EQ(machine.nodes.size(), 2U);
  EXPECT_EQ(bound(machine, 2, "", 0), "cores 0-55, memory bound to node 0");
  EXPECT_EQ(bound(machine, 2, "", 1), "cores 56-111, memory bound to node 1");
  const auto eight = bind_ranks(machine, 8, "");
  EXPECT_EQ(distinct_masks(eight), 8U);
  EXPECT_EQ(describe(eight[3]), "cores 42-55, memory bound to node 0");
  EXPECT_EQ(bound(machine, 4, "0-27,32-59", 3), "cores 46-59, memory anywhere");
}

TEST(Topology, HardwareThreadsGoWithTheirCore) {
  const OtherMachine other = OtherMachine::synthetic("pack:2 [numa] core:4 pu:2(indexes=core:pack)");
  const Machine machine = read_machine();
  ASSERT_EQ(machine.cores.size(), 8U);
  std::set<int> all;
  for (const Binding& binding : bind_ranks(machine, 4, "")) {
    EXPECT_EQ(binding.threads, 2);
    EXPECT_EQ(binding.processors.size(), 4U);
    EXPECT_EQ(binding.memory.kind, MemoryPolicy::Kind::Bind);
    all.insert(binding.processors.begin(), binding.processors.end());
  }
  EXPECT_EQ(all.size(), 16U);
  // A list means exactly these processors.
  EXPECT_EQ(bind_ranks(machine, 2, "0-3")[1].processors, (std::vector<int>{2, 3}));
}

TEST(Topology, NodesSplitInTwo) {
  const OtherMachine other = OtherMachine::synthetic("pack:2 [numa] [numa] core:4 pu:1");
  const Machine machine = read_machine();
  EXPECT_EQ(bound(machine, 2, "", 0), "cores 0-3, memory bound to node 0,1");
  EXPECT_EQ(bound(machine, 2, "", 1), "cores 4-7, memory bound to node 2,3");
}

// -- machines written out as hwloc's XML --

std::string bitmap(const std::set<int>& set) {
  std::string text;
  const int words = set.empty() ? 1 : *set.rbegin() / 32 + 1;
  for (int word = words - 1; word >= 0; --word) {
    unsigned value = 0;
    for (const int bit : set) {
      if (bit / 32 == word) value |= 1U << (bit % 32);
    }
    char digits[16];
    std::snprintf(digits, sizeof digits, "%s0x%08x", text.empty() ? "" : ",", value);
    text += digits;
  }
  return text;
}

struct Socket {
  std::set<int> processors;                         // each a core
  std::vector<std::pair<int, std::string>> memory;  // node's number, subtype
};

std::string sets(const std::set<int>& processors, const std::set<int>& nodes) {
  std::string text;
  for (const char* kind : {"", "complete_"}) {
    text +=
        std::string(" ") + kind + "cpuset=\"" + bitmap(processors) + "\" " + kind + "nodeset=\"" + bitmap(nodes) + "\"";
  }
  return text;
}

// `allowed`: what control groups leave; empty: all.
std::string xml_of(const std::vector<Socket>& sockets, std::set<int> allowed = {}) {
  std::set<int> processors;
  std::set<int> nodes;
  for (const Socket& socket : sockets) {
    processors.insert(socket.processors.begin(), socket.processors.end());
    for (const auto& [id, kind] : socket.memory) nodes.insert(id);
  }
  if (allowed.empty()) allowed = processors;
  int gp = 1;
  const auto index = [&gp] { return " gp_index=\"" + std::to_string(gp++) + "\""; };
  std::string text =
      "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n"
      "<object type=\"Machine\" os_index=\"0\"" +
      sets(processors, nodes) + " allowed_cpuset=\"" + bitmap(allowed) + "\" allowed_nodeset=\"" + bitmap(nodes) +
      "\"" + index() + ">\n";
  int number = 0;
  for (const Socket& socket : sockets) {
    std::set<int> own;
    for (const auto& [id, kind] : socket.memory) own.insert(id);
    text += "<object type=\"Package\" os_index=\"" + std::to_string(number++) + "\"" + sets(socket.processors, own) +
            index() + ">\n";
    for (const auto& [id, kind] : socket.memory) {
      text += "<object type=\"NUMANode\" os_index=\"" + std::to_string(id) + "\"" +
              (kind.empty() ? "" : " subtype=\"" + kind + "\"") + sets(socket.processors, {id}) + index() +
              " local_memory=\"1000000\"/>\n";
    }
    for (const int processor : socket.processors) {
      const std::string both = sets({processor}, own);
      text += "<object type=\"Core\" os_index=\"" + std::to_string(processor) + "\"" + both + index() +
              "><object type=\"PU\" os_index=\"" + std::to_string(processor) + "\"" + both + index() + "/></object>\n";
    }
    text += "</object>\n";
  }
  return text + "</object>\n</topology>\n";
}

std::set<int> numbers(int first, int last) {
  std::set<int> set;
  for (int i = first; i <= last; ++i) set.insert(i);
  return set;
}

TEST(Topology, HighBandwidthMemoryInFlatMode) {
  // hwloc gives the memory of nodes 2 and 3 their package's processors; the kernel gives them none.
  for (const char* kind : {"HBM", ""}) {
    const OtherMachine other =
        OtherMachine::xml(xml_of({{numbers(0, 55), {{0, ""}, {2, kind}}}, {numbers(56, 111), {{1, ""}, {3, kind}}}}));
    const Machine machine = read_machine();
    ASSERT_EQ(machine.nodes.size(), 4U);
    EXPECT_EQ(bound(machine, 2, "", 0), "cores 0-55, memory preferred on node 2") << kind;
    EXPECT_EQ(bound(machine, 4, "", 3), "cores 84-111, memory preferred on node 3") << kind;
    EXPECT_EQ(distinct_masks(bind_ranks(machine, 16, "")), 16U);
  }
}

TEST(Topology, NodeNumbersWithGaps) {
  const OtherMachine other = OtherMachine::xml(xml_of({{numbers(0, 3), {{0, ""}}}, {numbers(8, 11), {{8, ""}}}}));
  const Machine machine = read_machine();
  EXPECT_EQ(bound(machine, 2, "", 0), "cores 0-3, memory bound to node 0");
  EXPECT_EQ(bound(machine, 2, "", 1), "cores 8-11, memory bound to node 8");
  EXPECT_NE(error_of(machine, 1, "4").find("which this machine lacks; it may use 0-3,8-11"), std::string::npos);
}

TEST(Topology, ControlGroupsLeaveSome) {
  const OtherMachine other =
      OtherMachine::xml(xml_of({{numbers(0, 3), {{0, ""}}}, {numbers(4, 7), {{1, ""}}}}, {2, 3, 6}));
  const Machine machine = read_machine();
  EXPECT_EQ(machine.cores.size(), 3U);
  EXPECT_EQ(bound(machine, 3, "", 2), "cores 6, memory bound to node 1");
  EXPECT_EQ(bound(machine, 1, "", 0), "cores 2-3,6, memory anywhere");
  EXPECT_NE(error_of(machine, 1, "0").find("offline or not allowed to this process; it may use 2-3,6"),
            std::string::npos);
}

TEST(Topology, ThisMachine) {
  const Machine machine = read_machine();
  EXPECT_TRUE(machine.this_machine);
  ASSERT_FALSE(machine.cores.empty());
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<int> own;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) own.push_back(i);
  }
  EXPECT_EQ(machine.processors, own);
  // One processor fewer, one core fewer.
  if (own.size() > 1) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(own.back(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(read_machine().processors, (std::vector<int>{own.back()}));
    EXPECT_EQ(read_machine().cores.size(), 1U);
    sched_setaffinity(0, sizeof set, &set);
  }
}

}  // namespace
}  // namespace anyaccel::launcher
