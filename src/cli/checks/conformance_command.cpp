// Implements anyaccel conformance: runs the conformance suite on a plugin or on an accelerator that detection knows.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <new>

#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/file_output.h"
#include "anyaccel/log.h"
#include "base/text/nearest_name.h"
#include "cli/checks/checks.h"
#include "cli/commands/command_support.h"
#include "cli/json_output.h"
#include "conformance/suite.h"
#include "runtime/driver/host_services.h"

namespace anyaccel::cli {
namespace {

using conformance::CaseResult;
using conformance::Outcome;
using conformance::Report;

constexpr Outcome outcomes[] = {Outcome::pass, Outcome::fail, Outcome::unsupported, Outcome::unavailable};

int count(const Report& report, Outcome outcome) {
  int total = 0;
  for (const CaseResult& result : report.cases) total += result.outcome == outcome;
  return total;
}

// Provides the ops of an accelerator as models use them: the driver's own, then those that the host adds.
class AcceleratorOps final : public conformance::OpProvider {
 public:
  AcceleratorOps(const abi::DriverCalls* driver, const std::string& origin)
      : accelerator_(driver, origin),
        own_(static_cast<const abi::Calls<aa_ops_table>*>(accelerator_.extension(AA_OPS_EXTENSION, AA_OPS_VERSION))),
        stream_(accelerator_.Stream()),
        current_(accelerator_.stream(stream_)) {}

  ~AcceleratorOps() noexcept override = default;

  aa_instance* instance() override { return accelerator_.instance(); }
  aa_device* device() override { return accelerator_.device_handle(); }
  aa_stream* stream() override { return DriverAccelerator::handle(stream_); }
  int32_t find(const char* name) override {
    const int32_t op = accelerator_.find_op(name);
    if (own_ && op >= 0) {
      const StatusRef found(own_->find(instance(), name, &own_numbers_[op]));
      if (!found.ok()) own_numbers_[op] = -1;
    }
    return op;
  }
  bool supports(const aa_op_call& call) override {
    return static_cast<bool>(accelerator_.resolve_op(call, Accelerator::current_device_index));
  }
  aa_status* enqueue(const aa_op_call& call) override {
    try {
      const int index = Accelerator::current_device_index;
      accelerator_.enqueue_op(accelerator_.resolve_op(call, index), call, index);
      return nullptr;
    } catch (...) {
      return status_from_current_exception();
    }
  }
  std::string source(const aa_op_call& call) override {
    aa_op_call own = call;
    const auto number = own_numbers_.find(call.op);
    int32_t supported = 0;
    if (number != own_numbers_.end() && number->second >= 0) {
      own.op = number->second;
      const StatusRef answer(own_->supports(device(), &own, &supported));
    }
    return supported ? "driver" : "portable kernels";
  }

