// Worker threads: how commands run, what they see, and what they may touch.
#include <chrono>
#include <utility>

#include "simulators/engine/engine.h"

namespace sim {

Stream::Stream(Engine& engine, int device, bool keeps_order)
    : engine_(engine),
      device_(device),
      keeps_order_(keeps_order),
      actor_([&] {
        const std::lock_guard lock(engine.mutex_);
        return engine.actors_++;
      }()),
      random_(engine.settings_.seed * 1000003 + actor_),
      worker_([this] { work(); }) {}

Stream::~Stream() {
  std::size_t left = 0;
  {
    const std::lock_guard lock(engine_.mutex_);
    left = submitted_ - completed_;
    stopping_ = true;
    engine_.changed_.notify_all();
  }
  if (left > 0) {
    engine_.report_.violation("destroyed-busy",
                              "a stream was destroyed while " + std::to_string(left) + " of its commands had not run");
  }
  worker_.join();
}

Status Stream::submit(std::vector<std::shared_ptr<const Command>> commands) {
  const std::lock_guard lock(engine_.mutex_);
  if (engine_.lost_[device_]) return Status::device_lost;
  if (error_ != Status::ok) return error_;
  for (auto& command : commands) {
    for (const auto& event : command->waits) ++event->pending;
    if (command->reset) ++command->reset->pending;
    if (command->signal) ++command->signal->pending;
    queue_.push_back({std::move(command), engine_.host_});
    ++submitted_;
    ++engine_.pending_;
  }
  engine_.changed_.notify_all();
  return Status::ok;
}

Status Stream::wait(std::uint64_t timeout_ns) {
  std::unique_lock lock(engine_.mutex_);
  const std::uint64_t target = submitted_;
  const bool done = engine_.wait_until(lock, timeout_ns, "a stream", [&] { return completed_ >= target; });
  if (engine_.lost_[device_]) return Status::device_lost;
  if (!done) return Status::not_ready;
  if (error_ != Status::ok) return error_;
  join(engine_.host_, clock_);
  return Status::ok;
}

bool Stream::idle() const {
  const std::lock_guard lock(engine_.mutex_);
  return submitted_ == completed_;
}

void Stream::work() {
  std::unique_lock lock(engine_.mutex_);
  for (;;) {
    engine_.changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
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
    engine_.changed_.wait(lock, [&] { return stopping_ || event->signaled || engine_.lost_[device_]; });
    if (stopping_) return;
    join(seen, event->clock);
    if (event->error != Status::ok) error = event->error;
  }
  if (engine_.settings_.seed != 0) {
    const std::uint64_t delay = random_() % (engine_.settings_.delay_us + 1);
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(delay));
    lock.lock();
  }
  const std::uint64_t number = ++engine_.commands_;
  const Fault* lost = engine_.settings_.fault("device_lost");
  if (lost != nullptr && lost->command == number) {
    engine_.lost_[device_] = true;
    engine_.changed_.notify_all();
  }
  const Fault* sticky = engine_.settings_.fault("sticky");
  if (sticky != nullptr && sticky->command == number) error_ = Status::failed;
  if (engine_.lost_[device_]) error_ = Status::device_lost;
  if (error_ != Status::ok) error = error_;

  join(seen, keeps_order_ || command.barrier ? clock_ : base_);
  if (seen.size() <= actor_) seen.resize(actor_ + 1);
  const std::uint64_t step = (clock_.size() > actor_ ? clock_[actor_] : 0) + 1;
  const std::uint64_t begin = now_ns();
  if (error == Status::ok && command.run) {
    lock.unlock();
    Execution execution(engine_, *this, command, number, step, seen);
    command.run(execution);
    lock.lock();
  }
  seen[actor_] = step;
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
    if (event.signaled) {
      engine_.report_.violation("event-set-twice", std::string(command.what) + " sets an event that is set already");
    }
    event.signaled = true;
    event.error = error;
    event.clock = seen;
    event.begin_ns = begin;
    event.end_ns = now_ns();
  }
  ++completed_;
  --engine_.pending_;
  if (engine_.pending_ == 0 && engine_.order_.size() > 4096) engine_.order_.prune(engine_.host_);
  engine_.changed_.notify_all();
}

const char* Execution::read(const void* pointer, std::size_t bytes) { return reach(pointer, bytes, false); }

