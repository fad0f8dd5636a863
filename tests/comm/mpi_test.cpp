// The communicator over MPI, for every MPI of the machine: each test starts itself again under that MPI's mpirun, with the
// ranks' store in a folder.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/files/files.h"
#include "base/process/shell.h"
#include "base/process/subprocess.h"
#include "comm/host_communicator.h"
#include "comm/mpi/mpi_library.h"
#include "message_test_support.h"

namespace anyaccel::comm {
namespace {

namespace fs = std::filesystem;
using namespace testing;

// The folder in which the ranks of a started test meet; set in their environment.
const char* meeting_place() { return std::getenv("ANYACCEL_TEST_MPI_FOLDER"); }

class FolderStore final : public Store {
 public:
  explicit FolderStore(fs::path folder) : folder_(std::move(folder)) {}
  void set(std::string_view key, std::string_view value) override {
    const fs::path draft = path(key) += "." + std::to_string(getpid());
    std::ofstream(draft, std::ios::binary) << value;
    fs::rename(draft, path(key));
  }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!fs::exists(path(key))) {
      if (std::chrono::steady_clock::now() > deadline) throw CommunicationError("no key " + std::string(key));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    std::ifstream file(path(key), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  int64_t add(std::string_view key, int64_t amount) override {
    const int fd = open(path(key).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    flock(fd, LOCK_EX);
    int64_t value = 0;
    if (pread(fd, &value, sizeof(value), 0) < 0) value = 0;
    value += amount;
    if (pwrite(fd, &value, sizeof(value), 0) < 0) value = -1;
    close(fd);
    return value;
  }
  void remove(std::string_view key) override { fs::remove(path(key)); }

 private:
  fs::path path(std::string_view key) const {
    std::string name(key);
    std::replace(name.begin(), name.end(), '/', '_');
    return folder_ / name;
  }
  fs::path folder_;
};

class Mpi : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    if (meeting_place()) return;
    std::string name = (fs::temp_directory_path() / "anyaccel-mpi-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    setenv("ANYACCEL_CACHE_DIR", (folder_ / "cache").c_str(), 1);
    const char* const options = std::getenv("ASAN_OPTIONS");
    setenv("ASAN_OPTIONS", (std::string(options ? options : "") + ":detect_leaks=0").c_str(), 1);  // MPIs leak
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
    setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 1);  // the same for Open MPI 5
    setenv("PRTE_MCA_hwloc_default_binding_policy", "none", 1);
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);  // containers forbid it
  }
  static void TearDownTestSuite() {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  // Runs `body` as one of `size` ranks of this test's MPI; in the test itself: starts them.
  void on_processes(int size, const std::function<void(int)>& body, const std::string& mpirun = {}) {
    if (meeting_place()) {
      const int rank = launched_rank();
      body(rank);
      if (!HasFailure()) std::ofstream(passed_file(meeting_place(), rank)) << "\n";
      return;
    }
    const ProcessResult result = launch(size, mpirun.empty() ? GetParam() : mpirun, GetParam());
    EXPECT_EQ(result.exit_code, 0) << result.output;
    // Each rank's own word, so that nothing passes because it was not run. Not in the output: launchers may forward what
    // ranks print in pieces, one rank's inside of another's line.
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_TRUE(fs::exists(passed_file(meeting_folder(), rank))) << "rank " << rank << ": " << result.output;
    }
  }
  static fs::path passed_file(const fs::path& meeting, int rank) {
    return meeting / ("passed-by-" + std::to_string(rank));
  }
  // The rendezvous of the ranks of the running test.
  static fs::path meeting_folder() {
    return folder_ / (std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + GetParam());
  }

