// Detection: DS_ACCELERATOR, or the first usable candidate in order. See anyaccel/detection.h.
#include "anyaccel/detection.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <sstream>

#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/install_paths.h"
#include "base/trusted_path.h"
#include "runtime/builtins.h"
#include "runtime/detection_state.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"
#include "runtime/layers/layers.h"
#include "runtime/range_trace.h"

namespace anyaccel {
namespace {

constexpr const char* built_in = "built in";

std::mutex report_mutex;
DetectionReport report;

// One candidate that could be probed: a plugin that was opened, or a built-in.
struct Entry {
  std::string name;
  LoadedDriver driver;  // table null: known by name, no driver in this build
  const char* yields_to = nullptr;
  bool automatic = true;
  std::string needs;
};

struct Entries {
  std::vector<Entry> list;  // in the order they are considered
  std::vector<std::string> plugin_errors;
};

// The libraries of a folder, unless another user could put one there.
void add_folder(const std::string& folder, std::vector<std::string>& files, std::vector<std::string>& errors) {
  const TrustedPath opened = open_trusted_folder(folder, Trust::program);
  if (opened.state == TrustedPath::State::missing) return;
  const std::string asked = "plugin folder \"" + folder + "\": ";
  if (opened.state == TrustedPath::State::refused) {
    errors.push_back(asked + "nothing is loaded from it, because " + opened.reason +
                     ", so that another user could put code there. Cure: " + opened.cure);
    return;
  }
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".so") found.push_back(entry.path().string());
  }
  if (!opened.ok() || error) errors.push_back(asked + (opened.ok() ? error.message() : opened.reason));
  std::sort(found.begin(), found.end());
  files.insert(files.end(), found.begin(), found.end());
}

std::vector<std::string> plugin_files(std::vector<std::string>& errors) {
  std::vector<std::string> files;
  if (const char* path = std::getenv("ANYACCEL_PLUGIN_PATH")) {
    std::stringstream parts(path);
    for (std::string part; std::getline(parts, part, ':');) {
      if (part.empty()) continue;
      std::error_code error;
      if (std::filesystem::is_directory(part, error)) {
        add_folder(part, files, errors);
      } else if (std::filesystem::exists(part, error)) {
        files.push_back(part);
      } else {
        errors.push_back("plugin \"" + part + "\": there is no such file or folder; check ANYACCEL_PLUGIN_PATH");
      }
    }
  }
  add_folder(install_plugin_dir(), files, errors);
  return files;
}

bool is_builtin_name(std::string_view name) {
  return std::ranges::any_of(builtin_drivers(), [name](const BuiltinDriver& b) { return name == b.name; });
}

void add_plugins(Entries& entries) {
  for (const std::string& file : plugin_files(entries.plugin_errors)) {
    try {
      LoadedDriver driver = load_plugin(file);
      std::string name = driver.table->name;
      if (is_builtin_name(name)) name += ".external";
      entries.list.push_back({name, driver, nullptr, true, {}});
    } catch (const Error& error) {
      entries.plugin_errors.emplace_back(error.what());
    }
  }
}

LoadedDriver load_builtin(const BuiltinDriver& builtin) {
  // A completed table lives until the process ends, so it is made once.
  static std::mutex mutex;
  static std::map<const BuiltinDriver*, LoadedDriver> made;
  if (!builtin.query) return {};
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
    entries.list.push_back({builtin.name, load_builtin(builtin), builtin.yields_to, builtin.automatic, builtin.needs});
  }
}

Candidate probe_entry(const Entry& entry) {
  Candidate candidate;
  if (entry.driver.table) {
    candidate = probe_driver(entry.driver);
  } else {
    candidate.origin = built_in;
    candidate.probed = true;
    candidate.reason = "this build has no driver for it";
  }
  candidate.name = entry.name;
  return candidate;
}

const char* state_word(const Candidate& candidate) {
  return candidate.state == AA_PROBE_ABSENT ? "absent" : candidate.state == AA_PROBE_UNUSABLE ? "unusable" : "usable";
}

std::string join(const std::vector<std::string>& parts, const char* separator) {
  std::string joined;
  for (const std::string& part : parts) joined += (joined.empty() ? "" : separator) + part;
  return joined;
}

// Opens what the probe of a plugin called usable, so that detection goes on where it was wrong; null, and the reason, when it
// cannot be opened. A built-in is opened when it is first used.
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

// Probes entries in order until one is taken; every later one is listed as not reached. Returns its index, or -1; `taken` gets the
// accelerator.
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
    candidate.origin = entry.driver.table ? entry.driver.origin : built_in;
    if (all || (entry.automatic && chosen < 0)) candidate = probe(entry);
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
      candidate.reason = entry.automatic ? "not looked at: an accelerator before it is usable"
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
  Entries entries;
  if (!is_builtin_name(name)) add_plugins(entries);
  add_builtins(entries);
  return entries;
}

std::string upper_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// Why an entry cannot be used. Of built-ins the first words are DeepSpeed's, by which people search: "XPU_Accelerator requires".
std::string refusal(const Entry& entry, const Candidate& candidate, const std::string& asker) {
  const std::string requires_words = upper_case(entry.name) + "_Accelerator requires ";
  if (!entry.driver.table) {
    return requires_words + "a driver, and this build of anyaccel has none for \"" + entry.name + "\", for which " +
           asker +
           " asks: nothing that is installed on the machine changes that. A plugin can bring "
           "one: name its file in ANYACCEL_PLUGIN_PATH and ask for \"" +
           entry.name + ".external\". `anyaccel info` says what there is here";
  }
  const std::string asked = asker + " asks for \"" + entry.name + "\", which is " + state_word(candidate) +
                            " on this machine: " + candidate.reason;
  if (candidate.origin != built_in) return asked + " (plugin \"" + candidate.origin + "\")";
  return entry.needs.empty() ? asked : requires_words + entry.needs + ": " + asked;
}

const Entry& require_usable(const Entries& entries, std::string_view asked, const char* asker,
                            DetectionReport& result) {
  const Entry* entry = find_entry(entries, asked);
  const std::string errors =
      entries.plugin_errors.empty() ? std::string() : ". Plugins that failed: " + join(entries.plugin_errors, "; ");
  if (!entry) {
    std::vector<std::string> known = names(entries);
    if (asked.ends_with(".external")) {
      throw UnavailableError(std::string(asker) + " asks for \"" + std::string(asked) +
                             "\", which needs a plugin for \"" + std::string(asked.substr(0, asked.size() - 9)) +
                             "\"; none was found. Name its file in ANYACCEL_PLUGIN_PATH" + errors);
    }
    known.insert(known.begin(), "xpu.external");
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    throw InvalidArgument(std::string(asker) + " must be one of " + join(known, ", ") + ". Value \"" +
                          std::string(asked) + "\" is not supported" + errors);
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
    add_plugins(entries);
    add_builtins(entries);
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
    // The last one that detection takes by itself is the one every machine has.
    const auto later = std::find_if(entries.list.begin() + index + 1, entries.list.end(),
                                    [](const Entry& entry) { return entry.automatic; });
    // Of the ranks of a host one says so.
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
  Entries entries;
  add_plugins(entries);
  add_builtins(entries);
  DetectionReport result;
  result.chosen = current.chosen;
  result.method = current.method;
  result.plugin_errors = entries.plugin_errors;
  std::unique_ptr<DriverAccelerator> opened;
  probe_in_order(entries, true, result, opened);
  return result;
}

std::vector<std::string> known_accelerators() {
  Entries entries;
  add_plugins(entries);
  add_builtins(entries);
  return names(entries);
}

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
