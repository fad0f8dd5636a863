// The functions of the simulated driver that the other simulated libraries (cuda_libraries/) call. libcuda.so.1 exports
// them in addition to the vendor's; the libraries look them up in the libcuda.so.1 that the process has loaded, so that
// there is one engine per process, one report, and one order of streams. Results are the driver's error codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace sim_cuda {

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
int cuda_sim_enqueue(void* stream, const char* what, const std::vector<Range>& ranges, Body body);
// The device of the calling thread's current context; 201 when there is none.
int cuda_sim_current_device(int* device);
// The device of a stream, 0 (default streams) being the current context's; 400 for a bad handle.
int cuda_sim_stream_device(void* stream, int* device);
// The device whose memory `pointer` is (-1: mapped memory, which several may use) and the bytes from it on that can be
// used without a gap; 1 when it is no memory of a device.
int cuda_sim_pointer(std::uint64_t pointer, int* device, std::size_t* bytes);
// Bytes that this process has allocated on a device; 0 before the driver was started. Devices are numbered among all
// simulated ones here, CUDA_VISIBLE_DEVICES aside.
std::uint64_t cuda_sim_used(int device);
void cuda_sim_violation(const char* kind, const char* message);
void cuda_sim_count_call(const char* function);
// An object of another library: a token that serves as its handle (touching it faults), and a leak while it is not
// removed. `kind` lives as long as the process.
std::uint64_t cuda_sim_add_object(const char* kind);
void cuda_sim_remove_object(std::uint64_t token);
}

}  // namespace sim_cuda