  static ProcessResult launch(int size, const std::string& mpirun, const std::string& mpicc) {
    for (const std::string& program : {"mpirun." + mpirun, "mpicc." + mpicc}) {
      if (find_program(program).empty()) return {77, program + " is not installed"};
    }
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    const fs::path meeting = meeting_folder();
    fs::remove_all(meeting);
    fs::create_directories(meeting);
    return run_program({"timeout", "-k", "5", "120", "env", "ANYACCEL_TEST_MPI_FOLDER=" + meeting.string(),
                        "MPICC=mpicc." + mpicc, "mpirun." + mpirun, "-n", std::to_string(size),
                        fs::read_symlink("/proc/self/exe").string(), "--gtest_brief=1", "--gtest_color=no",
                        "--gtest_filter=" + std::string(info->test_suite_name()) + "." + info->name()});
  }

  void SetUp() override {
    for (const char* program : {"mpirun.", "mpicc."}) {
      const std::string name = program + std::string(GetParam());
      if (find_program(name).empty()) GTEST_SKIP() << name << " is not installed";
    }
    if (!meeting_place() && !serves_its_mpirun()) {
      const ProcessResult result = launch(2, GetParam(), GetParam());
      EXPECT_NE(result.output.find("does not understand this launcher"), std::string::npos) << result.output;
      GTEST_SKIP() << "mpirun." << GetParam() << " starts any program as worlds of one rank";
    }
  }
  // Whether two ranks of a plain program are one world under this MPI's own mpirun, and not two.
  static bool serves_its_mpirun() {
    const fs::path program = folder_ / ("plain-" + std::string(GetParam()));
    if (!fs::exists(program)) {
      std::ofstream(program.string() + ".c") << R"(
        #include <mpi.h>
        #include <stdio.h>
        int main(int argc, char** argv) {
          int size = 0;
          MPI_Init(&argc, &argv);
          MPI_Comm_size(MPI_COMM_WORLD, &size);
          printf("a world of %d\n", size);
          MPI_Finalize();
          return 0;
        })";
      const ProcessResult compiled =
          run_program({"mpicc." + std::string(GetParam()), program.string() + ".c", "-o", program.string()});
      EXPECT_EQ(compiled.exit_code, 0) << compiled.output;
    }
    const ProcessResult result =
        run_program({"timeout", "-k", "5", "60", "mpirun." + std::string(GetParam()), "-n", "2", program.string()});
    const std::string alone = "a world of 1\n";
    const size_t one = result.output.find(alone);
    const bool two = one != std::string::npos && result.output.find(alone, one + 1) != std::string::npos;
    return !two;  // the tests themselves show any other failure
  }

  static int launched_rank() {
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    if (!rank) rank = std::getenv("PMI_RANK");
    return rank ? std::atoi(rank) : 0;
  }
  static std::shared_ptr<Store> store() { return std::make_shared<FolderStore>(meeting_place()); }
  static std::unique_ptr<HostCommunicator> join(int rank, int size) {
    return make_mpi_communicator(membership_of(rank, size, store()));
  }

  static fs::path folder_;
};
fs::path Mpi::folder_;

TEST_P(Mpi, MovesBytesAndSumsInTheOrderOfRanks) {
  on_processes(3, [&](int rank) {
    const auto c = join(rank, 3);
    EXPECT_EQ(c->name(), "mpi");
    for (const size_t bytes : {0, 1, 16384, 16385, 200000}) check_moves(*c, bytes);
    for (const int64_t count : {0, 1, 12, 60000, 9000000}) check_sums(*c, count, ordered_sum(3, count));
    // The others of a group of two, in another order, while rank 1 does something else.
    if (rank != 1) {
      Membership membership = membership_of(rank == 2 ? 0 : 1, 2, make_prefixed_store(store(), "pair"));
      const auto pair = make_mpi_communicator(membership);
      check_moves(*pair, 1000);
      check_sums(*pair, 1000, ordered_sum(2, 1000));
    }
    c->barrier();
  });
}

