// The settings of a simulator from its environment: number of devices, how much memory, delays, faults to inject, and
// where the report is written. simulators/README.md documents the variables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sim {

// One entry of SIM_FAULT. `name` is the part before the colon; a key without '=' goes to `words`.
struct Fault {
  std::string name;
  std::vector<std::string> words;
  std::optional<std::uint64_t> call, command, bytes;
};

struct Settings {
  int devices = 2;
  std::uint64_t memory = std::uint64_t{1} << 30;  // bytes of each device
  std::uint64_t seed = 0;                         // 0: no delays
  std::uint64_t delay_us = 200;                   // longest delay before a command
  std::uint64_t hang_seconds = 60;                // an endless wait that takes longer is a violation
  bool abort_on_violation = false;
  std::string report;  // file for the JSON report; "%p" stands for the process id; empty: none
  std::vector<Fault> faults;

  // Reads SIM_DEVICES, SIM_MEMORY, SIM_SEED, SIM_DELAY_US, SIM_HANG_SECONDS, SIM_STRICT, SIM_REPORT and SIM_FAULT. Ends
  // the process with a message if one of them cannot be understood: a fault that is silently not injected proves
  // nothing.
  static Settings from_environment();

  const Fault* fault(const std::string& name) const;
  bool hidden(const std::string& symbol) const;
};

// The entries of SIM_FAULT; throws std::invalid_argument with a sentence for what it cannot read.
std::vector<Fault> parse_faults(const std::string& text);
// A number of bytes with an optional k, m or g (powers of 1024); throws std::invalid_argument.
std::uint64_t parse_bytes(const std::string& text);

}  // namespace sim
