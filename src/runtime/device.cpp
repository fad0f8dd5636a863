// Device: see anyaccel/device.h.
#include "anyaccel/device.h"

#include <charconv>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"

namespace anyaccel {
namespace {

constexpr std::string_view host_name = "cpu";

// "cuda", "cuda:0" to "cuda:3", or "cpu" for ordinary host memory
std::string names_of(const Accelerator& accelerator, int count) {
  const std::string& name = accelerator.name();
  std::string text = "\"" + name + "\"" + (count > 1 ? ", \"" : " or \"") + name + ":0\"";
  if (count > 1) text += " to \"" + name + ":" + std::to_string(count - 1) + "\"";
  if (name != host_name) text += ", or \"" + std::string(host_name) + "\" for ordinary host memory";
  return text;
}

// Returns the number if `text` consists of digits only, else -1.
int index_in(std::string_view text) {
  int index = -1;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, index);
  return error == std::errc() && stopped == end ? index : -1;
}

Device device_of(std::string_view name) {
  Accelerator& accelerator = *get_accelerator();
  const std::string& kind = accelerator.name();
  if (name == kind || name == accelerator.device_name()) return accelerator.device();
  if (name == host_name) return {};
  const int count = accelerator.device_count();
  const size_t colon = name.find(':');
  const bool own = name.substr(0, colon) == kind;
  if (own && colon != std::string_view::npos) {
    const int index = index_in(name.substr(colon + 1));
    if (index >= 0 && index < count) return accelerator.device(index);
    if (index >= 0) {
      throw InvalidArgument("there is no device \"" + std::string(name) + "\": the accelerator has " +
                                std::to_string(count) + (count == 1 ? " device; " : " devices; ") +
                                names_of(accelerator, count) + " can be given",
                            AA_OUT_OF_RANGE);
    }
  }
  // Classes derived from Accelerator may use names of another form.
  for (int i = 0; i < count; ++i) {
    if (name == accelerator.device_name(i)) return accelerator.device(i);
  }
  const std::string expected = names_of(accelerator, count) + " can be given";
  const bool well_formed =
      !own && !name.empty() && colon != 0 && (colon == std::string_view::npos || index_in(name.substr(colon + 1)) >= 0);
  if (well_formed) {
    throw InvalidArgument("\"" + std::string(name) + "\" is not a device of the active accelerator, \"" + kind +
                          "\": " + expected);
  }
  throw InvalidArgument("\"" + std::string(name) + "\" is not the name of a device: " + expected);
}

}  // namespace

Device::Device(std::string_view name) : Device(device_of(name)) {}

Device::Device(const char* name) : Device(std::string_view(name ? name : "")) {}

std::string Device::name() const { return is_host() ? std::string(host_name) : accelerator->device_name(index); }

}  // namespace anyaccel
