// The host's side of the devices and streams that the suite opens: the settings of the user, and scratch memory, which a driver
// gets from every host. The suite's tables (tables.h) hand them over wherever the caller of a table does not bring its own.
#pragma once

#include <cstdint>

#include "anyaccel/abi/driver.h"
#include "runtime/driver/driver_options.h"

namespace anyaccel::conformance {

// What a driver is opened with; borrowed.
struct OpenedWith {
  const DriverOptions* options = nullptr;  // null: none
  const char* library_path = nullptr;      // the plugin's file; null when built in
};

// These stand between the suite and `next`, a table that has all functions; they give what its functions give. One driver at a
// time. Thread-safe, apart from the first.
void use_services(const aa_driver* next, const aa_host* host, const OpenedWith& with);
aa_status* initialize_with_services(const aa_initialize_params* params, aa_instance** out_instance);
aa_status* open_with_services(aa_instance* instance, const aa_device_open_params* params, aa_device** out_device);
// Fails too when scratch memory of the device was not given back.
aa_status* close_with_services(aa_device* device);
aa_status* create_stream_with_services(aa_device* device, const aa_stream_params* params, aa_stream** out_stream);
aa_status* destroy_stream_with_services(aa_stream* stream);
// Scratch memory of a stream that captures belongs to the graph: nobody else gets it.
void note_capture(aa_stream* stream, bool captures);

// Blocks of stream-ordered scratch memory that the driver has not given back.
int64_t scratch_in_use();
// Fills what was given back on the stream, in its order, as the work of somebody else who got the memory: an item that uses
// scratch memory after it was given back finds NaNs.
void spoil_scratch(aa_stream* stream);

}  // namespace anyaccel::conformance
