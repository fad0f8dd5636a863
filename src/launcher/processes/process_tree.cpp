// Finds the descendants of a process through /proc.
#include "launcher/processes/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace anyaccel::launcher {
namespace {

struct Process {
  int pid = 0;
  int parent = 0;
  bool stopped = false;
};

// Returns false for a process that has ended, whether reaped or not.
bool read_process(int pid, Process& process) {
  const int file = open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char text[512];
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return false;
  text[length] = '\0';
  // "123 (name that may hold ) and blanks) S 1 ..."
  const char* end = std::strrchr(text, ')');
  if (!end || end[1] != ' ' || !end[2]) return false;
  if (end[2] == 'Z' || end[2] == 'X') return false;
  process = {pid, std::atoi(end + 3), end[2] == 'T'};
  return true;
}

std::vector<Process> all_processes() {
  std::vector<Process> processes;
  DIR* folder = opendir("/proc");
  if (!folder) return processes;
  while (const dirent* entry = readdir(folder)) {
    const int pid = std::atoi(entry->d_name);
    Process process;
    if (pid > 0 && read_process(pid, process)) processes.push_back(process);
  }
  closedir(folder);
  return processes;
}

std::vector<Process> processes_below(int root) {
  const std::vector<Process> all = all_processes();
  std::vector<Process> found = {{root, 0, false}};
  for (size_t i = 0; i < found.size(); ++i) {
    const int parent = found[i].pid;
    for (const Process& process : all) {
      if (process.parent == parent && process.pid != root) found.push_back(process);
    }
  }
  found.erase(found.begin());
  return found;
}

// Reaps dead children. Returns whether none is left, including those whose threads are still ending.
bool reap_orphans() {
  pid_t pid = 0;
  while ((pid = waitpid(-1, nullptr, WNOHANG)) > 0) continue;
  return pid < 0;
}

}  // namespace

std::vector<int> descendants(int root) {
  std::vector<int> pids;
  for (const Process& process : processes_below(root)) pids.push_back(process.pid);
  return pids;
}

bool processes_are_listed() {
  char own[32] = "";
  return readlink("/proc/self", own, sizeof own - 1) > 0 && std::atoi(own) == getpid();
}

int signal_descendants(int root, int signal) {
  const std::vector<Process> found = processes_below(root);
  for (const Process& process : found) {
    kill(process.pid, signal);
    if (process.stopped) kill(process.pid, SIGCONT);
  }
  return static_cast<int>(found.size());
}

bool kill_descendants(int limit_ms) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  int pause_ms = 1;
  while (signal_descendants(getpid(), SIGKILL) > 0 || !reap_orphans()) {
    reap_orphans();
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    pause_ms = std::min(2 * pause_ms, 20);
  }
  return true;
}

}  // namespace anyaccel::launcher
