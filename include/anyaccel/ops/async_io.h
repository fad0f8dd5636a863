// Reads files into tensors and writes tensors to files, asynchronously and bypassing the page cache: the library that
// "AsyncIOBuilder" loads.
//
//   auto aio = get_accelerator()->create_op_builder("AsyncIOBuilder")->load_as<ops::AsyncIO>();
//   auto handle = aio->aio_handle();
//   handle.async_pread(weights, "/data/weights", 0);
//   handle.async_pwrite(moments, "/data/moments", 0);
//   ...
//   handle.wait();
//
// Tensors: any dtype, anywhere. Contiguous memory that the host can access is read and written in place. Anything else
// (an accelerator's own memory, strides) goes through host memory of the tensor's size, page-locked where that is
// possible; a read's copy to the tensor is enqueued by wait() on the current stream. Transfers wait in the background
// for work that was enqueued on the tensor before. Buffers, offsets and lengths need no alignment; those that are
// multiples of get_alignment() avoid a copy. A tensor that is being written to a file must not be changed before
// wait().
//
// Transfers use io_uring, or a thread pool if the system refuses io_uring; ANYACCEL_AIO=uring|threads|auto chooses.
// Files are opened with O_DIRECT if the file system supports it. Written data has reached the file, but not necessarily
// the disk: call fsync for that. A write does not truncate a file. Two requests in progress may write to neighbouring
// bytes, but not to the same ones.
//
// Fork: a handle belongs to the process that made it. In a child every call throws InvalidArgument, and the destructor
// does not affect the parent's work.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anyaccel/op_builder.h"
#include "anyaccel/tensor.h"

namespace anyaccel::ops {

namespace aio {
class DeviceFiles;
}

// A tensor and its place in a file, for calls that transfer several.
struct AioRequest {
  Tensor buffer;
  std::string file;
  int64_t file_offset = 0;  // bytes
};

// The outcome of one request.
struct AioResult {
  int64_t request = 0;  // the number that the submitting call returned
  std::string file;     // its path, or "file descriptor 7"
  bool write = false;
  int64_t file_offset = 0;  // bytes
  int64_t bytes = 0;        // requested; if ok(), all were transferred
  int error = 0;            // errno; 0 when there is none (a file that is too short, a failed validation)
  std::string message;      // describes the failure; empty: success

  bool ok() const noexcept { return message.empty(); }
};

// Created by AsyncIO::aio_handle(). Several threads may use it; wait() waits for the requests of all of them. The
// destructor completes the requests in progress.
//
// A system failure, including a read past the end of a file, is an Error (its native_code() is the errno) that names
// file, offset and bytes; blocking calls throw it directly, and for asynchronous requests wait() throws the first one
// after all have finished. For a wrong argument the call itself throws InvalidArgument.
class AioHandle {
 public:
  AioHandle(AioHandle&&) noexcept;
  AioHandle& operator=(AioHandle&&) noexcept;
  ~AioHandle();

  int64_t get_block_size() const noexcept;  // bytes
  int get_queue_depth() const noexcept;
  bool get_single_submit() const noexcept;
  bool get_overlap_events() const noexcept;
  int get_intra_op_parallelism() const noexcept;
  // Returns the alignment in bytes. Requests whose address, offset and length are multiples of it are split into equal
  // ranges and never copied.
  int64_t get_alignment() const noexcept;
  // Returns "io_uring" or "threads".
  const char* backend() const noexcept;

  // Transfer one range on the calling thread; they block. read() requires a buffer with exactly the size of the file's
  // rest from file_offset on. `validate` compares file and memory afterwards by a plain read.
  void read(const Tensor& buffer, const std::string& file, bool validate = false, int64_t file_offset = 0);
  void write(const Tensor& buffer, const std::string& file, bool validate = false, int64_t file_offset = 0);

