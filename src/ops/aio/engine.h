// Declares the layer between a handle of async I/O and its queues, which splits requests into parts and parts into
// transfers.
//
// A request is one range of one file. Its parts are the ranges of it that different lanes carry out. A lane keeps up to
// `queue_depth` transfers of its parts in flight. Whole aligned blocks bypass the page cache, directly from and to the
// request's memory if that is aligned, else through bounce buffers. The rest of a read comes through a bounce buffer
// too; the rest of a write, less than a page at either end, goes through the page cache, because the bytes around it
// may be written by others at the same time.
//
// A request whose file and tensor the accelerator transfers by itself (device_files.h) has no memory of the host: its
// lanes block in the accelerator's calls, one call for each part. What a write has at either end besides whole blocks
// was copied to the host before, and goes through the page cache too.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "anyaccel/stream.h"
#include "anyaccel/tensor.h"
#include "ops/aio/device_files.h"
#include "ops/aio/file.h"
#include "ops/aio/queue.h"

namespace anyaccel::ops::aio {

struct Settings {
  int64_t block_size = 0;
  unsigned queue_depth = 0;
  bool single_submit = false;
  bool overlap_events = false;
};

struct Request {
  Request(std::string path, int fd, bool is_write) : file(std::move(path), fd, is_write), write(is_write) {}

  int64_t id = 0;
  File file;
  const bool write;
  bool validate = false;
  bool whole_file = false;  // a read that must reach the end of the file from `offset`
  int64_t offset = 0;
  int64_t bytes = 0;
  Tensor memory;  // contiguous, and accessible to the host
  Tensor
      destination;  // of a read whose tensor the host cannot use, or not as one range: copied from `memory` at the end
  Event ready;      // device work that must complete first; may be empty
  char* data = nullptr;  // of `memory`
  bool locked = false;   // `memory` is page-locked
  // Set when the accelerator transfers the tensor by itself. `memory` is the tensor then, and `data` its address there.
  // Destroyed before the file is closed.
  std::unique_ptr<DeviceFile> device_file;
  int64_t middle_begin = 0;  // what the accelerator transfers; for a read everything
  int64_t middle_end = 0;
  bool by_device = false;  // device_file was set
  Tensor ends;             // the rest of a write, in host memory, the beginning first

  std::atomic<int> parts_left{1};
  std::atomic<bool> failed{false};
  std::atomic<bool> done{false};  // all parts are done, and the file is closed

  // Records a failure; only the first one counts. Any thread.
  void fail(Failure failure);
  const Failure& failure() const noexcept { return failure_; }  // once it is done
  void part_done();

 private:
  std::mutex mutex_;
  Failure failure_;
};

struct Part {
  std::shared_ptr<Request> request;
  int64_t begin = 0;  // in the file
  int64_t end = 0;
};

class Lane {
 public:
  Lane(const Settings& settings, std::unique_ptr<TransferQueue> queue);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void add(Part part);
  bool idle() const noexcept { return parts_.empty(); }
  // Starts the transfers that there is room for, and waits for at least one. Must not be called when idle.
  void step();

 private:
  struct ActivePart;
  struct Slot;

  bool begin(ActivePart& part) noexcept;
  static Failure transfer_by_device(const ActivePart& part);
  void fill();
  Slot* next_transfer(ActivePart& part);
  Slot* next_read(ActivePart& part);
  Slot* next_write(ActivePart& part);
  Slot* through_page_cache(ActivePart& part, int64_t begin, int64_t end);
  Slot* direct(ActivePart& part, int64_t begin, int64_t end, bool bounced);
  Slot* take_slot(ActivePart& part, int64_t begin, int64_t end);
  void start(Slot& slot);
  void complete(Slot& slot);
  void to_page_cache(Slot& slot);
  void finish(Slot& slot);
  void release(Slot& slot);
  void retire();

  const Settings settings_;
  std::deque<std::unique_ptr<ActivePart>> parts_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_slots_;
  unsigned under_way_ = 0;
  bool batch_full_ = false;  // without overlap_events: start nothing until all are complete
  std::vector<Transfer*> done_;
  char* take_bounce();
  const size_t bounce_bytes_;  // of each
  const size_t most_bounces_;
  char* bounces_ = nullptr;  // all of them, in one range that is mapped at first use
  size_t bounces_made_ = 0;
  std::vector<char*> free_bounces_;
  std::unique_ptr<TransferQueue> queue_;  // last: its threads touch the slots
};

// Compares [begin, end) of the request's file with its memory through the page cache.
Failure compare(Request& request, int64_t begin, int64_t end);

// Returns the bounds of at most `most` parts of [offset, offset + bytes): one more number than there are parts. The
// inner ones are multiples of largest_granule, so that no two parts write to one page.
std::vector<int64_t> part_bounds(int64_t offset, int64_t bytes, int64_t most);

}  // namespace anyaccel::ops::aio
