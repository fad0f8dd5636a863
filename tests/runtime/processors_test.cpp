// Tests of the threads that a process can compute with, from texts of /proc, /sys and control groups of other machines, and of this
// one. tests/command/threads.sh limits real processes.
#include "base/process/processors.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/process/control_groups.h"
#include "base/process/hwloc_topology.h"
#include "base/process/kernel_text.h"
#include "refuse_system_calls.h"
#include "temporary_folder.h"

namespace anyaccel {
namespace {

// Files of a Debian system with the unified hierarchy, of one with version 1, and of a container on each.
const char* const unified =
    "24 30 0:22 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n"
    "30 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
    "33 24 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";
const char* const hybrid =
    "33 32 0:28 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "34 32 0:29 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory\n"
    "35 32 0:30 / /sys/fs/cgroup/unified rw shared:11 - cgroup2 cgroup2 rw\n";
const char* const docker =
    "700 690 0:29 /docker/4f8a /sys/fs/cgroup/memory ro,nosuid master:16 - cgroup cgroup rw,memory\n";

std::vector<std::string> folders(const char* cgroup, const char* mounts, const char* controller = "memory") {
  std::vector<std::string> found;
  for (const ControlGroup& group : parse_groups(cgroup, parse_group_mounts(mounts, controller), controller)) {
    found.push_back(std::to_string(group.version) + " " + group.folder);
  }
  return found;
}

using Folders = std::vector<std::string>;

TEST(ControlGroups, GroupsFromTheOwnUpToTheMount) {
  EXPECT_EQ(
      folders("0::/system.slice/job.service\n", unified),
      (Folders{"2 /sys/fs/cgroup/system.slice/job.service", "2 /sys/fs/cgroup/system.slice", "2 /sys/fs/cgroup"}));
  EXPECT_EQ(folders("0::/\n", unified), Folders{"2 /sys/fs/cgroup"});
  EXPECT_EQ(folders("9:name=systemd:/x\n4:memory:/api/25\n1:cpu,cpuacct:/y\n0::/z\n", hybrid),
            (Folders{"1 /sys/fs/cgroup/memory/api/25", "1 /sys/fs/cgroup/memory/api", "1 /sys/fs/cgroup/memory",
                     "2 /sys/fs/cgroup/unified/z", "2 /sys/fs/cgroup/unified"}));
  EXPECT_EQ(folders("4:cpuset,memory:/a\n", hybrid), (Folders{"1 /sys/fs/cgroup/memory/a", "1 /sys/fs/cgroup/memory"}));
}

TEST(ControlGroups, AContainerSeesItsGroupAsTheMount) {
  EXPECT_EQ(folders("4:memory:/docker/4f8a\n", docker), Folders{"1 /sys/fs/cgroup/memory"});
  EXPECT_EQ(folders("4:memory:/docker/4f8a/inner\n", docker),
            (Folders{"1 /sys/fs/cgroup/memory/inner", "1 /sys/fs/cgroup/memory"}));
  EXPECT_EQ(folders("4:memory:/docker/4f8abc\n", docker), Folders{"1 /sys/fs/cgroup/memory"}) << "another name";
  EXPECT_EQ(folders("0::/../other\n", unified), Folders{"2 /sys/fs/cgroup"}) << "outside of the namespace";
}

TEST(ControlGroups, TextsThatAreNone) {
  EXPECT_EQ(folders("", unified), Folders{});
  EXPECT_EQ(folders("nonsense\n:\n::\n4:memory\n", ""), Folders{});
  EXPECT_EQ(folders("0::/a\n", "33 24 0:28 / /sys/fs/cgroup rw\n- cgroup2\n"), Folders{});
  EXPECT_EQ(folders("0::/a\n", "33 24 0:28 / /my\\040groups rw - cgroup2 cgroup2 rw\n"),
            (Folders{"2 /my groups/a", "2 /my groups"}));
}

TEST(ControlGroups, OfAnotherController) {
  EXPECT_EQ(folders("1:cpu,cpuacct:/y\n0::/z\n", hybrid, "cpu"),
            (Folders{"1 /sys/fs/cgroup/cpu/y", "1 /sys/fs/cgroup/cpu", "2 /sys/fs/cgroup/unified/z",
                     "2 /sys/fs/cgroup/unified"}));
  EXPECT_EQ(folders("1:cpuset:/y\n", hybrid, "cpu"), Folders{}) << "a part of a name is another name";
}

// Whatever text comes, there is an answer.
TEST(ControlGroups, SurviveNonsense) {
  const std::string alphabet = "01379,-:/ \t\n\\.cpugro2";
  std::mt19937 random(3);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t i = random() % 40; i > 0; --i) text += alphabet[random() % alphabet.size()];
    parse_groups(text, parse_group_mounts(text + " - cgroup2 cgroup2 rw", "cpu"), "cpu");
    EXPECT_GE(parse_cpu_max(text), 0);
    number_of(text, "cpu");
  }
}

TEST(KernelText, NumbersBehindKeys) {
  EXPECT_EQ(number_of("low 0\noom 3\noom_kill 2\noom_group_kill 9\n", "oom_kill"), 2);
  EXPECT_EQ(number_of("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", "oom_kill"), 5);
  EXPECT_EQ(number_of("", "oom_kill"), std::nullopt);
  EXPECT_EQ(number_of("oom_kill many\n", "oom_kill"), std::nullopt);
  EXPECT_EQ(kernel_file("/proc/self/no such file"), "");
}

