// Implements stream.h: streams.
#include "accelerators/queue_runtime/stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "accelerators/queue_runtime/ops.h"
#include "base/copy_bytes.h"

namespace anyaccel::queue_runtime {
namespace {

// Memory from the host's allocator, for work that runs immediately. It is released when the call has ended.
class ScratchWorkspace final : public Workspace {
 public:
  explicit ScratchWorkspace(aa_host_stream* stream) : stream_(stream) {}
  void* take(size_t bytes) override {
    taken_.push_back(std::make_unique<abi::Scratch>(stream_, bytes));
    return taken_.back()->pointer();
  }

 private:
  aa_host_stream* const stream_;
  std::vector<std::unique_ptr<abi::Scratch>> taken_;
};

// The memory that a recorded call takes, which lives as long as the graph. Every launch uses the same pieces in the same
// order.
class RecordedWorkspace final : public Workspace {
 public:
  explicit RecordedWorkspace(std::shared_ptr<DeviceState> device) : device_(std::move(device)) {}
  ~RecordedWorkspace() override {
    for (const Piece& piece : pieces_) {
      try {
        device_->free(AA_MEMORY_DEVICE, piece.pointer);
      } catch (const abi::Failure&) {
        // The others must still be freed.
      }
    }
  }
  RecordedWorkspace(const RecordedWorkspace&) = delete;
  RecordedWorkspace& operator=(const RecordedWorkspace&) = delete;

  void begin() { next_ = 0; }
  void* take(size_t bytes) override {
    if (next_ == pieces_.size() || pieces_[next_].bytes < bytes) {
      pieces_.insert(pieces_.begin() + static_cast<std::ptrdiff_t>(next_), Piece{nullptr, 0});
      pieces_[next_] = {device_->allocate(AA_MEMORY_DEVICE, bytes), bytes};
    }
    return pieces_[next_++].pointer;
  }

 private:
  struct Piece {
    void* pointer;
    size_t bytes;
  };
  std::shared_ptr<DeviceState> device_;
  std::vector<Piece> pieces_;
  size_t next_ = 0;
};

}  // namespace

struct KeptCall {
  explicit KeptCall(const aa_op_call& given)
      : tensors(given.tensors, given.tensors + given.tensor_count),
        params((given.params_size + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t)),
        call(given) {
    if (given.params_size > 0) std::memcpy(params.data(), given.params, given.params_size);
    call.tensors = tensors.data();
    call.params = given.params ? params.data() : nullptr;
    if (given.packed) {
      packed.assign(given.packed, given.packed + given.tensor_count);
      call.packed = packed.data();
    }
  }
  KeptCall(const KeptCall&) = delete;
  KeptCall& operator=(const KeptCall&) = delete;

  std::vector<aa_tensor> tensors;
  std::vector<std::max_align_t> params;
  std::vector<aa_packed*> packed;
  aa_op_call call;
};

void StreamList::add(const std::shared_ptr<StreamCore>& stream) {
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [](const auto& other) { return other.expired(); });
  streams_.push_back(stream);
}

std::vector<std::shared_ptr<StreamCore>> StreamList::all() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<StreamCore>> living;
  for (const std::weak_ptr<StreamCore>& stream : streams_) {
    if (std::shared_ptr<StreamCore> core = stream.lock()) living.push_back(std::move(core));
  }
  return living;
}

Stream::Stream(const std::shared_ptr<DeviceState>& device, StreamList& siblings, const aa_stream_params& params)
    : host_stream_(params.host_stream) {
  device->bind_surely();
  StreamHandle handle = nullptr;
  device->run([&] { return device->vendor().stream_create(handle, params.priority); });
  try {
    core_ = std::make_shared<StreamCore>(device, handle);
    core_->on_wait([this] { release_held(); });
  } catch (const std::bad_alloc&) {
    device->vendor().stream_destroy(handle);
    throw;
  }
  siblings.add(core_);
}

// close() has waited for the work.
Stream::~Stream() {
  core_->on_wait(nullptr);
  for (void* memory : step_memory_) {
    try {
      device().free(AA_MEMORY_DEVICE, memory);
    } catch (const abi::Failure&) {
      // The others must still be freed.
    }
  }
  for (const Staging& staging : staging_) {
    if (!staging.memory) continue;
    try {
      device().free(AA_MEMORY_PINNED, staging.memory);
    } catch (const abi::Failure&) {
      // The other one must still be freed.
    }
  }
}

