// The properties of the simulated NVIDIA devices, shared by the simulated driver and the other simulated libraries
// (NVML, products, collectives), which are separate shared objects and must report the same. Everything follows from
// the variables SIM_DEVICES, SIM_MEMORY, SIM_CUDA_VERSION, SIM_CUDA_ARCH and CUDA_VISIBLE_DEVICES.
#pragma once

#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace sim::cuda {

inline int number_from(const char* variable, int fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? fallback : std::atoi(text);
}

inline int driver_version() { return number_from("SIM_CUDA_VERSION", 13000); }  // 13000: CUDA 13.0
inline int architecture() { return number_from("SIM_CUDA_ARCH", 90); }          // ten times the compute capability

// As NVML tells the driver's own version; the number does not matter, it says that there is no GPU.
inline const char* driver_text() { return "580.00.00-simulated"; }
inline std::string device_name(int device) { return "Simulated GPU " + std::to_string(device); }

// Byte k of device i: 0x40 + 0x1b * i + 0x25 * k, modulo 256. The first bytes differ, so prefixes of 2 digits are
// unique.
using Uuid = std::array<unsigned char, 16>;
inline Uuid device_uuid(int device) {
  Uuid uuid{};
  for (int k = 0; k < 16; ++k) {
    uuid[static_cast<std::size_t>(k)] = static_cast<unsigned char>(0x40 + 0x1b * device + 0x25 * k);
  }
  return uuid;
}
// "GPU-40658aaf-d4f9-1e43-688d-b2d7fc21466b"
inline std::string uuid_text(const Uuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t k = 0; k < 16; ++k) {
    if (k == 4 || k == 6 || k == 8 || k == 10) text += '-';
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", uuid[k]);
    text += digits;
  }
  return text;
}

// PCI domain 0, device 0, function 0.
inline int pci_bus(int device) { return 0x10 + device; }
inline std::string pci_text(int device) {
  char text[32];
  std::snprintf(text, sizeof text, "00000000:%02X:00.0", pci_bus(device));
  return text;
}

inline constexpr int kMultiprocessors = 4;  // few, since every thread of a block costs time
inline constexpr int kWarpSize = 32;
inline constexpr int kMaxThreads = 1024;           // of a block
inline constexpr int kClockKilohertz = 1980000;    // H100 SXM and H200
inline constexpr int kCacheBytes = 50 << 20;       // second level
inline constexpr int kSharedBytes = 48 << 10;      // of a block that did not request more
inline constexpr int kSharedReservedBytes = 1024;  // of a block, for the system, from compute capability 8.0 on

// Shared memory of a multiprocessor: CUDA programming guide, table of compute capabilities.
inline int shared_bytes_per_multiprocessor(int arch) {
  switch (arch) {
    case 70:
    case 72: return 96 << 10;
    case 75: return 64 << 10;
    case 80:
    case 87: return 164 << 10;
    case 86:
    case 89:
    case 120:
    case 121: return 100 << 10;
    case 90:
    case 100:
    case 101:
    case 103:
    case 110: return 228 << 10;
    default: return arch < 70 ? 64 << 10 : 100 << 10;
  }
}
// The most that a block gets after cuFuncSetAttribute.
inline int shared_bytes_optin(int arch) {
  if (arch < 70) return kSharedBytes;
  return shared_bytes_per_multiprocessor(arch) - (arch >= 80 ? kSharedReservedBytes : 0);
}

// CUDA_VISIBLE_DEVICES over `count` devices, as the driver reads it: entries of numbers, or all of UUID prefixes when
// the first one begins with "GPU-"; the list ends before the first entry that names no device; an entry twice: no
// devices.
inline std::vector<int> visible_devices(int count) {
  std::vector<int> chosen;
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) {
    for (int i = 0; i < count; ++i) chosen.push_back(i);
    return chosen;
  }
  const std::string text = list;
  const bool by_uuid = text.rfind("GPU-", 0) == 0;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string entry = text.substr(begin, end - begin);
    while (!entry.empty() && std::isspace(static_cast<unsigned char>(entry.front()))) entry.erase(0, 1);
    while (!entry.empty() && std::isspace(static_cast<unsigned char>(entry.back()))) entry.pop_back();
    begin = end + 1;
    int device = -1;
    if (by_uuid) {
      int matches = 0;
      for (int i = 0; i < count; ++i) {
        if (entry.size() <= 4 || uuid_text(device_uuid(i)).rfind(entry, 0) != 0) continue;
        device = i;
        ++matches;
      }
      if (matches != 1) break;
    } else {
      char* rest = nullptr;
      const long number = std::strtol(entry.c_str(), &rest, 10);
      if (rest == entry.c_str() || number < 0 || number >= count) break;
      device = static_cast<int>(number);
    }
    for (const int earlier : chosen) {
      if (earlier == device) return {};
    }
    chosen.push_back(device);
  }
  return chosen;
}

}  // namespace sim::cuda
