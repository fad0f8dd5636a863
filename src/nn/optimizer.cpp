// Implements the optimizers: on the device, on the host, and with states in files.
#include "anyaccel/nn/optimizer.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "anyaccel/error.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/ops/async_io.h"
#include "anyaccel/ops/cpu_adagrad.h"
#include "anyaccel/ops/cpu_adam.h"
#include "anyaccel/ops/cpu_lion.h"
#include "anyaccel/ops/fused_adam.h"
#include "anyaccel/ops/fused_lamb.h"
#include "anyaccel/ops/fused_lion.h"

namespace anyaccel::nn {
namespace {

enum class Kind { Adam, Lamb, Lion, Adagrad };

Kind kind_of(const std::string& name) {
  if (name == "adam") return Kind::Adam;
  if (name == "lamb") return Kind::Lamb;
  if (name == "lion") return Kind::Lion;
  if (name == "adagrad") return Kind::Adagrad;
  throw InvalidArgument("nn::Optimizer: unknown name '" + name + "'; expected adam, lamb, lion or adagrad");
}

// Returns the names of the states that a kind keeps for each parameter.
std::vector<std::string> state_words(Kind kind) {
  switch (kind) {
    case Kind::Lion: return {"exp_avg"};
    case Kind::Adagrad: return {"exp_avg_sq"};
    default: return {"exp_avg", "exp_avg_sq"};
  }
}

// The libraries need a number for each optimizer of the process. No update uses the values of the numbers.
constexpr int kLibraryId = 0x4e4e;

class Common : public Optimizer {
 public:
  Common(Parameters& parameters, const OptimizerOptions& options)
      : parameters_(parameters), options_(options), kind_(kind_of(options.name)), words_(state_words(kind_)) {
    if (!parameters.weights()) {
      throw InvalidArgument("nn::Optimizer: the parameters are not allocated", AA_FAILED_PRECONDITION);
    }
    const bool on_host = parameters.masters().device().is_host();
    if (on_host != (options.placement != Placement::Device)) {
      throw InvalidArgument(std::string("nn::Optimizer: the masters are on the ") + (on_host ? "host" : "device") +
                            ", expected the " + (on_host ? "device" : "host") + " for this placement");
    }
  }

  size_t state_count() const override { return words_.size() * parameters_.all().size(); }
  std::string state_name(size_t index) const override { return words_[word_of(index)] + "." + state_of(index).name; }
  const Parameter& state_of(size_t index) const override { return parameters_.all()[index % parameters_.all().size()]; }

 protected:
  size_t word_of(size_t index) const { return index / parameters_.all().size(); }
  Accelerator& accelerator() const { return parameters_.context().accelerator(); }
  // Returns the weight if it is a separate tensor in another dtype than the master's; else an empty tensor.
  Tensor copy_of(const Parameter& parameter) const {
    return parameters_.context().dtype() == DType::F32 ? Tensor() : parameter.weight;
  }
  template <class Library>
  std::shared_ptr<Library> load(const char* builder) const {
    return accelerator().create_op_builder(builder)->template load_as<Library>();
  }

  Parameters& parameters_;
  OptimizerOptions options_;
  Kind kind_;
  std::vector<std::string> words_;
};

// ---- on the device

class DeviceOptimizer final : public Common {
 public:
  DeviceOptimizer(Parameters& parameters, const OptimizerOptions& options) : Common(parameters, options) {
    switch (kind_) {
      case Kind::Adam: adam_ = load<ops::FusedAdam>("FusedAdamBuilder"); break;
      case Kind::Lamb: lamb_ = load<ops::FusedLamb>("FusedLambBuilder"); break;
      case Kind::Lion: lion_ = load<ops::FusedLion>("FusedLionBuilder"); break;
      case Kind::Adagrad:
        if (!accelerator().is_host_coherent()) {
          throw InvalidArgument("nn::Optimizer: adagrad has no ops on " + accelerator().name() +
                                "; place it on the host or in files");
        }
        adagrad_ = load<ops::CPUAdagrad>("CPUAdagradBuilder");
        adagrad_->create_adagrad(kLibraryId);
        break;
    }
    for (size_t i = 0; i < words_.size(); ++i) {
      states_.push_back(Tensor::zeros(parameters.masters().shape(), DType::F32, parameters.context().device()));
    }
  }

