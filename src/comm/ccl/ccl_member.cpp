// Implements a member of a communicator of oneCCL.
#include "comm/ccl/ccl_member.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "anyaccel/error.h"
#include "base/copy_bytes.h"
#include "base/process/start_thread.h"

namespace anyaccel::comm {
namespace {

// The memory for one call of the library; longer data takes several calls.
constexpr size_t kCclPiece = size_t{4} << 20;
// The interval at which a wait checks the failure watch and the clock.
constexpr std::chrono::milliseconds kCclLook{2};

int ccl_type(DType dtype) noexcept {
  switch (dtype) {
    case DType::I8: return CclLibrary::kInt8;
    case DType::U8: return CclLibrary::kUint8;
    case DType::I32: return CclLibrary::kInt32;
    case DType::I64: return CclLibrary::kInt64;
    case DType::F16: return CclLibrary::kFloat16;
    case DType::F32: return CclLibrary::kFloat32;
    case DType::F64: return CclLibrary::kFloat64;
    case DType::BF16: return CclLibrary::kBfloat16;
    default: return -1;
  }
}
int ccl_operation(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::Sum: return CclLibrary::kSum;
    case ReduceOp::Product: return CclLibrary::kProduct;
    case ReduceOp::Max: return CclLibrary::kMax;
    case ReduceOp::Min: return CclLibrary::kMin;
    default: return -1;
  }
}

// Calls body(first element, number of elements) for pieces of at most `most` elements.
template <class Body>
void in_pieces(size_t count, size_t most, const Body& body) {
  most = std::max<size_t>(1, most);
  for (size_t at = 0; at < count; at += most) body(at, std::min(most, count - at));
}

}  // namespace

// The state that the object shares with its thread, which may outlive it.
struct CclMember::Worker {
  explicit Worker(const CclLibrary& l) : library(l) {}

  void run() {
    block_broken_pipes();
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return job || leaving; });
      if (!job) return;
      const std::function<int(Worker&)> now = std::move(job);
      job = nullptr;
      lock.unlock();
      const int value = now(*this);
      lock.lock();
      result = value;
      done = true;
      changed.notify_all();
    }
  }

  // Called by the object, when the thread is in no call.
  void end() {
    {
      const std::lock_guard lock(mutex);
      leaving = true;
    }
    changed.notify_all();
    thread.join();
  }

  const CclLibrary& library;
  void* comm = nullptr;
  std::vector<std::byte> in, out;  // the caller does not touch them while the thread is in a call

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::function<int(Worker&)> job;
  bool done = false, leaving = false;
  int result = 0;
  std::thread thread;
};

CclMember::CclMember(const CclLibrary& library, const CclId& id, int rank, int size,
                     std::shared_ptr<FailureWatch> watch, std::chrono::milliseconds timeout)
    : library_(library),
      rank_(rank),
      size_(size),
      watch_(std::move(watch)),
      timeout_(timeout),
      worker_(std::make_shared<Worker>(library)) {
  worker_->thread = start_thread("a member of a communicator of oneCCL", [worker = worker_] { worker->run(); });
  const CclStart start;
  try {
    begin(0, 0);
    call("onecclCommInitRank", [id, rank, size](Worker& w) {
      return w.library.comm_init_rank(&w.comm, static_cast<size_t>(size), id, rank);
    });
  } catch (...) {
    if (!abandoned_) worker_->end();
    throw;
  }
}

CclMember::~CclMember() {
  if (!abandoned_) worker_->end();
}

CclId CclMember::make_id(const CclLibrary& library) {
  const CclStart start;
  CclId id{};
  library.check(library.get_unique_id(&id), "onecclGetUniqueId", false);
  return id;
}

bool CclMember::has(DType dtype, ReduceOp op) noexcept { return ccl_type(dtype) >= 0 && ccl_operation(op) >= 0; }

bool CclMember::reduces(DType dtype, ReduceOp op) noexcept {
  const bool floats = dtype == DType::F16 || dtype == DType::BF16 || dtype == DType::F32 || dtype == DType::F64;
  return has(dtype, op) && (!floats || op == ReduceOp::Sum || op == ReduceOp::Product);
}

void CclMember::call(const char* function, std::function<int(Worker&)> body) {
  std::unique_lock lock(worker_->mutex);
  worker_->job = std::move(body);
  worker_->done = false;
  worker_->changed.notify_all();
  while (!worker_->changed.wait_for(lock, kCclLook, [&] { return worker_->done; })) {
    const bool failed = watch_ && watch_->failed();
    const bool late = limit_.passed();
    if (!failed && !late && !interrupted_.load(std::memory_order_relaxed)) continue;
    abandoned_ = true;
    worker_->thread.detach();
    lock.unlock();
    if (failed) watch_->check();
    if (!late) throw CommunicationError("the group was ended");
    throw CommunicationError(std::string(function) + " did not return within the group's time limit of " +
                                 std::to_string(timeout_.count()) + " ms",
                             AA_DEADLINE_EXCEEDED);
  }
  const int result = worker_->result;
  lock.unlock();
  library_.check(result, function, true);
}

