// Implements op_run.h: tensors with guarded surroundings, and comparisons of results.
#include "conformance/op_run.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "conformance/op_roles.h"
#include "conformance/services.h"

namespace anyaccel::conformance {
namespace {

constexpr size_t guard_bytes = 512;  // before and after; a multiple of every dtype's size and of usual alignments

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", value);
  return text;
}

const Layout& layout_in(TensorForm form, const Layout& wanted) {
  if (&wanted == &of_blocks && form == TensorForm::spread) return padded;
  if (&wanted != &dense && &wanted != &of_blocks) return wanted;
  if (form == TensorForm::padded) return padded;
  if (form == TensorForm::spread) return spread;
  return dense;
}

// The bytes from the first to the last element of a tensor.
struct Extent {
  unsigned char* first;
  size_t size;
};
Extent extent_of(const aa_tensor& tensor) {
  int64_t lowest = 0;
  int64_t highest = 0;
  for (int32_t d = 0; d < tensor.ndim; ++d) {
    if (tensor.shape[d] == 0) return {static_cast<unsigned char*>(tensor.data), 0};
    const int64_t reach = (tensor.shape[d] - 1) * tensor.strides[d];
    (reach < 0 ? lowest : highest) += reach;
  }
  const int64_t item = dtype_size(tensor.dtype);
  return {static_cast<unsigned char*>(tensor.data) + lowest * item, static_cast<size_t>((highest - lowest + 1) * item)};
}

bool overlap(const Extent& a, const Extent& b) { return a.first < b.first + b.size && b.first < a.first + a.size; }

bool same_form(const aa_tensor& a, const aa_tensor& b) {
  return a.dtype == b.dtype && a.ndim == b.ndim && std::ranges::equal(a.shape, b.shape) &&
         std::ranges::equal(a.strides, b.strides);
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

size_t count_of(const Shape& shape) {
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  return count;
}

Values numbers(size_t count, unsigned seed, double range) {
  const Bytes bytes = pattern(count * 3, seed);
  Values values(count);
  for (size_t i = 0; i < count; ++i) {
    const int word = bytes[3 * i] << 16 | bytes[3 * i + 1] << 8 | bytes[3 * i + 2];
    values[i] = (word - (1 << 23)) * range / (1 << 23);
  }
  return values;
}

OpTensor::OpTensor(const Context& c, int32_t dtype, Shape shape, const Values& given, const Layout& wanted)
    : c_(c), shape_(std::move(shape)), item_(static_cast<size_t>(dtype_size(dtype))) {
  const Layout& layout = layout_in(c.form, wanted);
  view_.dtype = dtype;
  view_.ndim = static_cast<int32_t>(shape_.size());
  int64_t stride = layout.inner;
  int64_t extent = 1;
  for (size_t i = AA_MAX_DIMS; i-- > 0;) {
    view_.shape[i] = i < shape_.size() ? shape_[i] : 1;
    view_.strides[i] = i < shape_.size() ? stride : 0;
    if (i >= shape_.size()) continue;
    extent += std::max<int64_t>(shape_[i] - 1, 0) * stride;
    stride = std::max<int64_t>(shape_[i], 1) * stride + (i + 1 == shape_.size() ? layout.gap : 0);
  }
  count_ = count_of(shape_);
  origin_ = guard_bytes + static_cast<size_t>(layout.offset) * item_;
  storage_.assign(origin_ + static_cast<size_t>(extent) * item_ + guard_bytes, 0xff);
  memory_ = std::make_unique<Memory>(c, storage_.size());
  view_.data = memory_->data() + origin_;
  set(given.empty() ? Values(count_) : given);
}

size_t OpTensor::place(size_t element) const noexcept {
  int64_t offset = 0;
  for (size_t d = shape_.size(); d-- > 0;) {
    const auto size = static_cast<size_t>(shape_[d]);
    offset += static_cast<int64_t>(element % size) * view_.strides[d];
    element /= size;
  }
  return origin_ + static_cast<size_t>(offset) * item_;
}

// Calls visit(element, byte in the storage) for every element. Finding the place of one takes two divisions for each dimension, and
// so is done for each row only.
template <class Visit>
void OpTensor::for_each_element(Visit&& visit) const {
  const size_t row = shape_.empty() ? 1 : static_cast<size_t>(shape_.back());
  const size_t step = shape_.empty() ? 0 : static_cast<size_t>(view_.strides[shape_.size() - 1]) * item_;
  for (size_t first = 0; first < count_; first += row) {
    const size_t byte = place(first);
    for (size_t k = 0; k < row; ++k) visit(first + k, byte + k * step);
  }
}

void OpTensor::set(const Values& values) {
  c_.expect(values.size() == count_, "the suite made a tensor with the wrong number of values");
  given_.resize(count_);
  for_each_element([&](size_t i, size_t byte) {
    store(&storage_[byte], view_.dtype, values[i]);
    given_[i] = load(&storage_[byte], view_.dtype);
  });
  c_.upload(memory_->data(), storage_.data(), storage_.size());
}

Bytes OpTensor::checked_storage() const {
  const Bytes now = c_.download(memory_->data(), storage_.size());
  Bytes around = now;
  for_each_element([&](size_t, size_t byte) { std::memset(&around[byte], 0xff, item_); });
  // Equal to itself one byte further on: all bytes are equal to the first.
  if (around[0] == 0xff && std::memcmp(around.data(), around.data() + 1, around.size() - 1) == 0) return now;
  const auto changed = std::ranges::find_if(around, [](unsigned char byte) { return byte != 0xff; });
  throw Failed{"wrote outside of its output, " +
               std::to_string(changed - around.begin() - static_cast<int64_t>(origin_)) +
               " bytes after the first element"};
}

Values OpTensor::found() const {
  const Bytes now = checked_storage();
  Values values(count_);
  for_each_element([&](size_t i, size_t byte) { values[i] = load(&now[byte], view_.dtype); });
  return values;
}

Bytes OpTensor::found_bytes() const {
  const Bytes now = checked_storage();
  Bytes bytes(count_ * item_);
  for_each_element([&](size_t i, size_t byte) { std::memcpy(bytes.data() + i * item_, &now[byte], item_); });
  return bytes;
}

std::string Limit::text() const {
  if (absolute == 0 && relative == 0 && factor == 0) return "a = b rounded once";
  std::string text = "|a-b| <= ";
  if (absolute > 0) text += number_text(absolute) + " + ";
  text += relative > 0 ? "(" + number_text(relative) + " + u)|b|" : "u|b|";
  if (factor > 0) text += " + " + number_text(factor) + " " + scale_text;
  return text;
}

OpRun::OpRun(const Context& c, const char* name, const Limit& limit) : c_(c), name_(name), limit_(limit) {
  op_ = c.ops->find(name);
  if (op_ < 0) c.unsupported(std::string("there is no op \"") + name + "\"");
}

bool OpRun::put_in_place(std::vector<aa_tensor>& tensors, aa_tensor& output, aa_tensor& input) const {
  const auto roles = roles_of(name_);
  // dx may be dy only where nothing else is summed from dy.
  if (name_ == "norm_backward" && (tensors[1].dtype || tensors[2].dtype)) return false;
  std::vector<std::pair<size_t, size_t>> possible;
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (size_t j = 0; j < tensors.size(); ++j) {
      if (!(roles[i].in_place >> j & 1) || !tensors[i].dtype) continue;
      if (tensors[i].data == tensors[j].data) return false;  // the case does it itself
      if (same_form(tensors[i], tensors[j])) possible.emplace_back(i, j);
    }
  }
  if (possible.empty()) return false;
  const auto [i, j] = possible[static_cast<size_t>(ran_) % possible.size()];
  output = tensors[i];
  input = tensors[j];
  tensors[i].data = input.data;
  return true;
}

// A call without memory has done nothing, so that it can be made again, as the host does: the result is that of one call.
aa_status* OpRun::enqueue_short_of_memory(const aa_op_call& call) {
  constexpr int64_t most_requests = 40;  // of a call that are refused
  for (int64_t granted = 0; granted < most_requests; ++granted) {
    refuse_scratch(granted);
    aa_status* status = c_.ops->enqueue(call);
    if (!end_refusing_scratch() || !status) return status;
    ++scratch_refused_;
    c_.error(status, {AA_RESOURCE_EXHAUSTED}, "\"" + name_ + "\" without memory");
  }
  return c_.ops->enqueue(call);
}

// Enqueues the call and checks that it changes nothing but what it is to write.
aa_status* OpRun::enqueue(const aa_op_call& call) {
  struct Input {
    const char* name;
    Extent extent;
    Bytes before;
  };
  if (c_.captures > 0) return c_.ops->enqueue(call);
  const auto roles = roles_of(name_);
  std::vector<Extent> written;
  for (size_t i = 0; i < call.tensor_count; ++i) {
    if (roles[i].written && call.tensors[i].dtype) written.push_back(extent_of(call.tensors[i]));
  }
  std::vector<Input> inputs;
  for (size_t i = 0; i < call.tensor_count; ++i) {
    if (roles[i].written || !call.tensors[i].dtype) continue;
    const Extent extent = extent_of(call.tensors[i]);
    if (extent.size == 0) continue;
    if (std::ranges::any_of(written, [&](const Extent& other) { return overlap(extent, other); })) continue;
    inputs.push_back({roles[i].name, extent, c_.download(extent.first, extent.size)});
  }
  aa_status* status = c_.form == TensorForm::short_of_memory ? enqueue_short_of_memory(call) : c_.ops->enqueue(call);
  if (status) return status;
  for (const Input& input : inputs) {
    c_.expect(c_.download(input.extent.first, input.extent.size) == input.before,
              "\"" + name_ + "\" changed its input \"" + input.name + "\"");
  }
  return nullptr;
}

bool OpRun::run(const std::vector<aa_tensor>& tensors, const void* params, size_t params_size, const std::string& what,
                bool must_succeed, aa_status** out_status) {
  std::vector<aa_tensor> used = tensors;
  aa_tensor output{};
  aa_tensor input{};
  if (c_.form == TensorForm::in_place && !put_in_place(used, output, input)) return false;
  const std::vector<aa_tensor> with_memory = used;
  for (aa_tensor& tensor : used) {
    if (c_.form == TensorForm::null && extent_of(tensor).size == 0) tensor.data = nullptr;
  }
  std::vector<aa_tensor> shapes = used;
  for (aa_tensor& tensor : shapes) tensor.data = nullptr;
  aa_op_call call{};
  call.struct_size = sizeof(call);
  call.op = op_;
  call.tensor_count = static_cast<uint32_t>(shapes.size());
  call.params = params;
  call.params_size = static_cast<uint32_t>(params_size);
  const auto supported = [&](const std::vector<aa_tensor>& given) {
    call.tensors = given.data();
    return c_.ops->supports(call);
  };
  // A call may be rejected for its data's alignment, which it has only with data. So what is accepted with all data must be accepted
  // where some or all are left out.
  if (!supported(with_memory)) {
    ++refused_;
    return false;
  }
  const std::string refuses =
      "\"" + name_ + "\" " + what + ": \"supports\" accepts the call with memory, and refuses it ";
  c_.expect(supported(shapes), refuses + "where no tensor has its data yet");
  c_.expect(supported(used), refuses + "where tensors without elements have none");
  ++who_[c_.ops->source(call)];
  Bytes given;
  const Extent place = extent_of(input);
  if (output.dtype) given = c_.download(place.first, place.size);
  aa_status* status = enqueue(call);
  ++ran_;
  if (must_succeed) {
    c_.ok(status, "\"" + name_ + "\" " + what);
  } else {
    *out_status = status;
  }
  if (output.dtype) {
    // The case looks for the result in the output and for the input where it put it.
    const Bytes result = c_.download(place.first, place.size);
    c_.upload(extent_of(output).first, result.data(), result.size());
    c_.upload(place.first, given.data(), given.size());
  }
  return true;
}

void OpRun::compare(const OpTensor& output, const Values& reference, const std::string& what, const Values& scale) {
  compare_values(output.dtype(), output.found(), reference, what, scale);
}

void OpRun::compare_values(int32_t dtype, const Values& found, const Values& reference, const std::string& what,
                           const Values& scale) {
  const std::string text = std::string(dtype_text(dtype));
  c_.expect(found.size() == reference.size(), "the suite's reference has another size");
  const bool bits = limit_.absolute == 0 && limit_.relative == 0 && limit_.factor == 0;
  const double u = unit_roundoff(dtype);
  const double smallest = smallest_roundoff(dtype);
  Worst& worst = worst_[text];
  for (size_t i = 0; i < found.size(); ++i) {
    ++worst.count;
    const double stored = rounded(reference[i], dtype);
    if (same(found[i], stored) && (bits || !std::isfinite(stored))) continue;
    const double difference = std::fabs(found[i] - reference[i]);
    const double limit = limit_.absolute + (limit_.relative + u) * std::fabs(reference[i]) + smallest +
                         (scale.empty() ? 0 : limit_.factor * scale[i]);
    if (bits || !std::isfinite(found[i]) || !std::isfinite(stored) || !(difference <= limit)) {
      char numbers_text[128];
      std::snprintf(numbers_text, sizeof(numbers_text), "is %.9g and must be %.9g (a difference of %.3g)", found[i],
                    bits ? stored : reference[i], difference);
      throw Failed{"\"" + name_ + "\" to " + text + ", " + what + ": element " + std::to_string(i) + " of " +
                   std::to_string(found.size()) + " " + numbers_text + "; limit: " + limit_.text()};
    }
    worst.difference = std::max(worst.difference, difference);
    worst.share = std::max(worst.share, difference / limit);
  }
}

void OpRun::unchanged(const OpTensor& input, const std::string& what) const {
  const Values found = input.found();
  for (size_t i = 0; i < found.size(); ++i) {
    c_.expect(same(found[i], input.given()[i]), "\"" + name_ + "\" changed " + what);
  }
}

void OpRun::finish() {
  if (ran_ == 0 && refused_ == 0 && c_.form == TensorForm::in_place) {
    c_.unsupported("no call of \"" + name_ + "\" in this case can have an output that is an input");
  }
  if (ran_ == 0) c_.unsupported("every call of \"" + name_ + "\" is refused");
  if (c_.form == TensorForm::short_of_memory && scratch_refused_ == 0) {
    c_.unsupported("\"" + name_ + "\" asks for no scratch memory");
  }
  std::string note = limit_.text();
  for (const auto& [dtype, worst] : worst_) {
    note += "; " + dtype + ": " + std::to_string(worst.count) + " elements";
    if (limit_.absolute > 0 || limit_.relative > 0 || limit_.factor > 0) {
      note += ", at most " + number_text(worst.difference) + ", " + number_text(worst.share) + " of the limit";
    }
  }
  note += "; by";
  for (const auto& [who, count] : who_) note += " " + who + " (" + std::to_string(count) + " calls)";
  if (scratch_refused_) note += "; " + std::to_string(scratch_refused_) + " requests for scratch memory refused";
  if (refused_) note += "; " + std::to_string(refused_) + " calls refused";
  c_.note = note;
}

}  // namespace anyaccel::conformance