  void step(int64_t step, double rate, double scale) override {
    const bool scales_itself = kind_ == Kind::Lamb || kind_ == Kind::Adagrad;
    if (scale != 1 && !scales_itself) {
      parameters_.context().ops().scaled_add(parameters_.gradients(), parameters_.gradients(),
                                             static_cast<float>(scale));
    }
    for (const bool decays : {true, false}) {
      const double decay = decays ? options_.weight_decay : 0;
      std::vector<std::vector<Tensor>> lists(words_.size() + 2);
      std::vector<ops::LambTensors> lamb;
      std::vector<ops::AdagradTensors> adagrad;
      for (const Parameter& p : parameters_.all()) {
        if (p.decays != decays) continue;
        const Tensor copy = copy_of(p);
        if (kind_ == Kind::Lamb) lamb.push_back({p.master, p.gradient, view(0, p), view(1, p), copy});
        if (kind_ == Kind::Adagrad) adagrad.push_back({p.master, p.gradient, view(0, p), copy});
        lists[0].push_back(p.gradient);
        lists[1].push_back(p.master);
        for (size_t i = 0; i < words_.size(); ++i) lists[i + 2].push_back(view(i, p));
        if (!copy) continue;
        if (lists.size() == words_.size() + 2) lists.emplace_back();
        lists.back().push_back(copy);
      }
      if (lists[0].empty()) continue;
      switch (kind_) {
        case Kind::Adam:
          adam_->multi_tensor_adam(kChunk, {}, lists, rate, options_.beta1, options_.beta2, options_.eps, step,
                                   ops::FusedAdam::AdamW, true, decay);
          break;
        case Kind::Lion:
          lion_->multi_tensor_lion(kChunk, {}, lists, rate, options_.beta1, options_.beta2, step, decay);
          break;
        case Kind::Lamb: {
          ops::LambOptions options;
          options.lr = rate;
          options.beta1 = options_.beta1;
          options.beta2 = options_.beta2;
          options.eps = options_.eps;
          options.weight_decay = decay;
          options.gradients.scale = scale;
          lamb_->lamb_multi(step, options, lamb);
          break;
        }
        case Kind::Adagrad: {
          accelerator().synchronize();
          ops::AdagradOptions options{rate, options_.eps, decay, {}};
          options.gradients.scale = scale;
          adagrad_->adagrad_update_multi(kLibraryId, step, options, adagrad);
          break;
        }
      }
    }
  }

  Tensor state(size_t index) override { return view(word_of(index), state_of(index)).to(Device{}).contiguous(); }
  void set_state(size_t index, const Tensor& value) override { view(word_of(index), state_of(index)).copy_from(value); }

 private:
  static constexpr int64_t kChunk = 65536;

  Tensor view(size_t word, const Parameter& p) const {
    return states_[word].slice(0, p.offset, p.offset + p.shape.numel()).view(p.shape);
  }

