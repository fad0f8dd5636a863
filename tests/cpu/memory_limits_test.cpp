// Tests of the limits of memory on this and on other machines: texts of /proc and of control groups of both versions,
// and real limits on this machine, in which memory runs out with an exception and never with the end of the process.
#include "accelerators/cpu/memory_limits.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <vector>

#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "anyaccel/tensor.h"
#include "this_build.h"

namespace anyaccel::cpu {
namespace {

namespace fs = std::filesystem;

constexpr int64_t mib = int64_t{1} << 20;

TEST(MemoryLimits, OfAMachine) {
  const auto limit = parse_meminfo(
      "MemTotal:       24684084 kB\nMemFree:        21423944 kB\nMemAvailable:   23492596 kB\nBuffers: 1 kB\n");
  ASSERT_TRUE(limit);
  EXPECT_EQ(limit->total, 24684084 * int64_t{1024});
  EXPECT_EQ(limit->available, 23492596 * int64_t{1024});
  // A kernel before 3.14.
  EXPECT_EQ(parse_meminfo("MemTotal: 1000 kB\nMemFree: 300 kB\n")->available, 300 * 1024);
  EXPECT_FALSE(parse_meminfo(""));
  EXPECT_FALSE(parse_meminfo("MemTotal: many kB\nMemAvailable: 1 kB\n"));
  EXPECT_FALSE(parse_meminfo("MemAvailable: 1 kB\n"));
}

const ControlGroup group_v1{1, "/v1"}, group_v2{2, "/v2"};

TEST(MemoryLimits, OfAGroup) {
  const auto limit = parse_group(group_v2, {"1073741824\n", "max\n", "500000000\n",
                                            "anon 100\nfile 9\ninactive_file 300000000\nactive_file 50000000\n"});
  ASSERT_TRUE(limit);
  EXPECT_EQ(limit->total, 1073741824);
  EXPECT_EQ(limit->available, 1073741824 - 150000000) << "page cache can be dropped";
  EXPECT_EQ(limit->source, "the control group /v2");
  // memory.high below memory.max, alone, and none at all.
  EXPECT_EQ(parse_group(group_v2, {"1000\n", "800\n", "300\n", ""})->available, 500);
  EXPECT_EQ(parse_group(group_v2, {"max\n", "800\n", "300\n", ""})->total, 800);
  EXPECT_FALSE(parse_group(group_v2, {"max\n", "max\n", "300\n", ""}));
  EXPECT_FALSE(parse_group(group_v2, {"", "", "", ""})) << "the controller is not enabled there";
  EXPECT_EQ(parse_group(group_v2, {"1000\n", "max\n", "3000\n", ""})->available, 0) << "lowered below what is used";
  EXPECT_EQ(parse_group(group_v2, {"0\n", "max\n", "0\n", ""})->total, 0);

  const char* const stat = "cache 1\ninactive_file 1\nactive_file 1\ntotal_inactive_file 200\ntotal_active_file 100\n";
  EXPECT_EQ(parse_group(group_v1, {"1000\n", "", "600\n", stat})->available, 700);
  EXPECT_EQ(parse_group(group_v1, {"1000\n", "", "600\n", "inactive_file 50\n"})->available, 450);
  EXPECT_FALSE(parse_group(group_v1, {"9223372036854771712\n", "", "600\n", stat})) << "what version 1 calls no limit";
}

TEST(MemoryLimits, MarginIsASmallShareWithinBounds) {
  EXPECT_EQ(margin_of({100 * mib, 0, ""}), 16 * mib);
  EXPECT_EQ(margin_of({3200 * mib, 0, ""}), 100 * mib);
  EXPECT_EQ(margin_of({int64_t{1} << 50, 0, ""}), 512 * mib);
  EXPECT_EQ(margin_of({3200 * mib, 0, "", true}), 0) << "addresses are not shared with anybody";
}

// ---- this machine's ------------------------------------------------------------------------------------------------

// Runs `body` in a child process and returns its result, or how the process ended.
std::string in_child(const std::function<std::string()>& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::string said;
    try {
      said = body();
    } catch (const std::exception& error) {
      said = std::string("exception: ") + error.what();
    }
    (void)!write(ends[1], said.data(), said.size());
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  char buffer[512];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    said.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status)) : said;
}

