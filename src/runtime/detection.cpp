// Detection: DS_ACCELERATOR, or the first usable candidate in order. See anyaccel/detection.h.
#include "anyaccel/detection.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>

#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/text/text.h"
#include "runtime/builtins.h"
#include "runtime/detection_state.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"
#include "runtime/driver/plugin_files.h"
#include "runtime/layers/layers.h"
#include "runtime/range_trace.h"

namespace anyaccel {
namespace {

constexpr const char* built_in = "built in";
// Appended to the name of a plugin whose name is that of a built-in accelerator.
constexpr const char* external = ".external";

std::mutex report_mutex;
DetectionReport report;

// One candidate that could be probed: a plugin that was opened, or a built-in.
struct Entry {
  std::string name;
  LoadedDriver driver;
  int32_t priority = 0;
  const char* yields_to = nullptr;
  bool automatic = true;
  std::string needs;
};

struct Entries {
  std::vector<Entry> list;  // in the order they are considered
  std::vector<std::string> plugin_errors;
  std::map<std::string, std::string, std::less<>> ambiguous;  // names that several plugins have, and the error
};

std::string join(const std::vector<std::string>& parts, const char* separator) {
  std::string joined;
  for (const std::string& part : parts) joined += (joined.empty() ? "" : separator) + part;
  return joined;
}

bool is_builtin_name(std::string_view name) {
  return std::ranges::any_of(builtin_drivers(), [name](const BuiltinDriver& b) { return name == b.name; });
}

// Returns the name of a plugin in this process: a built-in accelerator keeps its name.
std::string entry_name(const std::string& own_name) {
  return is_builtin_name(own_name) ? own_name + external : own_name;
}

void add_plugins(Entries& entries) {
  std::map<std::string, std::vector<std::string>> files_of;
  for (const std::string& file : find_plugin_files(entries.plugin_errors)) {
    try {
      const LoadedDriver driver = load_plugin(file);
      const std::string name = entry_name(driver.table->name);
      files_of[name].push_back("\"" + file + "\"");
      entries.list.push_back({name, driver, driver.table->priority, nullptr, true, {}});
    } catch (const Error& error) {
      entries.plugin_errors.emplace_back(error.what());
    }
  }
  for (const auto& [name, files] : files_of) {
    if (files.size() == 1) continue;
    const std::string error = "more than one plugin brings an accelerator \"" + name + "\": " + join(files, " and ") +
                              "; none of them is used. Keep one file, and remove the others from their folder or from "
                              "ANYACCEL_PLUGIN_PATH";
    entries.plugin_errors.push_back(error);
    entries.ambiguous.emplace(name, error);
    std::erase_if(entries.list, [&name = name](const Entry& entry) { return entry.name == name; });
  }
}

LoadedDriver load_builtin(const BuiltinDriver& builtin) {
  // A completed table lives until the process ends, so it is made once.
  static std::mutex mutex;
  static std::map<const BuiltinDriver*, LoadedDriver> made;
  std::lock_guard lock(mutex);
  LoadedDriver& driver = made[&builtin];
  if (!driver.table) {
    const aa_host* services = services_for(builtin.name);
    name_services(services, builtin.name);
    const aa_driver* raw = builtin.query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, services);
    driver = {apply_needed_layers(complete_table(raw, builtin.name)), built_in};
  }
  return driver;
}

void add_builtins(Entries& entries) {
  for (const BuiltinDriver& builtin : builtin_drivers()) {
    entries.list.push_back(
        {builtin.name, load_builtin(builtin), builtin.priority, builtin.yields_to, builtin.automatic, builtin.needs});
  }
}

// All candidates. At the same priority plugins stay before built-ins, and each in the order in which they were found.
Entries all_entries() {
  Entries entries;
  add_plugins(entries);
  add_builtins(entries);
  std::ranges::stable_sort(entries.list, std::greater<>(), &Entry::priority);
  return entries;
}

Candidate probe_entry(const Entry& entry) {
  Candidate candidate = probe_driver(entry.driver);
  candidate.name = entry.name;
  return candidate;
}

const char* state_word(const Candidate& candidate) {
  return candidate.state == AA_PROBE_ABSENT ? "absent" : candidate.state == AA_PROBE_UNUSABLE ? "unusable" : "usable";
}

// Opens a plugin whose probe said that it is usable, so that detection can try the next one if the probe was wrong.
// Returns null and the reason if it cannot be opened. A built-in is opened when it is first used.
std::unique_ptr<DriverAccelerator> open_candidate(const Entry& entry, Candidate& candidate) {
  auto accelerator = std::make_unique<DriverAccelerator>(entry.driver.table, entry.driver.origin);
  if (entry.driver.origin == built_in) return accelerator;
  try {
    accelerator->instance();
    return accelerator;
  } catch (const Error& error) {
    candidate.state = AA_PROBE_UNUSABLE;
    candidate.reason = std::string("its probe says that it can be used, but it cannot be opened: ") + error.what();
    return nullptr;
  }
}

// Probes entries in order until one is chosen; every later one is listed as not reached. Returns the index of the
// chosen one, or -1; `taken` receives the accelerator.
int probe_in_order(const Entries& entries, bool all, DetectionReport& result,
                   std::unique_ptr<DriverAccelerator>& taken) {
  std::map<std::string, Candidate> probed;
  auto probe = [&](const Entry& entry) -> const Candidate& {
    auto found = probed.find(entry.name);
    if (found == probed.end()) found = probed.emplace(entry.name, probe_entry(entry)).first;
    return found->second;
  };
  int chosen = -1;
  for (size_t i = 0; i < entries.list.size(); ++i) {
    const Entry& entry = entries.list[i];
    Candidate candidate;
    candidate.name = entry.name;
    candidate.origin = entry.driver.origin;
    if (all || (entry.automatic && chosen < 0)) candidate = probe(entry);
    candidate.priority = entry.priority;
    if (candidate.probed && candidate.state == AA_PROBE_USABLE && entry.yields_to) {
      for (const Entry& other : entries.list) {
        if (other.name == entry.yields_to && probe(other).state == AA_PROBE_USABLE) {
          candidate.passed_over = true;
          candidate.reason += "; yields to " + other.name;
        }
      }
    }
    if (chosen < 0 && entry.automatic && candidate.state == AA_PROBE_USABLE && !candidate.passed_over) {
      taken = open_candidate(entry, candidate);
      if (taken) {
        chosen = static_cast<int>(i);
      } else if (!all) {
        log_warning("accelerator \"" + entry.name + "\" (plugin \"" + candidate.origin +
                    "\") is passed over: " + candidate.reason);
      }
    }
    if (!candidate.probed) {
      candidate.reason = entry.automatic ? "not looked at: " + entries.list[static_cast<size_t>(chosen)].name +
                                               ", which comes before it, is usable"
                                         : "only when DS_ACCELERATOR asks for it";
    }
    result.candidates.push_back(candidate);
  }
  return chosen;
}

std::vector<std::string> names(const Entries& entries) {
  std::vector<std::string> result;
  for (const Entry& entry : entries.list) result.push_back(entry.name);
  return result;
}

const Entry* find_entry(const Entries& entries, std::string_view name) {
  for (const Entry& entry : entries.list) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

// The entries needed to answer for one name: plugins are opened only when the name is not a built-in's.
Entries entries_for(std::string_view name) {
  if (!is_builtin_name(name)) return all_entries();
  Entries entries;
  add_builtins(entries);
  return entries;
}

std::string upper_case(std::string text) {
  for (char& c : text) c = ascii_upper(c);
  return text;
}

// Part of the error message for a built-in accelerator that cannot be used: mentions the plugin of the same name, if
// there is one.
std::string plugin_of_that_name(const std::string& name) {
  Entries entries;
  add_plugins(entries);
  const Entry* plugin = find_entry(entries, name + external);
  if (!plugin) return {};
  return ". The plugin \"" + plugin->driver.origin + "\" calls itself \"" + name + "\" too: DS_ACCELERATOR=" + name +
         external + " selects it";
}

// Returns why an entry cannot be used. For built-ins the text begins as DeepSpeed's does, because people search for it:
// "XPU_Accelerator requires".
std::string refusal(const Entry& entry, const Candidate& candidate, const std::string& asker) {
  const std::string requires_words = upper_case(entry.name) + "_Accelerator requires ";
  const std::string asked = asker + " asks for \"" + entry.name + "\", which is " + state_word(candidate) +
                            " on this machine: " + candidate.reason;
  if (candidate.origin != built_in) return asked + " (plugin \"" + candidate.origin + "\")";
  return (entry.needs.empty() ? asked : requires_words + entry.needs + ": " + asked) + plugin_of_that_name(entry.name);
}

// Returns why there is no plugin "NAME.external".
std::string no_external(const Entries& entries, std::string_view asked, const char* asker) {
  const std::string name(asked.substr(0, asked.size() - std::strlen(external)));
  const std::string asks = std::string(asker) + " asks for \"" + std::string(asked) + "\"";
  if (const Entry* plugin = find_entry(entries, name); plugin && !is_builtin_name(name)) {
    return asks + ", but the plugin \"" + plugin->driver.origin + "\" is called \"" + name + "\": \"" + external +
           "\" is added only to the names of built-in accelerators. Ask for \"" + name + "\"";
  }
  return asks + ", which needs a plugin that calls itself \"" + name +
         "\", as a built-in accelerator does; none was found. " + plugin_places() +
         ". Put its file into one of these folders or name it in ANYACCEL_PLUGIN_PATH";
}

const Entry& require_usable(const Entries& entries, std::string_view asked, const char* asker,
                            DetectionReport& result) {
  const Entry* entry = find_entry(entries, asked);
  const std::string errors =
      entries.plugin_errors.empty() ? std::string() : ". Plugins that failed: " + join(entries.plugin_errors, "; ");
  if (const auto several = entries.ambiguous.find(asked); several != entries.ambiguous.end()) {
    throw UnavailableError(std::string(asker) + " asks for \"" + std::string(asked) + "\": " + several->second);
  }
  if (!entry && asked.ends_with(external)) throw UnavailableError(no_external(entries, asked, asker) + errors);
  if (!entry) {
    std::vector<std::string> known = names(entries);
    known.emplace_back("xpu.external");
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    throw InvalidArgument(std::string(asker) + " must be one of " + join(known, ", ") + ". Value \"" +
                          std::string(asked) + "\" is not supported. (NAME" + external +
                          " means a plugin that calls itself NAME, as a built-in accelerator does.) " +
                          plugin_places() + errors);
  }
  Candidate candidate = probe_entry(*entry);
  result.candidates.push_back(candidate);
  if (candidate.state != AA_PROBE_USABLE) throw UnavailableError(refusal(*entry, candidate, asker) + errors);
  return *entry;
}

}  // namespace

std::unique_ptr<Accelerator> detect_accelerator() {
  check_trace_file();
  DetectionReport result;
  const char* forced = std::getenv("DS_ACCELERATOR");
  const Entry* chosen = nullptr;
  std::unique_ptr<DriverAccelerator> accelerator;
  Entries entries;
  if (forced && *forced) {
    result.method = "DS_ACCELERATOR";
    entries = entries_for(forced);
    result.plugin_errors = entries.plugin_errors;
    chosen = &require_usable(entries, forced, "DS_ACCELERATOR", result);
  } else {
    result.method = "auto detect";
    entries = all_entries();
    if (!entries.ambiguous.empty()) throw UnavailableError(entries.ambiguous.begin()->second);
    result.plugin_errors = entries.plugin_errors;
    for (const std::string& error : entries.plugin_errors) log_warning(error);
    const int index = probe_in_order(entries, false, result, accelerator);
    if (index < 0) {
      std::string tried;
      for (const Candidate& c : result.candidates) {
        if (c.probed) tried += "\n  " + c.name + ": " + state_word(c) + ", " + c.reason;
      }
      throw UnavailableError("no accelerator can be used on this machine. Tried:" + tried);
    }
    chosen = &entries.list[static_cast<size_t>(index)];
    // The last candidate of automatic detection exists on every machine.
    const auto later = std::find_if(entries.list.begin() + index + 1, entries.list.end(),
                                    [](const Entry& entry) { return entry.automatic; });
    // Only one rank of each host logs this.
    const char* local_rank = std::getenv("LOCAL_RANK");
    if (later == entries.list.end() && (!local_rank || !*local_rank || !std::strcmp(local_rank, "0"))) {
      log_warning("Setting accelerator to " + upper_case(chosen->name) +
                  ". If you have GPU or other accelerator, we were unable to detect it. `anyaccel info` says why.");
    }
  }
  if (!accelerator) accelerator = std::make_unique<DriverAccelerator>(chosen->driver.table, chosen->driver.origin);
  result.chosen = chosen->name;
  std::lock_guard lock(report_mutex);
  report = std::move(result);
  return accelerator;
}

void note_set_accelerator(const std::string& name) {
  std::lock_guard lock(report_mutex);
  report = {};
  report.chosen = name;
  report.method = "set_accelerator()";
}

void forget_detection() {
  std::lock_guard lock(report_mutex);
  report = {};
}

DetectionReport detection_report() {
  get_accelerator();
  std::lock_guard lock(report_mutex);
  return report;
}

DetectionReport probe_all_accelerators() {
  DetectionReport current = detection_report();
  const Entries entries = all_entries();
  DetectionReport result;
  result.chosen = current.chosen;
  result.method = current.method;
  result.plugin_errors = entries.plugin_errors;
  result.plugin_places = plugin_places();
  std::unique_ptr<DriverAccelerator> opened;
  probe_in_order(entries, true, result, opened);
  return result;
}

std::vector<std::string> known_accelerators() { return names(all_entries()); }

std::unique_ptr<Accelerator> make_accelerator(std::string_view name) {
  Entries entries = entries_for(name);
  DetectionReport unused;
  const Entry& entry = require_usable(entries, name, "make_accelerator", unused);
  return std::make_unique<DriverAccelerator>(entry.driver.table, entry.driver.origin);
}

std::string accelerator_choice_summary() {
  Accelerator* accelerator = get_accelerator();
  const DetectionReport current = detection_report();
  const aa_device_props& props = accelerator->device_properties();
  std::string text = "accelerator: " + current.chosen + " (" + props.name;
  if (*props.arch) text += std::string(", ") + props.arch;
  text += ")\n";
  if (current.method != "auto detect") return text + "chosen by: " + current.method;
  std::vector<std::string> passed;
  for (const Candidate& c : current.candidates) {
    if (c.name == current.chosen) break;
    if (c.probed) passed.push_back(c.name);
  }
  text += "chosen by: auto detect; ";
  if (passed.empty()) return text + "it is the first in the order and usable";
  return text + "before it " + join(passed, ", ") + (passed.size() == 1 ? " was" : " were") +
         " looked for and cannot be used here (`anyaccel info` says why)";
}

}  // namespace anyaccel
