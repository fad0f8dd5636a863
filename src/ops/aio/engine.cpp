// Implements engine.h: splits requests into parts and parts into transfers, and carries these out.
#include "ops/aio/engine.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/copy_bytes.h"

namespace anyaccel::ops::aio {
namespace {

// Memory for the bounce buffers of a lane, enough to keep a fast disk busy.
constexpr size_t bounce_budget = size_t{64} << 20;

// A transfer that fails with "try again" is repeated up to this many times, with pauses.
constexpr int most_retries = 10000;

int64_t round_down(int64_t value, int64_t unit) { return value / unit * unit; }
int64_t round_up(int64_t value, int64_t unit) { return round_down(value + unit - 1, unit); }

size_t bounce_bytes_for(int64_t block_size) {
  return static_cast<size_t>(round_up(std::max(block_size, largest_granule), largest_granule));
}

// Maps memory in huge pages, with which a transfer consists of a few long pieces: this is twice as fast as 4 KiB pages
// on a virtual disk. Returns null if there is no memory.
char* map_huge_pages(size_t bytes) {
  constexpr size_t huge = size_t{2} << 20;
  void* mapped =
      mmap(nullptr, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  // The ends around the aligned middle are unmapped.
  auto* raw = static_cast<char*>(mapped);
  const size_t head = (huge - reinterpret_cast<uintptr_t>(raw) % huge) % huge;
  if (head) munmap(raw, head);
  munmap(raw + head + bytes, huge - head);
  madvise(raw + head, bytes, MADV_HUGEPAGE);
  return raw + head;
}

}  // namespace

void Request::fail(Failure failure) {
  std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(failure);
  failed = true;
}

void Request::part_done() {
  if (--parts_left > 0) return;
  device_file.reset();
  file.close();
  done = true;
  done.notify_all();
}

// A part that its lane is working on.
struct Lane::ActivePart {
  Part part;
  int64_t cursor = 0;  // everything before it is in flight or done
  unsigned under_way = 0;
  bool begun = false;

