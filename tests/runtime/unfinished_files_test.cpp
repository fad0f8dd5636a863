// A signal that ends a process removes its unfinished files, and nothing else.
#include "base/files/unfinished_files.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <span>
#include <string>

#include "base/files/files.h"
#include "base/files/new_file.h"

namespace anyaccel {
namespace {

namespace fs = std::filesystem;
using Kind = UnfinishedFile::Kind;

void make(const fs::path& file) { std::ofstream(file) << "text"; }

// Runs `body` in a child that then gets the signal. Returns the signal that ended the child; 0 if it went on.
template <typename Body>
int ended_by(int signal, const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    raise(signal);
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(UnfinishedFiles, ASignalRemovesThem) {
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    const anyaccel::TemporaryFolder folder("test");
    const fs::path work = folder.path();
    EXPECT_EQ(ended_by(signal,
                       [&] {
                         remove_unfinished_files_on_signals();
                         auto* const file = new NewFile(work / "new");
                         file->append(std::as_bytes(std::span("text")));
                         NewFile finished(work / "finished");
                         finished.finish();
                         { const UnfinishedFile reused(work / "kept"); }
                         make(work / "kept");
                         fs::create_directories(work / "folder");
                         for (int i = 0; i < 300; ++i)
                           make(work / "folder" / (std::string(100, 'x') + std::to_string(i)));
                         fs::create_directories(work / "empty");
                         fs::create_directories(work / "full");
                         make(work / "full" / "file");
                         make(work / "full" / "other");
                         new UnfinishedFile(work / "folder", Kind::FolderWithFiles);
                         new UnfinishedFile(work / "empty", Kind::EmptyFolder);
                         new UnfinishedFile(work / "full", Kind::EmptyFolder);
                         new UnfinishedFile(work / "full" / "file");
                       }),
              signal);
    std::set<std::string> left;
    for (const auto& entry : fs::recursive_directory_iterator(work)) {
      left.insert(fs::relative(entry.path(), work).string());
    }
    EXPECT_EQ(left, (std::set<std::string>{"finished", "full", "full/other", "kept"}));
  }
}

TEST(UnfinishedFiles, AnIgnoredSignalRemovesNothing) {
  const anyaccel::TemporaryFolder folder("test");
  const fs::path file = folder.path() / "file";
  EXPECT_EQ(ended_by(SIGHUP,
                     [&] {
                       signal(SIGHUP, SIG_IGN);
                       remove_unfinished_files_on_signals();
                       make(file);
                       new UnfinishedFile(file);
                     }),
            0);
  EXPECT_TRUE(fs::exists(file));
}

// The launcher forks before it starts a program.
TEST(UnfinishedFiles, AChildLeavesThoseOfItsParent) {
  const anyaccel::TemporaryFolder folder("test");
  const fs::path file = folder.path() / "file";
  make(file);
  const UnfinishedFile unfinished(file);
  EXPECT_EQ(ended_by(SIGTERM, [] { remove_unfinished_files_on_signals(); }), SIGTERM);
  EXPECT_TRUE(fs::exists(file));
}

}  // namespace
}  // namespace anyaccel
