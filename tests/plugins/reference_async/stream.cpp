// Implements stream.h: streams with a worker thread each, events and captures.
#include "stream.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "device.h"
#include "mutations.h"
#include "ops.h"

namespace reference {
namespace {

// Returns where the worker finds `size` bytes of device memory or pinned memory.
unsigned char* device_bytes(Device& device, const void* pointer, size_t size) {
  if (unsigned char* const found = device.view(pointer, size)) return found;
  throw abi::Failure(AA_INTERNAL,
                     "work touched " + std::to_string(size) + " bytes outside of the device's allocations");
}

void move(Device& device, void* destination, const void* source, size_t size, aa_copy_direction direction) {
  unsigned char* const to = direction == AA_COPY_DEVICE_TO_HOST ? static_cast<unsigned char*>(destination)
                                                                : device_bytes(device, destination, size);
  const unsigned char* const from = direction == AA_COPY_HOST_TO_DEVICE ? static_cast<const unsigned char*>(source)
                                                                        : device_bytes(device, source, size);
  std::memmove(to, from, size);
}

void repeat(unsigned char* to, const unsigned char* pattern, size_t pattern_size, size_t size) {
  for (size_t i = 0; i < size; ++i) to[i] = pattern[i % pattern_size];
}

// For mutations: whether anything failed in this process, and whether a thousand items have run on a stream.
std::atomic<bool> failed_anywhere{false};
std::atomic<bool> a_thousand_ran{false};

// A leak that shows in what the process occupies.
void leak(size_t size) {
  static char* volatile last = nullptr;  // so that no compiler leaves it out
  last = static_cast<char*>(std::malloc(size));
  std::memset(last, 1, size);
}

}  // namespace

// ---- records ----

void Record::complete(const std::optional<abi::Failure>& failure) {
  const std::lock_guard lock(mutex_);
  done_ = true;
  failure_ = failure;
  time_ = Clock::now();
  changed_.notify_all();
}

bool Record::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

void Record::wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
}

std::optional<abi::Failure> Record::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Record::Clock::time_point Record::time() const {
  const std::lock_guard lock(mutex_);
  return mutated(Mutation::times_are_those_of_the_call) ? enqueued : time_;
}

// ---- queues ----

Queue::Queue(bool lazy) : lazy_(lazy) {}

void Queue::start() {
  thread_ = std::thread([this] { work(); });
}

void Queue::add(Item item) {
  if (mutated(Mutation::items_leak)) leak(300);
  std::unique_lock lock(mutex_);
  if (mutated(Mutation::a_full_queue_waits)) changed_.wait(lock, [&] { return added_ - completed_ < 64; });
  if (mutated(Mutation::a_full_queue_fails) && added_ - completed_ >= 100) {
    throw abi::Failure(AA_RESOURCE_EXHAUSTED, "the queue is full");
  }
  ++added_;
  item.fails = std::exchange(next_failure_, std::nullopt);
  const bool plain = !item.records && !item.awaits && !item.host_call;
  if (mutated(Mutation::items_are_lost) && plain && added_ % 50 == 0) item.run = [] {};
  if (mutated(Mutation::the_newest_item_goes_first) && plain && items_.size() > 3) {
    items_.insert(items_.end() - 1, std::move(item));
  } else {
    items_.push_back(std::move(item));
  }
  if (!lazy_) released_ = added_;
  const bool full = lazy_ && added_ - released_ >= depth && !mutated(Mutation::a_full_lazy_queue_holds);
  if (full && mutated(Mutation::a_full_lazy_queue_refuses))
    throw abi::Failure(AA_RESOURCE_EXHAUSTED, "too much is held");
  if (!lazy_) changed_.notify_all();
  lock.unlock();
  if (full) release();
}

std::shared_ptr<Record> Queue::record() {
  std::shared_ptr<Record> made;
  {
    const std::lock_guard lock(mutex_);
    made = std::make_shared<Record>(weak_from_this(), added_ + 1);
  }
  add({[] {}, made, nullptr, false, {}});
  return made;
}

bool Queue::idle() {
  const std::lock_guard lock(mutex_);
  if (mutated(Mutation::query_is_always_done)) return true;
  if (mutated(Mutation::query_is_never_done)) return false;
  if (mutated(Mutation::a_new_stream_is_busy) && added_ == 0) return false;
  return completed_ == added_;
}

