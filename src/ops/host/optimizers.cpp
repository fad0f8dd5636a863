// Implements optimizers.h, the functions that the optimizers' classes share.
#include "ops/host/optimizers.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "anyaccel/error.h"
#include "base/text/number_text.h"
#include "ops/host/host_tensors.h"
#include "runtime/tensor/common_bytes.h"

namespace anyaccel::ops {
namespace {

// The names of a parameter's tensors, in the order of the arguments.
struct Roles {
  std::array<const char*, 5> names{};
  std::array<const Tensor*, 5> tensors{};
  std::array<HostUse, 5> uses{};
  size_t count = 0;

  Roles(const OptimizerSpec& spec, const ParameterTensors& parameter) {
    add("param", parameter.param, HostUse::InOut);
    add("grad", parameter.grad, HostUse::In);
    for (size_t i = 0; i < 2; ++i) {
      if (spec.state_names[i]) add(spec.state_names[i], parameter.states[i], HostUse::InOut);
    }
    if (parameter.copy && *parameter.copy) add("copy", parameter.copy, HostUse::Out);
  }

 private:
  void add(const char* name, const Tensor* tensor, HostUse use) {
    names[count] = name;
    tensors[count] = tensor;
    uses[count++] = use;
  }
};

class OptimizerChecker {
 public:
  OptimizerChecker(Accelerator& accelerator, const OptimizerSpec& spec, size_t count)
      : accelerator_(accelerator), spec_(spec), count_(count) {}

  void check(size_t index, const ParameterTensors& parameter) {
    const Roles roles(spec_, parameter);
    const Tensor& param = *roles.tensors[0];
    for (size_t i = 0; i < roles.count; ++i) {
      names_[i] = roles.names[i];
      const Tensor& tensor = *roles.tensors[i];
      if (!tensor) fail(index, roles.names[i], "is empty; it must be given");
      if (!is_op_float(tensor.dtype())) {
        fail(index, roles.names[i],
             "is " + std::string(dtype_name(tensor.dtype())) + "; expected float32, bfloat16 or float16");
      }
      if (i > 0 && tensor.shape() != param.shape()) {
        fail(index, roles.names[i],
             "has shape " + tensor.shape().to_string() + ", its parameter " + param.shape().to_string() +
                 "; they must be equal");
      }
      check_place(index, roles.names[i], tensor, param);
      const bool contiguous = tensor.is_contiguous(), written = roles.uses[i] != HostUse::In;
      if (!contiguous && written) check_elements_distinct(index, roles.names[i], tensor);
      if (tensor.numel() == 0) continue;
      if (ranges_[i].empty()) ranges_[i].reserve(count_);
      const auto begin = reinterpret_cast<uintptr_t>(tensor.data());
      const AddressRange range =
          contiguous ? AddressRange{begin, begin + tensor.nbytes()} : address_range(tensor.view_for_driver());
      ranges_[i].push_back(
          {range, &tensor, static_cast<uint32_t>(index), static_cast<uint16_t>(i), written, contiguous});
    }
    check_dtypes(index, parameter);
  }

  // Called once all parameters were checked. A parameter is written by a thread of its own, so that nothing else in the
  // list may lie where a tensor is written.
  void check_memory() {
    // Lists usually come in the order of their addresses. This is done in every step, so that they are merged as they are.
    for (std::vector<Range>& list : ranges_) {
      const auto before = [](const Range& a, const Range& b) { return a.at.begin < b.at.begin; };
      if (!std::is_sorted(list.begin(), list.end(), before)) std::sort(list.begin(), list.end(), before);
    }
    std::array<size_t, 5> next_of{};
    std::vector<const Range*> open;  // those that begin before the next one, and may reach into it
    for (uintptr_t reach = 0;;) {
      const Range* next = nullptr;
      for (size_t i = 0; i < ranges_.size(); ++i) {
        if (next_of[i] == ranges_[i].size()) continue;
        const Range& first = ranges_[i][next_of[i]];
        if (!next || first.at.begin < next->at.begin) next = &first;
      }
      if (!next) return;
      ++next_of[next->role];
      if (next->at.begin >= reach) open.clear();
      for (const Range* range : open) {
        if (range->at.end > next->at.begin && share_memory(*range, *next)) fail_shared(*range, *next);
      }
      open.push_back(next);
      reach = std::max(reach, next->at.end);
    }
  }

  // Returns whether the host can access every tensor that was checked.
  bool all_reachable() const { return all_reachable_; }
  // Returns the device of the accelerator on which all of them lie; nothing if there is no such device.
  std::optional<int> common_device() const {
    if (!has_good_place_ || several_places_ || good_place_.is_host()) return std::nullopt;
    return good_place_.index;
  }

