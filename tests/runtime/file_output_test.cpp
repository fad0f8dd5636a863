// Files that a person named are there as a whole or as they were, and a write past a limit is an error with a reason, not the
// end of the process by a signal.
#include "anyaccel/file_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <iterator>

#include "base/files/files.h"

namespace anyaccel {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

size_t entries(const fs::path& folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder)) ++count;
  return count;
}

// Returns what `body` wrote in a child process whose files are limited to 1000 bytes, or how the child ended.
std::string under_size_limit(const std::function<std::string()>& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_DFL);
    const rlimit limit{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string said = body();
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

TEST(FileOutput, ALimitOnTheSizeOfFilesIsAnErrorThatNamesIt) {
  const TemporaryFolder folder("test");
  const std::string path = folder.file("report");
  std::ofstream(path) << "old";
  const std::string reason = under_size_limit([&] { return write_output_file(path, std::string(5000, 'x')); });
  EXPECT_EQ(reason,
            "File too large: the limit on the size of files of this process is 1000 bytes; raise it with `ulimit -f`");
  EXPECT_EQ(contents(path), "old");
  EXPECT_EQ(entries(folder.path()), 1u) << "a temporary file was left";
}

TEST(FileOutput, ASignalThatWasPendingOrIgnoredBeforeStaysSo) {
  const TemporaryFolder folder("test");
  const std::string said = under_size_limit([&] {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    raise(SIGXFSZ);
    write_output_file(folder.file("report"), std::string(5000, 'x'));
    sigset_t pending;
    sigpending(&pending);
    return std::string(sigismember(&pending, SIGXFSZ) == 1 ? "pending" : "lost");
  });
  EXPECT_EQ(said, "pending");
  EXPECT_EQ(under_size_limit([&] {
              write_output_file(folder.file("report"), std::string(5000, 'x'));
              raise(SIGXFSZ);  // the process's own still ends it
              return std::string("survived");
            }),
            "signal " + std::to_string(SIGXFSZ));
}

TEST(FileOutput, ReplacesAsAWholeAndKeepsPermissions) {
  const TemporaryFolder folder("test");
  const std::string path = folder.file("report");
  EXPECT_EQ(write_output_file(path, "first"), "");
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  EXPECT_EQ(write_output_file(path, "second"), "");
  EXPECT_EQ(contents(path), "second");
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(FileOutput, WhatIsNoRegularFileIsWrittenToAsItIs) {
  const TemporaryFolder folder("test");
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  EXPECT_EQ(output_file_problem(pipe), "");
  EXPECT_EQ(write_output_file(pipe, "text"), "");
  char buffer[8] = {};
  EXPECT_EQ(read(reader, buffer, sizeof buffer), 4);
  EXPECT_STREQ(buffer, "text");
  close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_EQ(write_output_file("/dev/full", "text"),
            "No space left on device; make room there, or write to another disk");

  std::ofstream(folder.file("target")) << "old";
  fs::create_symlink("target", folder.path() / "link");
  EXPECT_EQ(write_output_file(folder.file("link"), "new"), "");
  EXPECT_TRUE(fs::is_symlink(folder.path() / "link"));
  EXPECT_EQ(contents(folder.file("target")), "new");
}

TEST(FileOutput, ProblemsAreSeenBeforeAnythingIsWritten) {
  const TemporaryFolder folder("test");
  EXPECT_EQ(output_file_problem(folder.file("new")), "");
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());  // a name without a folder; where the tests run may be closed to whoever runs them
  EXPECT_EQ(output_file_problem("relative-and-new"), "");
  fs::current_path(before);
  EXPECT_EQ(output_file_problem(folder.path()), "Is a directory");
  EXPECT_EQ(output_file_problem(folder.file("none/new")),
            "the folder " + folder.file("none") + ": No such file or directory");
  std::ofstream(folder.file("file")) << "text";
  EXPECT_EQ(output_file_problem(folder.file("file/new")), "Not a directory");
  EXPECT_EQ(output_file_problem(""), "Is a directory");
  EXPECT_EQ(entries(folder.path()), 1u) << "asking made a file";
  EXPECT_NE(write_output_file(folder.file("none/new"), "text"), "") << "a folder was made";
}

TEST(FileOutput, WhatAPersonCanDoAboutIt) {
  EXPECT_EQ(write_problem(EDQUOT), "Disk quota exceeded; delete files of yours there, or write to another disk");
  EXPECT_EQ(write_problem(EACCES), "Permission denied");
}

}  // namespace
}  // namespace anyaccel
