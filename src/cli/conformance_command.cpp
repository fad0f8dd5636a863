// anyaccel conformance: runs the conformance suite on a plugin or on an accelerator that detection knows.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "cli/command_support.h"
#include "cli/commands.h"
#include "conformance/suite.h"
#include "runtime/host_services.h"

namespace anyaccel::cli {
namespace {

using conformance::CaseResult;
using conformance::Outcome;

struct Counts {
  int of[4] = {};
  int operator[](Outcome outcome) const { return of[static_cast<int>(outcome)]; }
};

Counts count(const std::vector<CaseResult>& results) {
  Counts counts;
  for (const CaseResult& result : results) ++counts.of[static_cast<int>(result.outcome)];
  return counts;
}

void print_text(const aa_driver& driver, const std::string& origin, const std::vector<CaseResult>& results, bool all) {
  std::printf("%s %s by %s (%s)\n", driver.name, driver.version, driver.vendor, origin.c_str());
  std::string group;
  for (const CaseResult& result : results) {
    if (!all && result.outcome != Outcome::fail) continue;
    if (result.group != group) std::printf("\n%s\n", result.group.c_str());
    group = result.group;
    std::printf("  %-12s %s\n", conformance::outcome_name(result.outcome), result.name.c_str());
    if (!result.message.empty()) std::printf("  %-12s   %s\n", "", result.message.c_str());
  }
  const Counts counts = count(results);
  std::printf("\n%d passed, %d failed, %d unsupported, %d skipped\n", counts[Outcome::pass], counts[Outcome::fail],
              counts[Outcome::unsupported], counts[Outcome::skip]);
}

void print_json(const aa_driver& driver, const std::string& origin, const std::vector<CaseResult>& results) {
  nlohmann::ordered_json report;
  report["driver"] = {
      {"name", driver.name}, {"vendor", driver.vendor}, {"version", driver.version}, {"origin", origin}};
  report["cases"] = nlohmann::ordered_json::array();
  for (const CaseResult& result : results) {
    report["cases"].push_back({{"group", result.group},
                               {"name", result.name},
                               {"outcome", conformance::outcome_name(result.outcome)},
                               {"message", result.message}});
  }
  const Counts counts = count(results);
  for (const Outcome outcome : {Outcome::pass, Outcome::fail, Outcome::unsupported, Outcome::skip}) {
    report["totals"][conformance::outcome_name(outcome)] = counts[outcome];
  }
  // Texts of a plugin may be anything; bytes that are not UTF-8 are replaced.
  std::printf("%s\n", report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

LoadedDriver driver_of(const std::string& name) {
  const auto accelerator = make_accelerator(name);
  const auto* driven = dynamic_cast<const DriverAccelerator*>(accelerator.get());
  if (!driven) throw InvalidArgument("the accelerator \"" + name + "\" is not made of a driver table");
  return {&driven->driver(), driven->origin()};
}

}  // namespace

int run_conformance_command(int argc, char** argv) {
  CLI::App app("Checks an accelerator's driver against the plugin interface. Exit code 0: no case failed.",
               "anyaccel conformance");
  std::string plugin;
  std::string accelerator;
  std::string filter;
  bool json = false;
  bool list = false;
  bool failures_only = false;
  auto* plugin_option = app.add_option("--plugin", plugin, "the plugin's file")->type_name("FILE");
  app.add_option("--accelerator", accelerator, "a known accelerator (default: the one detection chooses)")
      ->type_name("NAME")
      ->excludes(plugin_option);
  app.add_option("--filter", filter, "only cases whose group.name contains one of these, comma-separated")
      ->type_name("TEXT");
  app.add_flag("--json", json, "one JSON object instead of a text");
  app.add_flag("--list", list, "the names of the cases");
  app.add_flag("--failures", failures_only, "in the text, only the cases that failed");
  return run_command(app, argc, argv, [&] {
    if (list) {
      for (const std::string& name : conformance::conformance_cases()) std::printf("%s\n", name.c_str());
      return 0;
    }
    const LoadedDriver driver =
        plugin.empty() ? driver_of(accelerator.empty() ? detection_report().chosen : accelerator) : load_plugin(plugin);
    const auto results = conformance::run_conformance(driver.table, host_services(), filter);
    if (results.empty()) throw UsageError("--filter " + filter + " matches no case; --list shows them");
    if (json) {
      print_json(*driver.table, driver.origin, results);
    } else {
      print_text(*driver.table, driver.origin, results, !failures_only);
    }
    return count(results)[Outcome::fail] == 0 ? 0 : 1;
  });
}

}  // namespace anyaccel::cli