// Allocates blocks that nothing touches until an OutOfMemoryError, then touches them all: the process must survive what it
// was given. Says what was wrong; empty when nothing was.
std::string fill_up(int64_t limit) {
  const std::unique_ptr<Accelerator> cpu = make_accelerator("cpu");
  if (cpu->total_memory() != limit) return "total_memory is " + std::to_string(cpu->total_memory());
  const int64_t available = cpu->available_memory();
  if (available <= limit / 2 || available > limit) return "available_memory is " + std::to_string(available);
  constexpr int64_t block = 24 * mib;  // one segment of the allocator each
  std::vector<Tensor> blocks;
  std::string refusal;
  while (refusal.empty() && static_cast<int64_t>(blocks.size()) * block <= 2 * limit) {
    try {
      blocks.push_back(Tensor::empty({block}, DType::U8, cpu->device()));
    } catch (const OutOfMemoryError& error) {
      refusal = error.what();
    }
  }
  const int64_t given = static_cast<int64_t>(blocks.size()) * block;
  if (refusal.empty()) return "gave " + std::to_string(given) + " bytes";
  if (given + 2 * block < available) return "stopped at " + std::to_string(given) + " of " + std::to_string(available);
  if (refusal.find("the control group /") == std::string::npos) return "the limit is not named: " + refusal;
  for (const Tensor& tensor : blocks) std::memset(tensor.data(), 1, block);
  // Touched or not, no more memory is available than before; and freed memory can be allocated again.
  try {
    Tensor::empty({2 * block}, DType::U8, cpu->device());
    return "gave more after everything was touched";
  } catch (const OutOfMemoryError&) {
  }
  blocks.resize(blocks.size() / 2);
  cpu->empty_cache();
  Tensor::empty({block}, DType::U8, cpu->device());
  return "";
}

void write(const fs::path& file, const std::string& text) {
  std::ofstream stream(file);
  stream << text;
  stream.flush();
  if (!stream) throw std::runtime_error("cannot write " + file.string());
}

