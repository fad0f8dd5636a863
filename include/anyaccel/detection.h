// The registry behind get_accelerator(): it finds the accelerators that this process could use, and chooses one.
//
// DS_ACCELERATOR forces one by name. Otherwise the first usable one is taken, highest priority first. A plugin states
// its own (aa_driver::priority; 100 is usual, before everything that is built in); the built-in accelerators have xpu
// 90, npu 80, sdaa 70, mps 60, hpu 50, mlu 40, cuda 30, cpu 10. The CPU is always usable, so a plugin below 10, such as
// one that leaves the member 0, is used only where DS_ACCELERATOR names it. At the same number plugins come before what
// is built in, and among each other in the order in which their files are found, within a folder by name.
//
// Plugins are shared libraries. They are looked for in ANYACCEL_PLUGIN_PATH (files or folders, separated by colons), in
// ~/.local/lib/anyaccel/plugins and in lib/anyaccel/plugins of the installation; in folders, files that end
// with ".so". A plugin that a user other than this one, root and the owner of the program could change is refused: it
// and every folder up to the root must belong to one of these and be closed to others' writing. A plugin that calls
// itself as a built-in accelerator does ("xpu") is known as "xpu.external", and "xpu" stays the built-in one. Two
// plugin files of one name are an error: for automatic detection, and where that name is asked for. One file that is
// found by several paths is one plugin.
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
  std::string name;    // what DS_ACCELERATOR names: "cuda", "xpu.external"
  std::string origin;  // "built in", or the file of the plugin
  aa_probe_state state = AA_PROBE_ABSENT;
  bool probed = false;       // false: not reached, because one before it was usable
  bool passed_over = false;  // usable, but it yields to another one
  int device_count = 0;      // as far as known without opening anything
  int priority = 0;          // higher ones are considered first
  std::string reason;        // the probe's message
};

struct DetectionReport {
  std::string chosen;                      // name of the accelerator; empty before the first detection
  std::string method;                      // "DS_ACCELERATOR", "auto detect" or "set_accelerator()"
  std::vector<Candidate> candidates;       // in the order they are considered
  std::vector<std::string> plugin_errors;  // plugin files that could not be loaded, with the reason
  std::string plugin_places;               // of probe_all_accelerators(): where plugins were looked for, as a sentence
};

// Gives the result of the last detection. Detects first when there was none yet.
DetectionReport detection_report();

// The same, but every candidate is probed, not only those up to the chosen one. Slower: may open vendor libraries.
DetectionReport probe_all_accelerators();

// One or two lines for a person: the accelerator, its device, and why it was chosen.
std::string accelerator_choice_summary();

// Every name DS_ACCELERATOR understands here, plugins included.
std::vector<std::string> known_accelerators();

// Makes the accelerator of a name without making it current ("cpu", "null", a plugin's name). Throws InvalidArgument
// for an unknown name and UnavailableError, with the probe's reason, for one that cannot be used. The caller owns it:
// once it is destroyed, tensors, streams, events and graphs made on it may only be released. Given to set_accelerator()
// it is kept.
std::unique_ptr<Accelerator> make_accelerator(std::string_view name);

// A driver table made ready for use: missing members filled with stubs, layers (ANYACCEL_LAYERS) applied.
struct LoadedDriver {
  const abi::DriverCalls* table = nullptr;  // lives until the process ends
  std::string origin;
};

// Settings of a driver, as "key=value,key=value"; "2.key=value" is for the device of index 2 only. They join those of
// ANYACCEL_<NAME>_OPTIONS (upper case, '.' written as '_') and win over them. To be called before the accelerator's
// runtime is opened by its first use. Thread-safe. Text that is not of that form throws InvalidArgument here; a key
// that the driver does not know throws where the accelerator is first used, and lists those that it knows.
void set_driver_options(std::string_view accelerator, std::string_view options);

// Opens a plugin file (a name without a slash is one of the current folder) and negotiates versions. Throws
// UnavailableError naming file and reason: another user could change it, not a library or a part of one, no entry
// point, no version in common, a table that is not one.
LoadedDriver load_plugin(const std::string& file);

// Calls the driver's probe; a driver that fails, throws or returns nonsense is "unusable" with that as the reason.
Candidate probe_driver(const LoadedDriver& driver);

}  // namespace anyaccel
