// Implements TensorPath: access to tensors directly or with copies.
#include "comm/group/tensor_path.h"

#include <algorithm>
#include <bit>

#include "anyaccel/abi/table_calls.hpp"
#include "anyaccel/error.h"
#include "runtime/driver/host_services.h"

namespace anyaccel::comm {

namespace {

void* address(const Tensor* tensor) { return tensor ? tensor->data() : nullptr; }

}  // namespace

TensorPath::TensorPath(Accelerator& accelerator, std::shared_ptr<OperationRunner> runner)
    : accelerator_(accelerator), runner_(std::move(runner)) {
  if (const auto* driver = dynamic_cast<const DriverAccelerator*>(&accelerator)) {
    graphs_ = static_cast<const abi::Calls<aa_graph_table>*>(driver->extension(AA_GRAPH_EXTENSION, AA_GRAPH_VERSION));
  }
  const uint64_t caps = accelerator.device_properties(accelerator.current_device()).caps;
  is_host_ = caps & AA_CAP_IS_HOST;
  host_reachable_ = accelerator.is_host_coherent();
  synchronous_ = accelerator.is_synchronized_device();
  stream_calls_ = (caps & AA_CAP_HOST_CALL) && (host_reachable_ || (caps & AA_CAP_PINNED_HOST));
}

TensorPath::Place TensorPath::place(const Operands& operands) const {
  Place result;
  for (const Tensor* tensor : {operands.output, operands.input}) {
    if (!tensor || tensor->device().is_host()) continue;
    const Device device = tensor->device();
    if (device.accelerator != &accelerator_) {
      throw InvalidArgument("a tensor of " + device.name() + " was given to a process group of " + accelerator_.name() +
                            ": only tensors of the host and of the group's accelerator can take part");
    }
    if (result.on_device && device.index != result.device) {
      throw InvalidArgument("the tensors lie on two devices, " + operands.output->device().name() + " and " +
                            operands.input->device().name());
    }
    result.on_device = true;
    result.device = device.index;
  }
  if (!result.on_device) {
    if (!is_host_) return result;
    result.device = accelerator_.current_device();
  }
  result.capturing = capturing(result.device);
  result.in_stream = result.capturing || !synchronous_ || !host_reachable_;
  return result;
}

bool TensorPath::capturing(int device) const {
  if (!graphs_) return false;
  int32_t recording = 0;
  const StatusRef status(
      graphs_->capture_status(DriverAccelerator::handle(accelerator_.current_stream(device)), &recording));
  return status.ok() && recording != 0;
}

void TensorPath::order_after_last_stream(int device) {
  const Stream& now = accelerator_.current_stream(device);
  if (now == last_stream_) return;
  if (last_stream_ && !synchronous_) {
    Event event = accelerator_.Event();
    event.record(last_stream_);
    now.wait_event(event);
  }
  last_stream_ = now;
}

// Page-locked memory, in sizes that can be reused.
Tensor TensorPath::new_staging(size_t bytes) const {
  const auto size = static_cast<int64_t>(std::bit_ceil(std::max<size_t>(bytes, 65536)));
  return accelerator_.pin_empty({size}, DType::U8);
}

// Returns staging memory for an operation in a stream: `shared`, enlarged if needed, or separate memory for a captured
// operation. Freeing page-locked memory waits for the whole device, where the stream of a member that is another thread of this
// process may wait for the operation that has yet to be enqueued: memory that has become too small is kept. As sizes are powers of
// two, all of it together is smaller than what replaced it.
Tensor TensorPath::staging(const Tensor& tensor, bool captured, Tensor& shared) {
  if (captured) return new_staging(tensor.nbytes());
  if (!shared || shared.nbytes() < tensor.nbytes()) {
    Tensor larger = new_staging(tensor.nbytes());
    if (shared) outgrown_.push_back(std::move(shared));
    shared = std::move(larger);
  }
  return shared;
}

// Staging memory shared by operations on the group's thread.
class TensorPath::StagingPool {
 public:
  // Returns an empty tensor if none is large enough and unused.
  Tensor take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (auto entry = free_.begin(); entry != free_.end(); ++entry) {
      if (entry->memory.nbytes() < bytes || (entry->used_until && !entry->used_until.query())) continue;
      Tensor memory = std::move(entry->memory);
      free_.erase(entry);
      return memory;
    }
    return {};
  }
  void give(Tensor memory, Event used_until) {
    const std::lock_guard lock(mutex_);
    free_.push_back({std::move(memory), std::move(used_until)});
  }