TEST_P(Mpi, FailuresAreNamed) {
  on_processes(2, [&](int rank) {
    auto c = join(rank, 2);
    float value = 1;
    try {
      if (rank == 0)
        c->all_reduce(&value, 1, DType::F32, ReduceOp::Sum);
      else
        c->all_reduce(&value, 1, DType::I32, ReduceOp::Sum);
      FAIL() << "the members disagree";
    } catch (const CommunicationError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("all_reduce of 1 float32 (sum)"), std::string::npos) << text;
      EXPECT_NE(text.find("all_reduce of 1 int32 (sum)"), std::string::npos) << text;
    }
    EXPECT_THROW(c->barrier(), CommunicationError);

    Membership membership = membership_of(rank, 2, make_prefixed_store(store(), "time"));
    membership.timeout = std::chrono::milliseconds(300);
    c = make_mpi_communicator(membership);
    try {
      c->recv(&value, 4, 1 - rank, 5);
      FAIL() << "nobody sends";
    } catch (const CommunicationError& error) {
      EXPECT_NE(std::string(error.what()).find("time limit of 300 ms"), std::string::npos) << error.what();
    }

    c = make_mpi_communicator(membership_of(rank, 2, make_prefixed_store(store(), "abort")));
    std::thread killer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      c->abort("the job is over");
    });
    try {
      c->recv(&value, 4, 1 - rank, 5);
      ADD_FAILURE() << "nobody sends";
    } catch (const CommunicationError& error) {
      EXPECT_STREQ(error.what(), "the job is over");
    }
    killer.join();
    EXPECT_THROW(c->send(&value, 4, 1 - rank, 0), CommunicationError);
  });
}

TEST_P(Mpi, RootsAreCompared) {
  on_processes(2, [&](int rank) {
    check_roots_are_compared(rank, 2, [](int member, const std::string& name) {
      return make_mpi_communicator(membership_of(member, 2, make_prefixed_store(store(), name)));
    });
  });
}

// Runs under the mpirun of another MPI than the program's.
TEST_P(Mpi, AnotherMpisLauncherIsAnError) {
  const std::string other = std::string(GetParam()) == "openmpi" ? "mpich" : "openmpi";
  if (!meeting_place() && find_program("mpirun." + other).empty()) {
    GTEST_SKIP() << "mpirun." << other << " is not installed";
  }
  on_processes(
      2,
      [&](int rank) {
        try {
          join(rank, 2);
          FAIL() << "the launcher is another MPI's";
        } catch (const CommunicationError& error) {
          const std::string text = error.what();
          EXPECT_NE(text.find("launched by " + std::string(other == "openmpi" ? "Open MPI" : "MPICH")),
                    std::string::npos)
              << text;
          EXPECT_NE(text.find(other == "openmpi" ? "MPICH Version" : "Open MPI v"), std::string::npos) << text;
        }
      },
      other);
}

// A program that exits without an error has ended MPI; one that fails takes the job with it.
TEST_P(Mpi, ExitsReachTheLauncher) {
  if (meeting_place()) {
    const int rank = launched_rank();
    auto c = join(rank, 2);
    c->barrier();
    c.reset();
    if (rank == 1) std::exit(3);
    while (true) pause();  // until the launcher ends it
  }
  const ProcessResult result = launch(2, GetParam(), GetParam());
  if (std::string(GetParam()) == "mpich" && result.exit_code != 3) {
    // MPICH's Hydra keeps a status of its own for a rank whose connection closes before the rank has been waited for, or takes
    // that of the rank it then kills: its mpirun answers 1 or 9 at times. timeout's 124 and 137 would be a job that stays.
    EXPECT_TRUE(result.exit_code == 1 || result.exit_code == 9) << result.exit_code << result.output;
    EXPECT_NE(result.output.find("BAD TERMINATION"), std::string::npos) << result.output;
    return;
  }
  EXPECT_EQ(result.exit_code, 3) << result.output;
}

INSTANTIATE_TEST_SUITE_P(Of, Mpi, ::testing::Values("openmpi", "mpich"),
                         [](const auto& info) { return std::string(info.param); });

