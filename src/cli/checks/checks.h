// Declares the sub-commands of the program anyaccel-checks, in the form of commands/commands.h.
#pragma once

namespace anyaccel::cli {

// Measures this machine and compares the figures with ceilings.
int run_bench(int argc, char** argv);
// Checks an accelerator's driver.
int run_conformance_command(int argc, char** argv);

}  // namespace anyaccel::cli