 private:
  DriverAccelerator accelerator_;
  const abi::Calls<aa_ops_table>* own_;     // null: the driver has none
  std::map<int32_t, int32_t> own_numbers_;  // by the accelerator's number of an op
  Stream stream_;
  ScopeGuard current_;
};

// Makes the ops of each case. An accelerator object warns of what it does not use of its driver, and each case makes one
// in a process of its own, so only the first of all these processes writes the warnings.
class OpsMaker {
 public:
  // `warned`: this process has made an accelerator object of the driver, which has written them.
  explicit OpsMaker(bool warned) {
    void* memory = mmap(nullptr, sizeof(*warned_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    warned_ = new (memory) std::atomic<bool>(warned);
  }
  ~OpsMaker() { munmap(warned_, sizeof(*warned_)); }
  OpsMaker(const OpsMaker&) = delete;
  OpsMaker& operator=(const OpsMaker&) = delete;

  std::unique_ptr<conformance::OpProvider> make(const abi::DriverCalls* driver, const std::string& origin) const {
    struct Level {
      LogLevel before = log_level();
      ~Level() { set_log_level(before); }
    } level;
    if (warned_->exchange(true)) set_log_level(std::max(level.before, LogLevel::error));
    return std::make_unique<AcceleratorOps>(driver, origin);
  }

 private:
  std::atomic<bool>* warned_;  // in memory that the processes share
};

std::string title(const aa_driver& driver, const std::string& origin) {
  return std::string(driver.name) + " " + driver.version + " by " + driver.vendor + " (" + origin + ")";
}

void print_text(const Report& report, bool failures_only) {
  std::string group;
  for (const CaseResult& result : report.cases) {
    if (failures_only && result.outcome != Outcome::fail) continue;
    if (result.group != group) std::printf("\n%s\n", result.group.c_str());
    group = result.group;
    std::printf("  %-12s %s\n", conformance::outcome_name(result.outcome), result.name.c_str());
    if (!result.message.empty()) std::printf("  %-12s   %s\n", "", result.message.c_str());
  }
}

void print_coverage(const Report& report) {
  std::printf("\n%-14s %-22s %10s %14s\n", "table", "function", "calls", "unimplemented");
  int called = 0;
  for (const auto& row : report.coverage) {
    std::printf("%-14s %-22s %10lld %14lld\n", row.table.c_str(), row.function.c_str(),
                static_cast<long long>(row.calls), static_cast<long long>(row.unimplemented));
    called += row.calls > row.unimplemented;
  }
  std::printf("%d of %zu functions were called and are implemented\n", called, report.coverage.size());
}

JsonValue json_of(const aa_driver& driver, const std::string& origin, const Report& report) {
  JsonValue json;
  json["driver"] = {{"name", driver.name}, {"vendor", driver.vendor}, {"version", driver.version}, {"origin", origin}};
  json["cases"] = JsonArray();
  for (const CaseResult& result : report.cases) {
    json["cases"].push_back({{"group", result.group},
                             {"name", result.name},
                             {"outcome", conformance::outcome_name(result.outcome)},
                             {"message", result.message},
                             {"milliseconds", result.milliseconds}});
  }
  for (const Outcome outcome : outcomes) json["totals"][conformance::outcome_name(outcome)] = count(report, outcome);
  json["coverage"] = JsonArray();
  for (const auto& row : report.coverage) {
    json["coverage"].push_back(
        {{"table", row.table}, {"function", row.function}, {"calls", row.calls}, {"unimplemented", row.unimplemented}});
  }
  if (const int failed = count(report, Outcome::fail); failed > 0) {
    json["error"] = error_json("conformance",
                               std::to_string(failed) + " of " + std::to_string(report.cases.size()) + " cases failed");
  }
  return json;
}

LoadedDriver driver_of(const std::string& name) {
  const auto accelerator = make_accelerator(name);
  const auto* driven = dynamic_cast<const DriverAccelerator*>(accelerator.get());
  if (!driven) throw InvalidArgument("the accelerator \"" + name + "\" is not made of a driver table");
  return {&driven->driver(), driven->origin()};
}

// Returns the accelerator that detection chooses. Detection opens plugins, but the process that runs the suite must not
// have opened any, so this process starts again with the plugin's name.
std::string detected_accelerator(int argc, char** argv) {
  const DetectionReport report = detection_report();
  const auto chosen = std::ranges::find(report.candidates, report.chosen, &Candidate::name);
  if (chosen == report.candidates.end() || chosen->origin == "built in") return report.chosen;
  std::vector<std::string> words(argv, argv + argc);
  words.insert(words.end(), {"--accelerator", report.chosen});
  words.insert(words.begin() + 1, "conformance");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv("/proc/self/exe", arguments.data());
  throw Error(std::string("the command cannot be started again: ") + std::strerror(errno));
}

// Loads the driver to test. An error names the source of the request, which here is an option.
LoadedDriver chosen_driver(const std::string& plugin, const std::string& accelerator) {
  if (plugin.empty()) return driver_of(accelerator);
  try {
    return load_plugin(plugin);
  } catch (const Error& error) {
    throw UnavailableError("--plugin: " + std::string(error.what()), error.code());
  }
}

// Returns the case name that is closest to the filter's first part.
std::string filter_hint(const std::string& filter) {
  std::vector<std::string> known;
  for (const std::string& name : conformance::conformance_cases()) {
    const std::string group = name.substr(0, name.find('.'));
    if (known.empty() || known.back() != group) known.push_back(group);
  }
  for (const std::string& name : conformance::conformance_cases()) known.push_back(name);
  return did_you_mean(filter.substr(0, filter.find(',')), known);
}

}  // namespace

int run_conformance_command(int argc, char** argv) {
  CommandLine line("Checks an accelerator's driver against the plugin interface. Exit code 0: no case failed.",
                   "anyaccel conformance");
  std::string plugin;
  std::string accelerator;
  std::string filter;
  std::string junit;
  bool json = false;
  bool list = false;
  bool failures_only = false;
  bool coverage = false;
  bool in_process = false;
  int timeout = 120;
  const CommandOption plugin_option = line.add_option("--plugin", plugin, "the plugin's file").type("FILE").not_empty();
  line.add_option("--accelerator", accelerator, "a known accelerator (default: the one detection chooses)")
      .type("NAME")
      .excludes(plugin_option)
      .not_empty();
  line.add_option("--filter", filter,
                  "only cases whose group.name contains one of these, comma-separated, and none of those after a !")
      .type("TEXT")
      .not_empty();
  line.add_json_flag(json, "one JSON object instead of a text");
  line.add_option("--junit", junit, "writes a report in JUnit's XML too").type("FILE").not_empty();
  line.add_flag("--coverage", coverage, "in the text, how often each function was called");
  line.add_option("--timeout", timeout, "a case that takes longer is killed and fails")
      .type("SECONDS")
      .within(1, 86400)
      .show_default();
  line.add_flag(
      "--in-process", in_process,
      "no process of its own for each case: for debuggers; a crash then ends the suite, and a hang is for ever");
  line.add_flag("--list", list, "the names of the cases");
  line.add_flag("--failures", failures_only, "in the text, only the cases that failed");
  return run_command(line, argc, argv, [&] {
    if (list) {
      if (json) {
        print_json({{"cases", conformance::conformance_cases()}});
      } else {
        for (const std::string& name : conformance::conformance_cases()) std::printf("%s\n", name.c_str());
      }
      return 0;
    }
    const std::string problem = junit.empty() ? "" : output_file_problem(junit);
    if (!problem.empty()) throw Error("--junit: the report cannot be written to " + junit + ": " + problem);
    if (plugin.empty() && accelerator.empty()) accelerator = detected_accelerator(argc, argv);
    const LoadedDriver driver = chosen_driver(plugin, accelerator);
    const OpsMaker ops(plugin.empty());
    const Report report = conformance::run_conformance(
        driver.table, host_services(), filter,
        [&](const abi::DriverCalls* counted) { return ops.make(counted, driver.origin); },
        {in_process, std::chrono::seconds(timeout)}, driver.origin == "built in" ? nullptr : driver.origin.c_str());
    if (report.cases.empty())
      throw UsageError("--filter " + filter + " matches no case; --list shows them" + filter_hint(filter));
    if (!junit.empty()) {
      const std::string reason =
          write_output_file(junit, conformance::junit_xml(report, title(*driver.table, driver.origin)));
      if (!reason.empty()) throw Error("--junit: the report cannot be written to " + junit + ": " + reason);
    }
    if (json) {
      print_json(json_of(*driver.table, driver.origin, report));
    } else {
      std::printf("%s\n", title(*driver.table, driver.origin).c_str());
      print_text(report, failures_only);
      if (coverage) print_coverage(report);
      std::printf("\n%d passed, %d failed, %d unsupported, %d unavailable\n", count(report, Outcome::pass),
                  count(report, Outcome::fail), count(report, Outcome::unsupported),
                  count(report, Outcome::unavailable));
    }
    return count(report, Outcome::fail) == 0 ? 0 : 1;
  });
}

}  // namespace anyaccel::cli
