// Starts the program anyaccel-checks for the sub-commands bench and conformance.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/files/install_paths.h"
#include "cli/commands/commands.h"
#include "cli/json_output.h"

namespace anyaccel::cli {

int run_check(int argc, char** argv) {
  const std::string program = (own_program().parent_path() / "anyaccel-checks").string();
  std::string name = "anyaccel";
  std::vector<char*> words = {name.data()};
  words.insert(words.end(), argv, argv + argc);
  words.push_back(nullptr);
  execv(program.c_str(), words.data());
  const std::string message = "'anyaccel " + std::string(argv[0]) + "' runs " + program +
                              ", which cannot be started: " + std::strerror(errno) +
                              "; 'make build' builds it, 'make run' only what generates text";
  const auto is_json = [](const char* word) { return std::strcmp(word, "--json") == 0; };
  if (std::any_of(argv + 1, argv + argc, is_json)) print_json({{"error", error_json("unavailable", message)}});
  std::fprintf(stderr, "anyaccel: error: %s\n", message.c_str());
  return 1;
}

}  // namespace anyaccel::cli
