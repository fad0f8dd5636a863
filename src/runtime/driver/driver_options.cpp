// Reads settings of drivers and keeps those of the program.
#include "runtime/driver/driver_options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>

#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/text/nearest_name.h"
#include "base/text/text.h"
#include "runtime/builtins.h"

namespace anyaccel {
namespace {

struct ParsedSetting {
  int device = -1;
  std::string key, value;
};

// `source` appears in messages: the name of the variable or of the function.
std::vector<ParsedSetting> parse(std::string_view text, const std::string& source) {
  std::vector<ParsedSetting> settings;
  const auto refuse = [&](std::string_view part, const char* why) {
    throw InvalidArgument(source + ": \"" + std::string(part) + "\" " + why +
                          "; give key=value, or INDEX.key=value for one device, separated by commas");
  };
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    if (part.empty()) continue;
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) refuse(part, "has no '='");
    ParsedSetting setting;
    std::string_view key = part.substr(0, equals);
    if (const size_t dot = key.find('.'); dot != std::string_view::npos) {
      const std::string_view index = key.substr(0, dot);
      const auto [end, error] = std::from_chars(index.data(), index.data() + index.size(), setting.device);
      if (error != std::errc() || end != index.data() + index.size() || setting.device < 0) {
        refuse(part, "has no device index before its '.'");
      }
      key = key.substr(dot + 1);
    }
    if (key.empty()) refuse(part, "has no key");
    setting.key = key;
    setting.value = part.substr(equals + 1);
    settings.push_back(std::move(setting));
  }
  return settings;
}

struct ProgramOptions {
  std::mutex mutex;
  std::map<std::string, std::string, std::less<>> texts;  // by driver
};

ProgramOptions& program_options() {
  static auto& options = *new ProgramOptions;
  return options;
}

// A program may load a plugin by its path after it has set its options, so a name that is not known yet is no error.
void warn_of_unknown(std::string_view accelerator) {
  const auto is_named = [accelerator](const BuiltinDriver& driver) { return accelerator == driver.name; };
  if (std::ranges::any_of(builtin_drivers(), is_named)) return;  // no plugin need be opened
  const std::vector<std::string> known = known_accelerators();
  if (std::ranges::find(known, accelerator) != known.end()) return;
  std::string list;
  for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
  log_warning("set_driver_options: no accelerator is called \"" + std::string(accelerator) +
              "\"; known accelerators: " + list + did_you_mean(accelerator, known) +
              ". The options have an effect only if a plugin of that name is loaded later");
}

}  // namespace

std::string options_variable(std::string_view driver_name) {
  std::string name = "ANYACCEL_";
  for (const char c : driver_name) {
    name += c == '.' ? '_' : ascii_upper(c);
  }
  return name + "_OPTIONS";
}

void set_driver_options(std::string_view accelerator, std::string_view options) {
  const bool is_empty = parse(options, "set_driver_options").empty();
  {
    ProgramOptions& all = program_options();
    const std::lock_guard lock(all.mutex);
    std::string& text = all.texts[std::string(accelerator)];
    text += (text.empty() ? "" : ",") + std::string(options);
  }
  if (!is_empty) warn_of_unknown(accelerator);
}

DriverOptions::DriverOptions(const aa_driver& driver) {
  const auto add = [&](std::string_view text, const std::string& source) {
    for (ParsedSetting& setting : parse(text, source)) {
      const aa_option_info* const end = driver.options + driver.option_count;
      const bool known =
          std::any_of(driver.options, end, [&](const aa_option_info& info) { return setting.key == info.key; });
      if (!known) {
        std::string list;
        for (const aa_option_info* info = driver.options; info != end; ++info) {
          list += (list.empty() ? "" : ", ") + std::string(info->key);
        }
        throw InvalidArgument(source + ": the driver \"" + driver.name + "\" has no option \"" + setting.key + "\"; " +
                              (list.empty() ? "it has none" : "it has " + list));
      }
      std::erase_if(settings_, [&](const Setting& s) { return s.device == setting.device && s.key == setting.key; });
      settings_.push_back({setting.device, std::move(setting.key), std::move(setting.value)});
    }
  };
  const std::string variable = options_variable(driver.name);
  if (const char* text = std::getenv(variable.c_str())) add(text, variable);
  ProgramOptions& all = program_options();
  const std::lock_guard lock(all.mutex);
  const auto found = all.texts.find(std::string_view(driver.name));
  if (found != all.texts.end()) add(found->second, "set_driver_options");
}

std::vector<aa_option> DriverOptions::for_driver() const {
  std::vector<aa_option> list;
  for (const Setting& s : settings_) {
    if (s.device < 0) list.push_back({s.key.c_str(), s.value.c_str()});
  }
  return list;
}

std::vector<aa_option> DriverOptions::for_device(int index) const {
  std::vector<aa_option> list;
  for (const Setting& s : settings_) {
    const bool replaced = s.device < 0 && std::any_of(settings_.begin(), settings_.end(), [&](const Setting& other) {
                            return other.device == index && other.key == s.key;
                          });
    if ((s.device < 0 && !replaced) || s.device == index) list.push_back({s.key.c_str(), s.value.c_str()});
  }
  return list;
}

}  // namespace anyaccel