void Stream::close() {
  captures_.abandon();
  if (device().is_forked_child() || device().lost()) return;
  try {
    release_held();
  } catch (const abi::Failure&) {
    // The stream's fault, which is reported below.
  }
  // Even on a failed stream all enqueued work must have ended; the error is reported once more.
  const Answer answer = device().ask([&] { return device().vendor().stream_synchronize(core_->handle()); });
  core_->fault()->raise_if_set();
  device().check(answer);
  take_over_faults(is_complete_after_waiting);
}

// ---- copies and fills ------------------------------------------------------------------------------------------------

bool Stream::captured(GraphStep step) {
  Graph* const graph = capture();
  if (graph) graph->add(std::move(step));
  return graph != nullptr;
}

void Stream::enqueue(const GraphStep& step) {
  release_held();
  {
    const std::lock_guard lock(mutex_);
    if (captured(step)) return;
  }
  step(*this);
}

void* Stream::native() {
  release_held();
  refuse_while_capturing();
  return core_->handle();
}

// Memory that was not allocated by this driver.
bool Stream::is_pageable(const void* host, size_t size) const {
  Allocation found;
  if (!device().runtime().allocations.find(host, found)) return true;
  return found.kind != AA_MEMORY_PINNED ||
         static_cast<const char*>(host) + size > static_cast<const char*>(found.base) + found.size;
}

void Stream::copy(const aa_copy& what) {
  const void* host = what.direction == AA_COPY_HOST_TO_DEVICE   ? what.source
                     : what.direction == AA_COPY_DEVICE_TO_HOST ? what.destination
                                                                : nullptr;
  const bool pageable = host && is_pageable(host, what.size);
  release_held();
  const std::lock_guard lock(mutex_);
  Graph* const graph = capture();
  if (graph && pageable && device().vendor().has_host_call()) return copy_captured(*graph, what);
  if (graph) {
    const auto again = [what](Stream& stream) { stream.copy(what); };
    return pageable ? graph->add(again) : graph->add_capturable(again);
  }
  if (pageable && !device().vendor().copies_pageable()) return copy_staged_locked(what);
  // Vendors differ in whether such a copy is ordered or waits. Between two waits all of them behave the same.
  if (pageable) core_->wait();
  copy_locked(what);
  if (pageable) core_->wait();
}

void Stream::copy_staged_locked(const aa_copy& what) {
  try {
    stage_locked(what);
  } catch (const abi::Failure&) {
    // The caller may free the device memory afterwards, so no part may still be waiting to be copied.
    device().ask([&] { return device().vendor().stream_synchronize(core_->handle()); });
    throw;
  }
}

// Copies part after part through two locked buffers, in turn. Returns when the pageable memory was read or written.
void Stream::stage_locked(const aa_copy& what) {
  constexpr size_t part = size_t{1} << 20;
  const bool to_device = what.direction == AA_COPY_HOST_TO_DEVICE;
  const auto* const source = static_cast<const char*>(what.source);
  auto* const destination = static_cast<char*>(what.destination);
  struct Arriving {
    char* to = nullptr;  // null: no copy is in progress
    size_t size = 0;
  };
  std::array<Arriving, 2> arriving;
  const auto finish = [&](size_t turn) {
    Staging& staging = staging_[turn];
    if (staging.last) staging.last->wait();
    staging.last.reset();
    if (arriving[turn].to) copy_bytes(arriving[turn].to, staging.memory, arriving[turn].size);
    arriving[turn].to = nullptr;
  };
  size_t turn = 0;
  for (size_t offset = 0; offset < what.size; offset += part, turn ^= 1) {
    finish(turn);
    Staging& staging = staging_[turn];
    if (!staging.memory) staging.memory = device().allocate(AA_MEMORY_PINNED, part);
    aa_copy copy = what;
    copy.size = std::min(part, what.size - offset);
    if (to_device) {
      copy_bytes(staging.memory, source + offset, copy.size);
      copy.source = staging.memory;
      copy.destination = destination + offset;
    } else {
      copy.source = source + offset;
      copy.destination = staging.memory;
      arriving[turn] = {destination + offset, copy.size};
    }
    copy_locked(copy);
    staging.last = mark_locked(false);
  }
  finish(turn);
  finish(turn ^ 1);
}

