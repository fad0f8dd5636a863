// Implements visible_devices.h: applies CUDA_VISIBLE_DEVICES to the list of GPUs by the driver's rules.
#include "accelerators/cuda/platform/visible_devices.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/text/text.h"

namespace anyaccel::cuda {
namespace {

constexpr std::string_view gpu_prefix = "GPU-";
constexpr std::string_view mig_prefix = "MIG-";

struct Choice {
  size_t gpu = 0;
  int slice = -1;  // -1: the GPU itself
  bool operator==(const Choice&) const = default;
};

std::vector<std::string_view> entries_of(std::string_view value) {
  std::vector<std::string_view> entries;
  while (true) {
    const size_t comma = value.find(',');
    entries.push_back(value.substr(0, comma));
    if (comma == std::string_view::npos) return entries;
    value.remove_prefix(comma + 1);
  }
}

std::optional<size_t> ordinal_of(std::string_view entry) {
  if (entry.starts_with('+')) entry.remove_prefix(1);
  size_t number = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  return error == std::errc() && end != entry.data() ? std::optional(number) : std::nullopt;
}

std::string plural(size_t count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

class VisibleDevicesReader {
 public:
  VisibleDevicesReader(std::string_view value, std::span<const PhysicalGpu> gpus) : value_(value), gpus_(gpus) {}

  VisibleDevices read() {
    if (trimmed(value_).empty()) {
      return {0, "CUDA_VISIBLE_DEVICES is set and empty, which hides every GPU; unset it, or name those to use (" +
                     examples() + ")"};
    }
    const std::vector<std::string_view> entries = entries_of(value_);
    const bool by_uuid = entries[0].starts_with(gpu_prefix) || entries[0].starts_with(mig_prefix);
    std::string why;
    for (const std::string_view entry : entries) {
      const std::optional<Choice> choice = by_uuid ? find_uuid(entry, why) : find_ordinal(trimmed(entry), why);
      if (!choice) return stopped_at(entry, why);
      if (std::find(choices_.begin(), choices_.end(), *choice) != choices_.end()) {
        return {0, quoted() + ": \"" + std::string(entry) +
                       "\" names a device for the second time, which makes the driver show none; name each once"};
      }
      choices_.push_back(*choice);
    }
    return {count(), {}};
  }

 private:
  std::string quoted() const { return "CUDA_VISIBLE_DEVICES=\"" + std::string(value_) + "\""; }

  std::string examples() const {
    if (gpus_.empty()) return "CUDA_VISIBLE_DEVICES=0";
    return "CUDA_VISIBLE_DEVICES=0 or CUDA_VISIBLE_DEVICES=" + gpus_[0].uuid;
  }

  VisibleDevices stopped_at(std::string_view entry, const std::string& why) const {
    std::string text = quoted() + ": reading stopped at \"" + std::string(entry) + "\", " + why;
    if (choices_.empty()) text += ", so no device is visible; correct or unset it (" + examples() + ")";
    return {count(), text};
  }

  int count() const {
    for (const Choice& choice : choices_) {
      if (choice.slice >= 0) return 1;
    }
    return static_cast<int>(choices_.size());
  }

  std::optional<Choice> find_ordinal(std::string_view entry, std::string& why) const {
    const std::optional<size_t> ordinal = ordinal_of(entry);
    if (!ordinal) {
      why = "which is neither a number nor begins with GPU- or MIG-";
      return std::nullopt;
    }
    if (*ordinal >= gpus_.size()) {
      why = gpus_.empty()
                ? "but the driver lists no GPU"
                : "but the driver lists " + plural(gpus_.size(), "GPU") + ", 0 to " + std::to_string(gpus_.size() - 1);
      return std::nullopt;
    }
    const PhysicalGpu& gpu = gpus_[*ordinal];
    if (!gpu.mig_enabled) return Choice{*ordinal, -1};
    if (!gpu.slices.empty()) return Choice{*ordinal, 0};
    why = "a GPU in MIG mode without instances (nvidia-smi mig -cgi makes some)";
    return std::nullopt;
  }

  std::optional<Choice> find_uuid(std::string_view entry, std::string& why) const {
    std::vector<Choice> found;
    for (size_t i = 0; i < gpus_.size(); ++i) {
      const PhysicalGpu& gpu = gpus_[i];
      if (entry.starts_with(gpu_prefix) && gpu.uuid.starts_with(entry)) {
        if (!gpu.mig_enabled)
          found.push_back({i, -1});
        else if (!gpu.slices.empty())
          found.push_back({i, 0});
      }
      if (!entry.starts_with(mig_prefix)) continue;
      for (size_t k = 0; k < gpu.slices.size(); ++k) {
        const MigDevice& slice = gpu.slices[k];
        const std::string older = std::string(mig_prefix) + gpu.uuid + "/" + std::to_string(slice.gpu_instance) + "/" +
                                  std::to_string(slice.compute_instance);
        if (slice.uuid.starts_with(entry) || older == entry) found.push_back({i, static_cast<int>(k)});
      }
    }
    if (found.size() == 1) return found[0];
    if (!found.empty()) {
      why = "with which the UUIDs of " + plural(found.size(), "device") + " begin";
    } else if (!entry.starts_with(gpu_prefix) && !entry.starts_with(mig_prefix)) {
      why = "which is among UUIDs but is not a UUID";
    } else {
      why = "with which no device's UUID begins (nvidia-smi -L lists them)";
    }
    return std::nullopt;
  }

  std::string_view value_;
  std::span<const PhysicalGpu> gpus_;
  std::vector<Choice> choices_;
};

}  // namespace

VisibleDevices visible_devices(const char* value, std::span<const PhysicalGpu> gpus) {
  if (value) return VisibleDevicesReader(value, gpus).read();
  int whole = 0;
  bool in_mig_mode = false;
  for (const PhysicalGpu& gpu : gpus) {
    if (!gpu.slices.empty()) return {1, {}};
    if (gpu.mig_enabled)
      in_mig_mode = true;
    else
      ++whole;
  }
  if (whole == 0 && in_mig_mode) {
    return {0,
            "every GPU is in MIG mode and has no instances; make some (nvidia-smi mig -cgi) or switch MIG off "
            "(nvidia-smi -mig 0)"};
  }
  return {whole, {}};
}

}  // namespace anyaccel::cuda