  std::shared_ptr<ops::FusedAdam> adam_;
  std::shared_ptr<ops::FusedLamb> lamb_;
  std::shared_ptr<ops::FusedLion> lion_;
  std::shared_ptr<ops::CPUAdagrad> adagrad_;
  std::vector<Tensor> states_;  // flat
};

// ---- on the host

// The states of a group during its update: for each state's name a tensor with the elements of the group's range.
using GroupStates = std::vector<Tensor>;

class HostOptimizer : public Common {
 public:
  HostOptimizer(Parameters& parameters, const OptimizerOptions& options) : Common(parameters, options) {
    switch (kind_) {
      case Kind::Adam:
        adam_ = load<ops::CPUAdam>("CPUAdamBuilder");
        adam_->create_adam(kLibraryId);
        break;
      case Kind::Lion:
        lion_ = load<ops::CPULion>("CPULionBuilder");
        lion_->create_lion(kLibraryId);
        break;
      case Kind::Adagrad:
        adagrad_ = load<ops::CPUAdagrad>("CPUAdagradBuilder");
        adagrad_->create_adagrad(kLibraryId);
        break;
      case Kind::Lamb: throw InvalidArgument("nn::Optimizer: lamb has no ops on the host; place it on the device");
    }
    gradients_ = host_memory(DType::F32);
    if (parameters.context().dtype() != DType::F32) copies_ = host_memory(parameters.context().dtype());
    const auto groups = static_cast<size_t>(parameters.groups());
    copied_.assign(groups, false);
    events_.resize(groups);
    if (!accelerator().is_synchronized_device()) {
      down_ = accelerator().Stream();
      up_ = accelerator().Stream();
    }
    parameters.set_ready_hook([this](int group) {
      if (expecting_) copy_down(group);
    });
  }
  ~HostOptimizer() override { parameters_.set_ready_hook({}); }

  void expect_step() override { expecting_ = true; }

  void step(int64_t step, double rate, double scale) override {
    expecting_ = false;
    // Copies the groups in the order in which the backward pass completes them.
    for (int group = parameters_.groups() - 1; group >= 0; --group) {
      if (!copied_[static_cast<size_t>(group)]) copy_down(group);
    }
    begin_states(parameters_.groups() - 1);
    for (int group = parameters_.groups() - 1; group >= 0; --group) {
      const GroupStates states = states_of(group);
      if (down_) events_[static_cast<size_t>(group)].synchronize();
      update(group, states, step, rate, scale);
      copy_up(group);
      end_states(group);
    }
    finish_states();
    if (up_) accelerator().current_stream(device_index()).wait_stream(up_);
    copied_.assign(copied_.size(), false);
  }

 protected:
  // These functions are called in this order for each group, from the last group to the first.
  virtual void begin_states(int /*group*/) {}
  virtual GroupStates states_of(int group) = 0;
  virtual void end_states(int /*group*/) {}
  virtual void finish_states() {}

 private:
  int device_index() const { return parameters_.context().device().index; }

  Tensor host_memory(DType dtype) {
    const Tensor memory =
        accelerator().pin_memory(Tensor::empty(parameters_.masters().shape(), dtype), false, true, false);
    memory.fill(0);  // The gaps between parameters are copied too, and nothing else writes them.
    return memory;
  }

  void copy_down(int group) {
    const auto [begin, end] = parameters_.range_of(group);
    const auto g = static_cast<size_t>(group);
    if (down_) {
      down_.wait_stream(accelerator().current_stream(device_index()));
      const ScopeGuard on_stream = accelerator().stream(down_);
      gradients_.slice(0, begin, end).copy_from(parameters_.gradients().slice(0, begin, end));
      events_[g] = down_.record_event(events_[g]);
    } else {
      gradients_.slice(0, begin, end).copy_from(parameters_.gradients().slice(0, begin, end));
    }
    copied_[g] = true;
  }

  void copy_up(int group) {
    const auto [begin, end] = parameters_.range_of(group);
    const Tensor source = (copies_ ? copies_ : parameters_.masters()).slice(0, begin, end);
    const Tensor weights = parameters_.weights().slice(0, begin, end);
    if (!up_) return weights.copy_from(source);
    // The operations that read the old weights have completed, because their gradients are on the host now; this wait
    // is for work outside the model.
    up_.wait_stream(accelerator().current_stream(device_index()));
    const ScopeGuard on_stream = accelerator().stream(up_);
    weights.copy_from(source);
  }

