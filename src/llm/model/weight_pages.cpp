// Implements weight_pages.h.
#include "llm/model/weight_pages.h"

#include <algorithm>
#include <string>

#include "anyaccel/format_bytes.h"
#include "anyaccel/log.h"

namespace anyaccel::llm {
namespace {

constexpr int64_t kParts = 64;
constexpr size_t kLeastPart = size_t{32} << 20;
constexpr int64_t kLooksEvery = 16;  // times as many steps as before the last look

}  // namespace

void WeightPages::after_step() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  if (++steps_ == next_look_) {
    next_look_ *= kLooksEvery;
    return find();
  }
  for (size_t moved = 0; moved < part_ && file_ < files_.size();) {
    const size_t some = files_[file_]->move_to_large_pages(part_ - moved);
    moved += some;
    if (some == 0) ++file_;
  }
  if (file_ == files_.size()) part_ = 0;
}

void WeightPages::find() {
  size_t small = 0;
  for (const auto& file : files_) small += file->find_small_pages();
  file_ = 0;
  part_ = 0;
  if (small == 0) return;
  const auto available = static_cast<size_t>(std::max<int64_t>(available_(), 0));
  const std::string found = format_bytes(static_cast<double>(small)) + " of the weights lie in small pages";
  if (small > available / 2) {
    return log_debug(found + " and stay there, since copies would need more than half of the " +
                     format_bytes(static_cast<double>(available)) + " of memory that are available");
  }
  log_debug(found + " and are moved into large ones from step to step");
  part_ = std::max(small / kParts, kLeastPart);
}

}  // namespace anyaccel::llm
