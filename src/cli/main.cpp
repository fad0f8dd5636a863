// anyaccel: the command. Each sub-command is a file of its own.
#include <cstdio>
#include <cstring>
#include <string>

#include "anyaccel/accelerator.h"
#include "cli/commands.h"

namespace {

struct Command {
  const char* name;
  int (*run)(int argc, char** argv);
  const char* what;
};

constexpr Command commands[] = {
    {"info", anyaccel::cli::run_info, "what was chosen and why, every candidate, devices, op builders"},
    {"generate", anyaccel::cli::run_generate, "text from a language model"},
    {"launch", anyaccel::cli::run_launch, "a program on many cores, devices and hosts"},
    {"bench", anyaccel::cli::run_bench, "figures of this machine, each beside its ceiling"},
    {"build-ops", anyaccel::cli::run_build_ops, "compiles ops ahead; which op is built, which could be, and why not"},
    {"conformance", anyaccel::cli::run_conformance_command, "checks an accelerator's driver"},
    {"make-model", anyaccel::cli::run_make_model, "a model with random weights, for benchmarks"},
};

void print_usage(std::FILE* stream) {
  std::fprintf(stream, "usage: anyaccel COMMAND [options]\n\ncommands:\n");
  for (const Command& command : commands) std::fprintf(stream, "  %-12s %s\n", command.name, command.what);
  std::fprintf(stream, "\n`anyaccel COMMAND --help` lists the options of a command.\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    print_usage(stderr);
    return 2;
  }
  const char* asked = argv[1];
  if (!std::strcmp(asked, "--help") || !std::strcmp(asked, "-h") || !std::strcmp(asked, "help")) {
    print_usage(stdout);
    return 0;
  }
  if (!std::strcmp(asked, "--version")) {
    std::printf("anyaccel %s\n", ANYACCEL_VERSION);
    return 0;
  }
  for (const Command& command : commands) {
    if (std::strcmp(asked, command.name) != 0) continue;
    const int result = command.run(argc - 1, argv + 1);
    anyaccel::reset_accelerator();  // closes its devices in order
    return result;
  }
  std::fprintf(stderr, "anyaccel: error: there is no command \"%s\"\n\n", asked);
  print_usage(stderr);
  return 2;
}
