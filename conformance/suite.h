// The conformance suite: what every driver must do, whoever wrote it.
//
// The suite calls a driver through its table and nothing else, and needs no test framework, so a vendor can run it on a
// plugin (`anyaccel conformance --plugin FILE`) or link it into tests. Rules it follows:
//
//   - A capability flag is a promise: set, its cases run; clear, the functions behind it must answer AA_UNIMPLEMENTED
//     and touch nothing.
//   - Functions and extensions that a driver may leave out give `unsupported`, which is no failure.
//   - A driver whose probe is not usable, or that answers AA_UNAVAILABLE, is skipped.
//   - Every error that a case provokes must have a message.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/abi/driver.h"

namespace anyaccel::conformance {

enum class Outcome {
  pass,
  fail,
  skip,         // could not be run here; `message` says why
  unsupported,  // the driver does not have the feature, and says so properly
};

struct CaseResult {
  std::string group;  // "memory"
  std::string name;   // "alloc_is_aligned"
  Outcome outcome;
  std::string message;  // empty for pass
};

// "pass", "fail", "skip", "unsupported".
const char* outcome_name(Outcome outcome) noexcept;

// Runs all cases whose "group.name" contains one of the comma-separated parts of `filter` (empty: all), in a fixed
// order, on device 0, and on every device where a case says so. `driver` is the driver's own table or one that the host
// completed, checked for sanity before (see load_plugin). The driver is initialized here and shut down at the end.
// Blocks; takes seconds.
std::vector<CaseResult> run_conformance(const aa_driver* driver, const aa_host* host, std::string_view filter = {});

// "group.name" of every case.
std::vector<std::string> conformance_cases();

}  // namespace anyaccel::conformance
