// Parses options of a sub-command with CLI11, whose headers take seconds to compile.
#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>

#include "anyaccel/log.h"
#include "base/text/nearest_name.h"
#include "cli/commands/command_support.h"
#include "cli/text_layout.h"

namespace anyaccel::cli {

namespace {

// Prints CLI11's help, in which what an option does is written from column 30 on, and breaks lines as print_entry() does.
void print_help(std::string_view help) {
  constexpr size_t column = 30;
  while (!help.empty()) {
    const std::string_view line = help.substr(0, help.find('\n'));
    help.remove_prefix(std::min(line.size() + 1, help.size()));
    const size_t space = line.find(' ');
    if (space == 0 && line.size() > column && line[column - 1] == ' ') {
      const size_t label = line.find_last_not_of(' ', column - 1) + 1;  // 0 in the further lines of an entry
      print_entry(line.substr(0, label), column, line.substr(column));
    } else if (space != 0 && space != std::string_view::npos) {
      print_entry(line.substr(0, space), 0, line.substr(space + 1));
    } else {
      std::printf("%.*s\n", static_cast<int>(line.size()), line.data());
    }
  }
}

}  // namespace

CommandOption& CommandOption::type(const std::string& name) {
  option_->type_name(name);
  return *this;
}

CommandOption& CommandOption::show_default() {
  option_->capture_default_str();
  return *this;
}

CommandOption& CommandOption::hidden() {
  option_->group("");
  return *this;
}

CommandOption& CommandOption::required() {
  option_->required();
  return *this;
}

CommandOption& CommandOption::excludes(const CommandOption& other) {
  option_->excludes(other.option_);
  return *this;
}

CommandOption& CommandOption::one_each() {
  option_->type_size(1)->allow_extra_args(false);
  return *this;
}

template <class T>
CommandOption& CommandOption::within(T low, T high) {
  option_->check(CLI::Range(low, high));
  return *this;
}
template CommandOption& CommandOption::within(int, int);
template CommandOption& CommandOption::within(int64_t, int64_t);
template CommandOption& CommandOption::within(size_t, size_t);
template CommandOption& CommandOption::within(double, double);

CommandOption& CommandOption::one_of(const std::vector<std::string>& words) {
  option_->check([words](const std::string& word) {
    if (std::find(words.begin(), words.end(), word) != words.end()) return std::string();
    std::string known;
    for (const std::string& each : words) known += (known.empty() ? "" : ", ") + each;
    return "'" + word + "' is not one of " + known + did_you_mean(word, words);
  });
  return *this;
}

CommandOption& CommandOption::existing_directory() {
  not_empty();
  option_->check(CLI::ExistingDirectory);
  return *this;
}

CommandOption& CommandOption::existing_path() {
  not_empty();
  option_->check(CLI::ExistingPath);
  return *this;
}

CommandOption& CommandOption::not_empty() {
  option_->check(CLI::Validator(
      [option = option_](std::string& text) {
        if (!text.empty()) return "";
        return option->get_required() ? "the value is empty; expected one"
                                      : "the value is empty; expected one, or no such option";
      },
      ""));
  return *this;
}

bool CommandOption::given() const { return option_->count() > 0; }

CommandLine::CommandLine(const std::string& description, const std::string& name)
    : app_(std::make_unique<CLI::App>(description, name)) {}

CommandLine::~CommandLine() = default;

template <class T>
CommandOption CommandLine::add_option(const std::string& names, T& value, const std::string& help) {
  CLI::Option* const option = app_->add_option(names, value, help);
  if constexpr (std::is_arithmetic_v<T>) {  // an empty word would be read as 0
    option->check(CLI::Validator([](std::string& text) { return text.empty() ? "the number is missing" : ""; }, ""));
  }
  return CommandOption(option);
}
template CommandOption CommandLine::add_option(const std::string&, std::string&, const std::string&);
template CommandOption CommandLine::add_option(const std::string&, std::optional<std::string>&, const std::string&);
template CommandOption CommandLine::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template CommandOption CommandLine::add_option(const std::string&, int&, const std::string&);
template CommandOption CommandLine::add_option(const std::string&, int64_t&, const std::string&);
template CommandOption CommandLine::add_option(const std::string&, size_t&, const std::string&);
template CommandOption CommandLine::add_option(const std::string&, double&, const std::string&);

CommandOption CommandLine::add_flag(const std::string& names, bool& value, const std::string& help) {
  return CommandOption(app_->add_flag(names, value, help));
}

CommandOption CommandLine::add_json_flag(bool& value, const std::string& help) {
  json_ = &value;
  return add_flag("--json", value, help);
}

CommandOption CommandLine::add_quiet_flag(const std::string& names, bool& value, const std::string& help) {
  quiet_ = &value;
  return add_flag(names, value, help);
}

void CommandLine::footer(const std::string& text) { app_->footer(text); }

void CommandLine::end_at_first_word() {
  app_->prefix_command();
  ends_at_first_word_ = true;
}

std::vector<std::string> CommandLine::with_empty_values(int argc, char** argv) const {
  std::vector<std::string> words(argv, argv + argc);
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string word = words[i];
    if (word == "--" || (ends_at_first_word_ && word.substr(0, 1) != "-")) break;
    const size_t equals = word.find('=');
    const CLI::Option* const option = app_->get_option_no_throw(word.substr(0, equals));
    if (!option || option->get_items_expected_max() == 0) continue;
    if (equals == std::string::npos) {
      ++i;  // skips its value, whatever that looks like
    } else if (equals + 1 == word.size()) {
      words[i].pop_back();
      words.insert(words.begin() + static_cast<std::ptrdiff_t>(++i), "");
    }
  }
  return words;
}

