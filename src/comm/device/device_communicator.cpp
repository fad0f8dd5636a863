// Runs collectives of one group on device memory with the accelerator's own library (abi/collectives.h).
#include "comm/device/device_communicator.h"

#include <utility>

#include "anyaccel/error.h"
#include "comm/device/device_join.h"
#include "runtime/driver/host_services.h"

namespace anyaccel::comm {
namespace {

// Returns -1 if the library's interface has no such operation.
int32_t number_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum: return AA_REDUCE_SUM;
    case ReduceOp::Product: return AA_REDUCE_PRODUCT;
    case ReduceOp::Min: return AA_REDUCE_MIN;
    case ReduceOp::Max: return AA_REDUCE_MAX;
    case ReduceOp::Avg: return AA_REDUCE_AVG;
    default: return -1;
  }
}

int32_t number_of(DType dtype) { return static_cast<int32_t>(dtype); }

// Converts a number of elements to the table's type.
size_t elements(int64_t count) { return static_cast<size_t>(count); }

char* place(void* base, size_t bytes, int rank) { return static_cast<char*>(base) + static_cast<size_t>(rank) * bytes; }
const char* place(const void* base, size_t bytes, int rank) {
  return static_cast<const char*>(base) + static_cast<size_t>(rank) * bytes;
}

std::string own_name(const Membership& membership) {
  const auto rank = static_cast<size_t>(membership.rank);
  return rank < membership.names.size() ? membership.names[rank] : "rank " + std::to_string(membership.rank);
}

// Creates an event of the device, whichever device is current.
Event event_of(Accelerator& accelerator, int device) {
  const ScopeGuard current = accelerator.stream(accelerator.current_stream(device));
  return accelerator.Event();
}

}  // namespace

DeviceCommunicator::DeviceCommunicator(Accelerator& accelerator, int device_index, const Membership& membership)
    : accelerator_(accelerator),
      device_(device_index),
      rank_(membership.rank),
      size_(membership.size),
      member_(own_name(membership)) {}

std::unique_ptr<DeviceCommunicator> DeviceCommunicator::create(Accelerator& accelerator, int device_index,
                                                               const Membership& membership, std::string& why,
                                                               std::function<void(const std::string&)> on_failure) {
  std::unique_ptr<DeviceCommunicator> made(new DeviceCommunicator(accelerator, device_index, membership));
  const CollectivesAccess access = accelerator.collectives(device_index);
  // Everything that may fail is done first: after joining, the others rely on this member.
  DeviceWatch::Subject subject;
  if (access.table) {
    made->token_ = accelerator.allocate(sizeof(int64_t), device_index);
    for (Event& mark : subject.marks) mark = event_of(accelerator, device_index);
  }
  DeviceJoin join = join_devices(access, membership);
  if (!join.comm) {
    why = join.why;
    return nullptr;
  }
  made->name_ = join.library;
  made->version_ = join.version;
  made->table_ = access.table;
  made->instance_ = access.instance;
  made->comm_ = join.comm;
  subject.label = join.library + ", " + made->member_;
  subject.table = access.table;
  subject.comm = join.comm;
  subject.job = membership.watch;
  subject.timeout = membership.timeout;
  subject.on_failure = std::move(on_failure);
  subject.alone = membership.size == 1;
  made->watch_ = std::make_unique<DeviceWatch>(std::move(subject));
  made->find_abilities(access);
  return made;
}

DeviceCommunicator::~DeviceCommunicator() {
  if (!comm_) return;
  if (watch_) watch_->drain();
  watch_.reset();  // before the communicator is destroyed, which its thread uses
  release_status(table_->comm_destroy(comm_));
}

