// Keeps the list of unfinished files, and removes them when a signal ends the process.
#include "base/files/unfinished_files.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <system_error>

namespace anyaccel {

// Entries are reused and never freed, because a signal handler reads them without a lock.
struct UnfinishedEntry {
  std::atomic<bool> is_used{false};  // the other members do not change while it is true
  std::string path;
  UnfinishedFile::Kind kind = UnfinishedFile::Kind::File;
  pid_t owner = 0;
  UnfinishedEntry* next = nullptr;
};

namespace {

std::atomic<UnfinishedEntry*> first_entry{nullptr};
std::mutex entries_mutex;  // taken by threads that look for an entry that is not used
constexpr std::array ending_signals = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
// A handler sets is_ending and then reads the other; a thread that creates a file does the opposite. So one of them sees
// the other, and waits.
std::atomic<bool> is_ending{false};
std::atomic<int> threads_creating{0};
thread_local int creation_depth = 0;   // FileCreation objects of this thread
constexpr int longest_wait_ms = 1000;  // for a thread that creates a file, which a forked child does not have

// The kernel's struct linux_dirent64, whose name ends with a zero.
struct FolderEntry {
  uint64_t inode;
  int64_t offset;
  uint16_t bytes;
  uint8_t type;
};
constexpr size_t name_offset = offsetof(FolderEntry, type) + 1;

// opendir() allocates memory, which a signal handler must not do.
void remove_files_in(const char* path) noexcept {
  const int folder = ::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return;
  alignas(FolderEntry) std::array<char, 4096> buffer;
  // Removing entries while they are listed may hide others: the list is read until nothing more can be removed.
  for (bool removed = true; removed;) {
    removed = false;
    ::lseek(folder, 0, SEEK_SET);
    for (;;) {
      const long length = ::syscall(SYS_getdents64, folder, buffer.data(), buffer.size());
      if (length <= 0) break;
      for (size_t at = 0; at < static_cast<size_t>(length);) {
        FolderEntry entry;
        std::memcpy(&entry, &buffer[at], name_offset);
        const char* const name = &buffer[at + name_offset];
        if (::unlinkat(folder, name, 0) == 0) removed = true;
        at += entry.bytes;
      }
    }
  }
  ::close(folder);
}

}  // namespace

FileCreation::FileCreation() {
  sigset_t held;
  sigemptyset(&held);
  for (const int signal : ending_signals) sigaddset(&held, signal);
  ::pthread_sigmask(SIG_BLOCK, &held, &before_);
  if (creation_depth++ > 0) return;
  threads_creating.fetch_add(1);
  if (!is_ending.load()) return;
  threads_creating.fetch_sub(1);
  for (;;) ::pause();
}

FileCreation::~FileCreation() {
  if (--creation_depth == 0) threads_creating.fetch_sub(1);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

UnfinishedFile::UnfinishedFile(const std::filesystem::path& path, Kind kind) {
  // Also because a handler that has begun on another thread may have found an entry in use, and be reading it.
  const FileCreation creation;
  const std::lock_guard lock(entries_mutex);
  entry_ = first_entry.load();
  while (entry_ != nullptr && entry_->is_used.load()) entry_ = entry_->next;
  const bool is_new = entry_ == nullptr;
  if (is_new) entry_ = new UnfinishedEntry;
  entry_->path = path.string();
  entry_->kind = kind;
  entry_->owner = ::getpid();
  entry_->is_used.store(true);
  if (is_new) {
    entry_->next = first_entry.load();
    first_entry.store(entry_);
  }
}

UnfinishedFile::~UnfinishedFile() { entry_->is_used.store(false); }

std::filesystem::path unfinished_path(const std::filesystem::path& path) {
  // mkstemp() is not used, because the file's permissions must follow the umask.
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string end = "." + std::to_string(::getpid()) + "." + std::to_string(now) + ".tmp";
  std::string name = path.filename().string();
  if (name.size() + end.size() > NAME_MAX) {
    size_t length = NAME_MAX - end.size();
    while (length > 0 && (static_cast<unsigned char>(name[length]) & 0xC0u) == 0x80u)
      --length;  // whole characters of UTF-8
    name.resize(length);
  }
  return path.parent_path() / (name + end);
}

std::filesystem::path path_to_replace(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return path;
  std::filesystem::path end = std::filesystem::weakly_canonical(path, error);
  return error ? path : end;
}

int create_unfinished_file(const std::filesystem::path& path, unsigned mode,
                           std::optional<UnfinishedFile>& unfinished) {
  const FileCreation creation;
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file >= 0) unfinished.emplace(path);
  return file;
}

void remove_unfinished_files() noexcept {
  is_ending.store(true);
  for (int waited_ms = 0; threads_creating.load() > 0 && waited_ms < longest_wait_ms; ++waited_ms) {
    constexpr timespec one_ms = {0, 1'000'000};
    ::nanosleep(&one_ms, nullptr);
  }
  const pid_t self = ::getpid();
  for (const bool folders : {false, true}) {  // a folder must be empty to be removed
    for (const UnfinishedEntry* entry = first_entry.load(); entry != nullptr; entry = entry->next) {
      if (!entry->is_used.load() || entry->owner != self) continue;
      if (folders != (entry->kind != UnfinishedFile::Kind::File)) continue;
      const char* const path = entry->path.c_str();
      if (entry->kind == UnfinishedFile::Kind::FolderWithFiles) remove_files_in(path);
      if (folders) {
        ::rmdir(path);
      } else {
        ::unlink(path);
      }
    }
  }
}

void end_by_signal(int signal) noexcept {
  remove_unfinished_files();
  // The kernel takes no default action for the first process of a container.
  if (::getpid() == 1) ::_exit(128 + signal);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void remove_unfinished_files_on_signals() {
  struct sigaction action = {};
  action.sa_handler = end_by_signal;
  action.sa_flags = SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (const int signal : ending_signals) sigaddset(&action.sa_mask, signal);
  for (const int signal : ending_signals) {
    struct sigaction before = {};
    if (::sigaction(signal, nullptr, &before) != 0) continue;
    if ((before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_DFL) ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace anyaccel
