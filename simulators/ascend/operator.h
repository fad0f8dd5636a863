// Building blocks of the simulated operators of libopapi.so: the two calls of each, and the elements of its tensors.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "simulators/ascend/nn_objects.h"
#include "simulators/libraries/library.h"
#include "simulators/libraries/product.h"

namespace sim_library {

using Tensor = std::shared_ptr<const NnTensor>;
using Handle = void*;
using ConstHandle = const void*;

// A failure of the first call; the violation was reported.
struct Refused {
  int status;
};

inline bool floating(int type) { return type == kNnFloat || type == kNnHalf || type == kNnBfloat16; }
inline int data_type(int type) { return type == kNnFloat ? kF32 : type == kNnHalf ? kF16 : kBf16; }

// The elements of a tensor as the engine reaches them.
class View {
 public:
  View(const NnTensor& tensor, char* first)
      : tensor_(&tensor), first_(first), size_(static_cast<std::int64_t>(nn_type_bytes(tensor.type))) {
    std::int64_t step = 1;
    for (std::size_t i = tensor.dims.size(); i-- > 0; step *= tensor.dims[i]) {
      dense_ = dense_ && (tensor.dims[i] == 1 || tensor.strides[i] == step);
    }
  }

  // The offset of the element with this number in the order of the shape.
  char* at(std::int64_t number) const {
    if (dense_) return first_ + number * size_;
    std::int64_t place = 0;
    for (std::size_t i = tensor_->dims.size(); i-- > 0;) {
      place += number % tensor_->dims[i] * tensor_->strides[i];
      number /= tensor_->dims[i];
    }
    return first_ + place * size_;
  }
  float get(std::int64_t number) const { return load_number(at(number), data_type(tensor_->type)); }
  void set(std::int64_t number, float value) const { store_number(at(number), data_type(tensor_->type), value); }
  std::int64_t index(std::int64_t number) const {
    return tensor_->type == kNnInt32 ? load<std::int32_t>(number) : load<std::int64_t>(number);
  }
  // For every simulated type, exact except for large 64-bit numbers.
  double value(std::int64_t number) const {
    switch (tensor_->type) {
      case kNnInt32: return load<std::int32_t>(number);
      case kNnInt64: return static_cast<double>(load<std::int64_t>(number));
      case kNnBool: return load<bool>(number) ? 1 : 0;
      default: return get(number);
    }
  }
  void put_index(std::int64_t number, std::int64_t value) const {
    tensor_->type == kNnInt32 ? store(number, static_cast<std::int32_t>(value)) : store(number, value);
  }
  void put(std::int64_t number, double value) const {
    switch (tensor_->type) {
      case kNnInt32: store(number, static_cast<std::int32_t>(value)); break;
      case kNnInt64: store(number, static_cast<std::int64_t>(value)); break;
      case kNnBool: store(number, value != 0); break;
      default: set(number, static_cast<float>(value));
    }
  }

 private:
  template <typename T>
  T load(std::int64_t number) const {
    T value{};
    std::memcpy(&value, at(number), sizeof value);
    return value;
  }
  template <typename T>
  void store(std::int64_t number, T value) const {
    std::memcpy(at(number), &value, sizeof value);
  }

  const NnTensor* tensor_;
  char* first_;
  std::int64_t size_;  // bytes of an element
  bool dense_ = true;
};

using Views = std::vector<View>;

// Returns the element of a tensor with the shape `from` that corresponds to an element of the shape `to` to which it is
// broadcast: from the last dimension on, those of size 1 and those that it lacks are repeated.
class Spread {
 public:
  Spread(const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to) : to_(to), steps_(to.size(), 0) {
    fits_ = from.size() <= to.size();
    std::int64_t step = 1;
    for (std::size_t i = 0; fits_ && i < from.size(); ++i) {
      const std::int64_t size = from[from.size() - 1 - i], wanted = to[to.size() - 1 - i];
      if (size != 1 && size != wanted) fits_ = false;
      steps_[to.size() - 1 - i] = size == 1 ? 0 : step;
      step *= size;
    }
    same_ = from == to;
  }
  bool fits() const { return fits_; }
  std::int64_t at(std::int64_t number) const {
    if (same_) return number;
    std::int64_t place = 0;
    for (std::size_t i = to_.size(); i-- > 0;) {
      place += number % to_[i] * steps_[i];
      number /= to_[i];
    }
    return place;
  }

 private:
  std::vector<std::int64_t> to_, steps_;
  bool fits_ = true, same_ = false;
};

// One first call: it collects tensors, inputs before outputs, and makes the executor.
class Plan {
 public:
  Plan(const char* function, std::uint64_t* workspace, Handle* executor)
      : function_(function), workspace_(workspace), executor_(executor) {
    require(workspace != nullptr && executor != nullptr, "a result is null", kNnNullPointer);
  }

