// Implements worker threads: how commands run, and which memory they may access.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "simulators/engine/engine.h"

namespace sim {

Stream::Stream(Engine& engine, int device, bool keeps_order, std::size_t lanes)
    : engine_(engine),
      device_(device),
      keeps_order_(keeps_order),
      lanes_(lanes),
      actor_([&] {
        const std::lock_guard lock(engine.mutex_);
        return std::exchange(engine.actors_, engine.actors_ + lanes);
      }()),
      random_(engine.settings_.seed * 1000003 + actor_),
      worker_([this] { work(); }) {}

Stream::~Stream() {
  std::size_t left = 0;
  {
    const std::lock_guard lock(engine_.mutex_);
    left = submitted_ - completed_;
    stopping_ = true;
    queued_.notify_one();
    engine_.changed();
  }
  if (left > 0) {
    engine_.report_.violation("destroyed-busy",
                              "a stream was destroyed while " + std::to_string(left) + " of its commands had not run");
  }
  worker_.join();
}

Status Stream::submit(std::vector<std::shared_ptr<const Command>> commands) {
  const std::lock_guard lock(engine_.mutex_);
  if (engine_.broken(device_)) return engine_.faults_[device_];
  if (error_ != Status::ok) return error_;
  for (auto& command : commands) {
    for (const auto& event : command->waits) ++event->pending;
    if (command->reset) ++command->reset->pending;
    if (command->signal) ++command->signal->pending;
    queue_.push_back({std::move(command), engine_.host_});
    ++submitted_;
    ++engine_.pending_;
  }
  queued_.notify_one();
  return Status::ok;
}

Status Stream::wait(std::uint64_t timeout_ns) {
  std::unique_lock lock(engine_.mutex_);
  const std::uint64_t target = submitted_;
  const bool done = engine_.wait_until(lock, timeout_ns, "a stream", [&] { return completed_ >= target; });
  if (engine_.broken(device_)) return engine_.faults_[device_];
  if (!done) return Status::not_ready;
  join(engine_.host_, clock_);  // work that failed, or was dropped behind it, has ended too
  return error_;
}

bool Stream::idle() const {
  const std::lock_guard lock(engine_.mutex_);
  return submitted_ == completed_;
}

void Stream::work() {
  std::unique_lock lock(engine_.mutex_);
  for (;;) {
    queued_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (stopping_) break;
    const Submission submission = std::move(queue_.front());
    queue_.pop_front();
    execute(lock, submission);
    if (stopping_) break;
  }
  engine_.pending_ -= submitted_ - completed_;
}

void Stream::execute(std::unique_lock<std::mutex>& lock, const Submission& submission) {
  const Command& command = *submission.command;
  Clock seen = submission.host;
  Status error = Status::ok;
  for (const auto& event : command.waits) {
    engine_.sleep(lock, [&] { return stopping_ || event->signaled || engine_.broken(device_); });
    if (stopping_) return;
    join(seen, event->clock);
    if (event->error != Status::ok) error = event->error;
  }
  if (command.reach.timeline != nullptr) {
    const Timeline& timeline = *command.reach.timeline;
    const std::uint64_t value = command.reach.value;
    engine_.sleep(lock, [&] { return stopping_ || timeline.value >= value || engine_.broken(device_); });
    if (stopping_) return;
    if (const Clock* clock = timeline.seen_at(value)) join(seen, *clock);
  }
  if (engine_.settings_.seed != 0 && command.counted) {
    const std::uint64_t delay = random_() % (engine_.settings_.delay_us + 1);
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(delay));
    lock.lock();
  }
  if (command.counted) ++engine_.commands_;
  const std::uint64_t number = engine_.commands_;
  const auto injected = [&](const char* name) {
    const Fault* fault = engine_.settings_.fault(name);
    return fault != nullptr && command.counted && fault->command == number;
  };
  const auto fail = [&](Status status, bool whole_device) {
    error_ = error = status;
    if (!whole_device || engine_.broken(device_)) return;
    engine_.faults_[device_] = status;
    engine_.changed();
  };
  const bool spreads = engine_.scope_ == ErrorScope::device;
  if (injected("device_lost")) fail(Status::device_lost, true);
  if (injected("sticky")) fail(Status::failed, spreads);
  if (injected("launch_failed")) fail(Status::launch_failed, spreads);
  if (injected("ecc")) fail(Status::uncorrectable, spreads);
  if (engine_.broken(device_)) error_ = engine_.faults_[device_];
  if (error_ != Status::ok) error = error_;