 private:
  struct Entry {
    Tensor memory;
    Event used_until;  // empty: not in use
  };
  std::mutex mutex_;
  std::vector<Entry> free_;
};

void TensorPath::enqueue(const Place& place, OperationLabel label, const Operands& operands, OperationBody body) {
  const bool captured = place.capturing;
  if (captured && !stream_calls_) {
    throw NotImplementedError(accelerator_.name() +
                              " cannot capture operations of process groups in a graph: its driver lacks host calls or "
                              "page-locked memory. Run them outside of the capture.");
  }
  if (!captured) order_after_last_stream(place.device);
  const Stream stream = accelerator_.current_stream(place.device);
  void* output = address(operands.output);
  void* input = address(operands.input);
  // A captured call owns it; otherwise it is only a second handle.
  Tensor output_memory;
  Tensor input_memory;
  if (operands.output && needs_staging(*operands.output)) {
    output_memory = staging(*operands.output, captured, staged_output_);
    if (operands.reads_output) {
      accelerator_.copy(output_memory.data(), output, operands.output->nbytes(), AA_COPY_DEVICE_TO_HOST, place.device);
    }
    output = output_memory.data();
  }
  if (operands.input && needs_staging(*operands.input)) {
    input_memory = staging(*operands.input, captured, staged_input_);
    accelerator_.copy(input_memory.data(), input, operands.input->nbytes(), AA_COPY_DEVICE_TO_HOST, place.device);
    input = input_memory.data();
  }

  if (captured) {
    // On an accelerator whose calls complete at once a replay runs on its caller's thread, in order with the group's
    // other operations; elsewhere the stream orders it.
    stream.host_call(
        [runner = runner_, label, output, input, body, output_memory, input_memory, takes_ticket = synchronous_] {
          const auto run = [&] { body(runner->communicator(), output, input); };
          try {
            if (takes_ticket) {
              runner->run(runner->order().issue(), label, run);
            } else {
              runner->run_now(label, run);
            }
          } catch (const Error& error) {
            runner->fail(error.what(), error.code());
          }
        });
  } else {
    const OperationOrder::Ticket ticket = runner_->order().issue();
    if (stream_calls_) {
      try {
        stream.host_call([runner = runner_, label, output, input, body, ticket] {
          try {
            runner->run(ticket, label, [&] { body(runner->communicator(), output, input); });
          } catch (const Error& error) {
            runner->fail(error.what(), error.code());
          }
        });
      } catch (...) {
        runner_->order().wait_turn(ticket);
        runner_->order().complete(ticket);
        throw;
      }
    } else {
      stream.synchronize();
      runner_->run(ticket, label, [&] { body(runner_->communicator(), output, input); });
    }
  }
  if (output_memory && operands.writes_output) {
    accelerator_.copy(operands.output->data(), output, operands.output->nbytes(), AA_COPY_HOST_TO_DEVICE, place.device);
  }
  if (!captured && !stream_calls_) stream.synchronize();
  if (!captured && synchronous_) runner_->check();
}

void TensorPath::finish() const {
  if (synchronous_) return;
  if (last_stream_) last_stream_.synchronize();
  if (copy_stream_) copy_stream_.synchronize();
}

// The handle of an operation that the group's thread runs, and the resources it needs until it has completed.
class TensorPath::AsyncWork final : public Work::State {
 public:
  explicit AsyncWork(std::shared_ptr<StagingPool> pool) : pool_(std::move(pool)) {}
  ~AsyncWork() override {
    if (staged_output) pool_->give(std::move(staged_output), copied_);
    if (staged_input) pool_->give(std::move(staged_input), {});
  }

