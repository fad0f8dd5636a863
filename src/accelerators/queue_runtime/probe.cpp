// Implements probe.h: finds a vendor's runtime.
#include "accelerators/queue_runtime/probe.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "anyaccel/abi/driver_class.hpp"
#include "base/process/child_count.h"

namespace anyaccel::queue_runtime {
namespace {

constexpr std::chrono::seconds child_limit{30};

// The nodes of a class ("/dev/accel/accel0") are described under the same name in /sys/class.
bool is_of_vendor(const std::string& node, const std::string& vendor) {
  std::ifstream file("/sys/class" + node.substr(4) + "/device/vendor");
  std::string found;
  return std::getline(file, found) && found == vendor;
}

// "/dev/davinci0", ... Nodes without a number (davinci_manager) are no devices.
std::vector<std::string> device_nodes(std::span<const NodePattern> patterns) {
  std::vector<std::string> nodes;
  for (const NodePattern& pattern : patterns) {
    const std::string prefix = std::string("/dev/") + pattern.prefix;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(prefix).parent_path(), error)) {
      const std::string name = entry.path().string();
      if (name.size() > prefix.size() && name.starts_with(prefix) &&
          name.find_first_not_of("0123456789", prefix.size()) == std::string::npos &&
          (!pattern.pci_vendor || is_of_vendor(name, pattern.pci_vendor))) {
        nodes.push_back(name);
      }
    }
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

// "/dev/davinci0", or several: "/dev/accel/accel0 or /dev/hl0".
std::string first_nodes(std::span<const NodePattern> patterns) {
  std::string text;
  for (const NodePattern& pattern : patterns)
    text += (text.empty() ? "/dev/" : " or /dev/") + std::string(pattern.prefix) + "0";
  return text;
}

}  // namespace

std::string Probe::visible_text() const {
  std::string text;
  for (const char* name : table_.visible_variables) {
    if (const char* visible = std::getenv(name)) text += std::string("; ") + name + " is \"" + visible + "\"";
  }
  if (!text.empty() && table_.visible_rule) text += ", where " + std::string(table_.visible_rule) + " are expected";
  return text;
}

std::string Probe::shortened_list(int count) const {
  if (!table_.visible_rule) return {};
  const std::string list = variable(table_.visible_variables.front());
  if (list.empty() || std::count(list.begin(), list.end(), ',') < count) return {};
  return "; these are all that the runtime takes of " + std::string(table_.visible_variables.front()) + "=\"" + list +
         "\": it expects " + table_.visible_rule;
}

Discovery Probe::discover() {
  const std::lock_guard lock(mutex_);
  if (started_) {
    if (!started_->is_forked_child()) return *usable_;
    return unusable(std::string("this process was made by fork() after its parent had started ") + table_.software +
                    ", which does not survive that; start children with exec, or fork before the accelerator is first "
                    "used");
  }
  const std::vector<std::string> nodes = device_nodes(table_.nodes);
  if (nodes.empty() && variable(table_.search.path_variable).empty()) {
    return {AA_PROBE_ABSENT, std::string("no ") + table_.device + " (looked for " + first_nodes(table_.nodes) +
                                 " and on; " + table_.search.path_variable + " is not set)"};
  }
  if (!nodes.empty() && std::none_of(nodes.begin(), nodes.end(),
                                     [](const std::string& node) { return access(node.c_str(), R_OK | W_OK) == 0; })) {
    return unusable("this user may not open " + nodes.front() + (nodes.size() > 1 ? " or another device node" : "") +
                    "; " + table_.permission_advice);
  }
  std::call_once(opened_once_, [this] {
    opened_ = open_library(table_.search, {table_.library});
    if (opened_.handle) missing_ = table_.bind(opened_.handle);
  });
  if (!opened_.handle) {
    const std::string reason =
        std::string("no ") + table_.software + ": " + opened_.tried + "; " + table_.install_advice;
    if (nodes.empty()) return {AA_PROBE_ABSENT, reason};
    return unusable(nodes.front() + " is there, but " + reason);
  }
  const std::string version = table_.version ? table_.version() : "";
  const std::string software =
      std::string(table_.software) + (version.empty() ? "" : " " + version) + " (" + opened_.path + ")";
  if (!missing_.empty()) {
    return unusable(software + " lacks the function " + missing_ + "; " + table_.old_advice);
  }
  const Discovery found = ask(software);
  if (found.state == AA_PROBE_USABLE) usable_ = found;
  return found;
}

void Probe::discover(aa_probe& probe) {
  const Discovery found = discover();
  probe.state = found.state;
  probe.device_count = found.device_count;
  abi::copy_text(probe.reason, found.reason);
}

Discovery Probe::ask(const std::string& software) {
  const ChildCount answer = count_in_child(
      [this](ChildCount& told) {
        if (table_.start) told.init = table_.start();
        if (told.init == 0) told.counted = table_.count(told.count);
      },
      child_limit);
  if (!answer.problem.empty()) return unusable(software + ": " + answer.problem);
  const int result = answer.init ? answer.init : answer.counted;
  if (table_.stub_library != 0 && result == table_.stub_library) {
    return unusable(opened_.path + " is a library of " + table_.software +
                    " for linking, which does nothing; put the runtime's folder before it in LD_LIBRARY_PATH");
  }
  if ((answer.init == 0 && answer.counted == table_.no_device) || (result == 0 && answer.count == 0)) {
    return unusable(software + " is there, but shows no device" + visible_text() + "; " + table_.tool_advice);
  }
  if (result != 0) {
    return unusable(software + " is there, but " + (answer.init ? table_.start_call : table_.count_call) + " gives " +
                    table_.text(result) + visible_text() + "; " + table_.tool_advice);
  }
  return {AA_PROBE_USABLE, std::to_string(answer.count) + " device(s), " + software + shortened_list(answer.count),
          answer.count};
}

int Probe::start() {
  const Discovery found = discover();
  if (found.state != AA_PROBE_USABLE) throw abi::Failure(AA_UNAVAILABLE, found.reason);
  const std::lock_guard lock(mutex_);
  if (!started_) {
    if (const int result = table_.start ? table_.start() : 0; result != 0) {
      throw abi::Failure(
          AA_UNAVAILABLE,
          std::string(table_.software) + " cannot be started: " + table_.start_call + " gives " + table_.text(result),
          result);
    }
    started_.emplace();
  }
  return found.device_count;
}

}  // namespace anyaccel::queue_runtime
