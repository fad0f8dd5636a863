// Implements weight_pages.h.
#include "llm/model/weight_pages.h"

#include <algorithm>
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

}  // namespace

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
    // Steps do without large pages.
    left_ = 0;
    next_look_ = kNever;
    log_debug(error.what());
  }
  last_ = Clock::now();
}

bool WeightPages::is_busy() const {
  const std::lock_guard lock(mutex_);
  return next_look_ == kFirstLook || left_ > 0;
}

void WeightPages::find() {
  left_ = 0;
  for (const auto& file : files_) left_ += file->find_small_pages();
  file_ = 0;
  piece_ = std::clamp(left_ / kPieces / kLargePage * kLargePage, kLargePage, kLargestPiece);
  if (left_ > 0) log_debug(format_bytes(static_cast<double>(left_)) + " of the weights lie in small pages");
}

void WeightPages::move() {
  const auto available = static_cast<size_t>(std::max<int64_t>(available_(), 0));
  if (left_ > available / 2) {
    log_debug(format_bytes(static_cast<double>(left_)) +
              " of the weights stay in small pages, since copies could need more than half of the " +
              format_bytes(static_cast<double>(available)) + " of memory that are available");
    left_ = 0;
    return;
  }
  const auto start = Clock::now();
  const auto time = std::min((start - last_) / 4, std::chrono::duration_cast<Clock::duration>(kMostTime));
  do {
    const size_t moved = files_[file_]->move_to_large_pages(piece_);
    left_ -= std::min(moved, left_);
    if (files_[file_]->refuses_large_pages() || ++pieces_ == kMostPieces) {
      left_ = 0;
      next_look_ = kNever;
      return log_debug(
          "the rest of the weights stays in small pages: the system gave no large page, or there are too many "
          "mappings");
    }
    if (moved == 0 && ++file_ == files_.size()) left_ = 0;
  } while (left_ > 0 && Clock::now() - start < time);
}

}  // namespace anyaccel::llm
