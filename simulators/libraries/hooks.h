// The functions of a simulated driver or runtime that the other simulated libraries of its vendor call. The driver's
// library exports them in addition to the vendor's functions; the other libraries look them up in the one that the
// process has loaded, so that there is one engine per process, one report, and one order of streams. Results are the
// driver's error codes. A context is what the vendor's driver has a thread's current one of: with runtimes that have a
// current device per thread, that device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace sim_hooks {

struct Range {
  std::uint64_t pointer;  // as the program knows it
  std::size_t bytes;
  bool write;
};
// Runs in stream order. bytes[i]: ranges[i] as the engine reaches it, already checked and noted for races.
using Body = std::function<void(char* const* bytes)>;

extern "C" {
// Enqueues as a kernel launch would: in the calling thread's current context, with the handle's checks, the rules of
// the default streams, capture (the body then runs at every replay) and errors that stay. `what` lives as long as the
// process.
int sim_hook_enqueue(void* stream, const char* what, const std::vector<Range>& ranges, Body body);
// The device of the calling thread's current context; the vendor's error when there is none.
int sim_hook_current_device(int* device);
// The calling thread's current context, null being none, and another one in its place.
void* sim_hook_current_context();
void sim_hook_set_context(void* context);
// The device of a stream, 0 (default streams) being the current context's; the vendor's error for a bad handle.
int sim_hook_stream_device(void* stream, int* device);
// The device whose memory `pointer` is (-1: mapped memory, which several may use) and the bytes from it on that can be
// used without a gap; 1 when it is no memory of a device.
int sim_hook_pointer(std::uint64_t pointer, int* device, std::size_t* bytes);
// Bytes that this process has allocated on a device; 0 before the driver was started. Devices are numbered among all
// simulated ones here, the visible ones aside.
std::uint64_t sim_hook_used(int device);
void sim_hook_violation(const char* kind, const char* message);
void sim_hook_count_call(const char* function);
// An object of another library: a token that serves as its handle (touching it faults), and a leak while it is not
// removed. `kind` lives as long as the process.
std::uint64_t sim_hook_add_object(const char* kind);
void sim_hook_remove_object(std::uint64_t token);
}

}  // namespace sim_hooks