  join(seen, keeps_order_ || command.barrier || command.sees_all ? clock_ : base_);
  const std::size_t actor = actor_ + command.lane;
  if (seen.size() <= actor) seen.resize(actor + 1);
  const std::uint64_t step = (clock_.size() > actor ? clock_[actor] : 0) + 1;
  const std::uint64_t begin = now_ns();
  if (error != Status::ok || !command.run) {
    ended_ = step;
  } else {
    ++engine_.running_[static_cast<std::size_t>(device_)];
    lock.unlock();
    Execution execution(engine_, *this, command, number, actor, step, seen);
    command.run(execution);
    lock.lock();
    --engine_.running_[static_cast<std::size_t>(device_)];
    if (!execution.launched()) ended_ = step;
    if (spreads && execution.failure() != Status::ok) fail(execution.failure(), true);
  }
  // With lanes, a command that does nothing only passes on the order that it has observed.
  if (command.run || lanes_ == 1) seen[actor] = step;
  join(clock_, seen);
  if (command.barrier) base_ = clock_;
  if (command.reset) {
    command.reset->signaled = false;
    command.reset->error = Status::ok;
    --command.reset->pending;
  }
  for (const auto& event : command.waits) --event->pending;
  if (command.signal) {
    Event& event = *command.signal;
    --event.pending;
    if (event.signaled && !engine_.broken(device_)) {  // a broken device drops its commands without waiting
      engine_.report_.violation("event-set-twice", std::string(command.what) + " sets an event that is set already");
    }
    event.signaled = true;
    event.error = error;
    event.clock = seen;
    event.begin_ns = begin;
    event.end_ns = now_ns();
  }
  if (command.advance.timeline != nullptr) command.advance.timeline->set(command.advance.value, seen);
  ++completed_;
  --engine_.pending_;
  if (engine_.pending_ == 0 && engine_.order_.size() > 4096) engine_.order_.prune(engine_.host_);
  engine_.changed();
}

void Execution::ran_on_the_host() {
  const std::lock_guard lock(engine_.mutex_);
  join(seen_, engine_.host_);
}

const char* Execution::read(const void* pointer, std::size_t bytes, bool any_device) {
  return reach(pointer, bytes, false, any_device);
}

char* Execution::write(void* pointer, std::size_t bytes, bool any_device) {
  return reach(pointer, bytes, true, any_device);
}

char* Execution::reach(const void* pointer, std::size_t bytes, bool write, bool any_device) {
  const auto complain = [&](const char* kind, const std::string& what) {
    engine_.report_.violation(kind, std::string(command_.what) + " (command " + std::to_string(number_) + ") " + what);
    fail(Status::bad_access);
    return nullptr;
  };
  const char* p = static_cast<const char*>(pointer);
  const auto allocation = engine_.memory_.find(pointer);
  if (allocation == nullptr) {
    note(p, 0, bytes, write);
    return const_cast<char*>(p);
  }
  if (allocation->freed) return complain("use-after-free", "uses freed " + allocation->text());
  const Extent extent = engine_.memory_.extent(*allocation, p, any_device ? kAnyDevice : stream_.device_, write);
  if (p < extent.begin || bytes > static_cast<std::size_t>(extent.end - p)) {
    return complain("out-of-bounds", "touches bytes " + std::to_string(p - allocation->pointer) + " to " +
                                         std::to_string(p - allocation->pointer + static_cast<std::ptrdiff_t>(bytes)) +
                                         " of " + allocation->text() + extent.why);
  }
  if (!any_device && allocation->kind == MemoryKind::device && !allocation->reservation() &&
      !engine_.reaches(stream_.device_, allocation->device)) {
    return complain("no-peer-access",
                    "runs on device " + std::to_string(stream_.device_) + " and cannot reach " + allocation->text());
  }
  note(p, 0, bytes, write);
  return allocation->alias + (p - allocation->pointer);
}

