// Implements devices, memory accounting, events and waits.
#include "simulators/engine/engine.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

namespace sim {

std::uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

Engine::Engine(Settings settings, ErrorScope scope)
    : settings_(std::move(settings)),
      scope_(scope),
      report_(settings_.abort_on_violation),
      used_(static_cast<std::size_t>(settings_.devices)),
      faults_(static_cast<std::size_t>(settings_.devices), Status::ok),
      running_(static_cast<std::size_t>(settings_.devices)),
      peers_(static_cast<std::size_t>(settings_.devices) * static_cast<std::size_t>(settings_.devices)) {}

std::string Engine::describe(const Access& access) const {
  if (access.actor == 0) return std::string("the host's ") + access.what;
  return std::string(access.what) + " (command " + std::to_string(access.command) + ", stream " +
         std::to_string(access.actor) + ")";
}

Status Engine::allocate(MemoryKind kind, int device, std::uint64_t owner, std::size_t size, std::size_t alignment,
                        std::shared_ptr<const Allocation>* out) {
  {
    const std::lock_guard lock(mutex_);
    if (device >= 0) {
      if (broken(device)) return faults_[device];
      ++allocations_;
      for (const Fault& fault : settings_.faults) {
        if (fault.name != "oom") continue;
        if (fault.call == allocations_) return Status::out_of_memory;
        if (fault.bytes && used_[device] + size > *fault.bytes) return Status::out_of_memory;
      }
      if (size > settings_.memory - used_[device]) return Status::out_of_memory;
      used_[device] += size;
    }
  }
  *out = memory_.allocate(kind, device, owner, size, alignment);
  if (*out != nullptr) return Status::ok;
  const std::lock_guard lock(mutex_);
  if (device >= 0) used_[device] -= size;
  return Status::out_of_memory;
}

Status Engine::free(const void* pointer, std::uint64_t owner) {
  const auto allocation = memory_.find(pointer);
  if (allocation == nullptr || allocation->pointer != pointer) {
    report_.violation("bad-free", allocation == nullptr
                                      ? "the pointer freed is no memory of a device"
                                      : "the pointer freed is not the start of " + allocation->text());
    return Status::refused;
  }
  if (allocation->freed) {
    report_.violation("double-free", allocation->text() + " was freed already");
    return Status::refused;
  }
  if (allocation->owner != owner) {
    report_.violation("wrong-owner", allocation->text() + " is freed in a context that it was not made in");
    return Status::refused;
  }
  {
    std::unique_lock lock(mutex_);
    const char* end = allocation->pointer + allocation->size;
    const auto user = order_.conflict(allocation->pointer, end, host_);
    if (user && !stopped(lock, allocation->device)) {
      report_.violation("free-while-in-use",
                        allocation->text() + " is freed, and the host has not waited for " + describe(*user));
    }
    order_.forget(allocation->pointer, end);
    if (allocation->device >= 0) used_[allocation->device] -= allocation->size;
  }
  const std::string damage = memory_.free(*allocation);
  if (!damage.empty()) report_.violation("guard-overwritten", damage);
  return Status::ok;
}

void Engine::free_unmapped(const Allocation& allocation) {
  {
    const std::lock_guard lock(mutex_);
    used_[allocation.device] -= allocation.size;
  }
  memory_.free(allocation);
}

bool Engine::check_unused(const void* pointer, std::size_t bytes, const std::string& what) {
  std::optional<Access> user;
  std::string text;
  {
    std::unique_lock lock(mutex_);
    user = order_.conflict(pointer, static_cast<const char*>(pointer) + bytes, host_);
    if (user && stopped(lock, -1)) user.reset();
    if (user) text = describe(*user);
  }
  if (user) report_.violation("free-while-in-use", what + ", and the host has not waited for " + text);
  return !user;
}

void Engine::forget(const void* pointer, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  order_.forget(pointer, static_cast<const char*>(pointer) + bytes);
}

bool Engine::reaches(int device, int other) const {
  if (device == other) return true;
  if (settings_.fault("no_peer") != nullptr) return false;
  const std::lock_guard lock(mutex_);
  return !peers_restricted_ || peers_[static_cast<std::size_t>(device * settings_.devices + other)];
}

void Engine::restrict_peers() {
  const std::lock_guard lock(mutex_);
  peers_restricted_ = true;
}

void Engine::allow_peer(int device, int other, bool allowed) {
  const std::lock_guard lock(mutex_);
  peers_[static_cast<std::size_t>(device * settings_.devices + other)] = allowed;
}

std::uint64_t Engine::used(int device) const {
  const std::lock_guard lock(mutex_);
  return used_[device];
}

Status Engine::device_status(int device) const {
  const std::lock_guard lock(mutex_);
  return faults_[device];
}

// The host never learns that the work before an error has ended, and must be able to clean up.
bool Engine::stopped(std::unique_lock<std::mutex>& lock, int device) {
  const auto first = static_cast<std::size_t>(device < 0 ? 0 : device);
  const std::size_t end = device < 0 ? faults_.size() : first + 1;
  bool any = false;
  for (std::size_t i = first; i < end; ++i) any = any || faults_[i] != Status::ok;
  if (any) {
    sleep(lock, [&] { return std::all_of(&running_[first], &running_[0] + end, [](int n) { return n == 0; }); });
  }
  return any;
}

bool wait_seconds(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, std::uint64_t seconds,
                  const std::function<bool()>& done) {
  for (std::uint64_t i = 0; i < seconds; ++i) {
    if (changed.wait_for(lock, std::chrono::seconds(1), done)) return true;
  }
  return done();
}

bool Engine::sleep(const std::function<bool()>& done, const std::function<bool(std::condition_variable&)>& wait) {
  if (done()) return true;
  Sleeper sleeper{done, {}};
  sleepers_.push_back(&sleeper);
  const bool reached = wait(sleeper.wakes);
  std::erase(sleepers_, &sleeper);
  return reached;
}

void Engine::sleep(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done) {
  sleep(done, [&](std::condition_variable& wakes) {
    wakes.wait(lock, done);
    return true;
  });
}

void Engine::changed() {
  for (Sleeper* sleeper : sleepers_) {
    if (sleeper->done()) sleeper->wakes.notify_one();
  }
}

bool Engine::wait_until(std::unique_lock<std::mutex>& lock, std::uint64_t timeout_ns, const char* what,
                        const std::function<bool()>& done) {
  if (timeout_ns == 0) return done();
  if (timeout_ns < std::uint64_t{1} << 62) {
    return sleep(done, [&](std::condition_variable& wakes) {
      return wakes.wait_for(lock, std::chrono::nanoseconds(timeout_ns), done);
    });
  }
  if (sleep(done,
            [&](std::condition_variable& wakes) { return wait_seconds(wakes, lock, settings_.hang_seconds, done); })) {
    return true;
  }
  report_.violation("hang", std::string("the host has waited for ") + what + " for " +
                                std::to_string(settings_.hang_seconds) + " seconds");
  return false;
}

Status Engine::first_fault() const {
  const auto first = std::find_if(faults_.begin(), faults_.end(), [](Status s) { return s != Status::ok; });
  return first == faults_.end() ? Status::ok : *first;
}

Status Engine::wait(Event& event, std::uint64_t timeout_ns, bool join_host) {
  std::unique_lock lock(mutex_);
  // Once a device is broken, what nothing will set any more must not be waited for.
  const auto given_up = [&] { return event.pending == 0 && first_fault() != Status::ok; };
  if (!wait_until(lock, timeout_ns, "an event", [&] { return event.signaled || given_up(); })) return Status::not_ready;
  if (!event.signaled) return first_fault();
  if (join_host) join(host_, event.clock);
  return event.error;
}

Status Engine::wait(Event& event, std::uint64_t timeout_ns) { return wait(event, timeout_ns, true); }
Status Engine::watch(Event& event, std::uint64_t timeout_ns) { return wait(event, timeout_ns, false); }

Status Engine::wait(Timeline& timeline, std::uint64_t value, std::uint64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  const auto reached = [&] { return timeline.value >= value || first_fault() != Status::ok; };
  if (!wait_until(lock, timeout_ns, "a value of an event", reached)) return Status::not_ready;
  if (timeline.value < value) return first_fault();
  if (const Clock* clock = timeline.seen_at(value)) join(host_, *clock);
  return Status::ok;
}

void Engine::advance(Timeline& timeline, std::uint64_t value) {
  const std::lock_guard lock(mutex_);
  timeline.set(value, host_);
  changed();
}

std::uint64_t Engine::value(const Timeline& timeline) {
  const std::lock_guard lock(mutex_);
  if (const Clock* clock = timeline.seen_at(timeline.value)) join(host_, *clock);
  return timeline.value;
}

const Clock* Timeline::seen_at(std::uint64_t wanted) const {
  for (const auto& [reached, clock] : history) {
    if (reached >= wanted) return &clock;
  }
  return nullptr;
}

void Timeline::set(std::uint64_t next, const Clock& clock) {
  while (!history.empty() && history.back().first >= next) history.pop_back();
  constexpr std::size_t kKept = 256;  // older values count as reached by the oldest that is kept
  if (history.size() == kKept) history.erase(history.begin());
  history.emplace_back(next, clock);
  value = next;
}

void Engine::signal(Event& event) {
  const std::lock_guard lock(mutex_);
  if (event.signaled) report_.violation("event-set-twice", "the host sets an event that is set already");
  event.signaled = true;
  event.error = Status::ok;
  event.clock = host_;
  event.begin_ns = event.end_ns = now_ns();
  changed();
}

void Engine::reset(Event& event) {
  const std::lock_guard lock(mutex_);
  event.signaled = false;
  event.error = Status::ok;
}

bool Engine::in_use(const Event& event) const {
  const std::lock_guard lock(mutex_);
  return event.pending > 0;
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> Engine::times(const Event& event) const {
  const std::lock_guard lock(mutex_);
  if (!event.signaled) return std::nullopt;
  return std::pair(event.begin_ns, event.end_ns);
}

std::uint64_t Engine::commands_run() const {
  const std::lock_guard lock(mutex_);
  return commands_;
}

void Engine::write_report() {
  if (settings_.report.empty()) return;
  std::vector<std::string> leaks = handles_.live();
  for (const auto& allocation : memory_.live()) {
    // Nothing can be freed any more once its device is broken.
    if (allocation->device >= 0 && device_status(allocation->device) != Status::ok) continue;
    leaks.push_back(allocation->text());
  }
  std::string path = settings_.report;
  const std::size_t pid = path.find("%p");
  if (pid != std::string::npos) path.replace(pid, 2, std::to_string(::getpid()));
  const std::string json = report_.json(leaks);
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr || std::fwrite(json.data(), 1, json.size(), file) != json.size()) {
    std::fprintf(stderr, "simulator: the report cannot be written to %s\n", path.c_str());
  }
  if (file != nullptr) std::fclose(file);
}

}  // namespace sim