// A control group below the process's own one, where this user may make one and limit its memory.
class Group {
 public:
  Group(const ControlGroup& parent, const std::string& name)
      : version_(parent.version), folder_(parent.folder + "/" + name) {
    std::error_code error;
    if (version_ == 2) {
      std::ofstream(parent.folder + "/cgroup.subtree_control") << "+memory";
    }
    made_ = fs::create_directory(folder_, error);
  }
  ~Group() {
    if (made_) rmdir(folder_.c_str());
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  bool usable() const { return made_ && access(limit_file().c_str(), W_OK) == 0; }
  void limit(int64_t bytes) const { write(limit_file(), std::to_string(bytes)); }
  void enter() const { write(folder_ + "/cgroup.procs", std::to_string(getpid())); }
  ControlGroup group() const { return {version_, folder_}; }

 private:
  std::string limit_file() const { return folder_ + (version_ == 2 ? "/memory.max" : "/memory.limit_in_bytes"); }
  int version_;
  std::string folder_;
  bool made_ = false;
};

std::unique_ptr<Group> make_group(const char* purpose) {
  const std::string name = std::string("anyaccel-test-") + purpose + "-" + std::to_string(getpid());
  // Groups that may have one below them: those of this process, and the mounts' roots.
  for (const ControlGroup& parent : find_control_groups("memory")) {
    auto group = std::make_unique<Group>(parent, name);
    if (group->usable()) return group;
  }
  return nullptr;
}

bool sanitized() { return test::sanitizer() != test::Sanitizer::none; }

constexpr const char* no_group =
    "no control group that limits memory can be made here (that takes root, and a hierarchy with memory)";

TEST(MemoryInAControlGroup, RunsOutWithAnExceptionAtItsLimit) {
  if (sanitized()) GTEST_SKIP() << "a sanitizer's own memory does not fit into so small a group";
  const auto group = make_group("own");
  if (!group) GTEST_SKIP() << no_group;
  group->limit(512 * mib);
  EXPECT_EQ(in_child([&] {
              group->enter();
              return fill_up(512 * mib);
            }),
            "");
}

TEST(MemoryInAControlGroup, TheParentsLimitCounts) {
  if (sanitized()) GTEST_SKIP() << "a sanitizer's own memory does not fit into so small a group";
  const auto parent = make_group("parent");
  if (!parent) GTEST_SKIP() << no_group;
  const Group child(parent->group(), "child");
  if (!child.usable()) GTEST_SKIP() << no_group;
  parent->limit(384 * mib);
  EXPECT_EQ(in_child([&] {
              child.enter();
              return fill_up(384 * mib);
            }),
            "");
}

TEST(MemoryLimits, AMachineHasNoMoreThanItHas) {
  const std::unique_ptr<Accelerator> cpu = make_accelerator("cpu");
  const int64_t available = cpu->available_memory();
  ASSERT_GT(available, 0);
  const size_t before = static_cast<size_t>(cpu->memory_reserved());
  for (const int64_t bytes : {cpu->total_memory() + mib, int64_t{60} << 40}) {
    try {
      Tensor::empty({bytes}, DType::U8, cpu->device());
      FAIL() << bytes << " bytes were given of " << available;
    } catch (const OutOfMemoryError& error) {
      EXPECT_NE(std::string(error.what()).find(" of memory do not fit: "), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("ANYACCEL_CPU_OVERCOMMIT=1"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(static_cast<size_t>(cpu->memory_reserved()), before);
  // Memory that was not touched counts in full, so the third piece of 0.4 does not fit.
  const int64_t piece = available / 10 * 4;
  std::vector<Tensor> pieces;
  for (int i = 0; i < 2; ++i) pieces.push_back(Tensor::empty({piece}, DType::U8, cpu->device()));
  EXPECT_LT(cpu->available_memory(), available - piece);
  EXPECT_THROW(Tensor::empty({piece}, DType::U8, cpu->device()), OutOfMemoryError);
  pieces.clear();
  cpu->empty_cache();
}

TEST(MemoryLimits, OvercommitOnlyByOption) {
  if (sanitized()) GTEST_SKIP() << "sanitizers limit what can be mapped";
  const auto give = [] {
    const std::unique_ptr<Accelerator> cpu = make_accelerator("cpu");
    Tensor::empty({int64_t{4} << 40}, DType::U8, cpu->device());
    return std::string("given");
  };
  EXPECT_EQ(in_child([&] {
              setenv("ANYACCEL_CPU_OVERCOMMIT", "1", 1);
              return give();
            }),
            "given");
  EXPECT_NE(in_child([&] {
              setenv("ANYACCEL_CPU_OVERCOMMIT", "0", 1);
              return give();
            }),
            "given");
  EXPECT_EQ(in_child([&] {
              setenv("ANYACCEL_CPU_OVERCOMMIT", "always", 1);
              make_accelerator("cpu")->total_memory();
              return std::string("taken");
            }).find("exception: "),
            0u);
}

TEST(MemoryLimits, OfAddressesIsOutOfMemoryToo) {
  if (sanitized()) GTEST_SKIP() << "sanitizers map more than any limit";
  const std::string said = in_child([] {
    const std::unique_ptr<Accelerator> cpu = make_accelerator("cpu");
    cpu->synchronize();
    const rlimit limit{1024 * mib, 1024 * mib};
    setrlimit(RLIMIT_AS, &limit);
    try {
      Tensor::empty({1024 * mib}, DType::U8, cpu->device());
    } catch (const OutOfMemoryError& error) {
      return std::string(error.what());
    }
    return std::string("given");
  });
  EXPECT_NE(said.find("(ulimit -v)"), std::string::npos) << said;
}

}  // namespace
}  // namespace anyaccel::cpu
