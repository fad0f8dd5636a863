// The registry behind get_accelerator(), which finds the accelerators that this process could use, and chooses one.
//
// DS_ACCELERATOR forces one by name. Otherwise the first usable one is taken, highest priority first. A plugin declares
// its own priority (aa_driver::priority; usually 100, above everything that is built in); the built-in accelerators
// have xpu 90, npu 80, sdaa 70, mps 60, hpu 50, mlu 40, cuda 30, cpu 10. The CPU is always usable, so a plugin below
// 10, such as one that leaves the member 0, is used only where DS_ACCELERATOR names it. At the same priority plugins
// come before built-in accelerators, and among themselves in the order in which their files are found, within a folder
// by name.
//
// Plugins are shared libraries. They are looked for in ANYACCEL_PLUGIN_PATH (files or folders, separated by colons), in
// ~/.local/lib/anyaccel/plugins and in lib/anyaccel/plugins of the installation; in folders, files that end with ".so".
// A plugin that a user other than this one, root and the owner of the program could modify is refused: it and every
// folder up to the root must belong to one of these and not be writable by others. A plugin with the name of a built-in
// accelerator ("xpu") is known as "xpu.external", and "xpu" stays the built-in one. Two plugin files with the same name
// are an error: for automatic detection, and when that name is requested. One file that is found by several paths is
// one plugin.
//
// Probing creates no device context and leaves the process able to fork. A plugin that detection would take is opened
// at once; if that fails, detection continues, and the candidate says why.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/abi/table_calls.hpp"
#include "anyaccel/accelerator.h"

namespace anyaccel {

// One accelerator that detection considered.
struct Candidate {
  std::string name;    // as in DS_ACCELERATOR: "cuda", "xpu.external"
  std::string origin;  // "built in", or the file of the plugin
  aa_probe_state state = AA_PROBE_ABSENT;
  bool probed = false;       // false: not reached, because one before it was usable
  bool passed_over = false;  // usable, but it yields to another one
  int device_count = 0;      // as the probe reports it, without opening a device
  int priority = 0;          // higher ones are considered first
  std::string reason;        // the probe's message
};

struct DetectionReport {
  std::string chosen;                      // name of the accelerator
  std::string method;                      // "DS_ACCELERATOR", "auto detect" or "set_accelerator()"
  std::vector<Candidate> candidates;       // in the order they are considered
  std::vector<std::string> plugin_errors;  // plugin files that could not be loaded, with the reason
  std::string plugin_places;               // of probe_all_accelerators(): where plugins were looked for, as a sentence
};

// Returns the result of the last detection. Runs detection first if there was none yet.
DetectionReport detection_report();

// The same, but probes every candidate, not only those up to the chosen one. Slower: may open vendor libraries.
DetectionReport probe_all_accelerators();

// Returns two lines for the user: the accelerator with its device, and why it was chosen.
std::string accelerator_choice_summary();

// Returns every name that DS_ACCELERATOR accepts here, including plugins, which this loads.
std::vector<std::string> known_accelerators();

// Creates the accelerator with this name without making it current ("cpu", "null", a plugin's name). Throws
// InvalidArgument for an unknown name and UnavailableError, with the probe's reason, for one that cannot be used. The
// caller owns it: once it is destroyed, tensors, streams, events and graphs made on it may only be released. If it is
// given to set_accelerator(), it is kept.
std::unique_ptr<Accelerator> make_accelerator(std::string_view name);

// A driver table that is ready for use: missing members are filled with stubs, and layers (ANYACCEL_LAYERS) are
// applied.
struct LoadedDriver {
  const abi::DriverCalls* table = nullptr;  // lives until the process ends
  std::string origin;
};

// Sets options of a driver, as "key=value,key=value"; "2.key=value" is only for the device with index 2. They are added
// to those of ANYACCEL_<NAME>_OPTIONS (upper case, '.' written as '_') and take precedence. Call it before the first
// use of the accelerator, which opens its runtime. Thread-safe. Throws InvalidArgument for text in another form; an
// unknown key is an error at the first use of the accelerator, which lists the known ones.
void set_driver_options(std::string_view accelerator, std::string_view options);

// Opens a plugin file (a name without a slash is a file in the current folder) and negotiates versions. Throws
// UnavailableError, naming file and reason: another user could modify it, it is not a library or only a part of one, it
// has no entry point, there is no version in common, or its table is invalid.
LoadedDriver load_plugin(const std::string& file);

// Calls the driver's probe; a driver that fails, throws or returns invalid data is "unusable", with that as the reason.
Candidate probe_driver(const LoadedDriver& driver);

}  // namespace anyaccel
