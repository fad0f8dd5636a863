// Cases before the driver is opened: the table's data members, and the probe.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "conformance/child.h"
#include "conformance/context.h"

namespace anyaccel::conformance {
namespace probe_group {
namespace {

aa_probe probed(const Context& c) {
  aa_probe probe{};
  probe.struct_size = sizeof(probe);
  c.ok(c.driver.probe(&probe), "probe");
  return probe;
}

// The names of this process's threads by their numbers; empty if the system does not report them.
std::map<std::string, std::string> threads() {
  std::map<std::string, std::string> names;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream file(task.path() / "comm");
    std::getline(file, names[task.path().filename().string()]);
  }
  return names;
}

void facts_are_texts(const Context& c) {
  for (const char* text :
       {c.driver.name, c.driver.vendor, c.driver.version, c.driver.sanitizer, c.driver.communication_backend,
        c.driver.visible_devices_env, c.driver.export_env_prefixes}) {
    c.expect(text != nullptr, "a text of the table is null");
  }
  c.expect(*c.driver.name != '\0', "the name is empty");
  for (const char* p = c.driver.name; *p; ++p) {
    c.expect((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || *p == '.',
             std::string("the name \"") + c.driver.name + "\" has characters besides lower case, digits and '.'");
  }
  c.expect(c.driver.abi_version >> 16 == AA_ABI_MAJOR, "the table has another major version");
}

void answers_consistently(const Context& c) {
  const aa_probe probe = probed(c);
  c.expect(probe.state >= AA_PROBE_ABSENT && probe.state <= AA_PROBE_USABLE,
           "state " + std::to_string(probe.state) + " is not an aa_probe_state");
  c.expect((probe.state == AA_PROBE_USABLE) == (probe.device_count > 0) && probe.device_count >= 0,
           "device_count " + std::to_string(probe.device_count) + " does not fit state " + std::to_string(probe.state));
  c.expect(std::memchr(probe.reason, '\0', sizeof(probe.reason)) != nullptr, "reason is not terminated");
  c.expect(probe.state == AA_PROBE_USABLE || probe.reason[0] != '\0', "reason is empty though it cannot be used");
}

void same_answer_twice(const Context& c) {
  const aa_probe first = probed(c);
  const aa_probe second = probed(c);
  c.expect(first.state == second.state && first.device_count == second.device_count,
           "a second probe gave another answer");
}

// A vendor's library may start a thread when it is loaded, and nothing that a driver does prevents it. Such threads have
// names of their own; others have the name of the thread that started them. leaves_the_process_able_to_fork holds for
// both.
void starts_no_thread(const Context& c) {
  const std::map<std::string, std::string> before = threads();
  if (before.empty()) c.unavailable("this system does not list threads");
  probed(c);
  std::string vendors;
  for (const auto& started : threads()) {
    if (before.contains(started.first)) continue;
    const std::string& name = started.second;
    const bool named = std::ranges::none_of(before, [&](const auto& thread) { return thread.second == name; });
    c.expect(named, "probe started a thread, which has the name \"" + name +
                        "\" of the one that called it; a child process would not have it");
    vendors += (vendors.empty() ? "" : ", ") + ("\"" + name + "\"");
  }
  if (!vendors.empty()) c.note = "a library that probe loads started threads of its own: " + vendors;
}

void respects_struct_size(const Context& c) {
  // A host with a shorter text: nothing may be written beyond struct_size.
  aa_probe probe;
  std::memset(static_cast<void*>(&probe), 0x5a, sizeof(probe));
  probe.struct_size = offsetof(aa_probe, reason);
  c.ok(c.driver.probe(&probe), "probe with a small struct_size");
  c.expect(probe.struct_size == offsetof(aa_probe, reason), "probe changed struct_size");
  for (const char byte : probe.reason) c.expect(byte == 0x5a, "probe wrote beyond struct_size");
}

void leaves_the_process_able_to_fork(const Context& c) {
  const aa_probe probe = probed(c);
  if (probe.state != AA_PROBE_USABLE) {
    c.unavailable("the accelerator cannot be used here: " +
                  std::string(probe.reason, strnlen(probe.reason, sizeof(probe.reason))));
  }
  in_child("a child after probe", [&] {
    Context child(&c.driver, &c.host);
    aa_initialize_params params{};
    params.struct_size = sizeof(params);
    c.ok(c.driver.initialize(&params, &child.instance), "initialize");
    c.ok(c.driver.device_open(child.instance, 0, &child.device), "device_open");
    c.ok(c.driver.stream_create(child.device, 0, AA_STREAM_NON_BLOCKING, &child.stream), "stream_create");
    {
      Memory memory(child, 10000);
      const Bytes data = pattern(10000, 1);
      child.upload(memory.data(), data.data(), data.size());
      expect_equal(child.download(memory.data(), data.size()), data, "a copy");
    }
    c.ok(c.driver.stream_destroy(child.stream), "stream_destroy");
    c.ok(c.driver.device_close(child.device), "device_close");
    c.ok(c.driver.shutdown(child.instance), "shutdown");
  });
}

void settings_are_described(const Context& c) {
  c.note = std::to_string(c.driver.option_count) + " settings";
  c.expect(c.driver.options != nullptr || c.driver.option_count == 0,
           "option_count is " + std::to_string(c.driver.option_count) + " and options null");
  std::set<std::string> keys;
  for (uint32_t i = 0; i < c.driver.option_count; ++i) {
    const aa_option_info& option = c.driver.options[i];
    c.expect(option.key && option.help && option.fallback, "a text of a setting is null");
    const std::string key = option.key;
    const bool plain =
        std::ranges::all_of(key, [](char d) { return (d >= 'a' && d <= 'z') || (d >= '0' && d <= '9') || d == '_'; });
    c.expect(plain && !key.empty(),
             "the setting \"" + key + "\" is empty or has characters besides lower case, digits and '_'");
    c.expect(*option.help != '\0', "the setting \"" + key + "\" has no help");
    c.expect(keys.insert(key).second, "the setting \"" + key + "\" is listed twice");
  }
}

// Values that mean "not set" may also be given explicitly.
void settings_may_have_their_fallbacks(const Context& c) {
  std::vector<aa_option> options;
  for (uint32_t i = 0; i < c.driver.option_count; ++i) {
    const aa_option_info& option = c.driver.options[i];
    if (*option.fallback) options.push_back({option.key, option.fallback});
  }
  if (options.empty()) c.unsupported("the driver has no settings with fallbacks");
  if (const aa_probe probe = probed(c); probe.state != AA_PROBE_USABLE) {
    c.unavailable("the accelerator cannot be used here: " +
                  std::string(probe.reason, strnlen(probe.reason, sizeof(probe.reason))));
  }
  // In a child: processes that only report open no driver.
  in_child("a driver that is opened with the fallbacks of its settings", [&] {
    aa_initialize_params params{};
    params.struct_size = sizeof(params);
    params.options = options.data();
    params.option_count = static_cast<uint32_t>(options.size());
    aa_instance* instance = nullptr;
    c.ok(c.driver.initialize(&params, &instance), "initialize");
    aa_device_open_params open{};
    open.struct_size = sizeof(open);
    open.options = options.data();
    open.option_count = params.option_count;
    aa_device* device = nullptr;
    c.ok(c.driver.device_open(instance, &open, &device), "device_open");
    c.ok(c.driver.device_close(device), "device_close");
    c.ok(c.driver.shutdown(instance), "shutdown");
  });
}

constexpr Case cases[] = {
    {"probe", "facts_are_texts", facts_are_texts},
    {"probe", "starts_no_thread", starts_no_thread},
    {"probe", "answers_consistently", answers_consistently},
    {"probe", "same_answer_twice", same_answer_twice},
    {"probe", "respects_struct_size", respects_struct_size},
    {"probe", "leaves_the_process_able_to_fork", leaves_the_process_able_to_fork},
    {"settings", "are_described", settings_are_described},
    {"settings", "may_have_their_fallbacks", settings_may_have_their_fallbacks},
};

}  // namespace
}  // namespace probe_group

std::span<const Case> probe_cases() { return probe_group::cases; }

}  // namespace anyaccel::conformance