bool CommandLine::parse(int argc, char** argv) {
  try {
    read(argc, argv);
    if (quiet_ != nullptr && *quiet_) set_log_level(std::max(log_level(), LogLevel::error));
    return true;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {  // --help
      print_help(app_->help());
      return false;
    }
    throw UsageError(explain(error.what()));
  }
}

void CommandLine::read(int argc, char** argv) {
  try {
    const std::vector<std::string> words = with_empty_values(argc, argv);
    std::vector<const char*> pointers;
    for (const std::string& word : words) pointers.push_back(word.c_str());
    app_->parse(static_cast<int>(pointers.size()), pointers.data());
    refuse_unknown_options();
  } catch (const CLI::ParseError& error) {
    // The error may come before --json, which was then not parsed.
    const auto is_json = [](const char* word) { return std::strcmp(word, "--json") == 0; };
    if (json_ != nullptr) *json_ = *json_ || std::any_of(argv + 1, argv + argc, is_json);
    // The value of a mistyped option causes a misleading second error, and so does the missing correct option.
    if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::Success)) refuse_unknown_options();
    throw;
  }
}

void CommandLine::refuse_unknown_options() const {
  const std::vector<std::string> words = app_->remaining();
  for (const std::string& word : words) {
    if (word == "--") return;
    if (word.size() > 1 && word.front() == '-') {
      std::vector<std::string> names;
      for (const CLI::Option* option : app_->get_options()) {
        if (option->get_group().empty()) continue;
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
        for (const std::string& name : option->get_snames()) names.push_back("-" + name);
      }
      const std::string name = word.substr(0, word.find('='));
      throw UsageError("there is no option '" + name + "'" + did_you_mean(name, names) + hint());
    }
    if (ends_at_first_word_) return;
  }
}

std::string CommandLine::explain(const std::string& problem) const {
  std::string text = problem;
  const std::vector<std::string> words = app_->remaining();
  if (!ends_at_first_word_ && !words.empty() && words.front().substr(0, 1) != "-") {
    text = "'" + words.front() + "' was not expected here: it is neither an option nor the value of one";
  }
  for (const CLI::Option* option : app_->get_options()) {
    if (option->get_type_size_max() > 0 && option->get_expected_max() == 1 && option->count() > 1) {
      text = option->get_name() + " was given " + std::to_string(option->count()) + " times; it takes one value";
    }
  }
  return text + hint();
}

std::string CommandLine::hint() const { return "\nTry '" + app_->get_name() + " --help'."; }

std::vector<std::string> CommandLine::rest() const { return app_->remaining(); }

}  // namespace anyaccel::cli