void Queue::wait() {
  std::unique_lock lock(mutex_);
  if (mutated(Mutation::synchronize_does_nothing)) return;
  const uint64_t until =
      mutated(Mutation::synchronize_waits_for_the_first_item) ? std::min<uint64_t>(added_, 1) : added_;
  changed_.wait(lock,
                [&] { return completed_ >= (mutated(Mutation::synchronize_waits_for_later_items) ? added_ : until); });
}

void Queue::stop(bool drop) {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    drops_ = drop;
    changed_.notify_all();
  }
  if (mutated(Mutation::threads_stay)) {
    thread_.detach();
    return;
  }
  thread_.join();
}

std::optional<abi::Failure> Queue::failure() {
  const std::lock_guard lock(mutex_);
  if (mutated(Mutation::failures_reach_other_streams) && failed_anywhere) {
    return abi::Failure(AA_DATA_LOSS, "another stream failed");
  }
  if (mutated(Mutation::a_thousand_items_break_it) && a_thousand_ran) {
    return abi::Failure(AA_DEVICE_LOST, "the device fell off");
  }
  if (mutated(Mutation::failures_are_told_once)) return std::exchange(failure_, std::nullopt);
  return failure_;
}

uint64_t Queue::added() {
  const std::lock_guard lock(mutex_);
  return added_;
}

uint64_t Queue::completed() {
  const std::lock_guard lock(mutex_);
  return completed_;
}

int64_t Queue::executed() {
  const std::lock_guard lock(mutex_);
  return mutated(Mutation::what_is_enqueued_counts_as_executed) ? static_cast<int64_t>(added_) : executed_;
}

void Queue::fail_next(abi::Failure failure) {
  const std::lock_guard lock(mutex_);
  if (mutated(Mutation::failures_come_early)) failure_ = failure;
  next_failure_ = std::move(failure);
}

void Queue::release(uint64_t position) {
  // Positions to release, here and on the queues that this one waits for; each at most once.
  std::vector<std::pair<std::shared_ptr<Queue>, uint64_t>> open{{shared_from_this(), position}};
  while (!open.empty()) {
    const auto [queue, until] = open.back();
    open.pop_back();
    const std::lock_guard lock(queue->mutex_);
    const uint64_t last = std::min(until, queue->added_);
    for (uint64_t i = queue->released_; i < last; ++i) {
      const uint64_t first = queue->added_ - queue->items_.size();
      const Item& item = queue->items_[i - first];
      if (!item.awaits || mutated(Mutation::releasing_stops_at_waits)) continue;
      if (auto producer = item.awaits->queue.lock()) open.emplace_back(std::move(producer), item.awaits->position);
    }
    if (mutated(Mutation::released_work_runs_backwards) && last > queue->released_) {
      const uint64_t first = queue->added_ - queue->items_.size();
      const auto plain = [](const Item& item) { return !item.records && !item.awaits && !item.host_call; };
      auto begin = queue->items_.begin() + static_cast<std::ptrdiff_t>(queue->released_ - first);
      const auto end = queue->items_.begin() + static_cast<std::ptrdiff_t>(last - first);
      while (begin != end) {
        const auto stop = std::find_if_not(begin, end, plain);
        std::reverse(begin, stop);
        begin = stop == end ? end : stop + 1;
      }
    }
    queue->released_ = std::max(queue->released_, last);
    queue->changed_.notify_all();
  }
}

void Queue::run(Item& item) {
  std::optional<abi::Failure> failed;
  {
    const std::lock_guard lock(mutex_);
    failed = failure_ ? failure_ : item.fails;
    if (mutated(Mutation::the_last_failure_counts) && item.fails) failure_ = failed = item.fails;
  }
  if (item.awaits) {
    while (mutated(Mutation::destroying_a_stream_drops_its_waits) && !item.awaits->done()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::lock_guard lock(mutex_);
      if (stops_) return;
    }
    item.awaits->wait();
    if (!failed && !mutated(Mutation::waits_stop_failures)) failed = item.awaits->failure();
  }
  // Work after a failure does not run, and reports that failure as its own.
  if (!failed) {
    try {
      item.run();
      if (mutated(Mutation::host_calls_run_twice) && item.host_call) item.run();
    } catch (const abi::Failure& failure) {
      failed = failure;
    }
  }
  if (failed && item.host_call && mutated(Mutation::host_calls_follow_failures)) item.run();
  if (item.records) item.records->complete(failed);
  const std::lock_guard lock(mutex_);
  if (failed && !failure_ && !mutated(Mutation::failures_are_lost)) failure_ = failed;
  ++executed_;
  if (failed) failed_anywhere = true;
  if (executed_ > 1000) a_thousand_ran = true;
}

