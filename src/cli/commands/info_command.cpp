// Implements anyaccel info: the chosen accelerator and the reasons, every candidate and its probe, devices,
// capabilities, op builders.
#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "anyaccel/abi/collectives.h"
#include "anyaccel/abi/compiler.h"
#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/format_bytes.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/ops/inference.h"
#include "cli/commands/command_support.h"
#include "cli/commands/commands.h"
#include "cli/json_output.h"
#include "cli/text_layout.h"
#include "runtime/driver/driver_options.h"
#include "runtime/driver/host_services.h"

namespace anyaccel::cli {
namespace {

const char* state_text(const Candidate& candidate) {
  if (!candidate.probed) return "not probed";
  if (candidate.passed_over) return "passed over";
  switch (candidate.state) {
    case AA_PROBE_ABSENT: return "absent";
    case AA_PROBE_UNUSABLE: return "unusable";
    case AA_PROBE_USABLE: return "usable";
  }
  return "unknown";
}

std::vector<std::string> capability_names(uint64_t caps) {
  static constexpr std::pair<uint64_t, const char*> names[] = {
      {AA_CAP_SYNCHRONOUS, "synchronous"},
      {AA_CAP_HOST_TIMERS, "host timers"},
      {AA_CAP_RESOLVES_DEPENDENCIES, "resolves dependencies"},
      {AA_CAP_MEMORY_BACKPRESSURE, "memory backpressure"},
      {AA_CAP_HOST_COHERENT, "host coherent"},
      {AA_CAP_EVENT_TIMING, "event timing"},
      {AA_CAP_PINNED_HOST, "pinned host memory"},
      {AA_CAP_MANAGED_MEMORY, "managed memory"},
      {AA_CAP_CONCURRENT_STREAMS, "concurrent streams"},
      {AA_CAP_HOST_CALL, "host calls"},
      {AA_CAP_KERNELS, "kernels"},
      {AA_CAP_TRITON, "triton"},
      {AA_CAP_IS_HOST, "is the host"},
  };
  std::vector<std::string> result;
  for (const auto& [bit, name] : names) {
    if (caps & bit) result.emplace_back(name);
  }
  return result;
}

JsonValue device_json(Accelerator& accelerator, int index) {
  const aa_device_props& props = accelerator.device_properties(index);
  JsonValue device;
  device["name"] = accelerator.device_name(index);
  device["model"] = props.name;
  device["vendor"] = props.vendor;
  device["arch"] = props.arch;
  if (*props.pci_bus_id) device["pci_bus_id"] = props.pci_bus_id;
  device["numa_node"] = props.numa_node;
  device["compute_units"] = props.compute_units;
  device["total_memory"] = props.total_memory;
  device["capabilities"] = capability_names(props.caps);
  try {
    device["available_memory"] = accelerator.available_memory(index);
  } catch (const Error& error) {
    device["error"] = error.what();  // another process may have the device
    return device;
  }
  for (const MemoryKind& kind : accelerator.memory_kinds(index)) {
    device["memory_kinds"].push_back({{"name", kind.name},
                                      {"free", kind.free},
                                      {"total", kind.total},
                                      {"host_access", kind.host_access},
                                      {"for_ops", kind.for_ops},
                                      {"numa_node", kind.numa_node}});
  }
  return device;
}

// Returns the compiler of kernels for the current device, or why there is none; empty if the driver does not accept
// source code.
std::string kernel_compiler(DriverAccelerator& accelerator) {
  const auto* compiler = static_cast<const abi::Calls<aa_compiler_table>*>(
      accelerator.extension(AA_COMPILER_EXTENSION, AA_COMPILER_VERSION));
  if (!compiler) return {};
  char text[512] = "";
  try {
    check(compiler->fingerprint(accelerator.device_handle(), text, sizeof(text)), "no kernel compiler",
          accelerator.driver().name);
  } catch (const Error& error) {
    return error.what();
  }
  return text;
}

// Returns why the accelerator's collectives library cannot be used, or how it is used if it reduces host memory only;
// "" if there is nothing to say.
std::string collectives_note(DriverAccelerator& accelerator) {
  const auto* table = static_cast<const abi::Calls<aa_collectives_table>*>(
      accelerator.extension(AA_COLLECTIVES_EXTENSION, AA_COLLECTIVES_VERSION));
  const std::string backend = accelerator.communication_backend_name();
  if (!table) {
    if (backend == "ccl") {
      std::string reason;
      if (!accelerator.create_op_builder("CCLCommBuilder")->is_compatible(&reason)) return "cannot be used: " + reason;
      return "on request (ANYACCEL_COMM_BACKEND=ccl), with tensors carried through host memory; else shared memory and "
             "Gloo, which are faster";
    }
    const bool of_the_host = backend.empty() || backend == "gloo" || backend == "mpi" || backend == "shm";
    return of_the_host ? ""
                       : "cannot be used: the driver has no collectives of its own in this build; process groups carry "
                         "tensors through host memory";
  }
  const char* name = nullptr;
  const char* version = nullptr;
  const StatusRef status(table->library(accelerator.instance(), &name, &version));
  return std::string(status.message());
}

// Returns how files and the memory of the current device are connected, which GDSBuilder uses.
std::string files_way(DriverAccelerator& accelerator) {
  if (accelerator.is_host_coherent()) return "in place, by the host";
  const std::string by_host = "through host memory: ";
  const auto* table =
      static_cast<const abi::Calls<aa_files_table>*>(accelerator.extension(AA_FILES_EXTENSION, AA_FILES_VERSION));
  if (!table) return by_host + "this accelerator has no other way";
  auto info = abi::sized<aa_files_info>();
  try {
    check(table->info(accelerator.device_handle(), &info), "files.info", accelerator.driver().name);
  } catch (const Error& error) {
    return by_host + error.what();
  }
  return info.usable == 1 ? "directly to and from the device, by " + std::string(info.text) : by_host + info.text;
}

JsonValue collect() {
  Accelerator& accelerator = *get_accelerator();
  const DetectionReport report = probe_all_accelerators();
  JsonValue info;
  info["anyaccel"] = ANYACCEL_VERSION;
  JsonValue& chosen = info["accelerator"];
  chosen["name"] = report.chosen;
  chosen["chosen_by"] = report.method;
  chosen["device_count"] = accelerator.device_count();
  chosen["communication_backend"] = accelerator.communication_backend_name();
  chosen["communication_backend_version"] = accelerator.communication_backend_version();
  chosen["compile_backend"] = accelerator.get_compile_backend();
  chosen["graphs"] = accelerator.supports_graphs();
  for (const DType dtype : accelerator.supported_dtypes()) chosen["dtypes"].push_back(dtype_name(dtype));
  chosen["op_builder_dir"] = accelerator.op_builder_dir();
  if (auto* driven = dynamic_cast<DriverAccelerator*>(&accelerator)) {
    chosen["driver"] = {{"origin", driven->origin()},
                        {"vendor", driven->driver().vendor},
                        {"version", driven->driver().version},
                        {"abi", std::to_string(driven->driver().abi_version >> 16) + "." +
                                    std::to_string(driven->driver().abi_version & 0xffff)}};
    const aa_driver& driver = driven->driver();
    for (const aa_option_info& setting : std::span(driver.options, driver.option_count)) {
      chosen["settings"].push_back({{"key", setting.key}, {"help", setting.help}, {"default", setting.fallback}});
    }
    if (driver.option_count > 0) chosen["settings_variable"] = options_variable(driver.name);
    if (const std::string note = collectives_note(*driven); !note.empty()) chosen["communication_backend_note"] = note;
    chosen["files"] = files_way(*driven);
    if (const std::string compiler = kernel_compiler(*driven); !compiler.empty()) chosen["kernel_compiler"] = compiler;
  }
  for (const Candidate& candidate : report.candidates) {
    info["candidates"].push_back({{"name", candidate.name},
                                  {"state", state_text(candidate)},
                                  {"devices", candidate.device_count},
                                  {"origin", candidate.origin},
                                  {"priority", candidate.priority},
                                  {"reason", candidate.reason}});
  }
  info["plugin_errors"] = report.plugin_errors;
  info["plugin_places"] = report.plugin_places;
  for (int i = 0; i < accelerator.device_count(); ++i) info["devices"].push_back(device_json(accelerator, i));
  for (const std::string& name : accelerator.op_builder_names()) {
    std::string reason;
    const auto builder = accelerator.create_op_builder(name);
    const bool compatible = builder->is_compatible(&reason);
    const char* built = !compatible                  ? "no"
                        : builder->sources().empty() ? "included"
                        : builder->is_built()        ? "yes"
                                                     : "no";
    info["op_builders"].push_back({{"name", name}, {"compatible", compatible}, {"built", built}, {"reason", reason}});
  }
  std::vector<ops::OpPlacement> placements;
  try {
    placements = accelerator.create_op_builder("InferenceBuilder")->load_as<ops::Inference>()->placements();
  } catch (const Error& error) {
    info["ops_error"] = error.what();
  }
  for (const ops::OpPlacement& op : placements) {
    const std::string where =
        op.native        ? accelerator.name()
        : op.as_sequence ? accelerator.name() + " (as a sequence of other ops)"
        : op.avoided     ? "nowhere (models do without: weights are decoded while they load, caches are not quantized)"
                         : "cpu (fallback)";
    info["ops"].push_back({{"name", op.op}, {"runs_on", where}});
  }
  return info;
}

std::string text(const JsonValue& value) {
  const auto* string = std::get_if<std::string>(&value.data);
  return string ? *string : json_text(value);
}

// Returns a member that collect() always sets.
std::string text(const JsonValue& object, std::string_view key) { return text(*object.find(key)); }

bool is_true(const JsonValue& object, std::string_view key) { return std::get<bool>(object.find(key)->data); }

// Returns the elements of a list, which is absent if it is empty.
std::span<const JsonValue> elements(const JsonValue& object, std::string_view key) {
  const JsonValue* list = object.find(key);
  return list ? list->elements() : std::span<const JsonValue>();
}

std::string padded(std::string label, size_t column) {
  label.resize(std::max(column, label.size() + 1), ' ');
  return label;
}

void print_lines(std::string_view lines) {
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    const size_t word = std::min(line.find(": "), line.size());
    const std::string_view label = line.substr(0, std::min(word + 1, line.size()));
    print_entry(label, label.size() + 1, word < line.size() ? line.substr(word + 2) : "");
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
}

void print(const JsonValue& info) {
  const JsonValue& chosen = *info.find("accelerator");
  std::printf("anyaccel %s\n\n", text(info, "anyaccel").c_str());
  print_lines(accelerator_choice_summary());
  std::printf("\ncandidates, in the order they are considered\n");
  bool external = false;
  for (const JsonValue& candidate : elements(info, "candidates")) {
    const std::string label = padded("  " + text(candidate, "name"), 17) + text(candidate, "state");
    std::string reason = text(candidate, "reason");
    if (const std::string origin = text(candidate, "origin"); origin != "built in") {
      reason += " (plugin " + origin + ", priority " + text(candidate, "priority") + ")";
    }
    print_entry(label, 30, reason);
    external = external || text(candidate, "name").ends_with(".external");
  }
  for (const JsonValue& error : elements(info, "plugin_errors")) print_entry(" ", 2, text(error));
  if (external) {
    print_entry(" ", 2, "NAME.external is a plugin that calls itself NAME, as a built-in accelerator does.");
  }
  print_entry(" ", 2, text(info, "plugin_places"));
  std::printf("\ndevices\n");
  for (const JsonValue& device : elements(info, "devices")) {
    const auto bytes = [&](const char* which) {
      return format_bytes(static_cast<double>(std::get<int64_t>(device.find(which)->data)));
    };
    print_entry("  " + text(device, "name"), 11,
                text(device, "model") + ", " + text(device, "arch") + ", " + text(device, "compute_units") +
                    " compute units, " +
                    (device.find("error") ? bytes("total_memory") + "; cannot be used: " + text(device, "error")
                                          : bytes("available_memory") + " of " + bytes("total_memory") + " free"));
    std::string caps;
    for (const JsonValue& capability : elements(device, "capabilities"))
      caps += (caps.empty() ? "" : ", ") + text(capability);
    print_entry("", 11, caps);
    for (const JsonValue& kind : elements(device, "memory_kinds")) {
      const auto size = [&](const char* which) {
        return format_bytes(static_cast<double>(std::get<int64_t>(kind.find(which)->data)));
      };
      print_entry("", 11,
                  "memory \"" + text(kind, "name") + "\": " + size("free") + " of " + size("total") + " free, " +
                      (is_true(kind, "for_ops") ? "for ops and copies" : "for copies only") +
                      (is_true(kind, "host_access") ? ", reached by the host" : ""));
    }
  }
  std::string dtypes;
  for (const JsonValue& dtype : elements(chosen, "dtypes")) dtypes += (dtypes.empty() ? "" : ", ") + text(dtype);
  std::printf("\nnumber formats  %s\n", dtypes.c_str());
  std::printf("graphs          %s\n", is_true(chosen, "graphs") ? "yes" : "no");
  const std::string backend = text(chosen, "communication_backend");
  std::printf("collectives     %s %s\n",
              backend.empty() ? "none of its own; ranks use the host's memory" : backend.c_str(),
              text(chosen, "communication_backend_version").c_str());
  if (chosen.find("communication_backend_note")) print_entry("", 16, text(chosen, "communication_backend_note"));
  if (const JsonValue* driver = chosen.find("driver")) {
    std::printf("driver          %s %s, interface %s, %s\n", text(*driver, "vendor").c_str(),
                text(*driver, "version").c_str(), text(*driver, "abi").c_str(), text(*driver, "origin").c_str());
  }
  if (chosen.find("kernel_compiler")) {
    std::printf("kernel compiler %s\n", text(chosen, "kernel_compiler").c_str());
  }
  if (chosen.find("files")) print_entry("files", 16, text(chosen, "files"));
  if (chosen.find("settings_variable")) {
    std::printf("\nsettings, in %s=\"KEY=VALUE,...\"\n", text(chosen, "settings_variable").c_str());
    for (const JsonValue& setting : elements(chosen, "settings")) {
      const std::string fallback = text(setting, "default");
      print_entry("  " + text(setting, "key"), 33,
                  text(setting, "help") + (fallback.empty() ? "" : " (default: " + fallback + ")"));
    }
  }
  std::printf("\nop builders\n");
  for (const JsonValue& builder : elements(info, "op_builders")) {
    const std::string built = text(builder, "built");
    const char* state = built == "included" ? "included"
                        : built == "yes"    ? "built"
                                            : "compatible, built when first asked for";
    print_entry("  " + text(builder, "name"), 33, is_true(builder, "compatible") ? state : text(builder, "reason"));
  }
  std::printf("\nops of InferenceBuilder\n");
  if (info.find("ops_error")) print_entry(" ", 2, "cannot be listed: " + text(info, "ops_error"));
  for (const JsonValue& op : elements(info, "ops")) {
    std::printf("  %-20s %s\n", text(op, "name").c_str(), text(op, "runs_on").c_str());
  }
}

}  // namespace

int run_info(int argc, char** argv) {
  CommandLine line("What was chosen and why, every candidate and its probe, devices, capabilities, op builders.",
                   "anyaccel info");
  bool json = false;
  line.add_json_flag(json, "one JSON object instead of a text");
  return run_command(line, argc, argv, [&] {
    const JsonValue info = collect();
    if (json) {
      print_json(info);
    } else {
      print(info);
    }
    return 0;
  });
}

}  // namespace anyaccel::cli