// Each launch reads or writes the pageable memory by a host function, in order, so that launching waits for nothing.
void Stream::copy_captured(Graph& graph, const aa_copy& what) {
  void* const staging = graph.add_staging(what.size);
  aa_copy copy = what;
  const auto run = [](void* user) {
    const auto& host_copy = *static_cast<const Graph::HostCopy*>(user);
    copy_bytes(host_copy.to, host_copy.from, host_copy.size);
  };
  if (what.direction == AA_COPY_HOST_TO_DEVICE) {
    Graph::HostCopy* host_copy = graph.add_host_copy({staging, what.source, what.size});
    copy.source = staging;
    graph.add([run, host_copy](Stream& stream) { stream.host_call(run, host_copy); }, 0);
    graph.add([copy](Stream& stream) { stream.copy(copy); });
  } else {
    Graph::HostCopy* host_copy = graph.add_host_copy({what.destination, staging, what.size});
    copy.destination = staging;
    graph.add([copy](Stream& stream) { stream.copy(copy); });
    graph.add([run, host_copy](Stream& stream) { stream.host_call(run, host_copy); }, 0);
  }
}

void Stream::copy_locked(const aa_copy& what) {
  device().run([&] {
    return device().vendor().copy_async(what.destination, what.source, what.size, what.direction, core_->handle());
  });
}

void Stream::fill(const aa_fill& what) {
  release_held();
  const std::lock_guard lock(mutex_);
  if (Graph* const graph = capture()) return graph->add_capturable([what](Stream& stream) { stream.fill(what); });
  fill_locked(what);
}

// The vendors' fills support bytes only. A longer pattern is written once, byte by byte, and then doubled.
void Stream::fill_locked(const aa_fill& what) {
  auto* const to = static_cast<unsigned char*>(what.destination);
  const auto fill = [&](size_t offset, unsigned char value, size_t size) {
    device().run([&] { return device().vendor().fill_async(to + offset, value, size, core_->handle()); });
  };
  const unsigned char* const pattern = what.pattern;
  if (std::all_of(pattern, pattern + what.pattern_size, [=](unsigned char byte) { return byte == pattern[0]; })) {
    fill(0, pattern[0], what.size);
    return;
  }
  for (size_t i = 0; i < what.pattern_size; ++i) fill(i, pattern[i], 1);
  for (size_t done = what.pattern_size; done < what.size;) {
    const size_t size = std::min(done, what.size - done);
    device().run(
        [&] { return device().vendor().copy_async(to + done, to, size, AA_COPY_DEVICE_TO_DEVICE, core_->handle()); });
    done += size;
  }
}

// ---- records and waits -----------------------------------------------------------------------------------------------

bool Stream::take_over_faults(bool (*ask)(Point& point)) {
  Waits waits;
  {
    const std::lock_guard lock(mutex_);
    waits = waits_;
  }
  return queue_runtime::take_over_faults(*core_->fault(), waits, ask);
}

void Stream::release_passed() {
  for (;;) {
    const auto own = std::find_if(kept_.begin(), kept_.end(), [](const Kept& kept) { return kept.own; });
    if (own == kept_.end()) return;
    try {
      if (!own->record->complete()) return;
    } catch (const abi::Failure&) {
      return;  // the stream has failed, and keeps its records until it is destroyed
    }
    kept_.erase(kept_.begin(), own + 1);
  }
}

std::shared_ptr<Record> Stream::mark_locked(bool timed) {
  release_passed();
  drop_passed(waits_);
  auto record = std::make_shared<Record>(core_, timed, waits_);
  kept_.push_back({record, true});
  try {
    device().run([&] { return device().vendor().event_record(record->event(), core_->handle()); });
  } catch (...) {
    kept_.pop_back();
    throw;
  }
  return record;
}

std::shared_ptr<Record> Stream::end_of_work() {
  const std::lock_guard lock(mutex_);
  return mark_locked(false);
}

void Stream::record(const std::shared_ptr<EventCore>& event) {
  release_held();
  const std::lock_guard lock(mutex_);
  if (captured([event](Stream& stream) { stream.record(event); })) return event->set_captured(captures_.current());
  event->set(mark_locked(event->timed()));
}

