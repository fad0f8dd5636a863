// Implements communicator.h: one member's handle of a communicator of a Library.
#include "accelerators/collective_library/communicator.h"

#include <chrono>
#include <cstring>
#include <thread>

#include "anyaccel/dtype.h"

namespace anyaccel::collectives {
namespace {

// Calls that only enqueue take microseconds. A call that takes longer is waiting for another member, and only the abort
// ends it.
constexpr std::chrono::milliseconds patience{200};

// An id that is passed by value: structs of this size are passed in memory, whatever their members are.
template <size_t Bytes>
struct Id {
  char bytes[Bytes];
};

using JoinByPointer = int (*)(uint32_t size, const void* id, uint32_t rank, void** comm);
using JoinLists = int (*)(void** comm, int count, const int* devices, const int* ranks, int size, const void* id);

// The size is wide enough for both kinds of libraries: some take it as a size_t.
template <size_t Bytes>
int join_by_value(void (*function)(), void** comm, size_t size, const void* id, int rank) {
  Id<Bytes> copy;
  std::memcpy(copy.bytes, id, Bytes);
  return reinterpret_cast<int (*)(void**, size_t, Id<Bytes>, int)>(function)(comm, size, copy, rank);
}

size_t bytes_of(int32_t dtype) {
  const size_t bytes = dtype_size(static_cast<DType>(dtype));  // 0: not a dtype
  if (!bytes) throw abi::Failure(AA_INVALID_ARGUMENT, "no element type has the number " + std::to_string(dtype));
  return bytes;
}

}  // namespace

// Held while a call is inside the library; throws if the communicator was aborted.
class LibraryCommunicator::Use {
 public:
  explicit Use(LibraryCommunicator& owner) : owner_(owner) {
    owner_.inside_.fetch_add(1);
    if (!owner_.ended_.load()) return;
    owner_.inside_.fetch_sub(1);
    throw abi::Failure(AA_CANCELLED, "the communicator was aborted");
  }
  ~Use() { owner_.inside_.fetch_sub(1); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  LibraryCommunicator& owner_;
};

LibraryCommunicator::LibraryCommunicator(const Library& library, std::unique_ptr<DeviceBinding> device, const void* id,
                                         int32_t rank, int32_t size)
    : library_(library), device_(std::move(device)), rank_(rank) {
  device_->make_current();
  join(id, size);
}

LibraryCommunicator::~LibraryCommunicator() = default;

void LibraryCommunicator::join(const void* id, int32_t size) {
  const LibraryTable& table = library_.table_;
  library_.admit(id);
  int result = table.success;
  switch (table.join) {
    case JoinCall::id_by_pointer:
      result = reinterpret_cast<JoinByPointer>(library_.join_)(static_cast<uint32_t>(size), id,
                                                               static_cast<uint32_t>(rank_), &comm_);
      break;
    case JoinCall::lists: {
      const int device = device_->number();
      const int rank = rank_;
      result = reinterpret_cast<JoinLists>(library_.join_)(&comm_, 1, &device, &rank, size, id);
      break;
    }
    case JoinCall::id_by_value: {
      const auto members = static_cast<size_t>(size);
      switch (table.id_bytes) {
        case 128: result = join_by_value<128>(library_.join_, &comm_, members, id, rank_); break;
        case 136: result = join_by_value<136>(library_.join_, &comm_, members, id, rank_); break;
        case 1032: result = join_by_value<1032>(library_.join_, &comm_, members, id, rank_); break;
        case 4096: result = join_by_value<4096>(library_.join_, &comm_, members, id, rank_); break;
        default:
          throw abi::Failure(AA_INTERNAL, "no case for ids of " + std::to_string(table.id_bytes) + " bytes by value");
      }
    }
  }
  library_.check(result, table.names.join);
}

void LibraryCommunicator::close() {
  if (ended_.exchange(true) || !comm_) return;
  device_->make_current();
  library_.check(library_.destroy_(comm_), library_.table_.names.destroy);
}

void LibraryCommunicator::abort() {
  if (!library_.abort_) library_.lacks("way to abort");
  if (ended_.exchange(true) || !comm_) return;
  const auto begin = std::chrono::steady_clock::now();
  while (inside_.load() > 0 && std::chrono::steady_clock::now() - begin < patience) std::this_thread::yield();
  device_->make_current();
  library_.check(library_.abort_(comm_), library_.table_.names.abort);
}

void LibraryCommunicator::async_error() {
  if (!library_.async_error_) return;
  const Use use(*this);
  if (!comm_) return;
  const LibraryTable& table = library_.table_;
  int error = table.success;
  if (table.async_error == AsyncErrorCall::through_pointer) {
    library_.check(reinterpret_cast<int (*)(void*, int*)>(library_.async_error_)(comm_, &error),
                   table.names.async_error, comm_);
  } else {
    error = reinterpret_cast<int (*)(void*)>(library_.async_error_)(comm_);
  }
  if (error != table.in_progress) library_.check(error, table.names.async_error, comm_);
}

// Types that the library does not know are transferred as bytes.
LibraryCommunicator::Carried LibraryCommunicator::carried(size_t count, int32_t dtype) const {
  const size_t bytes = bytes_of(dtype);
  const int16_t type = library_.table_.types[static_cast<size_t>(dtype)];
  return type == absent ? Carried{library_.table_.carried, count * bytes} : Carried{type, count};
}

template <class Call>
void LibraryCommunicator::call(const char* function, Call&& call) {
  const Use use(*this);
  if (!comm_) [[unlikely]]
    throw abi::Failure(AA_FAILED_PRECONDITION,
                       "the communicator joins at the end of its group, which failed or is to come");
  device_->make_current();
  library_.check(call(), function, comm_);
}

void LibraryCommunicator::all_reduce(abi::Stream& stream, const void* send, void* recv, size_t count, int32_t dtype,
                                     int32_t op) {
  const int type = library_.type_of(dtype);
  const int operation = library_.operation_of(op);
  if (count == 0) return;
  call(library_.table_.names.all_reduce,
       [&] { return library_.all_reduce_(send, recv, count, type, operation, comm_, stream.native()); });
}

void LibraryCommunicator::reduce(abi::Stream& stream, const void* send, void* recv, size_t count, int32_t dtype,
                                 int32_t op, int32_t root) {
  if (!library_.reduce_) library_.lacks("reduce");
  const int type = library_.type_of(dtype);
  const int operation = library_.operation_of(op);
  if (count == 0) return;
  call(library_.table_.names.reduce,
       [&] { return library_.reduce_(send, recv, count, type, operation, root, comm_, stream.native()); });
}

void LibraryCommunicator::broadcast(abi::Stream& stream, const void* send, void* recv, size_t count, int32_t dtype,
                                    int32_t root) {
  if (!library_.broadcast_) library_.lacks("broadcast");
  const Carried what = carried(count, dtype);
  if (count == 0) return;
  const char* function = library_.table_.names.broadcast;
  if (library_.table_.broadcast == BroadcastCall::in_place) {
    if (rank_ == root && send != recv) {
      auto copy = abi::sized<aa_copy>();
      copy.destination = recv;
      copy.source = send;
      copy.size = count * bytes_of(dtype);
      copy.direction = AA_COPY_DEVICE_TO_DEVICE;
      stream.copy(copy);
    }
    const auto in_place = reinterpret_cast<int (*)(void*, size_t, int, int, void*, void*)>(library_.broadcast_);
    call(function, [&] { return in_place(recv, what.count, what.type, root, comm_, stream.native()); });
    return;
  }
  const auto two_buffers =
      reinterpret_cast<int (*)(const void*, void*, size_t, int, int, void*, void*)>(library_.broadcast_);
  call(function, [&] { return two_buffers(send, recv, what.count, what.type, root, comm_, stream.native()); });
}

void LibraryCommunicator::all_gather(abi::Stream& stream, const void* send, void* recv, size_t count, int32_t dtype) {
  if (!library_.all_gather_) library_.lacks("all_gather");
  const Carried what = carried(count, dtype);
  if (count == 0) return;
  call(library_.table_.names.all_gather,
       [&] { return library_.all_gather_(send, recv, what.count, what.type, comm_, stream.native()); });
}

void LibraryCommunicator::reduce_scatter(abi::Stream& stream, const void* send, void* recv, size_t count, int32_t dtype,
                                         int32_t op) {
  if (!library_.reduce_scatter_) library_.lacks("reduce_scatter");
  const int type = library_.type_of(dtype);
  const int operation = library_.operation_of(op);
  if (count == 0) return;
  call(library_.table_.names.reduce_scatter,
       [&] { return library_.reduce_scatter_(send, recv, count, type, operation, comm_, stream.native()); });
}

void LibraryCommunicator::send(abi::Stream& stream, const void* data, size_t count, int32_t dtype, int32_t peer) {
  if (!library_.send_) library_.lacks("send");
  const Carried what = carried(count, dtype);
  if (count == 0) return;
  call(library_.table_.names.send,
       [&] { return library_.send_(data, what.count, what.type, peer, comm_, stream.native()); });
}

void LibraryCommunicator::recv(abi::Stream& stream, void* data, size_t count, int32_t dtype, int32_t peer) {
  if (!library_.recv_) library_.lacks("recv");
  const Carried what = carried(count, dtype);
  if (count == 0) return;
  call(library_.table_.names.recv,
       [&] { return library_.recv_(data, what.count, what.type, peer, comm_, stream.native()); });
}

}  // namespace anyaccel::collectives
