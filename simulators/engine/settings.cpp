// Parses the simulator's environment variables.
#include "simulators/engine/settings.h"

#include <cstdio>
#include <cstdlib>
#include <set>
#include <stdexcept>

namespace sim {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::uint64_t number_of(const char* variable, std::uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? fallback : parse_bytes(text);
}

}  // namespace

std::uint64_t parse_bytes(const std::string& text) {
  std::size_t used = 0;
  std::uint64_t value = 0;
  try {
    value = std::stoull(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string unit = text.substr(used);
  if (used == 0 || text[0] == '-' || unit.size() > 1) throw std::invalid_argument("'" + text + "' is not a number");
  if (unit.empty()) return value;
  switch (unit[0]) {
    case 'k': return value << 10;
    case 'm': return value << 20;
    case 'g': return value << 30;
    default: throw std::invalid_argument("'" + text + "' has an unknown unit; use k, m or g");
  }
}

std::vector<Fault> parse_faults(const std::string& text) {
  static const std::set<std::string> known = {"oom", "hide",    "fail", "sticky", "device_lost", "launch_failed",
                                              "ecc", "no_peer", "init", "stub",   "busy"};
  std::vector<Fault> faults;
  for (const std::string& entry : split(text, ';')) {
    Fault fault;
    const std::size_t colon = entry.find(':');
    fault.name = entry.substr(0, colon);
    if (!known.count(fault.name)) throw std::invalid_argument("SIM_FAULT: unknown fault '" + fault.name + "'");
    const std::string rest = colon == std::string::npos ? "" : entry.substr(colon + 1);
    for (const std::string& part : split(rest, ',')) {
      const std::size_t equals = part.find('=');
      if (equals == std::string::npos) {
        fault.words.push_back(part);
        continue;
      }
      const std::string key = part.substr(0, equals);
      const std::uint64_t value = parse_bytes(part.substr(equals + 1));
      if (key == "call") {
        fault.call = value;
      } else if (key == "command") {
        fault.command = value;
      } else if (key == "bytes") {
        fault.bytes = value;
      } else {
        throw std::invalid_argument("SIM_FAULT: unknown key '" + key + "' of " + fault.name);
      }
    }
    const bool complete =
        fault.name == "oom"    ? fault.call || fault.bytes
        : fault.name == "hide" ? !fault.words.empty()
        : fault.name == "fail" ? fault.words.size() == 1 && fault.call
        : fault.name == "sticky" || fault.name == "device_lost" || fault.name == "launch_failed" || fault.name == "ecc"
            ? fault.command.has_value()
            : true;
    if (!complete) throw std::invalid_argument("SIM_FAULT: '" + entry + "' lacks a part; see simulators/README.md");
    faults.push_back(std::move(fault));
  }
  return faults;
}

Settings Settings::from_environment() {
  Settings settings;
  try {
    settings.devices = static_cast<int>(number_of("SIM_DEVICES", 2));
    settings.memory = number_of("SIM_MEMORY", settings.memory);
    settings.seed = number_of("SIM_SEED", 0);
    settings.delay_us = number_of("SIM_DELAY_US", settings.delay_us);
    settings.hang_seconds = number_of("SIM_HANG_SECONDS", settings.hang_seconds);
    if (const char* faults = std::getenv("SIM_FAULT")) settings.faults = parse_faults(faults);
    if (const char* report = std::getenv("SIM_REPORT")) settings.report = report;
    if (const char* strict = std::getenv("SIM_STRICT")) {
      if (std::string(strict) != "abort") throw std::invalid_argument("SIM_STRICT knows one value, abort");
      settings.abort_on_violation = true;
    }
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "simulator: %s\n", error.what());
    std::_Exit(2);
  }
  return settings;
}

const Fault* Settings::fault(const std::string& name) const {
  for (const Fault& fault : faults) {
    if (fault.name == name) return &fault;
  }
  return nullptr;
}

bool Settings::hidden(const std::string& symbol) const {
  for (const Fault& fault : faults) {
    if (fault.name != "hide") continue;
    for (const std::string& word : fault.words) {
      if (word == symbol) return true;
    }
  }
  return false;
}

}  // namespace sim