// A call with a count of 0 only checks for support.
void DeviceCommunicator::find_abilities(const CollectivesAccess& access) {
  for (int32_t dtype = AA_DTYPE_BOOL; dtype <= AA_DTYPE_F8_E5M2; ++dtype) {
    for (int32_t op = AA_REDUCE_SUM; op <= AA_REDUCE_AVG; ++op) {
      const StatusRef status(table_->all_reduce(comm_, access.stream, nullptr, nullptr, 0, dtype, op));
      if (status.ok()) reductions_[dtype] |= 1u << op;
    }
  }
  const StatusRef begun(table_->group_begin(instance_));
  if (!begun.ok()) return;
  const StatusRef sends(table_->send(comm_, access.stream, nullptr, 0, AA_DTYPE_U8, rank_));
  const StatusRef receives(table_->recv(comm_, access.stream, nullptr, 0, AA_DTYPE_U8, rank_));
  const StatusRef ended(table_->group_end(instance_));
  exchanges_ = sends.ok() && receives.ok() && ended.ok();
}

bool DeviceCommunicator::reduces(DType dtype, ReduceOp op) const noexcept {
  const int32_t number = number_of(op);
  return number >= 0 && (reductions_[number_of(dtype)] >> number & 1u) != 0;
}

void DeviceCommunicator::take(aa_status* raw, const char* function) {
  const StatusRef status(raw);
  const std::string text = function + (": " + std::string(status.message()));
  if (status.code() == AA_UNIMPLEMENTED) throw NotImplementedError(name_ + ": " + text);
  // After an abort every call fails: the group's first failure is kept.
  watch_->fail_of_library(text, status.code());
}

void DeviceCommunicator::need(const char* function, DType dtype, ReduceOp op) const {
  if (reduces(dtype, op)) [[likely]]
    return;
  throw NotImplementedError(name_ + " " + version_ + " has no " + function + " of " + std::string(dtype_name(dtype)) +
                            " with " + reduce_op_name(op));
}

template <class Call>
void DeviceCommunicator::enqueue(const char* function, Call&& call) {
  watch_->check();
  const CollectivesAccess access = accelerator_.collectives(device_);
  if (aa_status* status = call(access.stream)) [[unlikely]]
    take(status, function);
  if (!access.capturing) watch_->mark(accelerator_.current_stream(device_));
}

template <class Call>
void DeviceCommunicator::exchange(const char* function, Call&& call) {
  if (!exchanges_) {
    throw NotImplementedError(name_ + " " + version_ + " has no messages between two members, which " + function +
                              " needs");
  }
  enqueue(function, [&](aa_stream* stream) {
    if (aa_status* status = table_->group_begin(instance_)) return status;
    aa_status* status = call(stream);
    aa_status* ended = table_->group_end(instance_);
    if (!status) return ended;
    release_status(ended);
    return status;
  });
}

void DeviceCommunicator::copy_own(void* to, const void* from, size_t bytes) {
  if (to != from) accelerator_.copy(to, from, bytes, AA_COPY_DEVICE_TO_DEVICE, device_);
}

void DeviceCommunicator::all_reduce(void* data, int64_t count, DType dtype, ReduceOp op) {
  need("all_reduce", dtype, op);
  enqueue("all_reduce", [&](aa_stream* stream) {
    return table_->all_reduce(comm_, stream, data, data, elements(count), number_of(dtype), number_of(op));
  });
}

void DeviceCommunicator::reduce(void* data, int64_t count, DType dtype, ReduceOp op, int root) {
  need("reduce", dtype, op);
  enqueue("reduce", [&](aa_stream* stream) {
    return table_->reduce(comm_, stream, data, rank_ == root ? data : nullptr, elements(count), number_of(dtype),
                          number_of(op), root);
  });
}

void DeviceCommunicator::reduce_scatter(void* recv, const void* send, int64_t count, DType dtype, ReduceOp op) {
  need("reduce_scatter", dtype, op);
  enqueue("reduce_scatter", [&](aa_stream* stream) {
    return table_->reduce_scatter(comm_, stream, send, recv, elements(count), number_of(dtype), number_of(op));
  });
}