void CclMember::begin(size_t in_bytes, size_t out_bytes) {
  if (interrupted_.load(std::memory_order_relaxed)) throw CommunicationError("the group was ended");
  limit_ = WaitLimit(timeout_);
  if (worker_->in.size() < in_bytes) worker_->in.resize(in_bytes);
  if (worker_->out.size() < out_bytes) worker_->out.resize(out_bytes);
}

void CclMember::all_reduce(void* data, int64_t count, DType dtype, ReduceOp op) {
  const size_t width = dtype_size(dtype), total = static_cast<size_t>(count);
  const size_t most = kCclPiece / width;
  begin(std::min(total, most) * width, 0);
  in_pieces(total, most, [&](size_t at, size_t n) {
    std::byte* const place = static_cast<std::byte*>(data) + at * width;
    copy_bytes(worker_->in.data(), place, n * width);
    call("onecclAllReduce", [n, type = ccl_type(dtype), how = ccl_operation(op)](Worker& w) {
      return w.library.all_reduce(w.in.data(), w.in.data(), n, type, how, w.comm, nullptr);
    });
    copy_bytes(place, worker_->in.data(), n * width);
  });
}

void CclMember::reduce(void* data, int64_t count, DType dtype, ReduceOp op, int root) {
  const size_t width = dtype_size(dtype), total = static_cast<size_t>(count);
  const size_t most = kCclPiece / width;
  begin(std::min(total, most) * width, std::min(total, most) * width);
  in_pieces(total, most, [&](size_t at, size_t n) {
    std::byte* const place = static_cast<std::byte*>(data) + at * width;
    copy_bytes(worker_->in.data(), place, n * width);
    call("onecclReduce", [n, root, type = ccl_type(dtype), how = ccl_operation(op)](Worker& w) {
      return w.library.reduce(w.in.data(), w.out.data(), n, type, how, root, w.comm, nullptr);
    });
    if (rank_ == root) copy_bytes(place, worker_->out.data(), n * width);
  });
}

void CclMember::reduce_scatter(void* recv, const void* send, int64_t count, DType dtype, ReduceOp op) {
  const size_t width = dtype_size(dtype), total = static_cast<size_t>(count), members = static_cast<size_t>(size_);
  const size_t most = std::max<size_t>(1, kCclPiece / width / members);
  begin(std::min(total, most) * width * members, std::min(total, most) * width);
  in_pieces(total, most, [&](size_t at, size_t n) {
    for (size_t member = 0; member < members; ++member) {
      copy_bytes(worker_->in.data() + member * n * width,
                 static_cast<const std::byte*>(send) + (member * total + at) * width, n * width);
    }
    call("onecclReduceScatter", [n, type = ccl_type(dtype), how = ccl_operation(op)](Worker& w) {
      return w.library.reduce_scatter(w.in.data(), w.out.data(), n, type, how, w.comm, nullptr);
    });
    copy_bytes(static_cast<std::byte*>(recv) + at * width, worker_->out.data(), n * width);
  });
}

void CclMember::broadcast(void* data, size_t bytes, int root) {
  begin(std::min(bytes, kCclPiece), 0);
  in_pieces(bytes, kCclPiece, [&](size_t at, size_t n) {
    std::byte* const place = static_cast<std::byte*>(data) + at;
    if (rank_ == root) copy_bytes(worker_->in.data(), place, n);
    call("onecclBroadcast", [n, root](Worker& w) {
      return w.library.broadcast(w.in.data(), w.in.data(), n, CclLibrary::kInt8, root, w.comm, nullptr);
    });
    if (rank_ != root) copy_bytes(place, worker_->in.data(), n);
  });
}

void CclMember::all_gather(void* recv, const void* send, size_t bytes) {
  const size_t members = static_cast<size_t>(size_), most = std::max<size_t>(1, kCclPiece / members);
  begin(std::min(bytes, most), std::min(bytes, most) * members);
  in_pieces(bytes, most, [&](size_t at, size_t n) {
    copy_bytes(worker_->in.data(), static_cast<const std::byte*>(send) + at, n);
    call("onecclAllGather", [n](Worker& w) {
      return w.library.all_gather(w.in.data(), w.out.data(), n, CclLibrary::kInt8, w.comm, nullptr);
    });
    for (size_t member = 0; member < members; ++member) {
      copy_bytes(static_cast<std::byte*>(recv) + member * bytes + at, worker_->out.data() + member * n, n);
    }
  });
}

void CclMember::all_to_all(void* recv, const void* send, size_t bytes) {
  const size_t members = static_cast<size_t>(size_), most = std::max<size_t>(1, kCclPiece / members);
  begin(std::min(bytes, most) * members, std::min(bytes, most) * members);
  in_pieces(bytes, most, [&](size_t at, size_t n) {
    for (size_t member = 0; member < members; ++member) {
      copy_bytes(worker_->in.data() + member * n, static_cast<const std::byte*>(send) + member * bytes + at, n);
    }
    call("onecclAllToAll", [n](Worker& w) {
      return w.library.all_to_all(w.in.data(), w.out.data(), n, CclLibrary::kInt8, w.comm, nullptr);
    });
    for (size_t member = 0; member < members; ++member) {
      copy_bytes(static_cast<std::byte*>(recv) + member * bytes + at, worker_->out.data() + member * n, n);
    }
  });
}

}  // namespace anyaccel::comm