void Execution::note(const char* pointer, std::size_t begin, std::size_t end, bool write, bool early) {
  const std::lock_guard lock(engine_.mutex_);
  Clock seen = seen_;
  if (early) seen[actor_] = std::min(seen[actor_], stream_.ended_);
  const Access access{actor_, step_, command_.what, number_};
  const auto earlier = engine_.order_.access(pointer + begin, pointer + end, write, access, seen);
  if (!earlier) return;
  engine_.report_.violation("race", engine_.describe(access) + (write ? " writes" : " reads") +
                                        (early ? ", before it waits for the kernels before it," : "") +
                                        " bytes that nothing orders after " + engine_.describe(*earlier));
}

void Execution::launch(const KernelInfo& kernel, const std::vector<std::vector<char>>& values,
                       const std::uint32_t groups[3]) {
  LaunchShape shape;
  for (int d = 0; d < 3; ++d) shape.groups[d] = groups[d];
  launch(kernel, values, shape);
}

void Execution::launch(const KernelInfo& kernel, const std::vector<std::vector<char>>& values, LaunchShape shape) {
  std::vector<const void*> raw;
  std::vector<ArgumentMemory> memory(values.size());
  std::vector<const char*> programs(values.size());  // the pointers as the program knows them, at memory[i].begin
  const auto complain = [&](const char* kind, const std::string& message) {
    engine_.report_.violation(kind, message);
    fail(Status::bad_access);
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    raw.push_back(values[i].data());
    if (!kernel.parameters[i].pointer) continue;
    const char* pointer = nullptr;
    std::memcpy(&pointer, values[i].data(), sizeof pointer);
    if (pointer == nullptr) continue;
    const auto allocation = engine_.memory_.find(pointer);
    const std::string who =
        "kernel " + kernel.name + " (command " + std::to_string(number_) + "), argument " + std::to_string(i) + ": ";
    if (allocation == nullptr) return complain("bad-pointer", who + "no memory of a device");
    if (allocation->freed) return complain("use-after-free", who + "freed " + allocation->text());
    if (allocation->kind == MemoryKind::device && !allocation->reservation() &&
        !engine_.reaches(stream_.device_, allocation->device)) {
      return complain("no-peer-access",
                      who + "device " + std::to_string(stream_.device_) + " cannot reach " + allocation->text());
    }
    const Extent extent = engine_.memory_.extent(*allocation, pointer, stream_.device_, false);
    const auto alias = [&](const char* p) { return allocation->alias + (p - allocation->pointer); };
    memory[i].begin = alias(extent.begin);
    memory[i].end = alias(extent.end);
    memory[i].pointer = alias(pointer);
    programs[i] = extent.begin;
  }
  shape.backwards = engine_.settings_.seed != 0 && number_ % 2 == 1;
  {
    // If launches overlap, everything from the first kernel of the chain on may still run when this one begins.
    const std::lock_guard lock(engine_.mutex_);
    if (!shape.overlaps_previous) stream_.ended_ = step_ - 1;
    launched_ = true;
  }
  const LaunchProblem problem = run_kernel(kernel, raw.data(), memory, shape);
  if (!problem.kind.empty()) {
    engine_.report_.violation(problem.kind, problem.message + " (command " + std::to_string(number_) + ")");
    fail(problem.kind == "out-of-bounds" ? Status::bad_access : Status::launch_failed);
  }
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const ArgumentMemory& m = memory[i];
    const auto note_hull = [&](const char* begin, const char* end, bool write, bool early) {
      if (begin == end) return;
      note(programs[i], static_cast<std::size_t>(begin - m.begin), static_cast<std::size_t>(end - m.begin), write,
           early);
    };
    note_hull(m.early_read_begin, m.early_read_end, false, true);
    note_hull(m.early_write_begin, m.early_write_end, true, true);
    note_hull(m.read_begin, m.read_end, false, false);
    note_hull(m.write_begin, m.write_end, true, false);
  }
}

}  // namespace sim