 private:
  struct Range {
    AddressRange at;
    const Tensor* tensor;
    uint32_t index;  // of the parameter
    uint16_t role;   // the tensor's place among the arguments
    bool written, contiguous;
  };

  // For ranges that meet.
  static bool share_memory(const Range& a, const Range& b) {
    if (!a.written && !b.written) return false;
    const Device one = a.tensor->device(), other = b.tensor->device();
    if (one != other && !one.is_host() && !other.is_host()) return false;
    return (a.contiguous && b.contiguous) ||
           have_common_bytes(a.tensor->view_for_driver(), b.tensor->view_for_driver());
  }

  [[noreturn]] void fail_shared(const Range& a, const Range& b) const {
    const bool in_order = std::pair(a.index, a.role) < std::pair(b.index, b.role);
    const Range& first = in_order ? a : b;
    const Range& second = in_order ? b : a;
    const std::string of = second.index == first.index ? "" : " of parameter " + std::to_string(first.index);
    fail(second.index, names_[second.role],
         std::string("shares memory with ") + names_[first.role] + of + "; each tensor must have its own");
  }

  [[noreturn]] void fail(size_t index, const char* tensor, const std::string& what) const {
    const std::string place = count_ == 1 ? "" : "parameter " + std::to_string(index) + ": ";
    throw InvalidArgument(std::string(spec_.op) + ": " + place + tensor + " " + what);
  }

  void check_place(size_t index, const char* name, const Tensor& tensor, const Tensor& param) {
    const Device place = tensor.device();
    if (place.accelerator && param.device().accelerator && place != param.device()) {
      fail(index, name,
           "lies on " + place.name() + ", its parameter on " + param.device().name() + "; they must be on one device");
    }
    // This is the fast path: nearly all tensors of a call lie in one place.
    if (has_good_place_ && place == good_place_) return;
    const bool reachable = host_reaches(tensor);
    if (spec_.host_only && !reachable) {
      fail(index, name,
           "lies on " + place.name() +
               ", which the host cannot reach; this optimizer works on host memory: move the tensor with Tensor::to(), "
               "or use the fused optimizer of the accelerator");
    }
    if (!spec_.host_only && place.accelerator != &accelerator_ &&
        !(place.is_host() && accelerator_.is_host_coherent())) {
      fail(index, name,
           "lies on " + place.name() + "; expected " + accelerator_.device_name(0) +
               " (the active accelerator): move it with Tensor::to()");
    }
    all_reachable_ = all_reachable_ && reachable;
    several_places_ = several_places_ || has_good_place_;
    good_place_ = place;
    has_good_place_ = true;
  }

  void check_elements_distinct(size_t index, const char* name, const Tensor& tensor) const {
    for (int d = 0; d < tensor.ndim(); ++d) {
      if (tensor.stride(d) == 0 && tensor.size(d) > 1) {
        fail(index, name,
             "is expanded: several of its elements are one in memory, and it is written; call contiguous()");
      }
    }
  }

  void check_dtypes(size_t index, const ParameterTensors& parameter) const {
    const DType param = parameter.param->dtype(), grad = parameter.grad->dtype();
    if (grad != param && grad != DType::F32 && param != DType::F32) {
      fail(index, "grad",
           "is " + std::string(dtype_name(grad)) + " and its parameter " + std::string(dtype_name(param)) +
               "; a gradient is float32 or of its parameter's dtype");
    }
    for (size_t i = 0; i < 2; ++i) {
      if (!spec_.state_names[i]) continue;
      const DType state = parameter.states[i]->dtype();
      if (state != DType::F32 && state != param) {
        fail(index, spec_.state_names[i],
             "is " + std::string(dtype_name(state)) + " and its parameter " + std::string(dtype_name(param)) +
                 "; a state is float32 or of its parameter's dtype");
      }
      if (state != parameter.states[0]->dtype()) {
        fail(index, spec_.state_names[i],
             "is " + std::string(dtype_name(state)) + " and " + spec_.state_names[0] + " is " +
                 std::string(dtype_name(parameter.states[0]->dtype())) + "; the states of a parameter have one dtype");
      }
    }
  }

