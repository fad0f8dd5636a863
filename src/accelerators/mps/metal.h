// Defines the numbers of Metal's interface that are used here. Each is confirmed by the headers of Apple's metal-cpp
// (Apache 2.0); the comments give the names there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anyaccel::mps {

// MTLGPUFamily (MTLDevice.hpp). Apple7 is the M1; later families contain the earlier ones.
inline constexpr int64_t family_apple7 = 1007;
inline constexpr int64_t family_apple_newest =
    1010;  // queried one by one to name the device's family; for an unknown one Metal answers "no"

// MTLResourceOptions (MTLResource.hpp): host and device share the memory; hazards are tracked by Metal.
inline constexpr uint64_t storage_shared = 0;

// MTLCommandBufferStatus (MTLCommandBuffer.hpp): a smaller value means that the command buffer is not complete yet.
inline constexpr uint64_t status_completed = 4;
inline constexpr uint64_t status_error = 5;

// MTLCommandBufferError (MTLCommandBuffer.hpp). The other codes are failures of the work: Metal also reports 4 for
// command buffers that it no longer runs because an earlier one of the process failed.
inline constexpr int64_t error_device_removed = 11;

// MTLLanguageVersion (MTLLibrary.hpp): major << 16 | minor.
inline constexpr uint64_t language_version(uint64_t major, uint64_t minor) { return major << 16 | minor; }

// Limits of the Metal feature set tables: setBytes takes at most 4 KB, a kernel has at most 31 buffers.
inline constexpr size_t most_value_bytes = 4096;
inline constexpr uint32_t most_arguments = 31;

// Offsets and sizes of copies and fills on macOS are multiples of this (MTLBlitCommandEncoder's documentation).
inline constexpr size_t blit_alignment = 4;

// Command buffers that a queue holds before commandBuffer waits. The default is 64; programs in use ask for 1024 (tinygrad)
// and 2048 (wgpu).
inline constexpr uint64_t command_buffers = 1024;

}  // namespace anyaccel::mps