void Queue::work() {
  const auto self = shared_from_this();  // the thread may be the last that needs it
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stops_ || added_ - items_.size() < released_; });
    if (items_.empty()) {
      if (mutated(Mutation::threads_stay) && stops_) changed_.wait(lock, [] { return false; });
      if (stops_) return;
      continue;
    }
    Item item = std::move(items_.front());
    items_.pop_front();
    const bool drop = drops_;
    lock.unlock();
    if (drop) {
      if (item.records) item.records->complete(std::nullopt);
    } else {
      run(item);
    }
    item = {};  // what it holds is gone before it counts as complete
    lock.lock();
    ++completed_;
    changed_.notify_all();
  }
}

// ---- events ----

Event::Event(Device& device, uint32_t flags) : device_(device), flags_(flags) {
  if (mutated(Mutation::timed_blocking_events_are_refused) && flags == (AA_EVENT_TIMING | AA_EVENT_BLOCKING_SYNC)) {
    throw abi::Failure(AA_UNIMPLEMENTED, "no such flags");
  }
  if (mutated(Mutation::blocking_events_are_refused) && (flags & AA_EVENT_BLOCKING_SYNC)) {
    throw abi::Failure(AA_INVALID_ARGUMENT, "no such flag");
  }
  if (mutated(Mutation::events_leak)) leak(300);
  if (mutated(Mutation::new_events_are_old_ones)) latest_ = device.forgotten_record();
}

Event::~Event() = default;

void Event::close() {
  if (mutated(Mutation::destroying_an_event_fails)) throw abi::Failure(AA_INTERNAL, "it stays");
  if (mutated(Mutation::destroying_an_event_waits) && latest()) latest()->wait();
  if (mutated(Mutation::destroyed_events_hold_nobody) && latest()) latest()->complete(std::nullopt);
  if (mutated(Mutation::new_events_are_old_ones) && latest()) {
    static std::shared_ptr<Record>& kept = *new std::shared_ptr<Record>;
    kept = latest();
    Device::forget(kept);
  }
}

std::shared_ptr<Record> Event::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

std::shared_ptr<SharedCapture> Event::capture() const {
  const std::lock_guard lock(mutex_);
  return capture_;
}

void Event::record(abi::Stream& stream) {
  auto& recorded = static_cast<Stream&>(stream);
  {
    auto capture = recorded.capture();
    const std::lock_guard lock(mutex_);
    capture_.swap(capture);
  }
  // For a capturing stream the order within the graph implies it already.
  if (recorded.capturing()) return;
  if (!mutated(Mutation::waits_hold_no_records)) recorded.wait_late();
  auto made = recorded.queue()->record();
  const std::lock_guard lock(mutex_);
  if (latest_) earlier_ = {latest_};
  if (mutated(Mutation::the_first_record_counts) && latest_) return;
  latest_ = std::move(made);
}

bool Event::query() {
  const auto record = latest();
  if (!record) return !mutated(Mutation::fresh_events_are_not_complete);
  if (const auto queue = record->queue.lock(); queue && queue->lazy()) {
    if (!mutated(Mutation::event_query_releases_nothing)) queue->release(record->position);
  }
  if (mutated(Mutation::failures_reach_back)) {
    if (const auto queue = record->queue.lock(); queue && queue->failure()) throw *queue->failure();
  }
  if (mutated(Mutation::event_query_waits)) record->wait();
  if (mutated(Mutation::events_are_always_complete)) return true;
  if (mutated(Mutation::events_are_never_complete)) return false;
  if (mutated(Mutation::any_record_counts)) {
    const std::lock_guard lock(mutex_);
    for (const auto& earlier : earlier_) {
      if (earlier->done()) return true;
    }
  }
  if (mutated(Mutation::events_cover_later_work)) {
    if (const auto queue = record->queue.lock()) return queue->idle();
  }
  if (mutated(Mutation::events_die_with_their_stream) && !record->queue.lock()) {
    throw abi::Failure(AA_INVALID_ARGUMENT, "the stream of this event is gone");
  }
  if (mutated(Mutation::events_of_dead_streams_stay_open) && !record->queue.lock()) return false;
  if (mutated(Mutation::events_of_failed_dead_streams_stay_open) && !record->queue.lock() && record->failure())
    return false;
  if (!record->done()) return false;
  if (const auto failure = record->failure(); failure && !mutated(Mutation::events_hide_failures)) throw *failure;
  return true;
}

