// The validate layer: rejects wrong calls before the driver sees them.
//
// A violation is written to the log as an error (destructors drop statuses) and returned as AA_INVALID_ARGUMENT, or
// AA_FAILED_PRECONDITION where the call would be right at another time. Its message begins with "validate: ", the
// function, and the rule:
//
//   handles     not null, made by this driver, of the right kind, not destroyed before
//   pointers    parameters that may not be null are not; struct_size covers at least the size itself
//   lifetimes   device_close, module_unload and shutdown find no living child (each leak is named)
//   memory      mem_free gets pointer, kind and size of a living allocation of the device; the device sides of
//               copy_async and fill_async, and tensors of ops, lie inside one (on a device whose memory the host may
//               read, ordinary host memory too); the ranges of a copy do not overlap; patterns have 1, 2, 4 or 8 bytes
//   order       nothing is called from inside a stream_host_call function; a capturing stream is not synchronized
//               or destroyed; captures do not nest; an event recorded in a capture is not waited for by the host
//   threads     a function marked X gets its handle while no other call with it is under way; a graph is launched, and a
//               communicator used, by one thread at a time; while a stream captures or is inside a step only the thread that
//               began it enqueues; steps do not nest
//   devices     event_record, kernel_launch and graph launch get objects of one device
//   events      event_elapsed gets two recorded and completed events made with AA_EVENT_TIMING
//   collectives buffers as for copies, of the communicator's device, in place only where that is allowed; rank, root, peer,
//               dtype and operation are numbers that there are; nothing but comm_destroy after comm_abort; as many
//               group_end as group_begin on a thread
//   ops         at most AA_OP_MAX_TENSORS tensors, known dtypes, ndim in range; and what set_op_validator adds
#pragma once

#include "anyaccel/abi/table_calls.hpp"

namespace anyaccel::layers {

const abi::DriverCalls* wrap_validate(const abi::DriverCalls* table);

}  // namespace anyaccel::layers
