// The conformance suite: tests of the rules that every driver must follow, whoever wrote it.
//
// The suite calls a driver through its table and nothing else, and needs no test framework, so a vendor can run it on a
// plugin (`anyaccel conformance --plugin FILE`) or link it into tests. Rules it follows:
//
//   - A capability flag is a promise: set, its cases run; clear, the functions behind it must answer AA_UNIMPLEMENTED
//     and touch nothing.
//   - Functions and extensions that a driver may leave out give `unsupported`, which is no failure. After each such case
//     the suite checks that its memory and its stream are as they were.
//   - A driver whose probe is not usable, or that answers AA_UNAVAILABLE, gives `unavailable`.
//   - Every error that a case provokes must have a message.
//   - Inputs are the same in every run, and no case depends on how fast the device is.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/abi/table_calls.hpp"

namespace anyaccel::conformance {

enum class Outcome {
  pass,
  fail,
  unsupported,  // the driver does not have the feature, and says so properly
  unavailable,  // could not be run here; `message` says why
};

struct CaseResult {
  std::string group;  // "memory"
  std::string name;   // "alloc_is_aligned"
  Outcome outcome;
  std::string message;      // why the case did not pass; for a pass the measured value and its limit, or empty
  double milliseconds = 0;  // of the host's clock; informative
};

// The number of calls that the run made to one function of a table.
struct FunctionCoverage {
  std::string table;  // "driver", "graph", ...
  std::string function;
  int64_t calls;
  int64_t unimplemented;  // of these, answered AA_UNIMPLEMENTED
};

struct Report {
  std::vector<CaseResult> cases;
  std::vector<FunctionCoverage>
      coverage;  // of all functions of all tables, not counting processes that died and children of a case
};

// The source of the ops that the cases test. The default is the driver's "ops" extension; a host that adds ops to a
// driver (portable kernels, for instance) tests both together through a provider of its own.
class OpProvider {
 public:
  virtual ~OpProvider() = default;
  // Handles of the driver that was passed to MakeOpProvider, open until the provider is destroyed. Calls run on `stream`.
  virtual aa_instance* instance() = 0;
  virtual aa_device* device() = 0;
  virtual aa_stream* stream() = 0;
  // A number for the other functions; -1 for an op that is not there.
  virtual int32_t find(const char* name) = 0;
  // As in abi::Calls<aa_ops_table>; data pointers may be null.
  virtual bool supports(const aa_op_call& call) = 0;
  virtual aa_status* enqueue(const aa_op_call& call) = 0;
  // Returns what runs the call, for reports: "driver", "portable kernels".
  virtual std::string source(const aa_op_call& call) = 0;
};

// Initializes `driver`, whose calls are counted, and opens device 0. Called for each case, with no other instance open.
using MakeOpProvider = std::function<std::unique_ptr<OpProvider>(const abi::DriverCalls* driver)>;

// "pass", "fail", "unsupported", "unavailable".
const char* outcome_name(Outcome outcome) noexcept;

// Settings for how cases run.
struct Isolation {
  bool in_process = false;            // in this process; else each in a child, which is killed
  std::chrono::seconds timeout{120};  // when it takes longer than this
};

// Runs all cases whose "group.name" contains one of the comma-separated parts of `filter` (empty: all), and none of the
// parts that begin with '!', in a fixed order, on device 0, and on every device where a case says so. `driver` is the
// driver's own table or one that the host completed, checked for sanity before (see load_plugin). The driver is
// initialized for each case and shut down after it; no other instance of it may be open, and where cases run in
// children, none may have been opened in this process before. A crash, exit(), a hang or printing in such a child fails
// that case alone. Beside the cases of functions there are "life.opens" and "life.closes_without_error", which every
// run judges and which are reported where the filter takes them or they fail, and "promises.*", which fail for a
// capability flag that no case tested; these need a run of all cases. The driver gets the settings that are set for it,
// as from the runtime, and scratch memory; InvalidArgument for settings that it does not list. `host` is the one that
// its table was made with, or host_services(); `library_path` is the plugin's file, null for a driver that is built in.
// Starts threads and child processes. Blocks; takes seconds. One run at a time.
Report run_conformance(const aa_driver* driver, const aa_host* host, std::string_view filter = {},
                       const MakeOpProvider& make_ops = {}, const Isolation& isolation = {},
                       const char* library_path = nullptr);

// "group.name" of every case.
std::vector<std::string> conformance_cases();

// The report as JUnit's XML: unsupported and unavailable are "skipped".
std::string junit_xml(const Report& report, std::string_view suite_name);

}  // namespace anyaccel::conformance