void Event::synchronize() {
  auto record = latest();
  if (!record) return;
  if (const auto queue = record->queue.lock(); queue && queue->lazy()) {
    if (!mutated(Mutation::event_synchronize_releases_nothing)) queue->release(record->position);
  }
  if (mutated(Mutation::event_synchronize_does_nothing)) return;
  if (mutated(Mutation::blocking_events_do_not_wait) && (flags_ & AA_EVENT_BLOCKING_SYNC)) return;
  if (mutated(Mutation::event_synchronize_waits_for_its_stream)) {
    if (const auto queue = record->queue.lock()) queue->wait();
  }
  record->wait();
  while (mutated(Mutation::event_synchronize_waits_for_later_records) && record != latest()) {
    record = latest();
    record->wait();
  }
  if (const auto failure = record->failure(); failure && !mutated(Mutation::events_hide_failures)) throw *failure;
}

double Event::elapsed(abi::Event& other) {
  auto& end = static_cast<Event&>(other);
  const bool timed = (flags_ & end.flags_ & AA_EVENT_TIMING) != 0;
  if (!timed && !mutated(Mutation::untimed_events_have_times)) {
    throw abi::Failure(AA_FAILED_PRECONDITION, "event_elapsed needs events made with AA_EVENT_TIMING");
  }
  if (&device_ != &end.device_ && !mutated(Mutation::times_across_devices)) {
    throw abi::Failure(AA_FAILED_PRECONDITION, "event_elapsed needs events of one device");
  }
  const auto first = latest();
  const auto last = end.latest();
  if (!first || !last) {
    if (mutated(Mutation::fresh_events_have_times)) return 0;
    throw abi::Failure(AA_FAILED_PRECONDITION, "event_elapsed of an event that was never recorded");
  }
  if (!first->done() || !last->done()) {
    if (mutated(Mutation::open_events_have_times)) return 0;
    throw abi::Failure(AA_FAILED_PRECONDITION, "event_elapsed of an event that is not complete");
  }
  const double milliseconds = std::chrono::duration<double, std::milli>(last->time() - first->time()).count();
  if (mutated(Mutation::times_are_seconds)) return milliseconds / 1000;
  if (mutated(Mutation::times_are_microseconds)) return milliseconds * 1000;
  if (mutated(Mutation::times_have_no_sign)) return std::abs(milliseconds);
  if (mutated(Mutation::times_are_swapped)) return -milliseconds;
  return milliseconds;
}

// ---- streams ----

Stream::Stream(Device& device, bool lazy, aa_host_stream* host) : device_(device), host_(host) {
  if (mutated(Mutation::streams_leak)) leak(65536);
  queue_ = device.queue_for_a_stream(lazy);
}

Stream::~Stream() = default;

void Stream::close() {
  // What is forgotten was never released: a worker could run it before it is dropped.
  if (queue_->lazy() && !mutated(Mutation::destroying_a_stream_forgets_what_is_held)) queue_->release();
  if (mutated(Mutation::destroying_a_stream_fails)) throw abi::Failure(AA_INTERNAL, "it stays");
  if (!mutated(Mutation::destroying_a_stream_does_not_wait)) {
    if (mutated(Mutation::destroying_a_stream_drops_its_work) ||
        mutated(Mutation::destroying_a_stream_forgets_what_is_held)) {
      queue_->stop(true);
    } else if (!mutated(Mutation::streams_share_a_worker)) {
      queue_->stop(false);
    }
  }
  device_.remove(queue_);
  idle_.clear();
}

void Stream::give_back_idle() {
  std::vector<Idle> free;  // destroyed without the lock: the host calls back
  const uint64_t completed = queue_->completed();
  const std::lock_guard lock(mutex_);
  for (Idle& idle : idle_) {
    if (idle.needed_until <= completed) free.push_back(std::move(idle));
  }
  std::erase_if(idle_, [](const Idle& idle) { return !idle.memory; });
}

