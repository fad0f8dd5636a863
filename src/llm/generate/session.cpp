// Creates a session: its options, its memory, and the check that only one thread uses it.
#include "anyaccel/llm/session.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "anyaccel/accelerator.h"
#include "anyaccel/comm/process_group.h"
#include "anyaccel/error.h"
#include "anyaccel/format_bytes.h"
#include "llm/generate/session_impl.h"
#include "llm/model/model_identity.h"

namespace anyaccel::llm {

namespace {

void check_options(const SessionOptions& options) {
  // Sequences and positions are I32 on the device.
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  const auto positive = [](int64_t value, const char* name) {
    if (value <= 0 || value > most) {
      throw InvalidArgument(std::string("session: ") + name + " is " + std::to_string(value) + "; expected 1 to " +
                            std::to_string(most));
    }
  };
  positive(options.sequences, "the number of sequences");
  positive(options.context, "the context length");
  positive(options.chunk, "the chunk length");
}

// Returns the maximum number of tokens of one step, which is a chunk of prompts or one token of each sequence.
int64_t longest_step(const SessionOptions& options) {
  const int64_t chunk =
      options.chunk / options.sequences >= options.context ? options.sequences * options.context : options.chunk;
  return std::max(chunk, options.sequences);
}

// Returns a new stream of the model's device, whatever the thread's current device is.
Stream stream_for(const Model& model) {
  Accelerator& accelerator = model.accelerator();
  const int before = accelerator.current_device();
  accelerator.set_device(model.device().index);
  const ScopeGuard back([&](bool) { accelerator.set_device(before); });
  return accelerator.Stream();
}

}  // namespace

namespace {

// Allocates the decoder's memory, nearly all of which is the cache. An OutOfMemoryError names the context that would
// fit.
DecoderStep make_decoder(const std::shared_ptr<const Model>& model, const SessionOptions& options,
                         const Stream& stream) {
  const ScopeGuard current = model->accelerator().stream(stream);
  try {
    return {model, options.sequences, options.context, longest_step(options), options.cache};
  } catch (const OutOfMemoryError& error) {
    const ModelConfig& config = model->config();
    const double per_token = 2.0 *
                             static_cast<double>(config.num_hidden_layers * model->shard().kv_heads.size() *
                                                 config.head_dim * options.sequences) *
                             (options.cache == CacheType::Int8  ? 34.0 / 32.0
                              : options.cache == CacheType::Fp8 ? 1.0
                                                                : static_cast<double>(dtype_size(model->dtype())));
    // The memory of the failed attempt is free now.
    model->accelerator().empty_cache();
    const auto room = static_cast<double>(model->accelerator().available_memory(model->device().index));
    // A tenth is left for activations and for the allocator's rounding.
    const auto fits = per_token > 0 ? static_cast<int64_t>(0.9 * room / per_token) : int64_t{0};
    throw OutOfMemoryError(
        "a cache for " + std::to_string(options.sequences) + (options.sequences == 1 ? " sequence" : " sequences") +
            " of " + std::to_string(options.context) + " tokens needs " +
            format_bytes(per_token * static_cast<double>(options.context)) + " and " +
            model->accelerator().device_name(model->device().index) + " has " + format_bytes(room) + " free; " +
            (fits > 0 ? "a context of about " + std::to_string(fits) + " tokens would fit (--context, --max-new-tokens)"
                      : std::string("nothing would fit beside this model")) +
            ". (" + error.what() + ")",
        error.native_code());
  }
}

}  // namespace

Session::Impl::Impl(std::shared_ptr<const Model> model_in, const SessionOptions& options_in)
    : model(std::move(model_in)),
      accelerator(model->accelerator()),
      options(options_in),
      stream(stream_for(*model)),
      decoder(make_decoder(model, options, stream)) {
  const ScopeGuard current = accelerator.stream(stream);
  const Device device = model->device();
  const int64_t chunk = longest_step(options);
  const int64_t batch = options.sequences;
  for (Tensor* tensor : {&ids, &sequence, &positions, &rows}) *tensor = Tensor::empty({chunk}, DType::I32, device);
  for (Tensor* tensor : {&decode_sequence, &decode_positions}) *tensor = Tensor::empty({batch}, DType::I32, device);
  decode_ids = summed_tensor({batch}, DType::I32);
  const int64_t vocab = model->config().vocab_size;
  if (options.deterministic) {
    refuse_unless_deterministic();
    // Rows have the same alignment, so that accelerators whose choice of kernel depends on it choose the same one for
    // all.
    constexpr int64_t step = 64;
    const int64_t padded = (vocab + step - 1) / step * step;
    decode_logits = Tensor::empty({batch, padded}, DType::F32, device).slice(1, 0, vocab);
    rng = Tensor::empty({batch, 2}, DType::I64, device);
  } else {
    decode_logits = summed_tensor({batch, vocab}, DType::F32);
    rng = Tensor::empty({2}, DType::I64, device);
  }
  if (options.keep_logits && draws()) kept_logits = Tensor::empty({batch, vocab}, DType::F32, device);
  host_ids = accelerator.pin_memory(Tensor::empty({batch}, DType::I32), /*make_copy=*/false, /*match_shape=*/true,
                                    /*required=*/false);
}

void Session::Impl::refuse_unless_deterministic() const {
  if (model->group()) {
    throw NotImplementedError(
        "deterministic: a model that is split over ranks sums their parts in an order that depends on the batch; use "
        "one rank, "
        "or leave the option out");
  }
  if (const std::vector<std::string> missing = decoder.ops().missing_by_row(); !missing.empty()) {
    std::string names;
    for (const std::string& name : missing) names += (names.empty() ? "\"" : ", \"") + name + "\"";
    throw NotImplementedError("deterministic: accelerator \"" + accelerator.name() +
                              "\" does not promise results that do not depend on the batch (it lacks " + names +
                              "); use another one (DS_ACCELERATOR=cpu), or leave the option out");
  }
}

Session::Impl::Turn::Turn(Impl& session) : session_(session) {
  if (session.busy.exchange(true, std::memory_order_acquire)) {
    throw InvalidArgument(
        "a session was called while a call of another thread was under way; give each thread a session "
        "(or a text generator) of its own, over the same model",
        AA_FAILED_PRECONDITION);
  }
  try {
    caller_ = session.accelerator.current_stream(session.model->device().index);
    current_.emplace(session.accelerator.stream(session.stream));
    if (session.options.deterministic) by_row_.emplace();
  } catch (...) {
    session.busy.store(false, std::memory_order_release);
    throw;
  }
}

void Session::Impl::Turn::follow_caller() {
  if (caller_ == session_.stream || session_.accelerator.is_synchronized_device()) return;
  if (!session_.entered) session_.entered = session_.accelerator.Event();
  session_.entered.record(caller_);
  session_.stream.wait_event(session_.entered);
}

void Session::Impl::Turn::lead_caller(const Tensor& result) {
  if (caller_ == session_.stream || session_.accelerator.is_synchronized_device()) return;
  if (!session_.left) session_.left = session_.accelerator.Event();
  session_.left.record(session_.stream);
  caller_.wait_event(session_.left);
  result.storage()->record_stream(caller_);
}

Tensor Session::Impl::summed_tensor(const Shape& shape, DType dtype) const {
  if (model->group()) return model->group()->shared_tensor(shape, dtype, model->device());
  return Tensor::empty(shape, dtype, model->device());
}

Session::Session(std::shared_ptr<const Model> model, const SessionOptions& options) {
  check_options(options);
  check_same_model(*model);
  impl_ = std::make_unique<Impl>(std::move(model), options);
}

void Session::set_adapters(std::span<const int32_t> adapters) {
  const auto count = static_cast<int32_t>(model().adapters().size());
  if (static_cast<int64_t>(adapters.size()) > impl_->options.sequences) {
    throw InvalidArgument("set_adapters: " + std::to_string(adapters.size()) + " adapters; this session has " +
                          std::to_string(impl_->options.sequences) + " sequences");
  }
  for (const int32_t adapter : adapters) {
    if (adapter >= -1 && adapter < count) continue;
    throw InvalidArgument("set_adapters: adapter " + std::to_string(adapter) + " is out of range; the model has " +
                          std::to_string(count) + " adapters, and -1 is none");
  }
  const Impl::Turn turn(*impl_);
  if (impl_->decoder.set_adapters(adapters)) impl_->graphs.clear();
}

Session::~Session() = default;

const Model& Session::model() const noexcept { return *impl_->model; }
const SessionOptions& Session::options() const noexcept { return impl_->options; }
uint64_t Session::cache_bytes() const noexcept { return impl_->decoder.cache_bytes(); }
std::span<const int32_t> Session::active() const noexcept { return impl_->active; }
int64_t Session::length(size_t i) const {
  if (i >= impl_->position.size()) {
    throw InvalidArgument("length: row " + std::to_string(i) + "; the number of active ones is " +
                          std::to_string(impl_->position.size()));
  }
  return impl_->position[i] + 1;
}
uint64_t Session::replayed_steps() const noexcept { return impl_->graphs.replayed(); }

}  // namespace anyaccel::llm
