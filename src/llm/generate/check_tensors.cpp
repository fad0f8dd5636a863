// Checks all tensors of a checkpoint. The loader (model_load.cpp) provides how the model uses each tensor.
#include "anyaccel/llm/check_tensors.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>

#include "anyaccel/tensor.h"
#include "base/block_format.h"
#include "base/process/all_cores.h"
#include "llm/checkpoint/checkpoint_scan.h"
#include "llm/checkpoint/tensor_scan.h"

namespace anyaccel::llm {
namespace {

// A piece of a tensor, read and checked by one thread. Between the two it stays in the second-level cache.
constexpr uint64_t read_piece_bytes = uint64_t{1} << 20;

struct Piece {
  size_t tensor = 0;
  uint64_t begin = 0;  // bytes within the tensor
  uint64_t bytes = 0;
};

std::vector<int64_t> index_of(uint64_t flat, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    index[i] = static_cast<int64_t>(flat % static_cast<uint64_t>(shape[i]));
    flat /= static_cast<uint64_t>(shape[i]);
  }
  return index;
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string list_text(const std::vector<int64_t>& numbers) { return Shape(numbers).to_string(); }

}  // namespace

TensorCheck scan_checkpoint(const Checkpoint& checkpoint, const std::unordered_map<std::string, TensorUse>& uses) {
  const auto start = std::chrono::steady_clock::now();
  TensorCheck check;
  std::vector<TensorFinding> all;
  std::vector<const TensorView*> views;
  std::vector<Piece> pieces;
  for (const std::string& name : checkpoint.names()) {
    const TensorView& view = checkpoint.at(name);
    if (!can_scan(view.dtype)) continue;
    TensorFinding finding;
    finding.tensor = name;
    finding.file = checkpoint.files()[view.file]->path().string();
    finding.shape.assign(view.shape.begin(), view.shape.end());
    finding.dtype = view.dtype;
    if (const auto use = uses.find(name); use != uses.end()) finding.wanted = use->second.dtype;
    // A piece of a quantized tensor consists of whole blocks.
    const uint64_t piece_bytes = view.format == nullptr
                                     ? read_piece_bytes
                                     : read_piece_bytes / (sizeof(float) * view.format->values) * view.format->bytes;
    for (uint64_t begin = 0; begin < view.bytes; begin += piece_bytes) {
      pieces.push_back({all.size(), begin, std::min(piece_bytes, view.bytes - begin)});
    }
    check.bytes += view.bytes;
    all.push_back(std::move(finding));
    views.push_back(&view);
  }
  check.tensors = all.size();

  std::vector<ScanResult> results(all.size());
  std::mutex results_mutex;
  std::atomic<size_t> next{0};
  on_all_cores(pieces.size(), [&] {
    std::vector<std::byte> buffer(read_piece_bytes);
    std::vector<float> decoded;
    for (size_t i = next++; i < pieces.size(); i = next++) {
      const Piece& piece = pieces[i];
      TensorView part = *views[piece.tensor];
      part.offset += piece.begin;
      const std::span<std::byte> bytes = std::span(buffer).first(piece.bytes);
      checkpoint.read(part, bytes);
      std::span<const std::byte> values = bytes;
      uint64_t first = piece.begin / dtype_size(part.dtype);
      if (part.format != nullptr) {
        decoded.resize(piece.bytes / part.format->bytes * part.format->values);
        decode_blocks(*part.format, bytes, decoded);
        values = std::as_bytes(std::span(decoded));
        first = piece.begin / part.format->bytes * part.format->values;
      }
      const ScanResult result = scan_values(values, part.dtype, all[piece.tensor].wanted);
      const std::lock_guard lock(results_mutex);
      results[piece.tensor].add(result, first);
    }
  });
  checkpoint.check_unchanged();

  for (size_t i = 0; i < all.size(); ++i) {
    const ScanResult& result = results[i];
    TensorFinding& finding = all[i];
    finding.nan_count = result.nan_count;
    finding.infinite_count = result.infinite_count;
    finding.overflow_count = result.overflow_count;
    finding.largest = result.largest;
    const bool counted = result.first != UINT64_MAX;
    if (counted) finding.first = index_of(result.first, finding.shape);
    const auto use = uses.find(finding.tensor);
    finding.all_zero = !counted && result.largest == 0 && use != uses.end() && !use->second.may_be_zero;
    if (counted || finding.all_zero) check.findings.push_back(std::move(finding));
  }
  check.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return check;
}

std::string TensorFinding::to_string() const {
  std::string text = tensor + " " + list_text(shape) + " " + std::string(dtype_name(dtype)) + " in " + file + ": ";
  if (all_zero) return text + "is all zero";
  std::string what;
  const auto add = [&](uint64_t count, const std::string& name) {
    if (count > 0) what += (what.empty() ? "" : ", ") + std::to_string(count) + " " + name;
  };
  add(nan_count, "not a number");
  add(infinite_count, "infinite");
  add(overflow_count, "too large for " + std::string(dtype_name(wanted)) + " (up to " + number_text(largest) + ")");
  text += what + "; the first at " + list_text(first);
  if (wanted == DType::None) return text + "; the model does not use this tensor";
  if (overflow_count > 0) text += largest < 0x1.FFp127 ? "; bf16 and fp32 hold these values" : "; fp32 holds more";
  return text;
}

size_t TensorCheck::damaged() const noexcept {
  return static_cast<size_t>(
      std::count_if(findings.begin(), findings.end(), [](const TensorFinding& finding) { return finding.damaged(); }));
}

}  // namespace anyaccel::llm