TEST(Processors, QuotasOfBothVersions) {
  EXPECT_EQ(parse_cpu_max("200000 100000\n"), 2);
  EXPECT_EQ(parse_cpu_max("50000 100000\n"), 0.5);
  for (const char* none : {"max 100000\n", "", "100000", "-1 100000", "0 100000", "100000 0"})
    EXPECT_EQ(parse_cpu_max(none), 0) << none;
  EXPECT_EQ(parse_quota("350000\n", "100000\n"), 3.5);
  EXPECT_EQ(parse_quota("-1\n", "100000\n"), 0);
  EXPECT_EQ(parse_quota("", ""), 0);
}

TEST(Processors, ListsOfTheKernel) {
  EXPECT_EQ(parse_processor_list("0-3\n"), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(parse_processor_list("0,2-3,70\n"), (std::vector<int>{0, 2, 3, 70}));
  EXPECT_EQ(parse_processor_list("5"), std::vector<int>{5});
  for (const char* none : {"", "\n", "x", "-1", "3-1", "0-", "0-99999999999", "2,1", "0,", "0-1-2", "0x,1", "0 1"})
    EXPECT_EQ(parse_processor_list(none), std::vector<int>{}) << none;
}

TEST(Processors, ThreadsAreWholeProcessorsOfTheQuota) {
  EXPECT_EQ(threads_within(64, 0), 64);
  EXPECT_EQ(threads_within(64, 4), 4);
  EXPECT_EQ(threads_within(64, 3.5), 3);
  EXPECT_EQ(threads_within(64, 0.25), 1);
  EXPECT_EQ(threads_within(2, 16), 2);
  EXPECT_EQ(threads_within(0, 0), 1);
}

// A folder as the kernel has it in /sys, with a list of siblings for each processor.
class FakeProcessors {
 public:
  FakeProcessors(const std::string& smt_active, const std::vector<std::string>& siblings) {
    if (!smt_active.empty()) folder_.write("smt/active", smt_active + "\n");
    for (size_t i = 0; i < siblings.size(); ++i) {
      folder_.write("cpu" + std::to_string(i) + "/topology/thread_siblings_list", siblings[i] + "\n");
    }
  }
  std::string folder() const { return folder_.path().string(); }

 private:
  test::TemporaryFolder folder_;
};

TEST(Processors, ACoreCountsOnce) {
  const FakeProcessors server("1", {"0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"});
  EXPECT_EQ(count_cores({0, 1, 2, 3, 4, 5, 6, 7}, server.folder()), 4);
  EXPECT_EQ(count_cores({0, 4}, server.folder()), 1);
  EXPECT_EQ(count_cores({0, 1, 5}, server.folder()), 2);
  EXPECT_EQ(count_cores({6}, server.folder()), 1);
  // Fast cores with two hardware threads beside small ones with one.
  const FakeProcessors laptop("1", {"0-1", "0-1", "2-3", "2-3", "4", "5"});
  EXPECT_EQ(count_cores({0, 1, 2, 3, 4, 5}, laptop.folder()), 4);
  const FakeProcessors off("0", {"0,1", "0,1"});
  EXPECT_EQ(count_cores({0, 1}, off.folder()), 2) << "the files of siblings are not read";
  const FakeProcessors partly("", {"0,1", "0,1"});
  EXPECT_EQ(count_cores({0, 1, 2, 3}, partly.folder()), 3) << "of 2 and 3 nothing is said";
  EXPECT_EQ(count_cores({0, 1}, "/no such folder"), 2);
}

int cores_by_hwloc(const std::vector<int>& processors) {
  hwloc_topology_t topology = nullptr;
  if (init_hwloc_topology(&topology) != 0) return -1;
  if (hwloc_topology_load(topology) != 0) {
    hwloc_topology_destroy(topology);
    return -1;
  }
  std::set<hwloc_obj_t> cores;
  for (const int processor : processors) {
    hwloc_obj_t unit = hwloc_get_pu_obj_by_os_index(topology, static_cast<unsigned>(processor));
    hwloc_obj_t core = unit ? hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, unit) : nullptr;
    cores.insert(core ? core : unit);
  }
  hwloc_topology_destroy(topology);
  return static_cast<int>(cores.size());
}

TEST(Processors, OfThisThread) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const std::vector<int> all = allowed_processors();
  EXPECT_EQ(static_cast<int>(all.size()), CPU_COUNT(&before));
  const bool told = !kernel_file("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list").empty();
  // hwloc would ask the processor where the kernel does not tell, and believe such a variable.
  if (told && !getenv("HWLOC_XMLFILE") && !getenv("HWLOC_SYNTHETIC")) {
    EXPECT_EQ(count_cores(all), cores_by_hwloc(all));
  }
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(all.back()), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(allowed_processors(), std::vector<int>{all.back()});
  }).join();
}

// hwloc would ask again for ever.
TEST(Processors, AFilterOfSystemCallsMayRefuseToTellThem) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    if (!test::refuse_system_calls({SYS_sched_getaffinity}, EPERM)) _exit(77);
    hwloc_topology_t topology = nullptr;
    const std::vector<int> online = parse_processor_list(kernel_file("/sys/devices/system/cpu/online"));
    const bool as_expected = !knows_allowed_processors() && init_hwloc_topology(&topology) != 0 &&
                             (online.empty() ? !allowed_processors().empty() : allowed_processors() == online);
    _exit(as_expected ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no filter of system calls can be set here";
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(knows_allowed_processors());
}

}  // namespace
}  // namespace anyaccel
