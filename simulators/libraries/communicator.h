// The communicators of the simulated libraries of collectives, whose vendors' libraries are shaped alike: the work runs
// in stream order on the vendor's simulated driver. Ranks that do not do the same, or wait for one that never comes,
// are reported; so are buffers and streams of another device, overlaps that are not in place, and communicators used
// after their end. An interface has the vendor's functions, and states the vendor's numbers as a CollectiveVendor.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "simulators/libraries/collective.h"
#include "simulators/libraries/library.h"

namespace sim_library {

inline constexpr int kSuccess = 0;

struct CollectiveCodes {
  int device;  // the driver has refused, or there is none
  int invalid_argument, invalid_usage;
  int remote;  // another rank has failed or ended
};
struct CollectiveVendor {
  const char* object;  // what a communicator is in the list of leaks
  CollectiveCodes codes;
  int (*type_of)(int type);            // NcclType of the vendor's number; -1: there is none
  int (*reduction_of)(int reduction);  // NcclReduction; -1: the vendor has none of that number
};
const CollectiveVendor& collective_vendor();  // defined by the interface

struct SimulatedCommunicator {
  int device = 0;  // among all simulated ones
  void* context = nullptr;
  std::function<void()> on_end;  // releases the interface's object for it; null: nothing
  std::string name;              // of the rendezvous
  std::shared_ptr<Channel> channel = std::make_shared<Channel>();
  bool finalized = false;
  std::atomic<bool> ended = false;    // destroyed or aborted
  std::atomic<bool> aborted = false;  // what is still queued on streams does nothing
  std::atomic<int> error = kSuccess;
  int rank() const { return channel->rendezvous->rank(); }
  int ranks() const { return channel->rendezvous->ranks(); }
};
Handles<SimulatedCommunicator>& communicators();

// Reports a violation by `function` and returns `result`. The text is the thread's last_collective_error.
int refuse(const char* function, int result, const char* kind, const std::string& what);
extern thread_local std::string last_collective_error;
// Remembers a mistake for the end of the group too.
int note(int result);

// The name of a new rendezvous in an id of the vendor's size, whose last byte is a mark: an id that was not carried whole, or
// was not made by make_id() with the same `text`, is none. False: there is no memory for it.
bool make_id(char* id, std::size_t bytes, const char* text);
bool is_id(const char* id, std::size_t bytes, const char* text);

// The calling thread's device and context, for start_communicator(); false: it has none, which is reported.
bool current_place(int* device, void** context, const char* function);

// Joins the ranks that meet under `name`, waits for them (in a group: at its end), and sets `*out`.
int start_communicator(void** out, int ranks, const std::string& name, int rank, int device, void* context,
                       std::function<void()> on_end, const char* function);
int end_communicator(void* handle, bool aborts, const char* function);

// Types and reductions are the vendor's numbers.
int collective(CollectiveKind kind, const void* send, void* receive, std::size_t count, int vendor_type,
               int vendor_reduction, int root, void* handle, void* stream, const char* function);
int transfer(bool sends, const void* buffer, std::size_t count, int vendor_type, int peer, void* handle, void* stream,
             const char* function);

// Calls between these are carried out at the end of the outermost group.
void begin_group();
bool in_group();
int finish_group();  // in a group only

}  // namespace sim_library