  void update(int group, const GroupStates& states, int64_t step, double rate, double scale) {
    const int64_t begin = parameters_.range_of(group).begin;
    for (const bool decays : {true, false}) {
      const double decay = decays ? options_.weight_decay : 0;
      std::vector<ops::AdamTensors> adam;
      std::vector<ops::LionTensors> lion;
      std::vector<ops::AdagradTensors> adagrad;
      for (const Parameter& p : parameters_.all()) {
        if (p.group != group || p.decays != decays) continue;
        const int64_t end = p.offset + p.shape.numel();
        const Tensor gradient = gradients_.slice(0, p.offset, end), master = p.master.view({p.shape.numel()});
        const Tensor copy = copies_ ? copies_.slice(0, p.offset, end) : Tensor();
        const auto state = [&](size_t word) { return states[word].slice(0, p.offset - begin, end - begin); };
        if (kind_ == Kind::Adam) adam.push_back({master, gradient, state(0), state(1), copy});
        if (kind_ == Kind::Lion) lion.push_back({master, gradient, state(0), copy});
        if (kind_ == Kind::Adagrad) adagrad.push_back({master, gradient, state(0), copy});
      }
      ops::GradientOptions gradients;
      gradients.scale = scale;
      if (!adam.empty()) {
        adam_->adam_update_multi(kLibraryId, step,
                                 {rate, options_.beta1, options_.beta2, options_.eps, decay, true, gradients}, adam);
      }
      if (!lion.empty()) {
        lion_->lion_update_multi(kLibraryId, step, {rate, options_.beta1, options_.beta2, decay, gradients}, lion);
      }
      if (!adagrad.empty()) {
        adagrad_->adagrad_update_multi(kLibraryId, step, {rate, options_.eps, decay, gradients}, adagrad);
      }
    }
  }

  std::shared_ptr<ops::CPUAdam> adam_;
  std::shared_ptr<ops::CPULion> lion_;
  std::shared_ptr<ops::CPUAdagrad> adagrad_;
  Tensor gradients_, copies_;  // flat, page-locked where there is such memory
  bool expecting_ = false;
  std::vector<bool> copied_;   // by group: copied since the last step
  std::vector<Event> events_;  // by group: reached when its gradients are on the host
  Stream down_, up_;           // empty if work is complete when it is enqueued
};

class HostStates final : public HostOptimizer {
 public:
  HostStates(Parameters& parameters, const OptimizerOptions& options) : HostOptimizer(parameters, options) {
    for (size_t i = 0; i < words_.size(); ++i) {
      states_.push_back(Tensor::zeros(parameters.masters().shape(), DType::F32));
    }
  }

  Tensor state(size_t index) override {
    const Parameter& p = state_of(index);
    return states_[word_of(index)].slice(0, p.offset, p.offset + p.shape.numel()).view(p.shape);
  }
  void set_state(size_t index, const Tensor& value) override { state(index).copy_from(value); }

 protected:
  GroupStates states_of(int group) override {
    const auto [begin, end] = parameters_.range_of(group);
    GroupStates states;
    for (const Tensor& flat : states_) states.push_back(flat.slice(0, begin, end));
    return states;
  }

 private:
  std::vector<Tensor> states_;  // flat
};

// ---- in files

// Each group has a place in one file, which holds for each state the elements of its range, padded to whole pages.
// Three buffers take turns: one is being read, one is being updated, one is being written.
class FileStates final : public HostOptimizer {
 public:
  FileStates(Parameters& parameters, const OptimizerOptions& options) : HostOptimizer(parameters, options) {
    std::error_code error;
    if (!std::filesystem::is_directory(options.directory, error)) {
      throw InvalidArgument("nn::Optimizer: '" + options.directory.string() +
                            "' is not a directory, expected one for the states");
    }
    library_ = load<ops::AsyncIO>("AsyncIOBuilder");
    int64_t place = 0, largest = 0;
    for (int group = 0; group < parameters.groups(); ++group) {
      const auto [begin, end] = parameters.range_of(group);
      places_.push_back(place);
      strides_.push_back((end - begin + kPage - 1) / kPage * kPage);
      place += strides_.back() * static_cast<int64_t>(words_.size());
      largest = std::max(largest, strides_.back() * static_cast<int64_t>(words_.size()));
    }
    std::string name = (options.directory / "optimizer-states-XXXXXX").string();
    const int descriptor = mkstemp(name.data());
    if (descriptor < 0) {
      throw Error("nn::Optimizer: cannot make a file in '" + options.directory.string() + "': " + std::strerror(errno),
                  AA_UNAVAILABLE);
    }
    close(descriptor);
    path_ = name;
    try {
      for (Buffer& buffer : buffers_) {
        buffer.handle = std::make_unique<ops::AioHandle>(library_->aio_handle());
        buffer.memory = Tensor::zeros({largest}, DType::F32);
      }
      for (int group = 0; group < parameters.groups(); ++group) {
        const auto g = static_cast<size_t>(group);
        if (strides_[g] > 0) buffers_[0].handle->sync_pwrite(whole(buffers_[0], g), path_, places_[g] * kFloat);
      }
    } catch (...) {
      remove_file();
      throw;
    }
  }
  ~FileStates() override {
    for (Buffer& buffer : buffers_) buffer.handle.reset();  // waits for the transfers in progress
    remove_file();
  }

