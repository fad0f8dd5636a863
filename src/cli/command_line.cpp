// See command_line.h.
#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>

#include "cli/command_support.h"

namespace anyaccel::cli {

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
  option_->check(CLI::IsMember(words));
  return *this;
}

CommandOption& CommandOption::existing_directory() {
  option_->check(CLI::ExistingDirectory);
  return *this;
}

bool CommandOption::given() const { return option_->count() > 0; }

CommandLine::CommandLine(const std::string& description, const std::string& name)
    : app_(std::make_unique<CLI::App>(description, name)) {}

CommandLine::~CommandLine() = default;

template <class T>
CommandOption CommandLine::add_option(const std::string& names, T& value, const std::string& help) {
  return CommandOption(app_->add_option(names, value, help));
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

void CommandLine::footer(const std::string& text) { app_->footer(text); }

void CommandLine::end_at_first_word() { app_->prefix_command(); }

bool CommandLine::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
    return true;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {  // --help
      app_->exit(error);
      return false;
    }
    throw UsageError(std::string(error.what()) + "\nTry '" + app_->get_name() + " --help'.");
  }
}

std::vector<std::string> CommandLine::rest() const { return app_->remaining(); }

}  // namespace anyaccel::cli