void DeviceCommunicator::broadcast(void* data, Amount amount, int root) {
  const size_t bytes = amount.bytes;
  enqueue("broadcast",
          [&](aa_stream* stream) { return table_->broadcast(comm_, stream, data, data, bytes, AA_DTYPE_U8, root); });
}

void DeviceCommunicator::all_gather(void* recv, const void* send, Amount amount) {
  const size_t bytes = amount.bytes;
  enqueue("all_gather",
          [&](aa_stream* stream) { return table_->all_gather(comm_, stream, send, recv, bytes, AA_DTYPE_U8); });
}

void DeviceCommunicator::gather(void* recv, const void* send, Amount amount, int root) {
  const size_t bytes = amount.bytes;
  exchange("gather", [&](aa_stream* stream) {
    if (rank_ != root) return table_->send(comm_, stream, send, bytes, AA_DTYPE_U8, root);
    aa_status* status = nullptr;
    for (int peer = 0; peer < size_ && !status; ++peer) {
      if (peer == rank_) continue;
      status = table_->recv(comm_, stream, place(recv, bytes, peer), bytes, AA_DTYPE_U8, peer);
    }
    return status;
  });
  if (rank_ == root) copy_own(place(recv, bytes, rank_), send, bytes);
}

void DeviceCommunicator::scatter(void* recv, const void* send, Amount amount, int root) {
  const size_t bytes = amount.bytes;
  exchange("scatter", [&](aa_stream* stream) {
    if (rank_ != root) return table_->recv(comm_, stream, recv, bytes, AA_DTYPE_U8, root);
    aa_status* status = nullptr;
    for (int peer = 0; peer < size_ && !status; ++peer) {
      if (peer == rank_) continue;
      status = table_->send(comm_, stream, place(send, bytes, peer), bytes, AA_DTYPE_U8, peer);
    }
    return status;
  });
  if (rank_ == root) copy_own(recv, place(send, bytes, rank_), bytes);
}

void DeviceCommunicator::all_to_all(void* recv, const void* send, Amount amount) {
  const size_t bytes = amount.bytes;
  exchange("all_to_all", [&](aa_stream* stream) {
    aa_status* status = nullptr;
    for (int peer = 0; peer < size_ && !status; ++peer) {
      if (peer == rank_) continue;
      status = table_->send(comm_, stream, place(send, bytes, peer), bytes, AA_DTYPE_U8, peer);
      if (!status) status = table_->recv(comm_, stream, place(recv, bytes, peer), bytes, AA_DTYPE_U8, peer);
    }
    return status;
  });
  copy_own(place(recv, bytes, rank_), place(send, bytes, rank_), bytes);
}

void DeviceCommunicator::send(const void* data, Amount amount, int peer) {
  const size_t bytes = amount.bytes;
  enqueue("send", [&](aa_stream* stream) { return table_->send(comm_, stream, data, bytes, AA_DTYPE_U8, peer); });
}

void DeviceCommunicator::recv(void* data, Amount amount, int peer) {
  const size_t bytes = amount.bytes;
  enqueue("recv", [&](aa_stream* stream) { return table_->recv(comm_, stream, data, bytes, AA_DTYPE_U8, peer); });
}

void DeviceCommunicator::barrier() {
  const DType dtype = reduces(DType::I32, ReduceOp::Max) ? DType::I32 : DType::F32;
  all_reduce(token_->data(), 1, dtype, ReduceOp::Max);
  synchronize();
}

void DeviceCommunicator::synchronize() {
  Event reached = event_of(accelerator_, device_);
  reached.record(accelerator_.current_stream(device_));
  watch_->wait_for(reached);
  watch_->check_library();
}

void DeviceCommunicator::check() { watch_->check_library(); }

void DeviceCommunicator::abort(const std::string& why) noexcept { watch_->fail(why, AA_CANCELLED); }

}  // namespace anyaccel::comm