void Stream::add(std::function<void()> run, bool host_call) {
  const std::lock_guard lock(mutex_);
  leave_ended_capture();
  if (captured_) {
    if (mutated(Mutation::captured_work_runs_at_once)) run();
    captured_->push_back({std::move(run), nullptr, nullptr, host_call, {}});
    return;
  }
  Item item{std::move(run), nullptr, nullptr, host_call, {}};
  if (mutated(Mutation::steps_of_one_key_repeat_the_first) && step_ && !host_call) {
    if (repeats_) return;
    steps_[*step_].push_back(item);
  }
  queue_->add(std::move(item));
}

void Stream::copy(const aa_copy& what) {
  void* const destination = what.destination;
  const void* const source = what.source;
  size_t size = what.size;
  const auto direction = static_cast<aa_copy_direction>(what.direction);
  wait_late();
  if (mutated(Mutation::copies_to_the_device_lose_a_byte) && direction == AA_COPY_HOST_TO_DEVICE && size > 1000) --size;
  if (mutated(Mutation::copies_to_the_host_lose_a_byte) && direction == AA_COPY_DEVICE_TO_HOST && size > 1000) --size;
  if (mutated(Mutation::copies_on_the_device_lose_a_byte) && direction == AA_COPY_DEVICE_TO_DEVICE && size > 1000)
    --size;
  if (mutated(Mutation::small_copies_on_the_device_are_lost) && direction == AA_COPY_DEVICE_TO_DEVICE && size < 4)
    return;
  if (mutated(Mutation::copies_move_words) && direction == AA_COPY_HOST_TO_DEVICE && size % 8 != 0) {
    add([&device = device_, destination, source, size] {
      move(device, destination, source, size, AA_COPY_HOST_TO_DEVICE);
      const size_t rest = 8 - size % 8;
      if (unsigned char* const beyond = device.view(static_cast<char*>(destination) + size, rest)) {
        std::memset(beyond, 0, rest);
      }
    });
    return;
  }
  const bool at_once = (mutated(Mutation::small_copies_to_the_device_run_at_once) &&
                        direction == AA_COPY_HOST_TO_DEVICE && size <= 64) ||
                       (mutated(Mutation::copies_on_the_device_run_at_once) && direction == AA_COPY_DEVICE_TO_DEVICE) ||
                       (mutated(Mutation::copies_to_the_host_run_at_once) && direction == AA_COPY_DEVICE_TO_HOST) ||
                       (mutated(Mutation::copies_to_the_device_run_at_once) && direction == AA_COPY_HOST_TO_DEVICE);
  if (at_once) {
    move(device_, destination, source, size, direction);
    return;
  }
  if (mutated(Mutation::host_memory_is_read_when_captured) && direction == AA_COPY_HOST_TO_DEVICE && capturing()) {
    auto bytes = std::make_shared<std::vector<unsigned char>>(size);
    std::memcpy(bytes->data(), source, size);
    add([&device = device_, destination, bytes, size] {
      move(device, destination, bytes->data(), size, AA_COPY_HOST_TO_DEVICE);
    });
    return;
  }
  if (mutated(Mutation::copies_do_nothing)) return;
  add([&device = device_, destination, source, size, direction] {
    move(device, destination, source, size, direction);
  });
}

void Stream::copy_peer(const aa_peer_copy& what) {
  auto& to = static_cast<Device&>(abi::object(what.destination_device));
  auto& from = static_cast<Device&>(abi::object(what.source_device));
  if (&device_ != &to && &device_ != &from) {
    throw abi::Failure(AA_INVALID_ARGUMENT, "a copy between two devices on a stream of another one");
  }
  void* const destination = what.destination;
  const void* const source = what.source;
  size_t size = what.size;
  if (mutated(Mutation::direct_copies_do_nothing)) return;
  if (mutated(Mutation::small_direct_copies_are_lost) && size < 4) return;
  if (mutated(Mutation::direct_copies_lose_a_byte) && size > 1000) --size;
  if (mutated(Mutation::direct_copies_on_the_sources_stream_are_lost) && &device_ == &from) return;
  const auto run = [&to, &from, destination, source, size] {
    unsigned char* const bytes = device_bytes(to, destination, size);
    std::memmove(bytes, device_bytes(from, source, size), size);
    if (!mutated(Mutation::direct_copies_move_words) || size % 8 == 0) return;
    const size_t rest = 8 - size % 8;
    if (unsigned char* const beyond = to.view(static_cast<char*>(destination) + size, rest)) {
      std::memset(beyond, 0, rest);
    }
  };
  if (mutated(Mutation::direct_copies_run_at_once)) return run();
  if (mutated(Mutation::direct_copies_wait)) queue_->wait();
  if (mutated(Mutation::direct_copies_hold_nothing)) {
    add([run] {
      std::thread([run] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        run();
      }).detach();
    });
    return;
  }
  add(run);
}

