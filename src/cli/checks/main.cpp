// Implements main() of the program anyaccel-checks: the sub-commands that measure a machine and check drivers. They are a
// program of their own so that building the command does not build them; the command starts it (commands/check_command.cpp).
#include "cli/checks/checks.h"
#include "cli/command_main.h"

namespace anyaccel::cli {
namespace {

constexpr Command commands[] = {
    {"bench", run_bench, "figures of this machine, each beside its ceiling"},
    {"conformance", run_conformance_command, "checks an accelerator's driver"},
};

}  // namespace
}  // namespace anyaccel::cli

int main(int argc, char** argv) { return anyaccel::cli::command_main(anyaccel::cli::commands, argc, argv); }
