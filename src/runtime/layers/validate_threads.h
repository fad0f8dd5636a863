// The validate layer's rules about threads: which functions need exclusive use of a handle, and which may be called on
// a stream only by the thread that is capturing a graph or is inside a step there.
#pragma once

#include <string>
#include <vector>

#include "anyaccel/abi/files.h"
#include "anyaccel/abi/lazy.h"
#include "runtime/layers/validate_rules.h"

namespace anyaccel::layers {

enum class Alone {
  never,    // marked T
  all,      // marked X: no other call with the first handle may be in progress
  siblings  // one at a time on the first handle; functions marked T may run meanwhile
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
inline constexpr Alone alone<&aa_files_table::file_close> = Alone::all;
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

// adds an item to the stream among its arguments
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

// The number of calls in progress with a handle; for a module, those with its kernels too.
int calls_inside(ValidateState& state, ObjectKind kind, const void* handle);

Problem check_alone(ValidateState& state, Alone how, ObjectKind kind, const void* handle);
Problem check_stream_thread(ValidateState& state, const void* stream);

// A call in progress, which is counted for each of its handles. The caller holds the lock of the state at construction.
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