  Request& request() const { return *part.request; }
  char* memory_at(int64_t offset) const { return request().data + (offset - request().offset); }
  bool exhausted() const { return begun && (cursor >= part.end || request().failed); }
};

// A transfer, and the range of a part that it is for.
struct Lane::Slot {
  Transfer transfer;
  ActivePart* part = nullptr;
  int64_t begin = 0;  // the range of the file that the request needs
  int64_t end = 0;
  bool direct = false;
  char* bounce = nullptr;
  int64_t bounce_begin = 0;  // the file offset of the bounce buffer's first byte
  int retries = 0;
};

Lane::Lane(const Settings& settings, std::unique_ptr<TransferQueue> queue)
    : settings_(settings),
      bounce_bytes_(bounce_bytes_for(settings.block_size)),
      most_bounces_(std::clamp<size_t>(bounce_budget / bounce_bytes_, 2, std::max(2u, settings.queue_depth))),
      queue_(std::move(queue)) {}

Lane::~Lane() {
  while (!idle()) step();
  queue_.reset();
  if (bounces_) munmap(bounces_, most_bounces_ * bounce_bytes_);
}

void Lane::add(Part part) {
  auto active = std::make_unique<ActivePart>();
  active->cursor = part.begin;
  active->part = std::move(part);
  parts_.push_back(std::move(active));
}

void Lane::step() {
  fill();
  if (under_way_ > 0) {
    done_.clear();
    queue_->reap(done_);
    for (Transfer* transfer : done_) {
      // The transfer is the slot's first member.
      complete(*reinterpret_cast<Slot*>(transfer));
    }
  }
  retire();
}

void Lane::fill() {
  if (!settings_.overlap_events && batch_full_) {
    if (under_way_ > 0) return;
    batch_full_ = false;
  }
  for (size_t i = 0; i < parts_.size() && under_way_ < settings_.queue_depth; ++i) {
    ActivePart& part = *parts_[i];
    if (!part.begun && !begin(part)) continue;
    while (under_way_ < settings_.queue_depth && !part.exhausted()) {
      Slot* slot = next_transfer(part);
      if (slot) {
        start(*slot);
        if (slot->bounce && slot->transfer.write) queue_->flush();  // runs during the next one's copy
      } else if (!part.request().failed) {
        batch_full_ = true;  // every bounce buffer is in use
        return;
      }
    }
  }
  batch_full_ = under_way_ > 0;
}

bool Lane::begin(ActivePart& part) noexcept {
  part.begun = true;
  Request& request = part.request();
  try {
    if (request.failed) return false;
    if (request.ready) request.ready.synchronize();
    if (const Failure& failure = request.file.open(request.offset, request.bytes)) {
      request.fail(failure);
      return false;
    }
    const int64_t size = request.whole_file ? request.file.size() : -1;
    if (size >= 0 && size != request.offset + request.bytes) {
      request.fail({0, AA_OUT_OF_RANGE,
                    "reading all of " + request.file.name() + " from offset " + std::to_string(request.offset) +
                        " on failed: the file has " + std::to_string(size) + " bytes, the buffer " +
                        std::to_string(request.bytes) + "; make the buffer fit, or use pread for a part"});
      return false;
    }
    if (request.by_device) {
      if (Failure failure = transfer_by_device(part)) request.fail(std::move(failure));
      part.cursor = part.part.end;
      return false;
    }
    if (request.locked) queue_->use(request.memory.storage());
    return true;
  } catch (const Error& error) {
    request.fail({0, error.code(), error.what()});
  } catch (const std::exception& error) {
    request.fail({ENOMEM, AA_INTERNAL, error.what()});
  }
  return false;
}

// Transfers a whole part, and blocks until that is done.
Failure Lane::transfer_by_device(const ActivePart& part) {
  Request& request = part.request();
  const std::string& name = request.file.name();
  const int64_t begin = std::clamp(part.part.begin, request.middle_begin, request.middle_end);
  const int64_t end = std::clamp(part.part.end, request.middle_begin, request.middle_end);
  if (begin < end) {
    if (Failure failure = request.device_file->transfer(request.write, name, part.memory_at(begin), begin, end)) {
      return failure;
    }
  }
  const char* from = request.ends ? static_cast<const char*>(request.ends.data()) : nullptr;
  const std::pair<int64_t, int64_t> ends[] = {{request.offset, request.middle_begin},
                                              {request.middle_end, request.offset + request.bytes}};
  for (const auto& [first, last] : ends) {
    for (int64_t at = first; at < last && first >= part.part.begin && last <= part.part.end;) {
      const int fd = request.file.buffered_fd();
      const ssize_t put = fd < 0 ? -1 : ::pwrite(fd, from + (at - first), static_cast<size_t>(last - at), at);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return failure_of(errno, true, name, request.offset, request.bytes);
      at += put;
    }
    from += last - first;
  }
  return {};
}

// ---- cutting into transfers -----------------------------------------------------------------------------------------

Lane::Slot* Lane::next_transfer(ActivePart& part) {
  const File& file = part.request().file;
  if (file.direct()) return part.request().write ? next_write(part) : next_read(part);
  return through_page_cache(
      part, part.cursor, std::min(part.part.end, round_down(part.cursor, settings_.block_size) + settings_.block_size));
}

Lane::Slot* Lane::next_read(ActivePart& part) {
  const File& file = part.request().file;
  const int64_t unit = std::max(file.granule(), round_down(settings_.block_size, file.granule()));
  const int64_t alignment = file.offset_alignment();
  const int64_t begin = part.cursor;
  const int64_t end = std::min(part.part.end, round_down(begin, unit) + unit);
  // This checks whether bytes at aligned offsets of the file lie at aligned addresses.
  const int64_t address = reinterpret_cast<intptr_t>(part.request().data) - part.request().offset;
  if (address % file.memory_alignment() != 0) return direct(part, begin, end, true);
  if (begin % alignment != 0) return direct(part, begin, std::min(end, round_up(begin, alignment)), true);
  const int64_t whole = round_down(end, alignment);
  return whole > begin ? direct(part, begin, whole, false) : direct(part, begin, end, true);
}

Lane::Slot* Lane::next_write(ActivePart& part) {
  const File& file = part.request().file;
  const int64_t granule = file.granule();
  const int64_t unit = std::max(granule, round_down(settings_.block_size, granule));
  const int64_t begin = part.cursor;
  const int64_t end = std::min(part.part.end, round_down(begin, unit) + unit);
  if (begin % granule != 0) return through_page_cache(part, begin, std::min(end, round_up(begin, granule)));
  const int64_t whole = round_down(end, granule);
  if (whole <= begin) return through_page_cache(part, begin, end);
  const auto address = reinterpret_cast<intptr_t>(part.memory_at(begin));
  return direct(part, begin, whole, address % file.memory_alignment() != 0);
}

Lane::Slot* Lane::take_slot(ActivePart& part, int64_t begin, int64_t end) {
  if (free_slots_.empty()) {
    slots_.push_back(std::make_unique<Slot>());
    free_slots_.push_back(slots_.back().get());
  }
  Slot* slot = free_slots_.back();
  free_slots_.pop_back();
  *slot = Slot();
  slot->part = &part;
  slot->begin = begin;
  slot->end = end;
  slot->transfer.write = part.request().write;
  slot->transfer.offset = begin;
  slot->transfer.length = static_cast<size_t>(end - begin);
  slot->transfer.memory = part.memory_at(begin);
  part.cursor = end;
  return slot;
}

Lane::Slot* Lane::through_page_cache(ActivePart& part, int64_t begin, int64_t end) {
  Request& request = part.request();
  const int fd = request.file.buffered_fd();
  if (fd < 0) {
    request.fail(failure_of(errno, request.write, request.file.name(), request.offset, request.bytes));
    return nullptr;
  }
  Slot* slot = take_slot(part, begin, end);
  slot->transfer.fd = fd;
  return slot;
}

Lane::Slot* Lane::direct(ActivePart& part, int64_t begin, int64_t end, bool bounced) {
  Request& request = part.request();
  char* bounce = nullptr;
  if (bounced) {
    bounce = take_bounce();
    if (!bounce && !bounces_) {
      request.fail(failure_of(ENOMEM, request.write, request.file.name(), request.offset, request.bytes));
    }
    if (!bounce) return nullptr;
  }
  Slot* slot = take_slot(part, begin, end);
  slot->direct = true;
  slot->transfer.fd = request.file.direct_fd();
  if (!bounced) return slot;
  slot->bounce = bounce;
  slot->bounce_begin = round_down(begin, request.file.offset_alignment());
  if (request.write) copy_bytes(bounce, part.memory_at(begin), static_cast<size_t>(end - begin));
  slot->transfer.memory = bounce;
  slot->transfer.offset = slot->bounce_begin;
  slot->transfer.length = static_cast<size_t>(round_up(end, request.file.offset_alignment()) - slot->bounce_begin);
  return slot;
}

// Returns null if all are in use, or if there is no memory for the first one.
char* Lane::take_bounce() {
  if (free_bounces_.empty()) {
    if (bounces_made_ == most_bounces_) return nullptr;
    if (!bounces_) bounces_ = map_huge_pages(most_bounces_ * bounce_bytes_);
    if (!bounces_) return nullptr;
    return bounces_ + bounces_made_++ * bounce_bytes_;
  }
  char* bounce = free_bounces_.back();
  free_bounces_.pop_back();
  return bounce;
}

// ---- carrying out ---------------------------------------------------------------------------------------------------

void Lane::start(Slot& slot) {
  ++under_way_;
  ++slot.part->under_way;
  const Request& request = slot.part->request();
  slot.transfer.registered = -1;
  if (request.locked && !slot.bounce) {
    slot.transfer.registered =
        queue_->registered_buffer(request.memory.storage(), slot.transfer.memory, slot.transfer.length);
  }
  queue_->submit(&slot.transfer);
}

void Lane::complete(Slot& slot) {
  --under_way_;
  --slot.part->under_way;
  Request& request = slot.part->request();
  Transfer& transfer = slot.transfer;
  if (request.failed) return release(slot);
  const auto fail = [&](int error) {
    request.fail(failure_of(error, request.write, request.file.name(), request.offset, request.bytes));
    release(slot);
  };
  if (transfer.result < 0) {
    const int error = static_cast<int>(-transfer.result);
    if ((error == EINTR || error == EAGAIN) && slot.retries < most_retries) {
      if (++slot.retries > 16) usleep(100);
      return start(slot);
    }
    if (error == EINVAL && slot.direct) {
      request.file.give_up_direct("an aligned transfer was refused (EINVAL)");
      return to_page_cache(slot);
    }
    return fail(error);
  }
  if (transfer.result == 0) {
    if (request.write) return fail(EIO);
    const int64_t size = request.file.size();
    request.fail(past_the_end(request.file.name(), request.offset, request.bytes, size < 0 ? transfer.offset : size));
    return release(slot);
  }
  const int64_t reached = transfer.offset + transfer.result;
  if (reached >= slot.end) return finish(slot);
  // The transfer was short, so the rest is requested again.
  if (slot.direct && transfer.result % request.file.offset_alignment() != 0) {
    if (reached > slot.begin) {
      if (slot.bounce && !request.write) {
        copy_bytes(slot.part->memory_at(slot.begin), slot.bounce + (slot.begin - slot.bounce_begin),
                   static_cast<size_t>(reached - slot.begin));
      }
      slot.begin = reached;
    }
    return to_page_cache(slot);
  }
  transfer.memory += transfer.result;
  transfer.length -= static_cast<size_t>(transfer.result);
  transfer.offset = reached;
  start(slot);
}

// Sends the rest of a direct transfer through the page cache.
void Lane::to_page_cache(Slot& slot) {
  Request& request = slot.part->request();
  const int fd = request.file.buffered_fd();
  if (fd < 0) {
    request.fail(failure_of(errno, request.write, request.file.name(), request.offset, request.bytes));
    return release(slot);
  }
  if (slot.bounce) free_bounces_.push_back(slot.bounce);
  slot.bounce = nullptr;
  slot.direct = false;
  slot.transfer.fd = fd;
  slot.transfer.memory = slot.part->memory_at(slot.begin);
  slot.transfer.offset = slot.begin;
  slot.transfer.length = static_cast<size_t>(slot.end - slot.begin);
  start(slot);
}

void Lane::finish(Slot& slot) {
  if (slot.bounce && !slot.transfer.write) {
    copy_bytes(slot.part->memory_at(slot.begin), slot.bounce + (slot.begin - slot.bounce_begin),
               static_cast<size_t>(slot.end - slot.begin));
  }
  release(slot);
}

void Lane::release(Slot& slot) {
  if (slot.bounce) free_bounces_.push_back(slot.bounce);
  free_slots_.push_back(&slot);
}

void Lane::retire() {
  // Parts are started in order, so no part after the first that is not exhausted can be done.
  for (size_t i = 0; i < parts_.size() && parts_[i]->exhausted();) {
    if (parts_[i]->under_way > 0) {
      ++i;
      continue;
    }
    const std::shared_ptr<Request> request = parts_[i]->part.request;
    if (request->validate && !request->failed && !request->by_device) {
      if (Failure failure = compare(*request, parts_[i]->part.begin, parts_[i]->part.end)) {
        request->fail(std::move(failure));
      }
    }
    parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(i));
    request->part_done();
  }
}

Failure compare(Request& request, int64_t begin, int64_t end) {
  const int fd = request.file.readable_fd();
  if (fd < 0) return failure_of(errno, false, request.file.name(), begin, end - begin);
  std::vector<char> plain(size_t{1} << 20);
  for (int64_t at = begin; at < end;) {
    const auto length = static_cast<size_t>(std::min<int64_t>(end - at, static_cast<int64_t>(plain.size())));
    const ssize_t got = ::pread(fd, plain.data(), length, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failure_of(errno, false, request.file.name(), begin, end - begin);
    if (got == 0) return past_the_end(request.file.name(), begin, end - begin, request.file.size());
    const char* memory = request.data + (at - request.offset);
    if (std::memcmp(plain.data(), memory, static_cast<size_t>(got)) != 0) {
      const auto differs = std::mismatch(plain.begin(), plain.begin() + got, memory).first - plain.begin();
      return {0, AA_DATA_LOSS,
              std::string(request.write ? "writing " : "reading ") + request.file.name() +
                  ": validation found that the byte at offset " + std::to_string(at + differs) +
                  " of the file is not the one in memory"};
    }
    at += got;
  }
  return {};
}

std::vector<int64_t> part_bounds(int64_t offset, int64_t bytes, int64_t most) {
  std::vector<int64_t> bounds{offset};
  for (int64_t i = 1; i < most; ++i) {
    const int64_t share = bytes / most * i + bytes % most * i / most;
    const int64_t bound = round_down(offset + share, largest_granule);
    if (bound > bounds.back()) bounds.push_back(bound);
  }
  bounds.push_back(offset + bytes);
  return bounds;
}

}  // namespace anyaccel::ops::aio