// Sets variables for its lifetime.
class ScopedEnvironment {
 public:
  using Values = std::vector<std::pair<const char*, std::string>>;
  explicit ScopedEnvironment(const Values& values) {
    for (const auto& [name, value] : values) {
      const char* before = std::getenv(name);
      before_.emplace_back(name, before ? std::optional<std::string>(before) : std::nullopt);
      if (value.empty())
        unsetenv(name);
      else
        setenv(name, value.c_str(), 1);
    }
  }
  ~ScopedEnvironment() {
    for (auto& [name, value] : before_) {
      if (value)
        setenv(name, value->c_str(), 1);
      else
        unsetenv(name);
    }
  }

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

MpiLauncher of(const char* mpi) {
  MpiLauncher launcher;
  launcher.mpi = mpi;
  return launcher;
}

TEST(MpiCompiler, IsTheOneOfTheLaunchersMpi) {
  const TemporaryFolder temporary("mpicc");
  const std::string folder = temporary.path().string();
  const auto add = [&](const char* name) {
    std::ofstream(folder + "/" + name) << "#!/bin/sh\n";
    fs::permissions(folder + "/" + name, fs::perms::owner_all);
  };
  add("mpicc");
  const ScopedEnvironment environment(ScopedEnvironment::Values{{"PATH", folder}, {"MPICC", ""}});
  EXPECT_EQ(mpi_compiler(of("Open MPI")), "mpicc");
  add("mpicc.mpich");
  add("mpicc.openmpi");
  EXPECT_EQ(mpi_compiler(of("Open MPI")), "mpicc.openmpi");
  EXPECT_EQ(mpi_compiler(of("MPICH")), "mpicc.mpich");
  EXPECT_EQ(mpi_compiler(of("")), "mpicc");
  {
    const ScopedEnvironment asked(ScopedEnvironment::Values{{"MPICC", "mpicc.mpich"}});
    EXPECT_EQ(mpi_compiler(of("Open MPI")), "mpicc.mpich");
  }
  const ScopedEnvironment wrong(ScopedEnvironment::Values{{"MPICC", "/no/such/mpicc"}});
  EXPECT_THROW(mpi_compiler(of("")), UnavailableError);
  for (const char* name : {"mpicc", "mpicc.mpich", "mpicc.openmpi"}) fs::remove(folder + "/" + name);
  const ScopedEnvironment none(ScopedEnvironment::Values{{"MPICC", ""}});
  try {
    mpi_compiler(of(""));
    FAIL() << "there is none";
  } catch (const UnavailableError& error) {
    EXPECT_NE(std::string(error.what()).find("libopenmpi-dev"), std::string::npos) << error.what();
  }
}

TEST(MpiLauncher, IsSeenInTheEnvironment) {
  const ScopedEnvironment clean(ScopedEnvironment::Values{{"OMPI_COMM_WORLD_SIZE", ""},
                                                          {"I_MPI_MPIRUN", ""},
                                                          {"MV2_COMM_WORLD_SIZE", ""},
                                                          {"PMI_SIZE", ""},
                                                          {"PMI_FD", ""},
                                                          {"PMIX_NAMESPACE", ""}});
  EXPECT_EQ(mpi_launcher().mpi, "");
  EXPECT_EQ(mpi_launcher().size, 0);
  const ScopedEnvironment pmi(ScopedEnvironment::Values{{"PMI_SIZE", "6"}});
  EXPECT_EQ(mpi_launcher().mpi, "MPICH");
  EXPECT_EQ(mpi_launcher().size, 6);
  {
    const ScopedEnvironment intel(ScopedEnvironment::Values{{"I_MPI_MPIRUN", "mpirun"}});
    EXPECT_EQ(mpi_launcher().mpi, "Intel MPI");
    EXPECT_EQ(mpi_launcher().size, 6);
  }
  const ScopedEnvironment open(ScopedEnvironment::Values{{"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_EQ(mpi_launcher().mpi, "Open MPI");
  EXPECT_EQ(mpi_launcher().evidence, "OMPI_COMM_WORLD_SIZE=4");
  EXPECT_EQ(mpi_launcher().size, 4);
}

}  // namespace
}  // namespace anyaccel::comm