  bool done() const override {
    const std::lock_guard lock(mutex_);
    return finished_ && (error_ || !copied_ || copied_.query());
  }

  void wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return finished_; });
    if (error_) std::rethrow_exception(error_);
    if (copied_) accelerator->current_stream(device).wait_event(copied_);
  }

  void finish(std::exception_ptr error, Event copied) {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    copied_ = std::move(copied);
    finished_ = true;
    changed_.notify_all();
  }

  Accelerator* accelerator = nullptr;
  int device = 0;
  Tensor output;
  Tensor input;
  Tensor staged_output;
  Tensor staged_input;

 private:
  std::shared_ptr<StagingPool> pool_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool finished_ = false;
  std::exception_ptr error_;
  Event copied_;  // copies the result to the device; empty if not needed
};

Work TensorPath::start(const Place& place, OperationLabel label, const Operands& operands, OperationBody body) {
  if (place.capturing) {  // a graph does not use our thread: its stream orders it
    enqueue(place, label, operands, std::move(body));
    return {};
  }
  runner_->start();
  if (!pool_) pool_ = std::make_shared<StagingPool>();
  const auto pooled = [&](const Tensor& tensor) {
    Tensor memory = pool_->take(tensor.nbytes());
    return memory ? memory : new_staging(tensor.nbytes());
  };
  auto work = std::make_shared<AsyncWork>(pool_);
  work->accelerator = &accelerator_;
  work->device = place.device;
  if (operands.output) work->output = *operands.output;
  if (operands.input) work->input = *operands.input;
  void* output = address(operands.output);
  void* input = address(operands.input);
  const bool copies_back = operands.output && needs_staging(*operands.output) && operands.writes_output;
  if (operands.output && needs_staging(*operands.output)) {
    work->staged_output = pooled(*operands.output);
    if (operands.reads_output) {
      accelerator_.copy(work->staged_output.data(), output, operands.output->nbytes(), AA_COPY_DEVICE_TO_HOST,
                        place.device);
    }
    output = work->staged_output.data();
  }
  if (operands.input && needs_staging(*operands.input)) {
    work->staged_input = pooled(*operands.input);
    accelerator_.copy(work->staged_input.data(), input, operands.input->nbytes(), AA_COPY_DEVICE_TO_HOST, place.device);
    input = work->staged_input.data();
  }
  Event ready;
  if (place.in_stream && !synchronous_) {
    ready = accelerator_.Event();
    ready.record(accelerator_.current_stream(place.device));
    if (copies_back) {
      if (!copy_stream_) copy_stream_ = accelerator_.Stream();
      work->output.storage()->record_stream(copy_stream_);
    }
  }
  const OperationOrder::Ticket ticket = runner_->order().issue();
  runner_->queue([this, runner = runner_.get(), work, label, output, input, body = std::move(body), ready, copies_back,
                  ticket, copy_stream = copy_stream_] {
    std::exception_ptr failure;
    Event copied;
    try {
      runner->run(ticket, label, [&] {
        if (ready) ready.synchronize();
        body(runner->communicator(), output, input);
        if (!copies_back) return;
        const Tensor& target = work->output;
        if (synchronous_) {
          accelerator_.copy(target.data(), output, target.nbytes(), AA_COPY_HOST_TO_DEVICE, work->device);
        } else {
          const ScopeGuard current = accelerator_.stream(copy_stream);
          accelerator_.copy(target.data(), output, target.nbytes(), AA_COPY_HOST_TO_DEVICE, work->device);
          copied = accelerator_.Event();
          copied.record(copy_stream);
        }
      });
    } catch (const Error& error) {
      runner->fail(error.what(), error.code());
      failure = std::current_exception();
    } catch (...) {
      failure = std::current_exception();
    }
    work->finish(failure, std::move(copied));
  });
  return Work(work);
}

}  // namespace anyaccel::comm
