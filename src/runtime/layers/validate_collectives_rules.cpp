// The rules of the validate layer for communicators and collective operations.
#include "anyaccel/dtype.h"
#include "runtime/layers/validate_rules.h"

namespace anyaccel::layers {
namespace {

// The number of group_begin calls of this thread that have no group_end yet.
thread_local int open_groups = 0;

// Elements that a call of a communicator reads and writes; 0 where the member does not use the buffer.
struct Use {
  const void* send = nullptr;
  size_t send_count = 0;
  void* recv = nullptr;
  size_t recv_count = 0;
  // The offset, in elements, at which send may lie inside recv, or recv inside send.
  size_t send_place = 0;
  size_t recv_place = 0;
};

Problem check_number(const char* what, int32_t value, int32_t size) {
  if (value >= 0 && value < size) return {};
  return wrong(std::string(what) + " is " + std::to_string(value) + " in a communicator of " + std::to_string(size));
}

Problem check_reduction(int32_t op) {
  return op >= AA_REDUCE_SUM && op <= AA_REDUCE_AVG ? Problem{}
                                                    : wrong("op " + std::to_string(op) + " is not an aa_reduce_op");
}

Problem check_comm(ValidateState& state, aa_comm* comm, aa_stream* stream) {
  const TrackedObject& object = *state.find(ObjectKind::comm, comm);
  if (object.aborted) return wrong_now("the communicator was aborted; it can only be destroyed");
  if (object.device != state.find(ObjectKind::stream, stream)->device) {
    return wrong("communicator and stream belong to different devices");
  }
  return {};
}

Problem check_use(ValidateState& state, aa_comm* comm, const Use& use, int32_t dtype) {
  const size_t size = dtype_size(static_cast<DType>(dtype));
  if (size == 0) return wrong("dtype " + std::to_string(dtype) + " is not an aa_dtype of elements");
  const void* device = state.find(ObjectKind::comm, comm)->device;
  size_t send_bytes = 0;
  size_t recv_bytes = 0;
  if (__builtin_mul_overflow(use.send_count, size, &send_bytes) ||
      __builtin_mul_overflow(use.recv_count, size, &recv_bytes)) {
    return wrong("count: the buffer would have more bytes than there are addresses");
  }
  if (const std::string error = state.device_range_error(device, use.send, send_bytes); !error.empty()) {
    return wrong("send: " + error);
  }
  if (const std::string error = state.device_range_error(device, use.recv, recv_bytes); !error.empty()) {
    return wrong("recv: " + error);
  }
  const auto from = reinterpret_cast<uintptr_t>(use.send);
  const auto to = reinterpret_cast<uintptr_t>(use.recv);
  const bool apart = from + send_bytes <= to || to + recv_bytes <= from;
  const bool in_place = from + use.recv_place * size == to + use.send_place * size;
  if (send_bytes > 0 && recv_bytes > 0 && !apart && !in_place)
    return wrong("send and recv overlap and are not in place");
  return {};
}

// count * size; the largest number if that overflows, which check_use rejects.
size_t all_places(size_t count, int32_t size) {
  size_t product = 0;
  return __builtin_mul_overflow(count, static_cast<size_t>(size), &product) ? SIZE_MAX : product;
}

}  // namespace

Problem before(Function<&aa_collectives_table::comm_create>, ValidateState&, aa_device*, const void*, int32_t rank,
               int32_t size, aa_comm**) {
  if (size < 1) return wrong("size is " + std::to_string(size));
  return check_number("rank", rank, size);
}

void after(Function<&aa_collectives_table::comm_create>, ValidateLayer& layer, bool ok, aa_device* device, const void*,
           int32_t rank, int32_t size, aa_comm** out_comm) {
  if (!ok) return;
  std::lock_guard lock(layer.state.mutex);
  TrackedObject& object = layer.state.add(ObjectKind::comm, *out_comm, device, device);
  object.rank = rank;
  object.size = size;
}

Problem before(Function<&aa_collectives_table::comm_destroy>, ValidateState& state, aa_comm* comm) {
  state.remove(ObjectKind::comm, comm);
  return {};
}

Problem before(Function<&aa_collectives_table::comm_abort>, ValidateState& state, aa_comm* comm) {
  TrackedObject& object = *state.find(ObjectKind::comm, comm);
  if (object.aborted) return wrong_now("the communicator was aborted before; it can only be destroyed");
  object.aborted = true;
  return {};
}

void after(Function<&aa_collectives_table::group_begin>, ValidateLayer&, bool ok, aa_instance*) {
  if (ok) ++open_groups;
}
Problem before(Function<&aa_collectives_table::group_end>, ValidateState&, aa_instance*) {
  return open_groups > 0 ? Problem{} : wrong_now("no group_begin of this thread belongs to it");
}
void after(Function<&aa_collectives_table::group_end>, ValidateLayer&, bool, aa_instance*) { --open_groups; }

Problem before(Function<&aa_collectives_table::all_reduce>, ValidateState& state, aa_comm* comm, aa_stream* stream,
               const void* send, void* recv, size_t count, int32_t dtype, int32_t op) {
  if (Problem problem = check_comm(state, comm, stream)) return problem;
  if (Problem problem = check_reduction(op)) return problem;
  return check_use(state, comm, {.send = send, .send_count = count, .recv = recv, .recv_count = count}, dtype);
}

Problem before(Function<&aa_collectives_table::reduce>, ValidateState& state, aa_comm* comm, aa_stream* stream,
               const void* send, void* recv, size_t count, int32_t dtype, int32_t op, int32_t root) {
  if (Problem problem = check_comm(state, comm, stream)) return problem;
  if (Problem problem = check_reduction(op)) return problem;
  const TrackedObject& object = *state.find(ObjectKind::comm, comm);
  if (Problem problem = check_number("root", root, object.size)) return problem;
  const size_t received = object.rank == root ? count : 0;
  return check_use(state, comm, {.send = send, .send_count = count, .recv = recv, .recv_count = received}, dtype);
}

Problem before(Function<&aa_collectives_table::broadcast>, ValidateState& state, aa_comm* comm, aa_stream* stream,
               const void* send, void* recv, size_t count, int32_t dtype, int32_t root) {
  if (Problem problem = check_comm(state, comm, stream)) return problem;
  const TrackedObject& object = *state.find(ObjectKind::comm, comm);
  if (Problem problem = check_number("root", root, object.size)) return problem;
  const size_t sent = object.rank == root ? count : 0;
  return check_use(state, comm, {.send = send, .send_count = sent, .recv = recv, .recv_count = count}, dtype);
}

Problem before(Function<&aa_collectives_table::all_gather>, ValidateState& state, aa_comm* comm, aa_stream* stream,
               const void* send, void* recv, size_t count, int32_t dtype) {
  if (Problem problem = check_comm(state, comm, stream)) return problem;
  const TrackedObject& object = *state.find(ObjectKind::comm, comm);
  Use use{.send = send, .send_count = count, .recv = recv, .recv_count = all_places(count, object.size)};
  use.send_place = static_cast<size_t>(object.rank) * count;
  return check_use(state, comm, use, dtype);
}

Problem before(Function<&aa_collectives_table::reduce_scatter>, ValidateState& state, aa_comm* comm, aa_stream* stream,
               const void* send, void* recv, size_t count, int32_t dtype, int32_t op) {
  if (Problem problem = check_comm(state, comm, stream)) return problem;
  if (Problem problem = check_reduction(op)) return problem;
  const TrackedObject& object = *state.find(ObjectKind::comm, comm);
  Use use{.send = send, .send_count = all_places(count, object.size), .recv = recv, .recv_count = count};
  use.recv_place = static_cast<size_t>(object.rank) * count;
  return check_use(state, comm, use, dtype);
}

Problem before(Function<&aa_collectives_table::send>, ValidateState& state, aa_comm* comm, aa_stream* stream,
               const void* data, size_t count, int32_t dtype, int32_t peer) {
  if (Problem problem = check_comm(state, comm, stream)) return problem;
  if (Problem problem = check_number("peer", peer, state.find(ObjectKind::comm, comm)->size)) return problem;
  return check_use(state, comm, {.send = data, .send_count = count}, dtype);
}

Problem before(Function<&aa_collectives_table::recv>, ValidateState& state, aa_comm* comm, aa_stream* stream,
               void* data, size_t count, int32_t dtype, int32_t peer) {
  if (Problem problem = check_comm(state, comm, stream)) return problem;
  if (Problem problem = check_number("peer", peer, state.find(ObjectKind::comm, comm)->size)) return problem;
  return check_use(state, comm, {.recv = data, .recv_count = count}, dtype);
}

}  // namespace anyaccel::layers
