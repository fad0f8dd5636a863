// Implements weight_pages.h.
#include "llm/model/weight_pages.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <limits>
#include <string>

#include "anyaccel/format_bytes.h"
#include "anyaccel/log.h"
#include "base/process/large_pages.h"

namespace anyaccel::llm {
namespace {

constexpr int64_t kLooksEvery = 16;  // times as many steps as before the last look
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
// Pieces are as small as they can be without becoming too many mappings, of which a process may have 65,530.
constexpr int64_t kPieces = 2048, kMostPieces = 8192;
constexpr size_t kLargestPiece = size_t{64} << 20;
constexpr std::chrono::duration<double> kMostTime{0.25};
// A part that is moved and read again, the number of these, and how much faster their reading must be. Copying takes as long as some
// 25 to 60 tokens. A bf16 model decoded 1.04 times as fast from large pages in an hour in which its small ones lay side by side,
// and 1.7 times in another.
constexpr size_t kTrialBytes = size_t{16} << 20, kTrials = 5;
constexpr double kLeastGain = 1.1;

}  // namespace

double seconds_to_read(std::span<const std::byte> memory) {
  const auto start = std::chrono::steady_clock::now();
  uint64_t sum = 0;
  for (size_t at = 0; at + sizeof(uint64_t) <= memory.size(); at += 64) {  // a cache line
    uint64_t word;
    std::memcpy(&word, memory.data() + at, sizeof word);
    sum += word;
  }
  static std::atomic<uint64_t> sink{0};
  sink.fetch_add(sum, std::memory_order_relaxed);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void WeightPages::after_step() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || next_look_ == kNever) return;
  try {
    if (++steps_ == next_look_) {
      next_look_ *= kLooksEvery;
      find();
    } else if (left_ > 0) {
      move();
    }
  } catch (const std::exception& error) {
    stop(error.what());  // steps do without large pages
  }
  last_ = Clock::now();
}

void WeightPages::stop(const std::string& why) {
  left_ = 0;
  next_look_ = kNever;
  log_debug("weights stay in small pages: " + why);
}

void WeightPages::find() {
  left_ = 0;
  trial_ = {};
  for (const auto& file : files_) left_ += file->find_small_pages();
  file_ = 0;
  piece_ = std::clamp(left_ / kPieces / kLargePage * kLargePage, kLargePage, kLargestPiece);
  if (left_ > 0) log_debug(format_bytes(static_cast<double>(left_)) + " of the weights lie in small pages");
}

// Moves some of the first file that has something left. Empty if none has, or if the system refuses.
std::span<const std::byte> WeightPages::move_piece(size_t bytes) {
  while (file_ < files_.size()) {
    const auto moved = files_[file_]->move_to_large_pages(bytes);
    left_ -= std::min(moved.size(), left_);
    if (files_[file_]->refuses_large_pages() || ++pieces_ == kMostPieces) {
      stop("the system gave no large page, or there are too many mappings");
      return {};
    }
    if (!moved.empty()) return moved;
    ++file_;
  }
  left_ = 0;
  return {};
}

// Whether enough trials were faster; until there are enough, makes the next one.
bool WeightPages::helps() {
  if (!trial_.empty()) gains_.push_back(before_ / std::max(system_.seconds_to_read(trial_), 1e-9));
  trial_ = {};
  if (gains_.size() < kTrials) {
    while (left_ > 0 && file_ < files_.size() && files_[file_]->next_small_pages(kTrialBytes).empty()) ++file_;
    if (left_ == 0 || file_ == files_.size()) return false;
    before_ = system_.seconds_to_read(files_[file_]->next_small_pages(kTrialBytes));
    trial_ = move_piece(kTrialBytes);
    return false;
  }
  auto gains = gains_;
  std::sort(gains.begin(), gains.end());
  if (gains[kTrials / 2] >= kLeastGain) return true;
  stop("parts that were moved are read only " + std::to_string(gains[kTrials / 2]) + " times as fast");
  return false;
}

void WeightPages::move() {
  const auto available = static_cast<size_t>(std::max<int64_t>(system_.available(), 0));
  if (left_ > available / 2) {
    log_debug(format_bytes(static_cast<double>(left_)) +
              " of the weights stay in small pages, since copies could need more than half of the " +
              format_bytes(static_cast<double>(available)) + " of memory that are available");
    left_ = 0;
    return;
  }
  if (!helps()) return;
  const auto start = Clock::now();
  const auto time = std::min((start - last_) / 4, std::chrono::duration_cast<Clock::duration>(kMostTime));
  while (left_ > 0) {
    move_piece(piece_);
    if (Clock::now() - start >= time) break;
  }
}

}  // namespace anyaccel::llm