  Tensor state(size_t index) override {
    const Tensor value = Tensor::empty(state_of(index).shape, DType::F32);
    buffers_[0].handle->sync_pread(value, path_, place_of(index));
    return value;
  }
  void set_state(size_t index, const Tensor& value) override {
    buffers_[0].handle->sync_pwrite(value.to(DType::F32).contiguous(), path_, place_of(index));
  }

 protected:
  void begin_states(int group) override { read(group); }
  GroupStates states_of(int group) override {
    if (group > 0) read(group - 1);
    const auto g = static_cast<size_t>(group);
    Buffer& buffer = buffer_of(group);
    buffer.handle->wait();
    const auto [begin, end] = parameters_.range_of(group);
    GroupStates states;
    for (size_t word = 0; word < words_.size(); ++word) {
      const int64_t first = strides_[g] * static_cast<int64_t>(word);
      states.push_back(buffer.memory.slice(0, first, first + end - begin));
    }
    return states;
  }
  void end_states(int group) override {
    const auto g = static_cast<size_t>(group);
    if (strides_[g] > 0) {
      buffer_of(group).handle->async_pwrite(whole(buffer_of(group), g), path_, places_[g] * kFloat);
    }
  }
  void finish_states() override {
    for (Buffer& buffer : buffers_) buffer.handle->wait();
  }

 private:
  static constexpr int64_t kPage = 1024;  // elements
  static constexpr int64_t kFloat = sizeof(float);

  struct Buffer {
    std::unique_ptr<ops::AioHandle> handle;
    Tensor memory;
  };

  Buffer& buffer_of(int group) { return buffers_[static_cast<size_t>(group) % buffers_.size()]; }
  Tensor whole(const Buffer& buffer, size_t group) const {
    return buffer.memory.slice(0, 0, strides_[group] * static_cast<int64_t>(words_.size()));
  }
  void read(int group) {
    const auto g = static_cast<size_t>(group);
    Buffer& buffer = buffer_of(group);
    buffer.handle->wait();  // a write from it may still be in progress
    if (strides_[g] > 0) buffer.handle->async_pread(whole(buffer, g), path_, places_[g] * kFloat);
  }
  int64_t place_of(size_t index) const {
    const Parameter& p = state_of(index);
    const auto g = static_cast<size_t>(p.group);
    return (places_[g] + strides_[g] * static_cast<int64_t>(word_of(index)) + p.offset -
            parameters_.range_of(p.group).begin) *
           kFloat;
  }
  void remove_file() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  std::shared_ptr<ops::AsyncIO> library_;
  std::vector<int64_t> places_, strides_;  // by group, in elements
  std::string path_;
  std::array<Buffer, 3> buffers_;
};

}  // namespace

std::unique_ptr<Optimizer> Optimizer::make(Parameters& parameters, const OptimizerOptions& options) {
  switch (options.placement) {
    case Placement::Host: return std::make_unique<HostStates>(parameters, options);
    case Placement::Files: return std::make_unique<FileStates>(parameters, options);
    default: return std::make_unique<DeviceOptimizer>(parameters, options);
  }
}

}  // namespace anyaccel::nn