  Accelerator& accelerator_;
  const OptimizerSpec& spec_;
  size_t count_;
  std::array<std::vector<Range>, 5> ranges_;  // of the tensors with elements, by their place among the arguments
  std::array<const char*, 5> names_{};        // of each place that a tensor of any parameter had
  Device good_place_;
  bool has_good_place_ = false;
  bool several_places_ = false;
  bool all_reachable_ = true;
};

// Waits for the work that is enqueued on the tensors' devices.
class Waiter {
 public:
  void wait_for(const Tensor& tensor) {
    const Device place = tensor.device();
    if (place.is_host() || place == last_) return;
    place.accelerator->current_stream(place.index).synchronize();
    last_ = place;
  }

 private:
  Device last_;
};

// Describes tensors and calls the body. Tensors that are not contiguous go through contiguous ones.
class Description {
 public:
  // `device` is passed to the body. Without one, this class waits for the work on the tensors.
  Description(size_t count, std::optional<int> device) : device_(device) { parameters_.reserve(count); }

  void add(const OptimizerSpec& spec, const ParameterTensors& tensors) {
    aa_parameter parameter{};
    parameter.count = tensors.param->numel();
    parameter.first_segment = segments_;
    segments_ += (parameter.count + AA_NORM_SEGMENT - 1) / AA_NORM_SEGMENT;
    parameter.param_dtype = static_cast<int32_t>(tensors.param->dtype());
    parameter.grad_dtype = static_cast<int32_t>(tensors.grad->dtype());
    parameter.param = address(*tensors.param, HostUse::InOut);
    parameter.grad = address(*tensors.grad, HostUse::In);
    for (size_t i = 0; i < 2; ++i) {
      if (!spec.state_names[i]) continue;
      parameter.state_dtype = static_cast<int32_t>(tensors.states[i]->dtype());
      parameter.state[i] = address(*tensors.states[i], HostUse::InOut);
    }
    if (tensors.copy && *tensors.copy) {
      parameter.copy_dtype = static_cast<int32_t>(tensors.copy->dtype());
      parameter.copy = address(*tensors.copy, HostUse::Out);
    }
    parameters_.push_back(parameter);
  }

  void run(const OptimizerBody& body) {
    // The copies that made tensors contiguous may still be enqueued.
    for (const Copied& copied : copied_) {
      if (!device_ && !copied.contiguous.device().is_host()) {
        copied.contiguous.device().accelerator->current_stream(copied.contiguous.device().index).synchronize();
      }
    }
    body(parameters_, device_);
    for (const Copied& copied : copied_) {
      if (copied.use != HostUse::In) copied.original->copy_from(copied.contiguous);
    }
  }

 private:
  struct Copied {
    const Tensor* original;
    Tensor contiguous;
    HostUse use;
  };

  void* address(const Tensor& tensor, HostUse use) {
    if (!device_) waiter_.wait_for(tensor);
    if (tensor.is_contiguous()) return tensor.data();
    copied_.push_back(
        {&tensor,
         use == HostUse::Out ? Tensor::empty(tensor.shape(), tensor.dtype(), tensor.device()) : tensor.contiguous(),
         use});
    return copied_.back().contiguous.data();
  }

