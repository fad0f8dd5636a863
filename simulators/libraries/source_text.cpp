// Preprocesses a source and reads its tokens.
#include "simulators/libraries/source_text.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

extern char** environ;

namespace sim_library {
namespace {

// A folder of its own that disappears again.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "kernel_source_XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  bool made() const { return !path_.empty(); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The exit status; nothing when the program could not be started.
std::optional<int> run(const std::vector<std::string>& words, const std::string& output, const std::string& errors) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return std::nullopt;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return std::nullopt;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace

Preprocessed preprocess(const PreprocessRequest& request) {
  Preprocessed result;
  const Folder folder;
  if (!folder.made()) {
    result.text = "no temporary folder can be made\n";
    return result;
  }
  for (const auto& header : request.headers) {
    const std::string path = folder.file("include/" + header.first);
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    std::ofstream(path, std::ios::binary) << header.second;
  }
  std::ofstream(folder.file("source"), std::ios::binary) << "# 1 \"" << request.name << "\"\n" << request.source;

  const char* compiler = std::getenv("CXX");
  std::istringstream words(compiler != nullptr && *compiler != '\0' ? compiler : "c++");
  std::vector<std::string> command;
  for (std::string word; words >> word;) command.push_back(word);
  result.compiler = command[0];
  for (const char* word : {"-E", "-x", "c++", "-std=c++17", "-nostdinc", "-nostdinc++", "-fno-diagnostics-show-caret",
                           "-fdiagnostics-color=never"}) {
    command.emplace_back(word);
  }
  command.insert(command.end(), request.options.begin(), request.options.end());
  command.push_back("-I" + folder.file("include"));
  command.push_back(folder.file("source"));
  const auto status = run(command, folder.file("output"), folder.file("errors"));
  result.started = status && *status != 127;
  if (!result.started) {
    result.text = "the C++ compiler " + result.compiler + " that preprocesses kernels cannot be started\n";
    return result;
  }
  result.succeeded = *status == 0;
  result.text = contents(folder.file(result.succeeded ? "output" : "errors"));
  return result;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::vector<Token> tokens_of(const std::string& text) {
  std::vector<Token> tokens;
  int line = 1;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '\n') {
      ++line;
      ++i;
    } else if (c == '#' && (i == 0 || text[i - 1] == '\n')) {
      int marked = 0;
      if (std::sscanf(text.c_str() + i, "# %d", &marked) == 1) line = marked - 1;
      i = std::min(text.find('\n', i), text.size());
    } else if (c == '"' || c == '\'') {
      std::size_t end = i + 1;
      while (end < text.size() && text[end] != c && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
      tokens.push_back({text.substr(i, end - i), line});
      i = end;
    } else if (is_word(c)) {
      std::size_t end = i;
      // With the digit separators of C++14 (1'000).
      while (end < text.size() && (is_word(text[end]) || (text[end] == '\'' && std::isdigit(text[i]) && end > i)))
        ++end;
      tokens.push_back({text.substr(i, end - i), line});
      i = end;
    } else {
      if (std::isspace(static_cast<unsigned char>(c)) == 0) tokens.push_back({std::string(1, c), line});
      ++i;
    }
  }
  return tokens;
}

std::string syntax_error(const std::vector<Token>& tokens, int* line) {
  std::vector<Token> open;
  for (const Token& token : tokens) {
    *line = token.line;
    if (token.text == "(" || token.text == "[" || token.text == "{") {
      open.push_back(token);
    } else if (token.text == ")" || token.text == "]" || token.text == "}") {
      const std::string wanted = token.text == ")" ? "(" : token.text == "]" ? "[" : "{";
      if (open.empty()) return "expected a declaration";
      if (open.back().text != wanted) {
        return std::string("expected a \"") +
               (open.back().text == "("   ? ")"
                : open.back().text == "[" ? "]"
                                          : "}") +
               "\"";
      }
      open.pop_back();
    } else if (token.text == ";" && !open.empty() && open.back().text == "[") {
      return "expected a \"]\"";
    }
  }
  if (!open.empty()) return std::string("expected a \"") + (open.back().text == "{" ? "}" : ")") + "\"";
  if (!tokens.empty() && tokens.back().text != ";" && tokens.back().text != "}") return "expected a \";\"";
  return {};
}

}  // namespace sim_library