void Stream::wait_for(const std::shared_ptr<Record>& record) {
  if (made(*record) || record->passed()) return;
  const std::lock_guard lock(mutex_);
  // The error of a stream that has failed is kept, so that another one adds nothing.
  Waits waits = core_->fault()->is_set() ? nullptr : record->added_to(waits_, *core_);
  kept_.push_back({record, false});
  try {
    device().run([&] { return device().vendor().stream_wait(core_->handle(), record->event()); });
  } catch (...) {
    kept_.pop_back();
    throw;
  }
  waits_ = std::move(waits);
  // A stream that only ever waits would keep every record.
  constexpr size_t many = 64;
  if (kept_.size() % many == 0) mark_locked(false);
}

void Stream::launch_captured(CapturedHandle captured) {
  const std::lock_guard lock(mutex_);
  device().run([&] { return device().vendor().captured_launch(captured, core_->handle()); });
}

void Stream::wait_event(abi::Event& event) {
  release_held();
  const std::shared_ptr<EventCore>& core = static_cast<Event&>(event).core();
  const auto wait = [core](Stream& stream) {
    if (const std::shared_ptr<Record> record = core->latest()) stream.wait_for(record);
  };
  {
    const std::lock_guard lock(mutex_);
    join(*core);
    if (captured(wait)) return;
  }
  wait(*this);
}

// Takes part in the capture that the event was recorded in.
void Stream::join(const EventCore& event) {
  const auto open = std::static_pointer_cast<Capture>(event.capture());
  if (!open || !open->is_open() || open == captures_.current()) return;
  if (&open->graph().device() != &device()) {
    throw abi::Failure(AA_UNIMPLEMENTED, "a stream cannot take part in a capture of another device");
  }
  captures_.join(open);
}

void Stream::refuse_while_capturing() {
  const std::lock_guard lock(mutex_);
  if (!capture()) return;
  throw abi::Failure(AA_FAILED_PRECONDITION,
                     "the stream is capturing a graph: its work does not run, and it cannot be waited for before the "
                     "capture has ended");
}

bool Stream::query() {
  release_held();
  refuse_while_capturing();
  return core_->complete() && take_over_faults(is_complete);
}

void Stream::synchronize() {
  release_held();
  refuse_while_capturing();
  core_->wait();
  take_over_faults(is_complete_after_waiting);
}

void Stream::host_call(void (*function)(void* user), void* user) {
  if (!device().vendor().has_host_call()) abi::unimplemented("stream_host_call");
  release_held();
  const std::lock_guard lock(mutex_);
  if (captured([function, user](Stream& stream) { stream.host_call(function, user); })) return;
  device().run([&] { return device().vendor().host_call(core_->handle(), function, user); });
}

// The vendors' libraries have their own error codes; only the stream knows whether the device was lost or work of the
// stream failed.
const OpSet& Stream::ops() const {
  if (const OpSet* ops = device().vendor().ops()) return *ops;
  abi::unimplemented("ops");
}

template <class Run>
void Stream::run_library(const Run& run) {
  const std::lock_guard lock(ops_mutex_);
  device().bind_surely();
  try {
    run();
  } catch (const abi::Failure&) {
    bool done = false;
    device().check(device().vendor().stream_query(core_->handle(), done));
    throw;
  }
}

// The stream's own lock is not held meanwhile, because allocating memory calls back into the host.
void Stream::enqueue_library(const LibraryWork& run) {
  ScratchWorkspace workspace(host_stream_);  // destroyed after the lock
  run_library([&] { run(core_->handle(), workspace); });
}

bool Stream::record_library(const std::function<LibraryWork()>& make) {
  const std::lock_guard lock(mutex_);
  Graph* const graph = capture();
  if (!graph) return false;
  const auto workspace = std::make_shared<RecordedWorkspace>(core_->shared_device());
  graph->add_capturable([run = make(), workspace](Stream& stream) {
    stream.run_library([&] {
      workspace->begin();
      run(stream.core_->handle(), *workspace);
    });
  });
  return true;
}

