// The host's side of the devices and streams that the suite opens: the settings of the user, and scratch memory, which
// a driver gets from every host. The suite's tables (tables.h) pass them to the driver wherever the caller does not
// pass its own.
#pragma once

#include <cstdint>

#include "anyaccel/abi/driver.h"
#include "runtime/driver/driver_options.h"

namespace anyaccel::conformance {

// Arguments for opening a driver; not owned.
struct OpenedWith {
  const DriverOptions* options = nullptr;  // null: none
  const char* library_path = nullptr;      // the plugin's file; null when built in
};

// These functions wrap those of `next`, a complete table, and return their results. One driver at a time. Thread-safe,
// apart from the first.
void use_services(const aa_driver* next, const aa_host* host, const OpenedWith& with);
aa_status* initialize_with_services(const aa_initialize_params* params, aa_instance** out_instance);
aa_status* open_with_services(aa_instance* instance, const aa_device_open_params* params, aa_device** out_device);
// Also fails if scratch memory of the device was not released.
aa_status* close_with_services(aa_device* device);
aa_status* create_stream_with_services(aa_device* device, const aa_stream_params* params, aa_stream** out_stream);
aa_status* destroy_stream_with_services(aa_stream* stream);
// Scratch memory of a capturing stream belongs to the graph and is not given to anybody else.
void note_capture(aa_stream* stream, bool captures);

// The number of blocks of stream-ordered scratch memory that the driver has not released.
int64_t scratch_in_use();
// From now on the request for stream-ordered scratch memory that follows `requests` others is refused, once.
void refuse_scratch(int64_t requests);
// Refuses none any more. Returns whether one was refused.
bool end_refusing_scratch();
// Fills released scratch memory of the stream, in stream order, as another owner of the memory might: an item that uses
// scratch memory after its release reads NaNs.
void spoil_scratch(aa_stream* stream);

}  // namespace anyaccel::conformance
