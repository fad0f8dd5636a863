// Implements data.h: makes the batches of both models.
#include "data.h"

#include <anyaccel/philox.h>

#include <algorithm>
#include <stdexcept>

using anyaccel::nn::Batch;
using anyaccel::nn::Context;

namespace {

// Returns the number of a sequence, which determines where it begins and which of its tokens are hidden.
uint64_t number_of(uint64_t seed, int64_t step, int64_t sequence) {
  const auto words = anyaccel::philox4x32_10(
      {static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32), static_cast<uint32_t>(sequence), 0x7e47},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return words[0] | static_cast<uint64_t>(words[1]) << 32;
}

constexpr int64_t kHeldOutBatch = 16;  // sequences of a batch

}  // namespace

Documents::Documents(std::vector<std::vector<int32_t>> documents, int32_t begin, int32_t end, int64_t length)
    : length_(static_cast<size_t>(length)) {
  std::vector<size_t> starts;
  for (const auto& document : documents) {
    starts.push_back(stream_.size());
    stream_.push_back(begin);
    stream_.insert(stream_.end(), document.begin(), document.end());
    stream_.push_back(end);
  }
  for (const size_t start : starts) {
    if (start + length_ + 1 <= stream_.size()) starts_.push_back(start);
  }
  held_from_ = starts_.size() - starts_.size() / 20;
  if (held_from_ < starts_.size()) {
    const auto is_trained = [&](size_t start) { return start + length_ + 1 <= starts_[held_from_]; };
    trained_ = static_cast<size_t>(std::count_if(starts_.begin(), starts_.end(), is_trained));
  }
  if (trained_ == 0) {
    throw std::runtime_error(
        "the text is too short: " + std::to_string(starts_.size()) + " documents with " + std::to_string(length + 1) +
        " tokens; expected at least 20 documents, one of which ends before the last twentieth of the "
        "tokens, which is held out");
  }
}

std::vector<int32_t> Documents::sequence(uint64_t number, bool held_out) const {
  const size_t start =
      held_out ? starts_[held_from_ + number % (starts_.size() - held_from_)] : starts_[number % trained_];
  return {stream_.begin() + static_cast<std::ptrdiff_t>(start),
          stream_.begin() + static_cast<std::ptrdiff_t>(start + length_ + 1)};
}

// -- NextToken

namespace {
void add_next(std::vector<int32_t>& ids, std::vector<int32_t>& targets, const std::vector<int32_t>& sequence) {
  ids.insert(ids.end(), sequence.begin(), sequence.end() - 1);
  targets.insert(targets.end(), sequence.begin() + 1, sequence.end());
}
}  // namespace

Batch NextToken::batch(Context& context, int64_t step, int64_t first, int64_t count) const {
  std::vector<int32_t> ids, targets;
  for (int64_t i = first; i < first + count; ++i) {
    add_next(ids, targets, documents_.sequence(number_of(seed_, step, i), false));
  }
  return Batch::from_host(context, count, length_, ids, targets);
}

std::vector<Batch> NextToken::held_out(Context& context, int64_t sequences) const {
  std::vector<Batch> batches;
  for (int64_t first = 0; first < sequences; first += kHeldOutBatch) {
    const int64_t count = std::min(kHeldOutBatch, sequences - first);
    std::vector<int32_t> ids, targets;
    for (int64_t i = first; i < first + count; ++i) {
      add_next(ids, targets, documents_.sequence(static_cast<uint64_t>(i), true));
    }
    batches.push_back(Batch::from_host(context, count, length_, ids, targets));
  }
  return batches;
}

// -- HiddenTokens

void HiddenTokens::add(std::vector<int32_t>& ids, std::vector<int32_t>& targets, uint64_t number, bool held_out) const {
  std::vector<int32_t> sequence = documents_.sequence(number, held_out);
  sequence.pop_back();
  std::vector<int32_t> wanted(sequence.size(), -1);
  const size_t hidden = std::max<size_t>(sequence.size() / 7, 1);
  uint64_t counter = 0;
  for (size_t done = 0; done < hidden;) {
    const auto words = anyaccel::philox_words(number ^ seed_, counter++);
    const size_t place = words[0] % sequence.size();
    if (wanted[place] >= 0) continue;
    wanted[place] = sequence[place];
    if (words[1] % 10 < 8) {
      sequence[place] = mask_;
    } else if (words[1] % 10 == 8) {
      sequence[place] = static_cast<int32_t>(words[2] % static_cast<uint32_t>(mask_));
    }
    ++done;
  }
  ids.insert(ids.end(), sequence.begin(), sequence.end());
  targets.insert(targets.end(), wanted.begin(), wanted.end());
}

Batch HiddenTokens::batch(Context& context, int64_t step, int64_t first, int64_t count) const {
  std::vector<int32_t> ids, targets;
  for (int64_t i = first; i < first + count; ++i) add(ids, targets, number_of(seed_, step, i), false);
  return Batch::from_host(context, count, length_, ids, targets);
}

std::vector<Batch> HiddenTokens::held_out(Context& context, int64_t sequences) const {
  std::vector<Batch> batches;
  for (int64_t first = 0; first < sequences; first += kHeldOutBatch) {
    const int64_t count = std::min(kHeldOutBatch, sequences - first);
    std::vector<int32_t> ids, targets;
    for (int64_t i = first; i < first + count; ++i) add(ids, targets, static_cast<uint64_t>(i), true);
    batches.push_back(Batch::from_host(context, count, length_, ids, targets));
  }
  return batches;
}