void Stream::fill(const aa_fill& what) {
  device_.needs_more_than_copies("fill_async");
  if (!mutated(Mutation::waits_hold_no_fills)) wait_late();
  void* destination = what.destination;
  const void* const pattern = what.pattern;
  size_t pattern_size = what.pattern_size, size = what.size;
  if (mutated(Mutation::fills_print)) {
    std::printf("filling %zu bytes\n", size);
    std::fflush(stdout);
  }
  if (mutated(Mutation::fills_crash)) *static_cast<volatile int*>(nullptr) = 1;
  if (mutated(Mutation::fills_abort)) std::abort();
  if (mutated(Mutation::fills_exit)) std::exit(0);
  if (mutated(Mutation::fills_hang)) {
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  if (mutated(Mutation::fills_do_nothing)) return;
  if (mutated(Mutation::fills_lose_a_byte) && size > 100) --size;
  if (mutated(Mutation::fills_repeat_the_first_byte)) pattern_size = 1;
  if (mutated(Mutation::fills_of_eight_bytes_repeat_four) && pattern_size == 8) pattern_size = 4;
  const size_t beyond = reinterpret_cast<uintptr_t>(destination) % pattern_size;
  if (mutated(Mutation::fills_begin_at_a_multiple_of_their_pattern)) {
    destination = static_cast<unsigned char*>(destination) - beyond;
  }
  if (mutated(Mutation::fills_want_aligned_addresses) && beyond != 0) {
    throw abi::Failure(AA_INVALID_ARGUMENT, "an address that is no multiple of the pattern's size");
  }
  if (mutated(Mutation::fills_on_other_devices_are_lost) && device_.index() > 0) return;
  if (mutated(Mutation::fills_refer_to_their_pattern)) {
    add([=, &device = device_] {
      repeat(device_bytes(device, destination, size), static_cast<const unsigned char*>(pattern), pattern_size, size);
    });
    return;
  }
  std::array<unsigned char, 8> bytes{};
  std::memcpy(bytes.data(), pattern, pattern_size);
  const auto run = [&device = device_, destination, bytes, pattern_size, size] {
    repeat(device_bytes(device, destination, size), bytes.data(), pattern_size, size);
  };
  if (mutated(Mutation::fills_run_at_once)) return run();
  if (mutated(Mutation::small_fills_run_at_once) && size <= 1000) return run();
  add(run);
}

bool Stream::query() {
  device_.needs_more_than_copies("stream_query");
  if (mutated(Mutation::stream_query_waits)) queue_->wait();
  if (queue_->lazy() && !mutated(Mutation::stream_query_releases_nothing)) queue_->release();
  const auto failure = queue_->failure();
  if (failure && !mutated(Mutation::queries_hide_failures)) throw *failure;
  return queue_->idle();
}

void Stream::synchronize() {
  if (capturing() && !mutated(Mutation::capturing_streams_synchronize)) {
    throw abi::Failure(AA_FAILED_PRECONDITION, "stream_synchronize of a stream that captures");
  }
  if (mutated(Mutation::synchronize_waits_for_the_device)) device_.synchronize();
  if (queue_->lazy()) queue_->release();
  queue_->wait();
  give_back_idle();
  if (const auto failure = queue_->failure(); failure && !mutated(Mutation::synchronizing_hides_failures))
    throw *failure;
}

void Stream::wait_event(abi::Event& event) {
  auto& waited = static_cast<Event&>(event);
  if (mutated(Mutation::waits_do_nothing)) return;
  if (auto capture = waited.capture(); capture && capture->open) {
    if (mutated(Mutation::waiting_streams_do_not_join)) return;
    const std::lock_guard lock(mutex_);
    leave_ended_capture();
    if (captured_ && shared_ != capture && !mutated(Mutation::captures_wait_for_each_other)) {
      throw abi::Failure(AA_FAILED_PRECONDITION,
                         "the stream and the event belong to two captures; end the capture of the event's stream "
                         "first, or record both streams in one capture");
    }
    captured_ = capture->items;
    shared_ = std::move(capture);
    return;
  }
  if (mutated(Mutation::waits_take_the_latest_record)) {
    add([&waited] {
      if (const auto record = waited.latest()) record->wait();
    });
    return;
  }
  auto record = waited.latest();
  if (mutated(Mutation::waits_for_fresh_events_hold) && !record) {
    add([&waited] {
      for (;;) {
        if (const auto late = waited.latest()) return late->wait();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    return;
  }
  if (!record) return;
  if (mutated(Mutation::waits_for_known_failures_do_nothing) && record->done()) return;
  if (mutated(Mutation::waits_across_devices_do_nothing)) {
    const auto queue = record->queue.lock();
    if (queue && !device_.owns(queue)) return;
  }
  if (mutated(Mutation::waits_hold_the_host)) record->wait();
  if (mutated(Mutation::waits_hold_every_stream)) device_.all_wait_for(record);
  const std::lock_guard lock(mutex_);
  if (captured_) {
    captured_->push_back({[] {}, nullptr, std::move(record), false, {}});
    return;
  }
  if (mutated(Mutation::waits_hold_no_host_calls) || mutated(Mutation::waits_hold_no_records) ||
      mutated(Mutation::waits_hold_no_fills)) {
    late_wait_ = std::move(record);
    return;
  }
  queue_->add({[] {}, nullptr, std::move(record), false, {}});
}

void Stream::wait_late() {
  if (late_wait_) queue_->add({[] {}, nullptr, std::exchange(late_wait_, nullptr), false, {}});
}

void* Stream::native() {
  if (mutated(Mutation::native_fails)) throw abi::Failure(AA_INTERNAL, "there is one, but it is secret");
  return this;
}

void Stream::host_call(void (*function)(void* user), void* user) {
  if (!device_.abilities().host_calls) abi::unimplemented("stream_host_call");
  if (mutated(Mutation::host_calls_are_lost)) return;
  if (!mutated(Mutation::waits_hold_no_host_calls)) wait_late();
  if (mutated(Mutation::host_calls_run_at_once)) return function(user);
  if (mutated(Mutation::host_calls_hold_nothing)) {
    add([=] { std::thread([=] { function(user); }).detach(); }, true);
    return;
  }
  if (captures()) {
    if (mutated(Mutation::recorded_host_calls_run_at_once)) return function(user);
    if (mutated(Mutation::recorded_host_calls_are_lost)) return;
    if (mutated(Mutation::recording_host_calls_is_refused)) abi::unimplemented("stream_host_call while recording");
  }
  if (mutated(Mutation::host_calls_get_no_pointer)) user = nullptr;
  add([=] { function(user); }, true);
}

void Stream::flush() {
  if (mutated(Mutation::flush_does_nothing)) return;
  queue_->release();
  if (mutated(Mutation::flush_waits)) queue_->wait();
}

void Stream::step_begin(const aa_step& step) {
  const std::lock_guard lock(mutex_);
  if (step_ && !mutated(Mutation::steps_nest)) {
    throw abi::Failure(AA_FAILED_PRECONDITION, "step_begin of a stream that is inside a step");
  }
  step_ = step.key;
  if (mutated(Mutation::steps_of_one_key_repeat_the_first)) repeats_ = steps_.contains(step.key);
}

void Stream::step_end() {
  {
    const std::lock_guard lock(mutex_);
    if (!step_ && !mutated(Mutation::steps_end_that_never_began)) {
      throw abi::Failure(AA_FAILED_PRECONDITION, "step_end of a stream that is in no step");
    }
    if (repeats_) {
      for (const Item& item : steps_[*step_]) queue_->add(item);
      repeats_ = false;
    }
    step_.reset();
  }
  if (!mutated(Mutation::step_end_releases_nothing)) queue_->release();
}

void Stream::inject_fault(int32_t code, int64_t native_code) {
  if (mutated(Mutation::failures_change_their_code)) code = AA_INTERNAL;
  queue_->fail_next(abi::Failure(static_cast<aa_code>(code), "a failure that was asked for", native_code));
}

bool Stream::enqueue_op(const aa_op_call& call) {
  give_back_idle();
  const size_t bytes = scratch_bytes(call);
  std::unique_ptr<abi::Scratch> scratch;
  if (bytes > 0 && !queue_->lazy()) scratch = std::make_unique<abi::Scratch>(host_, bytes);
  // Held work may run when a stream's scratch memory is somebody else's again. What a graph repeats finds memory of its own.
  if (bytes > 0 && queue_->lazy() && !captures()) scratch = std::make_unique<abi::Scratch>(device_.host(), bytes);
  auto run = prepare_op(device_, call, scratch ? scratch->pointer() : nullptr);
  if (mutated(Mutation::scratch_is_kept) || mutated(Mutation::idle_scratch_is_kept))
    static_cast<void>(scratch.release());
  if (mutated(Mutation::ops_run_at_once)) {
    run();
  } else {
    add(std::move(run));
  }
  if (mutated(Mutation::ops_begin_without_memory)) const abi::Scratch late(host_, 4);
  if (scratch && queue_->lazy()) {
    const uint64_t needed_until = queue_->added();
    const std::lock_guard lock(mutex_);
    idle_.push_back({std::move(scratch), needed_until});
  }
  return true;
}

void Stream::leave_ended_capture() {
  if (!shared_ || shared_->open || mutated(Mutation::joined_streams_go_on_capturing)) return;
  captured_ = nullptr;
  shared_ = nullptr;
}

std::shared_ptr<SharedCapture> Stream::capture() {
  const std::lock_guard lock(mutex_);
  leave_ended_capture();
  return shared_;
}

bool Stream::captures() {
  const std::lock_guard lock(mutex_);
  leave_ended_capture();
  return captured_ != nullptr;
}

// ---- graphs ----

void Stream::capture_begin() {
  const std::lock_guard lock(mutex_);
  leave_ended_capture();
  if (captured_ && !mutated(Mutation::captures_nest)) {
    throw abi::Failure(AA_FAILED_PRECONDITION, "capture_begin of a stream that captures");
  }
  captured_ = mutated(Mutation::captures_mix) ? device_.shared_capture() : std::make_shared<std::vector<Item>>();
  shared_ = std::make_shared<SharedCapture>(this, captured_);
  if (mutated(Mutation::capturing_holds_the_device)) device_.hold();
}

std::unique_ptr<abi::Graph> Stream::capture_end() {
  const std::lock_guard lock(mutex_);
  leave_ended_capture();
  if (!captured_) {
    if (mutated(Mutation::ends_without_begin)) return std::make_unique<Graph>(std::make_shared<std::vector<Item>>());
    throw abi::Failure(AA_FAILED_PRECONDITION, "capture_end of a stream that does not capture");
  }
  if (shared_->origin != this && !mutated(Mutation::joined_streams_end_captures)) {
    throw abi::Failure(AA_FAILED_PRECONDITION, "capture_end of a stream that joined the capture of another one");
  }
  if (mutated(Mutation::graphs_leak)) leak(3000);
  std::exchange(shared_, nullptr)->open = false;
  auto items = std::exchange(captured_, nullptr);
  if (mutated(Mutation::capturing_does_not_end)) {
    captured_ = std::make_shared<std::vector<Item>>();
    shared_ = std::make_shared<SharedCapture>(this, captured_);
  }
  if (mutated(Mutation::graphs_lose_their_last_item) && !items->empty()) items->pop_back();
  if (mutated(Mutation::graphs_run_backwards)) std::reverse(items->begin(), items->end());
  if (mutated(Mutation::graphs_run_when_they_are_made)) {
    for (Item& item : *items) item.run();
  }
  return std::make_unique<Graph>(std::move(items));
}

bool Stream::capturing() { return captures() && !mutated(Mutation::capture_status_is_zero); }

void Graph::launch(abi::Stream& stream) {
  if (mutated(Mutation::empty_graphs_are_refused) && items_->empty()) {
    throw abi::Failure(AA_INVALID_ARGUMENT, "there is nothing in the graph");
  }
  if (mutated(Mutation::launches_leak)) leak(1500);
  if (mutated(Mutation::graphs_run_once) && ++launches_ > 1) return;
  if (mutated(Mutation::launches_run_at_once)) {
    for (Item& item : *items_) item.run();
    return;
  }
  const auto& queue = static_cast<Stream&>(stream).queue();
  // On another stream, an earlier launch may not have completed. One that has failed must not fail this one.
  const bool follows = last_ && (!last_->failure() || mutated(Mutation::launches_follow_failures));
  if (follows && !mutated(Mutation::launches_overlap)) queue->add({[] {}, nullptr, last_, false, {}});
  for (const Item& item : *items_) queue->add(item);
  last_ = queue->record();
}

int64_t Graph::node_count() const {
  return mutated(Mutation::graphs_count_no_nodes) ? 0 : static_cast<int64_t>(items_->size());
}

}  // namespace reference