  std::optional<int> device_;
  Waiter waiter_;
  std::vector<aa_parameter> parameters_;
  std::vector<Copied> copied_;
  int64_t segments_ = 0;
};

void run_in_place(const OptimizerSpec& spec, std::span<const ParameterTensors> parameters, std::optional<int> device,
                  const OptimizerBody& body) {
  Description description(parameters.size(), device);
  for (const ParameterTensors& parameter : parameters) description.add(spec, parameter);
  description.run(body);
}

}  // namespace

void run_optimizer(Accelerator& accelerator, const OptimizerSpec& spec, std::span<const ParameterTensors> parameters,
                   bool kernels, const OptimizerBody& body) {
  OptimizerChecker checker(accelerator, spec, parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) checker.check(i, parameters[i]);
  checker.check_memory();
  const std::optional<int> device = kernels ? checker.common_device() : std::nullopt;
  if (device || checker.all_reachable()) {
    run_in_place(spec, parameters, device, body);
    return;
  }
  std::vector<HostTensor> list;
  for (const ParameterTensors& parameter : parameters) {
    const Roles roles(spec, parameter);
    for (size_t k = 0; k < roles.count; ++k) list.push_back({roles.tensors[k], roles.uses[k]});
  }
  run_on_host(accelerator, spec.op, list, [&](std::span<Tensor> reached) {
    std::vector<ParameterTensors> on_host;
    on_host.reserve(parameters.size());
    size_t next = 0;
    for (const ParameterTensors& parameter : parameters) {
      ParameterTensors host{&reached[next], &reached[next + 1], {}, nullptr};
      next += 2;
      for (size_t i = 0; i < 2; ++i) {
        if (spec.state_names[i]) host.states[i] = &reached[next++];
      }
      if (parameter.copy && *parameter.copy) host.copy = &reached[next++];
      on_host.push_back(host);
    }
    run_in_place(spec, on_host, std::nullopt, body);
  });
}

int64_t segment_count(std::span<const aa_parameter> parameters) {
  if (parameters.empty()) return 0;
  const aa_parameter& last = parameters.back();
  return last.first_segment + (last.count + AA_NORM_SEGMENT - 1) / AA_NORM_SEGMENT;
}

OptimizerCode::GradientScale OptimizerCode::gradient_scale(const GradientOptions& options,
                                                           std::span<const aa_parameter> parameters,
                                                           std::optional<int> device) const {
  GradientScale result;
  result.factor = static_cast<float>(options.scale);
  if (!(options.max_norm > 0)) return result;
  std::vector<double> squares;
  if (device) {
    squares = kernels->square_sums(parameters, *device);
  } else {
    squares.resize(static_cast<size_t>(segment_count(parameters)));
    square_sums_(parameters.data(), static_cast<int64_t>(parameters.size()), squares.data());
  }
  double total = 0;
  for (const double square : squares) total += square;
  result.norm = std::sqrt(total) * std::abs(options.scale);
  result.skip = !std::isfinite(result.norm);
  if (result.norm > options.max_norm) {
    result.factor = static_cast<float>(options.scale * std::min(1.0, options.max_norm / (result.norm + 1e-6)));
  }
  return result;
}

void check_step(const char* op, int64_t step) {
  if (step >= 1) return;
  throw InvalidArgument(std::string(op) + ": step is " + std::to_string(step) + "; steps count from 1");
}

void check_beta(const char* op, const char* name, double value) {
  if (value >= 0 && value < 1) return;
  throw InvalidArgument(std::string(op) + ": " + name + " is " + number_text(value) +
                        "; expected at least 0 and below 1");
}

void check_not_negative(const char* op, const char* name, double value) {
  if (value >= 0 && std::isfinite(value)) return;
  throw InvalidArgument(std::string(op) + ": " + name + " is " + number_text(value) +
                        "; expected a finite number that is not negative");
}

void check_gradient_options(const char* op, const GradientOptions& options) {
  if (!std::isfinite(options.scale) || options.scale == 0) {
    throw InvalidArgument(std::string(op) + ": the gradients' scale is " + number_text(options.scale) +
                          "; expected a finite number other than 0");
  }
  check_not_negative(op, "max_norm", options.max_norm);
}

void throw_unknown_optimizer(const char* op, int id, const char* create) {
  throw InvalidArgument(std::string(op) + ": there is no optimizer " + std::to_string(id) + "; make it with " + create +
                        "(" + std::to_string(id) + ", ...) first");
}

void check_tensor_lists(const char* op, int64_t chunk_size, std::span<const std::vector<Tensor>> lists,
                        std::span<const char* const> names) {
  if (chunk_size <= 0) {
    throw InvalidArgument(std::string(op) + ": chunk_size is " + std::to_string(chunk_size) +
                          "; expected a number of elements above 0");
  }
  std::string expected;
  for (const char* name : names) expected += (expected.empty() ? "" : ", ") + std::string(name);
  if (lists.size() != names.size() && lists.size() != names.size() + 1) {
    throw InvalidArgument(std::string(op) + ": " + std::to_string(lists.size()) +
                          " lists of tensors were given; expected " + std::to_string(names.size()) + " (" + expected +
                          "), and a last one for copies if wanted");
  }
  for (size_t i = 1; i < lists.size(); ++i) {
    if (lists[i].size() == lists[0].size()) continue;
    throw InvalidArgument(std::string(op) + ": the list of " + (i < names.size() ? names[i] : "copies") + " has " +
                          std::to_string(lists[i].size()) + " tensors, that of " + names[0] + " " +
                          std::to_string(lists[0].size()) + "; they must be equally long");
  }
}

void check_noop_flag(const char* op, const Tensor& noop_flag) {
  if (!noop_flag || (noop_flag.numel() == 1 && noop_flag.dtype() == DType::I32)) return;
  throw InvalidArgument(std::string(op) + ": noop_flag is " + std::string(dtype_name(noop_flag.dtype())) + " " +
                        noop_flag.shape().to_string() + "; expected one int32 (or an empty tensor for none)");
}

bool noop_asked(const Tensor& noop_flag) { return noop_flag && noop_flag.item<int32_t>() != 0; }

}  // namespace anyaccel::ops
