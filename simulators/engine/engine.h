// The engine of the simulators: devices, memory, streams with a worker thread each, events, and the rules that programs
// must follow. It is independent of vendors; an interface layer on top adds a vendor's functions, handles and error
// codes.
//
// Time and order are two things here. Workers run in real time, delayed by SIM_SEED; the happens-before check works on
// vector clocks and finds an unordered access whatever the timing was. Host threads count as one actor: what one of
// them has waited for, all of them have seen.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "simulators/engine/handles.h"
#include "simulators/engine/kernel.h"
#include "simulators/engine/memory.h"
#include "simulators/engine/order.h"
#include "simulators/engine/report.h"
#include "simulators/engine/settings.h"

namespace sim {

// The ones from device_lost to uncorrectable are what a command may end with.
enum class Status {
  ok,
  not_ready,
  out_of_memory,
  refused,
  device_lost,
  failed,         // injected
  bad_access,     // outside of memory, or of memory it may not use
  launch_failed,  // another mistake of a kernel, or injected
  uncorrectable,  // injected: an error of the memory itself
};

// The effect of a failed command: a broken stream (Level Zero), or a broken device (CUDA). Where devices break, a
// kernel that breaks a rule fails; where streams do, it is only reported.
enum class ErrorScope { stream, device };

inline constexpr std::uint64_t kForever = ~std::uint64_t{0};
std::uint64_t now_ns();

class Engine;
class Stream;

// Something that happens once: set by a command or the host, unset by a reset. Members belong to the engine's lock.
struct Event {
  bool signaled = false;
  Status error = Status::ok;  // of the command that set it
  Clock clock;                // what waiting for it lets one see
  std::uint64_t begin_ns = 0, end_ns = 0;
  int pending = 0;  // commands in streams that wait for it, set it or reset it
};

// A number that commands and the host set, and wait for: a wait for a value ends once the number is at least that.
// Members belong to the engine's lock.
struct Timeline {
  std::uint64_t value = 0;
  std::vector<std::pair<std::uint64_t, Clock>> history;  // increasing values, and what each lets one see
  // The writes that are visible once the number has reached `value`.
  const Clock* seen_at(std::uint64_t value) const;
  void set(std::uint64_t value, const Clock& clock);
};
struct TimelinePoint {
  std::shared_ptr<Timeline> timeline;  // null: none
  std::uint64_t value = 0;
};

class Execution;

// One command of a stream. Immutable, so that a recorded one can run again and again.
struct Command {
  const char* what = "";
  std::vector<std::shared_ptr<Event>> waits;
  std::shared_ptr<Event> reset;   // unset when the command runs
  std::shared_ptr<Event> signal;  // set after it
  bool barrier = false;           // in streams that keep no order: everything before is seen by everything after
  std::function<void(Execution&)> run;
  bool counted = true;      // by the faults "command=N"; false: an interface's own command
  bool sees_all = false;    // in streams that keep no order: it sees everything before it
  TimelinePoint reach{};    // waits for it
  TimelinePoint advance{};  // sets it when it has run
  std::size_t lane = 0;     // of its stream's
};

// The operations of a running command. Every access is checked: live memory, bounds, access by the device, order.
class Execution {
 public:
  Execution(Engine& engine, Stream& stream, const Command& command, std::uint64_t number, std::size_t actor,
            std::uint64_t step, Clock& seen)
      : engine_(engine), stream_(stream), command_(command), number_(number), actor_(actor), step_(step), seen_(seen) {}

  // The bytes as the engine reaches them; null after a violation. Memory that is not the engine's passes as it is.
  // `any_device`: a copy, which needs no access of this device to another one's memory.
  const char* read(const void* pointer, std::size_t bytes, bool any_device = false);
  char* write(void* pointer, std::size_t bytes, bool any_device = false);
  // values[i]: the bytes of parameter i.
  void launch(const KernelInfo& kernel, const std::vector<std::vector<char>>& values, const std::uint32_t groups[3]);
  void launch(const KernelInfo& kernel, const std::vector<std::vector<char>>& values, LaunchShape shape);
  bool launched() const { return launched_; }
  // A function of the program has run: what the program had waited for when it returned comes before what follows it.
  void ran_on_the_host();

  void fail(Status status) {
    if (failure_ == Status::ok) failure_ = status;
  }
  Status failure() const { return failure_; }

 private:
  char* reach(const void* pointer, std::size_t bytes, bool write, bool any_device);
  // `early`: before the kernel waited for those that it may overlap.
  void note(const char* pointer, std::size_t begin, std::size_t end, bool write, bool early = false);

  Engine& engine_;
  Stream& stream_;
  const Command& command_;
  const std::uint64_t number_;  // of all commands
  const std::size_t actor_;     // the stream, or its lane
  const std::uint64_t step_;    // of the actor's
  Clock& seen_;                 // what comes before the command
  Status failure_ = Status::ok;
  bool launched_ = false;
};

class Stream {
 public:
  // `keeps_order`: a command sees everything before it, else only what a barrier or an event lets it see. To see one command is to
  // see those before it in its lane, of which a stream without order may have several.
  Stream(Engine& engine, int device, bool keeps_order, std::size_t lanes = 1);
  // Commands that have not run are a violation; they are dropped.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Status submit(std::vector<std::shared_ptr<const Command>> commands);
  // Blocks until everything submitted so far has run; not_ready after the timeout.
  Status wait(std::uint64_t timeout_ns);
  bool idle() const;
  int device() const { return device_; }

