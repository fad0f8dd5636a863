// A signal that ends a process removes its unfinished files, and nothing else.
#include "base/files/unfinished_files.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <set>
#include <span>
#include <string>
#include <thread>

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
    const fs::path& work = folder.path();
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

// A signal that comes after a file was created and before its UnfinishedFile exists.
TEST(UnfinishedFiles, ASignalWhileAFileIsCreatedRemovesIt) {
  for (const bool has_other_thread : {false, true}) {  // which handles the signal
    const anyaccel::TemporaryFolder folder("test");
    const fs::path file = folder.path() / "file";
    EXPECT_EQ(ended_by(SIGTERM,
                       [&] {
                         remove_unfinished_files_on_signals();
                         if (has_other_thread) std::thread([] { pause(); }).detach();
                         {
                           const FileCreation creation;
                           make(file);
                           kill(getpid(), SIGTERM);
                           std::this_thread::sleep_for(std::chrono::milliseconds(50));
                           if (!fs::exists(file)) _exit(1);
                           new UnfinishedFile(file);
                         }
                         for (;;) pause();
                       }),
              SIGTERM);
    EXPECT_FALSE(fs::exists(file)) << has_other_thread;
  }
}

// Threads that create files when a signal has come stop, so no file is created after the others were removed.
TEST(UnfinishedFiles, ThreadsThatCreateFilesLeaveNone) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    const anyaccel::TemporaryFolder folder("test");
    EXPECT_EQ(ended_by(SIGTERM,
                       [&] {
                         remove_unfinished_files_on_signals();
                         for (int thread = 0; thread < 3; ++thread) {
                           std::thread([&, thread] {
                             for (;;) NewFile unfinished(folder.path() / std::to_string(thread));
                           }).detach();
                         }
                         std::this_thread::sleep_for(std::chrono::milliseconds(2 + attempt % 5));
                       }),
              SIGTERM);
    EXPECT_TRUE(fs::is_empty(folder.path())) << attempt;
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