  // Transfer as many bytes as the buffer has, from file_offset on, split into intra_op_parallelism ranges. With async,
  // they return before the transfer is complete: see wait(). Return the request's number.
  int64_t pread(const Tensor& buffer, const std::string& file, bool validate, bool async, int64_t file_offset = 0);
  int64_t pwrite(const Tensor& buffer, const std::string& file, bool validate, bool async, int64_t file_offset = 0);
  void sync_pread(const Tensor& buffer, const std::string& file, int64_t file_offset = 0);
  void sync_pwrite(const Tensor& buffer, const std::string& file, int64_t file_offset = 0);
  int64_t async_pread(const Tensor& buffer, const std::string& file, int64_t file_offset = 0);
  int64_t async_pwrite(const Tensor& buffer, const std::string& file, int64_t file_offset = 0);
  // Writes to a descriptor, which must stay open until wait(); its file position is neither used nor changed.
  int64_t async_pwrite(const Tensor& buffer, int fd, int64_t file_offset = 0);

  // Transfer many files, or many ranges, at once.
  void sync_pread(std::span<const AioRequest> requests);
  void sync_pwrite(std::span<const AioRequest> requests);
  std::vector<int64_t> async_pread(std::span<const AioRequest> requests);
  std::vector<int64_t> async_pwrite(std::span<const AioRequest> requests);

  // Blocks until the asynchronous requests of all threads are finished; returns their number since the last call. Their
  // tensors are kept alive until then. Throws the first failure in the order of submission; results() returns the
  // others.
  size_t wait();
  // Returns the outcomes of the requests of the last wait(), or of the last blocking call.
  std::vector<AioResult> results() const;

  // Page-locked host memory: see anyaccel/ops/pin_memory.h.
  Tensor new_cpu_locked_tensor(int64_t num_elem, DType dtype);
  Tensor new_cpu_locked_tensor(int64_t num_elem, const Tensor& example);
  bool free_cpu_locked_tensor(Tensor& tensor);
  bool is_pinned(const Tensor& tensor) const;

 private:
  friend class AsyncIO;
  friend class GdsHandle;
  struct Impl;
  // Blocks until the transfers that were started are done; unlike wait(), it leaves their outcomes to be waited for.
  void finish_transfers() const;
  explicit AioHandle(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

class AsyncIO : public OpLibrary {
 public:
  explicit AsyncIO(Accelerator& accelerator) : accelerator_(accelerator) {}

  // block_size: bytes of one transfer, 4 KiB to 1 GiB; queue_depth: concurrent transfers of a range, 1 to 4096;
  // single_submit: one system call for every transfer; overlap_events: a new transfer starts as soon as one is complete
  // (false: when all are); intra_op_parallelism: number of ranges that an operation is split into, each with its own
  // queue and thread, 1 to 256. Throws InvalidArgument; UnavailableError when ANYACCEL_AIO forces io_uring and the
  // system refuses it.
  AioHandle aio_handle(int64_t block_size = int64_t{1} << 20, int queue_depth = 128, bool single_submit = false,
                       bool overlap_events = true, int intra_op_parallelism = 1) const;

  // The same as read() and write() of a handle with these options.
  void aio_read(const Tensor& buffer, const std::string& file, int64_t block_size = int64_t{1} << 20,
                int queue_depth = 128, bool single_submit = false, bool overlap_events = true,
                bool validate = false) const;
  void aio_write(const Tensor& buffer, const std::string& file, int64_t block_size = int64_t{1} << 20,
                 int queue_depth = 128, bool single_submit = false, bool overlap_events = true,
                 bool validate = false) const;

  // Copies the elements of `source` to `destination`: any dtype, the same on both sides, and shapes with the same
  // number of elements. Contiguous host memory is copied by several threads when it is large.
  void deepspeed_memcpy(const Tensor& destination, const Tensor& source) const;

 private:
  friend class GDS;
  AioHandle make_handle(int64_t block_size, int queue_depth, bool single_submit, bool overlap_events,
                        int intra_op_parallelism, std::shared_ptr<aio::DeviceFiles> device_files) const;
  Accelerator& accelerator_;
};

}  // namespace anyaccel::ops