bool Stream::enqueue_op(const aa_op_call& call) {
  const OpSet& set = ops();
  if (!set.supports(call)) return false;
  const auto keep = [&]() -> LibraryWork {
    return [&set, kept = std::make_shared<KeptCall>(call)](StreamHandle stream, Workspace& workspace) {
      set.run(kept->call, stream, workspace);
    };
  };
  if (record_library(keep) || hold(set, call)) return true;
  enqueue_library([&](StreamHandle stream, Workspace& workspace) { set.run(call, stream, workspace); });
  return true;
}

std::unique_ptr<abi::Packed> Stream::pack(const aa_pack& /*what*/, const aa_tensor& weight, const aa_allocation& into) {
  release_held();
  refuse_while_capturing();
  std::unique_ptr<abi::Packed> packed;
  enqueue_library(
      [&](StreamHandle stream, Workspace& workspace) { packed = ops().pack(weight, into, stream, workspace); });
  return packed;
}

void Stream::unpack(abi::Packed& packed, const aa_tensor& out_weight) {
  release_held();
  const LibraryWork run = [&set = ops(), &packed, out_weight](StreamHandle stream, Workspace& workspace) {
    set.unpack(packed, out_weight, stream, workspace);
  };
  if (!record_library([&] { return run; })) enqueue_library(run);
}

// ---- steps -----------------------------------------------------------------------------------------------------------

// Memory of the stream for one call of run_all(). It does not come from the host's allocator, which records events, and so
// releases what is held, while it is locked. Earlier work of the stream with the same memory comes first.
class Stream::StepWorkspace final : public Workspace {
 public:
  explicit StepWorkspace(Stream& stream) : stream_(stream) {}
  void* take(size_t bytes) override {
    if (bytes > stream_.step_bytes_) {
      const size_t size = std::max(bytes, 2 * stream_.step_bytes_);
      stream_.step_memory_.reserve(stream_.step_memory_.size() + 1);
      stream_.step_memory_.push_back(stream_.device().allocate(AA_MEMORY_DEVICE, size));
      stream_.step_bytes_ = size;
    }
    return stream_.step_memory_.back();
  }

 private:
  Stream& stream_;
};

void Stream::step_begin(const aa_step& /*step*/) {
  const std::lock_guard lock(held_mutex_);
  if (in_step_) throw abi::Failure(AA_FAILED_PRECONDITION, "a step has begun on the stream, and has not ended");
  in_step_ = true;
}

void Stream::step_end() {
  const std::lock_guard lock(held_mutex_);
  if (!in_step_ && held_.empty()) throw abi::Failure(AA_FAILED_PRECONDITION, "no step has begun on the stream");
  in_step_ = false;
  release_held_locked();
}

bool Stream::hold(const OpSet& set, const aa_op_call& call) {
  if (!set.merges()) return false;
  const std::lock_guard lock(held_mutex_);
  if (!in_step_) return false;
  core_->fault()->raise_if_set();
  if (held_.size() == most_held) release_held_locked();
  held_.push_back(std::make_shared<KeptCall>(call));
  return true;
}

void Stream::release_held() {
  const std::lock_guard lock(held_mutex_);
  release_held_locked();
}

void Stream::release_held_locked() {
  if (held_.empty()) return;
  std::vector<const aa_op_call*> calls;
  for (const std::shared_ptr<KeptCall>& one : held_) calls.push_back(&one->call);
  try {
    StepWorkspace workspace(*this);
    run_library([&] { ops().run_all(calls, core_->handle(), workspace); });
  } catch (const abi::Failure& failure) {
    // Without memory nothing was enqueued: the next release tries again.
    if (failure.code() != AA_RESOURCE_EXHAUSTED) {
      held_.clear();
      core_->fault()->set(failure);
    }
    throw;
  }
  held_.clear();
}

// ---- graphs ----------------------------------------------------------------------------------------------------------

void Stream::capture_begin() {
  device().usable();
  release_held();
  const std::lock_guard lock(mutex_);
  captures_.begin(std::make_unique<Graph>(core_->shared_device()));
}

std::unique_ptr<abi::Graph> Stream::capture_end() {
  const std::lock_guard lock(mutex_);
  return captures_.end();
}

bool Stream::capturing() {
  const std::lock_guard lock(mutex_);
  return captures_.current() != nullptr;
}

}  // namespace anyaccel::queue_runtime
