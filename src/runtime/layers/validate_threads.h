// The rules of threads in the validate layer: which functions want a handle for themselves, and which only the thread that
// captures a graph, or is inside a step, may call on its stream.
#pragma once

#include <string>
#include <vector>

#include "anyaccel/abi/lazy.h"
#include "runtime/layers/validate_rules.h"

namespace anyaccel::layers {

enum class Alone {
  never,    // marked T
  all,      // marked X: no other call with the first handle is under way
  siblings  // one at a time on the first handle; functions marked T may be under way
};

template <auto Member>
inline constexpr Alone alone = Alone::never;
template <>
inline constexpr Alone alone<&aa_driver::shutdown> = Alone::all;
template <>
inline constexpr Alone alone<&aa_driver::device_close> = Alone::all;
template <>
inline constexpr Alone alone<&aa_driver::stream_destroy> = Alone::all;
template <>
inline constexpr Alone alone<&aa_driver::event_destroy> = Alone::all;
template <>
inline constexpr Alone alone<&aa_driver::module_unload> = Alone::all;
template <>
inline constexpr Alone alone<&aa_graph_table::destroy> = Alone::all;
template <>
inline constexpr Alone alone<&aa_graph_table::launch> = Alone::siblings;
template <>
inline constexpr Alone alone<&aa_collectives_table::comm_destroy> = Alone::all;
template <>
inline constexpr Alone alone<&aa_collectives_table::all_reduce> = Alone::siblings;
template <>
inline constexpr Alone alone<&aa_collectives_table::reduce> = Alone::siblings;
template <>
inline constexpr Alone alone<&aa_collectives_table::broadcast> = Alone::siblings;
template <>
inline constexpr Alone alone<&aa_collectives_table::all_gather> = Alone::siblings;
template <>
inline constexpr Alone alone<&aa_collectives_table::reduce_scatter> = Alone::siblings;
template <>
inline constexpr Alone alone<&aa_collectives_table::send> = Alone::siblings;
template <>
inline constexpr Alone alone<&aa_collectives_table::recv> = Alone::siblings;

// Adds an item to the stream among its arguments.
template <auto Member>
inline constexpr bool enqueues = false;
template <>
inline constexpr bool enqueues<&aa_driver::copy_async> = true;
template <>
inline constexpr bool enqueues<&aa_driver::fill_async> = true;
template <>
inline constexpr bool enqueues<&aa_driver::stream_wait_event> = true;
template <>
inline constexpr bool enqueues<&aa_driver::stream_host_call> = true;
template <>
inline constexpr bool enqueues<&aa_driver::event_record> = true;
template <>
inline constexpr bool enqueues<&aa_driver::kernel_launch> = true;
template <>
inline constexpr bool enqueues<&aa_graph_table::launch> = true;
template <>
inline constexpr bool enqueues<&aa_ops_table::enqueue> = true;

// The calls that are under way with a handle; of a module those with its kernels too.
int calls_inside(ValidateState& state, ObjectKind kind, const void* handle);

Problem check_alone(ValidateState& state, Alone how, ObjectKind kind, const void* handle);
Problem check_stream_thread(ValidateState& state, const void* stream);

// A call that is under way: it is counted for its handles, which the caller's lock of the state protects at the beginning.
class Inside {
 public:
  explicit Inside(ValidateState& state) : state_(state) {}
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

  void enter(ObjectKind kind, const void* handle, bool alone);

 private:
  struct Entered {
    ObjectKind kind;
    const void* handle;
    bool alone;
  };
  ValidateState& state_;
  std::vector<Entered> entered_;
};

}  // namespace anyaccel::layers
