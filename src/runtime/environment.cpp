// Implements environment.h: environment variables of this library, checked before work begins.
#include "runtime/environment.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/text/nearest_name.h"
#include "runtime/builtins.h"
#include "runtime/driver/driver_options.h"

namespace anyaccel {

void check_environment() {
  std::vector<std::string> known;
  for (const EnvironmentVariable& variable : environment_variables()) {
    known.emplace_back(variable.name);
    const char* value = std::getenv(variable.name);
    if (value && *value && variable.check) variable.check();
  }
  for (const BuiltinDriver& driver : builtin_drivers()) known.push_back(options_variable(driver.name));
  // Plugins may define variables, so a name that resembles no known one is ignored.
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    if (!name.starts_with("ANYACCEL_") || name.starts_with("ANYACCEL_TEST_")) continue;
    // All names share this prefix, so it is not compared.
    constexpr std::string_view prefix = "ANYACCEL_";
    bool is_known = false;
    std::vector<std::string> rests;
    for (const std::string& each : known) {
      is_known = is_known || each == name;
      if (each.starts_with(prefix)) rests.push_back(each.substr(prefix.size()));
    }
    const std::string nearest = is_known ? "" : nearest_name(std::string_view(name).substr(prefix.size()), rests);
    if (!nearest.empty()) {
      log_warning("there is no variable " + name + "; did you mean " + std::string(prefix) + nearest + "?");
    }
  }
}

void check_choice(const char* name, std::initializer_list<const char*> words) {
  const std::string value = std::getenv(name);
  const std::vector<std::string> known(words.begin(), words.end());
  std::string list;
  for (size_t i = 0; i < known.size(); ++i) {
    if (known[i] == value) return;
    list += (i == 0 ? "" : i + 1 < known.size() ? ", " : " or ") + known[i];
  }
  throw InvalidArgument(std::string(name) + " is \"" + value + "\"; expected " + list + did_you_mean(value, known));
}

void check_count(const char* name, const char* what_happens) {
  const std::string text = std::getenv(name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool ends = end == text.data() + text.size() || *end == ',' || *end == ' ' || *end == '\t';
  if (error == std::errc() && value > 0 && ends) return;
  log_warning(std::string(name) + " is \"" + text + "\", which is not a whole number of at least 1; " + what_happens);
}

}  // namespace anyaccel
