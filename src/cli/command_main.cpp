// Implements main() of the programs that have sub-commands.
#include "cli/command_main.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "anyaccel/abi/base.h"
#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/safetensors.h"
#include "anyaccel/log.h"
#include "base/files/unfinished_files.h"
#include "base/process/start_thread.h"
#include "base/text/nearest_name.h"
#include "cli/commands/command_support.h"
#include "generated/commit.h"
#include "runtime/layers/trace.h"
#include "runtime/range_trace.h"

namespace anyaccel::cli {
namespace {

void print_usage(std::span<const Command> commands, std::FILE* stream) {
  std::fprintf(stream, "usage: anyaccel COMMAND [options]\n\ncommands:\n");
  for (const Command& command : commands) std::fprintf(stream, "  %-12s %s\n", command.name, command.summary);
  std::fprintf(stream, "\n`anyaccel COMMAND --help` lists the options of a command.\n");
}

// A file with the descriptor number of a closed standard file would be written to in its place. So these numbers are
// filled with descriptors of the opposite direction, so that writing to a closed standard output stays an error.
void hold_closed_standard_files() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(file, F_GETFD) < 0) (void)!open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// Where the limit on stacks (ulimit -s) is small, raises it as far as it may be, and gives the threads that this process and
// vendors' libraries start enough in any case. Returns false where the main thread's must stay small.
bool enlarge_stacks() {
  constexpr rlim_t enough = 1 << 20;  // templates and grammars as deep as their limits allow need less than half of it
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= enough) return true;
  limit.rlim_cur = std::min(enough, limit.rlim_max);
  setrlimit(RLIMIT_STACK, &limit);
  pthread_attr_t attributes;
  if (pthread_getattr_default_np(&attributes) == 0) {
    if (pthread_attr_setstacksize(&attributes, enough) == 0) pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
  }
  return limit.rlim_cur >= enough;
}

// Shuts down in an orderly way, as the validate layer and vendors' tools expect. Resources of static objects stay open
// until the end.
void close_devices() {
  try {
    shutdown_accelerators();
  } catch (const Error& error) {
    log_debug(error.what());
  }
}

int run(const Command& command, int argc, char** argv) {
  llm::end_process_when_mapped_file_is_cut();
  remove_unfinished_files_on_signals();
  const int result = command.run(argc, argv);
  close_devices();
  const bool traced = finish_trace() && layers::all_calls_traced();
  return result == 0 && !traced ? 1 : result;
}

int run_on_a_thread(const Command& command, int argc, char** argv) {
  int result = 1;
  try {
    std::thread thread = start_thread("the command, whose stack may not grow here (ulimit -s)",
                                      [&] { result = run(command, argc, argv); });
    // Signals interrupt what waits in the command.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    thread.join();
  } catch (const UnavailableError& error) {
    std::fprintf(stderr, "anyaccel: error: %s\n", error.what());
  }
  return result;
}

}  // namespace

int command_main(std::span<const Command> commands, int argc, char** argv) {
  // A write beyond the file size limit then fails with an error message.
  signal(SIGXFSZ, SIG_IGN);
  if (argc < 2) {
    print_usage(commands, stderr);
    return 2;
  }
  const char* asked = argv[1];
  hold_closed_standard_files();
  if (!std::strcmp(asked, "--help") || !std::strcmp(asked, "-h") || !std::strcmp(asked, "help")) {
    print_usage(commands, stdout);
    return check_standard_output(0);
  }
  if (!std::strcmp(asked, "--version")) {
    std::printf("anyaccel %s (commit %s, driver table %d.%d)\n", ANYACCEL_VERSION, ANYACCEL_COMMIT, AA_ABI_MAJOR,
                AA_ABI_MINOR);
    return check_standard_output(0);
  }
  for (const Command& command : commands) {
    if (std::strcmp(asked, command.name) != 0) continue;
    return enlarge_stacks() ? run(command, argc - 1, argv + 1) : run_on_a_thread(command, argc - 1, argv + 1);
  }
  std::vector<std::string> names;
  for (const Command& command : commands) names.emplace_back(command.name);
  const std::string hint = did_you_mean(asked, names);
  std::fprintf(stderr, "anyaccel: error: there is no command \"%s\"%s\n\n", asked, hint.c_str());
  print_usage(commands, stderr);
  return 2;
}

}  // namespace anyaccel::cli
