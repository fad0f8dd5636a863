// Reports the file and the byte offset of a SIGBUS in a mapped file. The handler makes only async-signal-safe calls: it
// walks a list that only grows, writes, and ends the process.
#include "llm/checkpoint/mapped_files.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "anyaccel/llm/safetensors.h"
#include "base/files/unfinished_files.h"

namespace anyaccel::llm {

struct MappedFile {
  std::atomic<uintptr_t> begin{0};  // 0: not in use
  uintptr_t end = 0;
  std::array<char, 4096> path = {};
  MappedFile* next = nullptr;
};

namespace {

std::atomic<MappedFile*> first_mapping{nullptr};
std::mutex mappings_mutex;  // taken by threads that change the list
struct sigaction previous_action = {};

void append(std::array<char, 4608>& line, size_t& length, const char* text) {
  while (*text != '\0' && length < line.size()) line[length++] = *text++;
}

void write_line(std::array<char, 4608>& line, size_t length) {
  // If writing fails, there is no way to report it.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), length);
}

// The machine found that memory which is being read holds wrong bits that it cannot correct.
bool is_memory_error(const siginfo_t& info) { return info.si_code == BUS_MCEERR_AR; }
constexpr const char* memory_error =
    " lies in memory that the machine reports as defective (an uncorrectable memory error, which the kernel's log "
    "describes). Start the program again: the system no longer uses that page. If it happens again, have the memory "
    "replaced\n";

// The first thread that gets here ends the process; any others wait for that.
[[noreturn]] void report(const MappedFile& file, uintptr_t address, const siginfo_t& info) {
  static std::atomic_flag reported = ATOMIC_FLAG_INIT;
  if (reported.test_and_set()) {
    for (;;) ::pause();
  }
  std::array<char, 20> digits = {};
  size_t at = digits.size() - 1;
  uintptr_t offset = address - file.begin.load();
  do {
    digits[--at] = static_cast<char>('0' + offset % 10);
    offset /= 10;
  } while (offset != 0);
  std::array<char, 4608> line = {};
  size_t length = 0;
  append(line, length, "anyaccel: error: ");
  append(line, length, file.path.data());
  append(line, length, ": byte ");
  append(line, length, &digits[at]);
  append(
      line, length,
      is_memory_error(info)
          ? memory_error
          : " is gone: the file was cut short while it was in use, or its disk failed (with --no-mmap it is read once "
            "and not needed after that)\n");
  write_line(line, length);
  remove_unfinished_files();
  ::_exit(1);
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const MappedFile* file = first_mapping.load(); file != nullptr; file = file->next) {
    const uintptr_t begin = file->begin.load();
    if (begin != 0 && address >= begin && address < file->end) report(*file, address, *info);
  }
  if (is_memory_error(*info)) {  // of memory that is of no file, or is a copy; what follows ends the process
    std::array<char, 4608> line = {};
    size_t length = 0;
    append(line, length, "anyaccel: error: data of this process");
    append(line, length, memory_error);
    write_line(line, length);
  }
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(signal);
  } else if (info->si_code > 0 || previous_action.sa_handler == SIG_DFL) {
    // Returns to the faulting access, which then ends the process as it would have without this handler. A signal that
    // another process sent does not recur by itself, so it is raised again.
    ::sigaction(SIGBUS, &previous_action, nullptr);
    if (info->si_code <= 0) ::raise(signal);
  }
}

}  // namespace

MappedFile* remember_mapping(const std::byte* data, size_t bytes, const std::string& path) {
  const std::lock_guard lock(mappings_mutex);
  MappedFile* file = first_mapping.load();
  while (file != nullptr && file->begin.load() != 0) file = file->next;
  const bool is_new = file == nullptr;
  if (is_new) file = new MappedFile;
  file->end = reinterpret_cast<uintptr_t>(data) + bytes;
  const size_t length = std::min(path.size(), file->path.size() - 1);
  std::memcpy(file->path.data(), path.data(), length);
  file->path[length] = '\0';
  file->begin.store(reinterpret_cast<uintptr_t>(data));
  if (is_new) {
    file->next = first_mapping.load();
    first_mapping.store(file);
  }
  return file;
}

void forget_mapping(MappedFile* mapping) noexcept { mapping->begin.store(0); }

void end_process_when_mapped_file_is_cut() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &previous_action);
  });
}

}  // namespace anyaccel::llm
