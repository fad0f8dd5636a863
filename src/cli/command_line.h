// Parses options of a sub-command with CLI11, whose headers take seconds to compile: only command_line.cpp includes
// them.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace anyaccel::cli {

// An added option; sets how it is parsed and shown by --help.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option* option) : option_(option) {}

  CommandOption& type(const std::string& name);  // placeholder of the value in --help
  CommandOption& show_default();
  CommandOption& hidden();
  CommandOption& required();
  CommandOption& excludes(const CommandOption& other);
  // Makes an option with many values take one word each time it is given, not all words that follow.
  CommandOption& one_each();
  // T is the type of the option's value: int, int64_t, size_t or double.
  template <class T>
  CommandOption& within(T low, T high);
  CommandOption& one_of(const std::vector<std::string>& words);
  CommandOption& existing_directory();
  CommandOption& existing_path();
  // Refuses an empty value of a text: one from a shell's variable that is not set would be as if the option were not given.
  CommandOption& not_empty();

  bool given() const;  // after parse()

 private:
  CLI::Option* option_;
};

class CommandLine {
 public:
  // `name` is the command as typed: "anyaccel generate".
  CommandLine(const std::string& description, const std::string& name);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // `names`: "-q,--quiet", or a word for a positional argument. T: std::string, std::optional<std::string>,
  // std::vector<std::string>, int, int64_t, size_t or double. parse() writes into `value`, whose address is kept. An
  // empty value ("--name=" or "--name ''") is valid for texts, and an error for numbers.
  template <class T>
  CommandOption add_option(const std::string& names, T& value, const std::string& help);
  CommandOption add_flag(const std::string& names, bool& value, const std::string& help);
  // Adds --json: run_command() then prints errors as an object on standard output too.
  CommandOption add_json_flag(bool& value, const std::string& help);
  // Adds --quiet: once it is parsed, only errors are logged, whatever ANYACCEL_LOG says.
  CommandOption add_quiet_flag(const std::string& names, bool& value, const std::string& help);
  void footer(const std::string& text);
  // The first word that is not an option ends the options; it and the following words are rest().
  void end_at_first_word();

  // Returns false if --help was given, after printing the help. Throws UsageError; for an unknown option it suggests
  // the closest one.
  bool parse(int argc, char** argv);
  std::vector<std::string> rest() const;
  // Returns whether --json was given, also if parse() failed.
  bool json() const { return json_ != nullptr && *json_; }

 private:
  void read(int argc, char** argv);
  // Splits "--name=" into "--name" and an empty word, because the parser would otherwise take the next word as the
  // value.
  std::vector<std::string> with_empty_values(int argc, char** argv) const;
  void refuse_unknown_options() const;
  std::string explain(const std::string& problem) const;
  std::string hint() const;

  std::unique_ptr<CLI::App> app_;
  bool* json_ = nullptr;
  bool* quiet_ = nullptr;
  bool ends_at_first_word_ = false;
};

}  // namespace anyaccel::cli
