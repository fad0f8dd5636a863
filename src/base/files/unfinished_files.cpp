// Keeps the list of unfinished files, and removes them when a signal ends the process.
#include "base/files/unfinished_files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>

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
std::atomic<bool> is_ending{false};

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

void on_end(int signal) {
  remove_unfinished_files();
  // SA_RESETHAND has restored the signal's default action, which is taken as soon as this handler returns.
  ::raise(signal);
}

}  // namespace

UnfinishedFile::UnfinishedFile(const std::filesystem::path& path, Kind kind) {
  const std::lock_guard lock(entries_mutex);
  entry_ = first_entry.load();
  while (entry_ != nullptr && entry_->is_used.load()) entry_ = entry_->next;
  const bool is_new = entry_ == nullptr;
  if (is_new) entry_ = new UnfinishedEntry;
  // A handler that has begun on another thread may have found this entry in use, and be reading it.
  while (is_ending.load()) ::pause();
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

void remove_unfinished_files() noexcept {
  is_ending.store(true);
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

void remove_unfinished_files_on_signals() {
  constexpr std::array signals = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
  struct sigaction action = {};
  action.sa_handler = on_end;
  action.sa_flags = SA_RESETHAND | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (const int signal : signals) sigaddset(&action.sa_mask, signal);
  for (const int signal : signals) {
    struct sigaction before = {};
    if (::sigaction(signal, nullptr, &before) != 0) continue;
    if ((before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_DFL) ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace anyaccel