  void require(bool condition, const std::string& what, int status = kNnInvalid) const {
    if (condition) return;
    violation("bad-argument", std::string(function_) + "GetWorkspaceSize: " + what);
    throw Refused{status};
  }
  Tensor input(ConstHandle handle, const char* name) { return in_rows(add(handle, name, false), name); }
  Tensor output(ConstHandle handle, const char* name) { return in_rows(add(handle, name, true), name); }
  // The same for functions that take tensors in any format. The view of a tensor in blocks has its bytes in their order.
  Tensor input_of_any_format(ConstHandle handle, const char* name) { return add(handle, name, false); }
  Tensor output_of_any_format(ConstHandle handle, const char* name) { return add(handle, name, true); }
  double scalar(ConstHandle handle, const char* name) const { return scalar_object(handle, name)->value; }
  std::int64_t whole_scalar(ConstHandle handle, const char* name) const { return scalar_object(handle, name)->whole; }
  std::shared_ptr<const NnScalar> scalar_object(ConstHandle handle, const char* name) const {
    require(handle != nullptr, std::string(name) + " is null", kNnNullPointer);
    const auto found = nn_scalar(handle, function_);
    if (found == nullptr) throw Refused{kNnInvalid};
    return found;
  }
  std::vector<std::int64_t> integers(ConstHandle handle, const char* name) const {
    require(handle != nullptr, std::string(name) + " is null", kNnNullPointer);
    const auto found = nn_int_array(handle, function_);
    if (found == nullptr) throw Refused{kNnInvalid};
    return found->values;
  }
  void require_float(const std::vector<Tensor>& tensors) const {
    for (const Tensor& tensor : tensors) {
      require(floating(tensor->type) && tensor->type == tensors[0]->type, "types differ, or are not floating point");
    }
  }
  // From the end, if it is negative.
  std::size_t axis(std::int64_t axis, const Tensor& tensor) const {
    const auto rank = static_cast<std::int64_t>(tensor->dims.size());
    require(axis >= -rank && axis < rank, "there is no dimension " + std::to_string(axis));
    return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
  }

  // `run` gets a view of each tensor, in the order in which they were added. The workspace is only written over, so that
  // one that is too small, or used by something else at the same time, is found.
  int finish(std::uint64_t workspace, std::function<void(const Views&)> run) {
    auto made = std::make_shared<NnExecutor>();
    made->function = function_;
    made->workspace = workspace;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const NnTensor& tensor = *tensors_[i];
      char* first = tensor.data + tensor.offset * static_cast<std::int64_t>(nn_type_bytes(tensor.type));
      made->ranges.push_back({reinterpret_cast<std::uint64_t>(first), tensor.bytes(), written_[i]});
    }
    made->body = [tensors = tensors_, run = std::move(run), workspace](char* const* bytes) {
      Views views;
      for (std::size_t i = 0; i < tensors.size(); ++i) views.emplace_back(*tensors[i], bytes[i]);
      run(views);
      if (workspace > 0) std::memset(bytes[tensors.size()], 0xEE, workspace);
    };
    made->tensors = handles_;
    *workspace_ = workspace;
    *executor_ = nn_add_executor(std::move(made));
    return kNnSuccess;
  }

 private:
  Tensor add(ConstHandle handle, const char* name, bool written) {
    require(handle != nullptr, std::string(name) + " is null", kNnNullPointer);
    Tensor tensor = nn_tensor(handle, function_);
    if (tensor == nullptr) throw Refused{kNnInvalid};
    require(tensor->elements() > 0, std::string(name) + " is empty, which is not simulated");
    tensors_.push_back(tensor);
    handles_.push_back(handle);
    written_.push_back(written);
    return tensor;
  }
  Tensor in_rows(Tensor tensor, const char* name) const {
    require(tensor->format == kNnNd, std::string(name) + " has another format than ND");
    return tensor;
  }

  const char* const function_;
  std::uint64_t* const workspace_;
  Handle* const executor_;
  std::vector<Tensor> tensors_;
  std::vector<ConstHandle> handles_;
  std::vector<bool> written_;
};

template <typename Make>
int plan(const char* function, std::uint64_t* workspace, Handle* executor, const Make& make) {
  try {
    Plan plan(function, workspace, executor);
    return make(plan);
  } catch (const Refused& refused) {
    return refused.status;
  }
}

// The second call of every function.
inline int run_operator(const char* function, void* workspace, std::uint64_t bytes, Handle handle, Handle stream) {
  const auto refuse = [&](const char* kind, const std::string& what) {
    violation(kind, std::string(function) + ": " + what);
    return static_cast<int>(kNnInvalid);
  };
  if (handle == nullptr) return kNnNullPointer;
  const auto executor = nn_executor(handle, function);
  if (executor == nullptr) return kNnInvalid;
  if (executor->function != function) return refuse("bad-handle", "the executor is that of " + executor->function);
  if (bytes < executor->workspace || (workspace == nullptr && executor->workspace > 0)) {
    return refuse("bad-argument", std::to_string(bytes) + " bytes of workspace, and " +
                                      std::to_string(executor->workspace) + " are needed");
  }
  for (const void* tensor : executor->tensors) {
    if (nn_tensor(tensor, function) == nullptr) return kNnInvalid;  // destroyed between the two calls
  }
  std::vector<sim_hooks::Range> ranges = executor->ranges;
  if (executor->workspace > 0)
    ranges.push_back({reinterpret_cast<std::uint64_t>(workspace), executor->workspace, true});
  if (!executor->repeatable) nn_remove_executor(handle);
  static const char what[] = "an aclnn operator";
  if (driver() == nullptr) return kNnInner;
  const int result = driver()->enqueue(stream, what, ranges, executor->body);
  return result == 0 ? kNnSuccess : kNnInner;
}

inline constexpr std::uint64_t kSomeWorkspace = 1024;

#define SIM_OPERATOR(name)                                                         \
  int name(void* workspace, std::uint64_t bytes, Handle executor, Handle stream) { \
    return run_operator(#name, workspace, bytes, executor, stream);                \
  }
#define SIM_EXPORT_OPERATOR(name)         \
  SIM_EXPORT(name, sim_library::kNnInner) \
  SIM_EXPORT(name##GetWorkspaceSize, sim_library::kNnInner)

}  // namespace sim_library