 private:
  friend class Engine;
  friend class Execution;
  struct Submission {
    std::shared_ptr<const Command> command;
    Clock host;
  };
  void work();
  void execute(std::unique_lock<std::mutex>& lock, const Submission& submission);

  Engine& engine_;
  const int device_;
  const bool keeps_order_;
  const std::size_t lanes_;
  const std::size_t actor_;  // of the first lane
  std::deque<Submission> queue_;
  std::condition_variable queued_;  // wakes the worker when it has nothing to do
  std::uint64_t submitted_ = 0, completed_ = 0;
  Status error_ = Status::ok;
  bool stopping_ = false;
  std::uint64_t ended_ = 0;  // the step that has surely ended when a kernel that overlaps the one before begins
  Clock clock_;              // everything run so far
  Clock base_;               // what the next command of a stream without order sees
  std::mt19937_64 random_;
  std::thread worker_;
};

// Waits until `done`, in `seconds` waits of one second each; false if it is not done then. A process that was stopped for
// minutes, in a debugger or with its whole machine, has spent one of them.
bool wait_seconds(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, std::uint64_t seconds,
                  const std::function<bool()>& done);

class Engine {
 public:
  explicit Engine(Settings settings, ErrorScope scope = ErrorScope::stream);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const Settings& settings() const { return settings_; }
  Report& report() { return report_; }
  Memory& memory() { return memory_; }
  HandleTable& handles() { return handles_; }

  // `out` is set when ok. Faults "oom" apply to memory on a device.
  Status allocate(MemoryKind kind, int device, std::uint64_t owner, std::size_t size, std::size_t alignment,
                  std::shared_ptr<const Allocation>* out);
  // `pointer` must be the start of live memory of `owner` that no unordered command uses.
  Status free(const void* pointer, std::uint64_t owner);
  // Gives back memory of a device that has no address of its own (reservations map it): no order is checked.
  void free_unmapped(const Allocation& allocation);
  std::uint64_t used(int device) const;

  // Is [pointer, pointer + bytes) used by something that the host has not waited for? Reports `what` then.
  bool check_unused(const void* pointer, std::size_t bytes, const std::string& what);
  void forget(const void* pointer, std::size_t bytes);

  // Returns whether `device` can access memory of `other`: always, unless the fault "no_peer" is set, or the interface
  // has asked that access is allowed pair by pair.
  bool reaches(int device, int other) const;
  void restrict_peers();
  void allow_peer(int device, int other, bool allowed);
  Status device_status(int device) const;

  Status wait(Event& event, std::uint64_t timeout_ns);  // not_ready after the timeout
  // As wait(), for a thread of the interface: the program has not waited for it.
  Status watch(Event& event, std::uint64_t timeout_ns);
  void signal(Event& event);
  void reset(Event& event);
  bool in_use(const Event& event) const;
  Status wait(Timeline& timeline, std::uint64_t value, std::uint64_t timeout_ns);
  void advance(Timeline& timeline, std::uint64_t value);  // by the host
  std::uint64_t value(const Timeline& timeline);          // the host sees what set it
  // begin and end of the command that set it, in nanoseconds; nothing while it is unset.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> times(const Event& event) const;

  std::uint64_t commands_run() const;
  // Writes the report file, if there is to be one: live memory and handles are leaks.
  void write_report();

 private:
  friend class Stream;
  friend class Execution;
  std::string describe(const Access& access) const;
  Status wait(Event& event, std::uint64_t timeout_ns, bool join_host);
  // Waits until nothing runs on a device that is broken; whether it is. -1: on any device, whether one is.
  bool stopped(std::unique_lock<std::mutex>& lock, int device);
  bool broken(int device) const { return faults_[static_cast<std::size_t>(device)] != Status::ok; }
  Status first_fault() const;
  // Blocks until `done`, which depends on what mutex_ guards, by one call of `wait`, which returns false if it gives up.
  bool sleep(const std::function<bool()>& done, const std::function<bool(std::condition_variable&)>& wait);
  void sleep(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done);
  // Wakes the threads for which what they wait for has come, after a change of anything but a stream's queue. (If every thread woke
  // to look at it, most of the time of the tests would be the kernel's.)
  void changed();
  // False after the timeout; an endless wait that hangs is a violation.
  bool wait_until(std::unique_lock<std::mutex>& lock, std::uint64_t timeout_ns, const char* what,
                  const std::function<bool()>& done);

  const Settings settings_;
  const ErrorScope scope_;
  Report report_;
  Memory memory_;
  HandleTable handles_;
  mutable std::mutex mutex_;  // guards everything below, all streams and all events
  struct Sleeper {
    const std::function<bool()>& done;
    std::condition_variable wakes;
  };
  std::vector<Sleeper*> sleepers_;
  OrderCheck order_;
  std::size_t actors_ = 1;  // 0 is the host
  Clock host_{1};
  std::vector<std::uint64_t> used_;
  std::vector<Status> faults_;  // what broke each device; ok: nothing did
  std::vector<int> running_;    // commands on each device
  bool peers_restricted_ = false;
  std::vector<bool> peers_;  // [device * devices + other]
  std::uint64_t allocations_ = 0, commands_ = 0, pending_ = 0;
};

}  // namespace sim