char* Execution::write(void* pointer, std::size_t bytes) { return reach(pointer, bytes, true); }

char* Execution::reach(const void* pointer, std::size_t bytes, bool write) {
  const auto complain = [&](const char* kind, const std::string& what) {
    engine_.report_.violation(kind, std::string(command_.what) + " (command " + std::to_string(number_) + ") " + what);
    return nullptr;
  };
  const char* p = static_cast<const char*>(pointer);
  const auto allocation = engine_.memory_.find(pointer);
  if (allocation == nullptr) {
    note(p, 0, bytes, write);
    return const_cast<char*>(p);
  }
  if (allocation->freed) return complain("use-after-free", "uses freed " + allocation->text());
  if (p < allocation->pointer || bytes > allocation->size ||
      static_cast<std::size_t>(p - allocation->pointer) > allocation->size - bytes) {
    return complain("out-of-bounds", "touches bytes " + std::to_string(p - allocation->pointer) + " to " +
                                         std::to_string(p - allocation->pointer + static_cast<std::ptrdiff_t>(bytes)) +
                                         " of " + allocation->text());
  }
  if (allocation->kind == MemoryKind::device && !engine_.reaches(stream_.device_, allocation->device)) {
    return complain("no-peer-access",
                    "runs on device " + std::to_string(stream_.device_) + " and cannot reach " + allocation->text());
  }
  note(p, 0, bytes, write);
  return allocation->alias + (p - allocation->pointer);
}

void Execution::note(const char* pointer, std::size_t begin, std::size_t end, bool write) {
  const std::lock_guard lock(engine_.mutex_);
  const Access access{stream_.actor_, step_, command_.what, number_};
  const auto earlier = engine_.order_.access(pointer + begin, pointer + end, write, access, seen_);
  if (!earlier) return;
  engine_.report_.violation("race", engine_.describe(access) + (write ? " writes" : " reads") +
                                        " bytes that nothing orders after " + engine_.describe(*earlier));
}

void Execution::launch(const KernelInfo& kernel, const std::vector<std::vector<char>>& values,
                       const std::uint32_t groups[3]) {
  std::vector<const void*> raw;
  std::vector<ArgumentMemory> memory(values.size());
  std::vector<const char*> programs(values.size());  // the pointers as the program knows them, at memory[i].begin
  for (std::size_t i = 0; i < values.size(); ++i) {
    raw.push_back(values[i].data());
    if (!kernel.parameters[i].pointer) continue;
    const char* pointer = nullptr;
    std::memcpy(&pointer, values[i].data(), sizeof pointer);
    if (pointer == nullptr) continue;
    const auto allocation = engine_.memory_.find(pointer);
    const std::string who =
        "kernel " + kernel.name + " (command " + std::to_string(number_) + "), argument " + std::to_string(i) + ": ";
    if (allocation == nullptr) {
      engine_.report_.violation("bad-pointer", who + "no memory of a device");
      return;
    }
    if (allocation->freed) {
      engine_.report_.violation("use-after-free", who + "freed " + allocation->text());
      return;
    }
    if (allocation->kind == MemoryKind::device && !engine_.reaches(stream_.device_, allocation->device)) {
      engine_.report_.violation(
          "no-peer-access", who + "device " + std::to_string(stream_.device_) + " cannot reach " + allocation->text());
      return;
    }
    memory[i].begin = allocation->alias;
    memory[i].end = allocation->alias + allocation->size;
    memory[i].pointer = allocation->alias + (pointer - allocation->pointer);
    programs[i] = allocation->pointer;
  }
  const LaunchProblem problem =
      run_kernel(kernel, raw.data(), memory, groups, kSubgroup, engine_.settings_.seed != 0 && number_ % 2 == 1);
  if (!problem.kind.empty()) {
    engine_.report_.violation(problem.kind, problem.message + " (command " + std::to_string(number_) + ")");
  }
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const ArgumentMemory& m = memory[i];
    if (m.read_begin != m.read_end) {
      note(programs[i], static_cast<std::size_t>(m.read_begin - m.begin),
           static_cast<std::size_t>(m.read_end - m.begin), false);
    }
    if (m.write_begin != m.write_end) {
      note(programs[i], static_cast<std::size_t>(m.write_begin - m.begin),
           static_cast<std::size_t>(m.write_end - m.begin), true);
    }
  }
}

}  // namespace sim
