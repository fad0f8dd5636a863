// Forward steps of ragged batches and the decode loop; see anyaccel/llm/session.h.
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
#include "llm/generate/decoder_step.h"
#include "llm/generate/logit_bias.h"

namespace anyaccel::llm {

namespace {

// A session holds captured steps for the batch sizes it meets; a batch that shrinks one by one meets many.
constexpr size_t kept_graphs = 8;

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

// Most tokens of one step: a chunk of prompts, or one token of each sequence.
int64_t longest_step(const SessionOptions& options) {
  const int64_t chunk =
      options.chunk / options.sequences >= options.context ? options.sequences * options.context : options.chunk;
  return std::max(chunk, options.sequences);
}

void check_sampling(const Sampling& sampling) {
  const auto fail = [](const char* name, const std::string& found, const char* expected) {
    throw InvalidArgument(std::string("sampling: ") + name + " is " + found + "; expected " + expected);
  };
  if (!(sampling.temperature >= 0.0f) || !std::isfinite(sampling.temperature)) {
    fail("temperature", std::to_string(sampling.temperature), "a number of at least 0");
  }
  if (sampling.top_k < 0) fail("top_k", std::to_string(sampling.top_k), "0 (all tokens) or a positive number");
  if (!(sampling.top_p > 0.0f && sampling.top_p <= 1.0f)) {
    fail("top_p", std::to_string(sampling.top_p), "a number over 0 and at most 1");
  }
  if (!(sampling.repetition_penalty > 0.0f) || !std::isfinite(sampling.repetition_penalty)) {
    fail("repetition_penalty", std::to_string(sampling.repetition_penalty), "a number over 0");
  }
  if (!(sampling.min_p >= 0.0f && sampling.min_p <= 1.0f)) {
    fail("min_p", std::to_string(sampling.min_p), "a number from 0 to 1");
  }
  const auto check_penalty = [&](float value, const char* name) {
    if (!(value >= -2.0f && value <= 2.0f)) fail(name, std::to_string(value), "a number from -2 to 2");
  };
  check_penalty(sampling.presence_penalty, "presence_penalty");
  check_penalty(sampling.frequency_penalty, "frequency_penalty");
}

// Blocks until the values have been read.
template <class T>
void upload(const Tensor& destination, const std::vector<T>& values) {
  destination.copy_from(Tensor::from_host(values.data(), destination.shape(), destination.dtype()));
}

struct CapturedStep {
  int64_t batch = 0;
  Graph graph;
};

// A new stream of the model's device, whatever the thread's current device is.
Stream stream_for(const Model& model) {
  Accelerator& accelerator = model.accelerator();
  const int before = accelerator.current_device();
  accelerator.set_device(model.device().index);
  const ScopeGuard back([&](bool) { accelerator.set_device(before); });
  return accelerator.Stream();
}

}  // namespace

struct Session::Impl {
  Impl(std::shared_ptr<const Model> model_in, const SessionOptions& options_in);

  // For the length of a call of the session: its stream is the calling thread's current one.
  class Turn {
   public:
    // InvalidArgument when another call is under way.
    explicit Turn(Impl& session);
    ~Turn() { session_.busy.store(false, std::memory_order_release); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    // The session's later work comes after the caller's present work.
    void follow_caller();
    // The caller's later work, which uses `result`, comes after the session's present work.
    void lead_caller(const Tensor& result);

   private:
    Impl& session_;
    Stream caller_;
    std::optional<ScopeGuard> current_;
    std::optional<ops::ByRow> by_row_;
  };

  void check_batch(const TokenBatch& tokens, std::span<const int32_t> rows) const;
  // The chunks of a batch; the logits of the rows go to the first rows of `logits_out`.
  void run(const TokenBatch& tokens, std::span<const int32_t> rows, const Tensor& logits_out);
  void renew_frequencies(const TokenBatch& tokens);
  StepInput decode_input() const;
  // Whether this rank chooses the tokens: rank 0 does, and the others learn them.
  bool draws() const { return model->shard().rank == 0; }
  // Memory that the ranks of the model sum in place.
  Tensor summed_tensor(const Shape& shape, DType dtype) const;
  void fill_seen(std::span<const std::vector<int32_t>> prompts);
  void refuse_unless_deterministic() const;
  bool counts_tokens() const { return sampling.presence_penalty != 0.0f || sampling.frequency_penalty != 0.0f; }
  // Memory that a decode step reads on the ranks that draw, made when it is first wanted.
  void make_draw_tensor(Tensor& tensor, DType dtype);
  void start_rules(std::span<const std::vector<int32_t>> prompts, std::optional<LogitBias> wanted);
  // Writes the rows of biases that differ from those on the device.
  void write_bias();
  // Sequence numbers and positions of the active rows and, of a deterministic session, the counters of their next draws: of
  // the newest tokens (`drawn`: false, they have yet to be drawn) or of those after them.
  void write_active(bool drawn);
  std::span<const int32_t> newest_tokens();
  // The ops of one decode step: newest tokens in, next ones out.
  void enqueue_step();
  // Chooses from decode_logits and advances the random numbers.
  // The newest tokens are counted for the penalties, but for the first draw, before which there are none.
  void enqueue_draw(bool first);
  bool graphs_wanted() const;
  // The captured step for the present batch size, captured now if this size has run before; else null.
  const Graph* captured_step();
  // Throws NumericalError for row i of the active sequences, whose logits gave no token. They are still there.
  [[noreturn]] void fail_without_token(size_t i) const;

  std::shared_ptr<const Model> model;
  Accelerator& accelerator;
  SessionOptions options;
  Stream stream;  // on which everything of the session runs: a capture of it records nobody else's work
  std::atomic<bool> busy{false};
  Event entered, left;
  DecoderStep decoder;

  // Forward: I32 [chunk] and fp32 [rows, V].
  Tensor ids, sequence, positions, rows;
  Tensor logits;

  // Decode loop; [B] of which the first active.size() rows are in use.
  Sampling sampling;
  Tensor decode_ids, decode_sequence, decode_positions;  // I32
  Tensor decode_logits;                                  // fp32 [B, V]
  Tensor seen;                                           // U8 [B, V]; only with a repetition penalty
  Tensor counts;                                         // I32 [B, V] of the answer's tokens; only with such a penalty
  Tensor bias;                                           // fp32 [B, V], added to the logits; only with rules
  std::optional<LogitBias> rules;
  Tensor rng;                     // I64 [2]; deterministic: [B, 2], one for each row
  uint64_t seed = 0, offset = 0;  // of start()
  Tensor host_ids;                // I32 [B] in host memory, pinned where possible
  std::vector<int32_t> active;
  std::vector<int64_t> position;       // of the newest token of active[i], which has not been run yet
  std::vector<int64_t> prompt_length;  // of each sequence
  bool host_ids_fresh = false;
  std::vector<int64_t> warm;  // batch sizes that ran once outside a graph
  std::vector<CapturedStep> captured;
  uint64_t replayed = 0;
};

namespace {

// The decoder's memory, nearly all of which is the cache. An OutOfMemoryError says what context would fit.
DecoderStep make_decoder(const std::shared_ptr<const Model>& model, const SessionOptions& options,
                         const Stream& stream) {
  const ScopeGuard current = model->accelerator().stream(stream);
  try {
    return {model, options.sequences, options.context, longest_step(options)};
  } catch (const OutOfMemoryError& error) {
    const ModelConfig& config = model->config();
    const double per_token = 2.0 *
                             static_cast<double>(config.num_hidden_layers * model->shard().kv_heads.size() *
                                                 config.head_dim * options.sequences) *
                             static_cast<double>(dtype_size(model->dtype()));
    // What the failed attempt took is free again.
    model->accelerator().empty_cache();
    const auto room = static_cast<double>(model->accelerator().available_memory(model->device().index));
    // A tenth for activations and for what the allocator rounds up.
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
    // Rows begin alike, so that accelerators which ask for that choose one way for all.
    constexpr int64_t step = 64;
    const int64_t padded = (vocab + step - 1) / step * step;
    decode_logits = Tensor::empty({batch, padded}, DType::F32, device).slice(1, 0, vocab);
    rng = Tensor::empty({batch, 2}, DType::I64, device);
  } else {
    decode_logits = summed_tensor({batch, vocab}, DType::F32);
    rng = Tensor::empty({2}, DType::I64, device);
  }
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
  if (!decoder.ops().has_by_row()) {
    throw NotImplementedError(
        "deterministic: accelerator \"" + accelerator.name() +
        "\" does not promise results that do not depend on the batch (it has no ops "
        "\"linear_by_row\" and \"attention_by_row\"); use another one (DS_ACCELERATOR=cpu), or leave "
        "the option out");
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

void Session::Impl::check_batch(const TokenBatch& tokens, std::span<const int32_t> wanted) const {
  const size_t count = tokens.ids.size();
  if (count == 0 || tokens.sequence.size() != count || tokens.positions.size() != count) {
    throw InvalidArgument("forward: " + std::to_string(count) + " ids, " + std::to_string(tokens.sequence.size()) +
                          " sequence numbers and " + std::to_string(tokens.positions.size()) +
                          " positions; expected as many of each, and at least one");
  }
  const auto check_range = [](std::span<const int32_t> values, int64_t end, const char* what) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] >= 0 && values[i] < end) continue;
      throw InvalidArgument(std::string("forward: ") + what + " " + std::to_string(values[i]) + " of token " +
                            std::to_string(i) + " is out of range; expected 0 to " + std::to_string(end - 1));
    }
  };
  check_range(tokens.ids, model->config().vocab_size, "id");
  check_range(tokens.sequence, options.sequences, "sequence");
  check_range(tokens.positions, options.context, "position");
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] >= (i == 0 ? 0 : wanted[i - 1] + 1) && wanted[i] < static_cast<int64_t>(count)) continue;
    throw InvalidArgument("forward: row " + std::to_string(wanted[i]) + " is out of range or out of order; expected " +
                          "rising rows from 0 to " + std::to_string(count - 1));
  }
}

void Session::Impl::renew_frequencies(const TokenBatch& tokens) {
  if (!decoder.dynamic_rope()) return;
  // A whole prompt takes the frequencies of its full length, whatever chunks it is run in.
  std::vector<int64_t> length(static_cast<size_t>(options.sequences), 0);
  std::vector<bool> restart(length.size(), false);
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    const auto index = static_cast<size_t>(tokens.sequence[i]);
    length[index] = std::max<int64_t>(length[index], tokens.positions[i] + 1);
    if (tokens.positions[i] == 0) restart[index] = true;
  }
  for (size_t i = 0; i < length.size(); ++i) {
    if (length[i] > 0) decoder.set_sequence_length(static_cast<int32_t>(i), length[i], restart[i]);
  }
}

void Session::Impl::run(const TokenBatch& tokens, std::span<const int32_t> wanted, const Tensor& logits_out) {
  renew_frequencies(tokens);
  const size_t total = tokens.ids.size();
  const auto chunk = static_cast<size_t>(std::min(options.chunk, ids.numel()));
  size_t first_row = 0;
  for (size_t begin = 0; begin < total; begin += chunk) {
    const size_t end = std::min(total, begin + chunk);
    const auto count = static_cast<int64_t>(end - begin);
    const StepInput input = {ids.slice(0, 0, count), sequence.slice(0, 0, count), positions.slice(0, 0, count)};
    const auto part = [&](std::span<const int32_t> values) {
      return std::vector<int32_t>(values.begin() + static_cast<ptrdiff_t>(begin),
                                  values.begin() + static_cast<ptrdiff_t>(end));
    };
    upload(input.ids, part(tokens.ids));
    upload(input.sequence, part(tokens.sequence));
    upload(input.positions, part(tokens.positions));

    std::vector<SequenceRange> ranges;
    if (decoder.dynamic_rope()) {
      for (size_t i = begin; i < end; ++i) {
        const auto at = static_cast<int64_t>(i - begin);
        if (ranges.empty() || ranges.back().sequence != tokens.sequence[i])
          ranges.push_back({at, at, tokens.sequence[i]});
        ranges.back().end = at + 1;
      }
    }
    decoder.forward(input, ranges);

    size_t last_row = first_row;
    while (last_row < wanted.size() && static_cast<size_t>(wanted[last_row]) < end) ++last_row;
    if (last_row == first_row) continue;
    const auto row_count = static_cast<int64_t>(last_row - first_row);
    const Tensor out = logits_out.slice(0, static_cast<int64_t>(first_row), static_cast<int64_t>(last_row));
    if (row_count == count) {
      decoder.logits(out, {});
    } else {
      std::vector<int32_t> chunk_rows;
      for (size_t i = first_row; i < last_row; ++i) chunk_rows.push_back(wanted[i] - static_cast<int32_t>(begin));
      const Tensor device_rows = rows.slice(0, 0, row_count);
      upload(device_rows, chunk_rows);
      decoder.logits(out, device_rows);
    }
    first_row = last_row;
  }
}

StepInput Session::Impl::decode_input() const {
  const auto count = static_cast<int64_t>(active.size());
  return {decode_ids.slice(0, 0, count), decode_sequence.slice(0, 0, count), decode_positions.slice(0, 0, count)};
}

void Session::Impl::make_draw_tensor(Tensor& tensor, DType dtype) {
  if (tensor) return;
  tensor = Tensor::empty({options.sequences, model->config().vocab_size}, dtype, model->device());
  captured.clear();
}

void Session::Impl::start_rules(std::span<const std::vector<int32_t>> prompts, std::optional<LogitBias> wanted) {
  if (wanted.has_value() != rules.has_value()) captured.clear();
  rules = std::move(wanted);
  if (!rules) return;
  rules->start(prompts);
  if (draws()) make_draw_tensor(bias, DType::F32);
  write_bias();
}

void Session::Impl::write_bias() {
  if (!draws()) return;
  for (size_t i = 0; i < active.size(); ++i) {
    const std::span<const float> row = rules->next_row(static_cast<size_t>(active[i]));
    if (row.empty()) continue;
    const Tensor to = bias.select(0, static_cast<int64_t>(i));
    to.copy_from(Tensor::from_host(row.data(), to.shape(), to.dtype()));
  }
}

void Session::Impl::fill_seen(std::span<const std::vector<int32_t>> prompts) {
  if (sampling.repetition_penalty == 1.0f || !draws()) return;
  make_draw_tensor(seen, DType::U8);
  std::vector<uint8_t> marks(static_cast<size_t>(model->config().vocab_size));
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::fill(marks.begin(), marks.end(), uint8_t{0});
    for (const int32_t id : prompts[i]) marks[static_cast<size_t>(id)] = 1;
    upload(seen.select(0, static_cast<int64_t>(i)), marks);
  }
}

void Session::Impl::write_active(bool drawn) {
  const StepInput input = decode_input();
  std::vector<int32_t> narrow(position.begin(), position.end());
  upload(input.sequence, active);
  upload(input.positions, narrow);
  if (!options.deterministic) return;
  std::vector<int64_t> counters;
  for (const int64_t at : position) {
    counters.push_back(std::bit_cast<int64_t>(seed));
    counters.push_back(std::bit_cast<int64_t>(offset + static_cast<uint64_t>(drawn ? at + 1 : at)));
  }
  upload(rng.slice(0, 0, static_cast<int64_t>(position.size())), counters);
}

void Session::Impl::enqueue_draw(bool first) {
  ops::Inference& ops = decoder.ops();
  const auto count = static_cast<int64_t>(active.size());
  const Tensor chosen_from = decode_logits.slice(0, 0, count);
  const Tensor chosen = decode_ids.slice(0, 0, count);
  if (draws()) {
    if (rules) ops.add(chosen_from, chosen_from, bias.slice(0, 0, count));
    Tensor marks;
    if (sampling.repetition_penalty != 1.0f) {
      marks = seen.slice(0, 0, count);
      ops.repetition_penalty(chosen_from, marks, sampling.repetition_penalty);
    }
    if (counts_tokens()) {
      ops.frequency_penalty(chosen_from, counts.slice(0, 0, count), sampling.presence_penalty,
                            sampling.frequency_penalty, first ? Tensor() : chosen);
    }
    const auto draw = [&](int64_t begin, int64_t end, const Tensor& counter) {
      ops.sample(chosen.slice(0, begin, end), chosen_from.slice(0, begin, end), counter, sampling.temperature,
                 sampling.top_k, sampling.top_p, marks ? marks.slice(0, begin, end) : Tensor(), sampling.min_p);
    };
    if (options.deterministic && sampling.temperature > 0) {
      // The op gives the rows of a call different numbers, so each has a call.
      for (int64_t row = 0; row < count; ++row) draw(row, row + 1, rng.select(0, row));
      ops.increment(rng.slice(0, 0, count).slice(1, 1, 2), 1);
    } else if (options.deterministic) {
      draw(0, count, rng.select(0, 0));  // the most likely tokens take no random numbers
    } else {
      draw(0, count, rng);
      // The op takes one counter for four rows.
      ops.increment(rng.slice(0, 1, 2), (count + 3) / 4);
    }
  } else {
    chosen.fill(0);
  }
  // A broadcast as a sum, which is what may be captured.
  if (model->group()) model->group()->inference_all_reduce(chosen);
}

void Session::Impl::enqueue_step() {
  const StepInput input = decode_input();
  std::vector<SequenceRange> ranges;
  if (decoder.dynamic_rope()) {
    for (size_t i = 0; i < active.size(); ++i) {
      ranges.push_back({static_cast<int64_t>(i), static_cast<int64_t>(i) + 1, active[i]});
    }
  }
  decoder.forward(input, ranges);
  decoder.logits(decode_logits.slice(0, 0, static_cast<int64_t>(active.size())), {});
  decoder.ops().increment(input.positions, 1);
  enqueue_draw(/*first=*/false);
}

bool Session::Impl::graphs_wanted() const {
  return accelerator.supports_graphs() && accelerator.get_compile_backend() == "graph" && decoder.ops().all_native();
}

const Graph* Session::Impl::captured_step() {
  const auto batch = static_cast<int64_t>(active.size());
  if (!graphs_wanted()) return nullptr;
  for (const CapturedStep& step : captured) {
    if (step.batch == batch) return &step.graph;
  }
  // The first step of a size runs op by op, so that everything an op sets up on first use is there before capturing.
  if (std::find(warm.begin(), warm.end(), batch) == warm.end()) {
    warm.push_back(batch);
    return nullptr;
  }
  decoder.prepare(batch);
  CapturedStep step;
  step.batch = batch;
  step.graph = accelerator.create_graph();
  {
    const ScopeGuard capture = accelerator.capture_to_graph(step.graph);
    enqueue_step();
  }
  if (captured.size() == kept_graphs) captured.erase(captured.begin());
  captured.push_back(std::move(step));
  return &captured.back().graph;
}

void Session::Impl::fail_without_token(size_t i) const {
  const Tensor row = decode_logits.select(0, static_cast<int64_t>(i)).to(Device{});
  const std::span<const float> logits{row.data_as<float>(), static_cast<size_t>(row.numel())};
  const auto nans = std::count_if(logits.begin(), logits.end(), [](float x) { return std::isnan(x); });
  const auto infinite = [&](float sign) { return std::count(logits.begin(), logits.end(), sign * INFINITY); };
  const auto sequence = static_cast<size_t>(active[i]);
  throw NumericalError(
      "generation stopped: the model's logits for sequence " + std::to_string(sequence) + ", position " +
      std::to_string(position[i]) + " (token " + std::to_string(position[i] - prompt_length[sequence] + 1) +
      " of the answer) have no finite maximum: of " + std::to_string(logits.size()) + ", " + std::to_string(nans) +
      " are NaN, " + std::to_string(infinite(1.0f)) + " +infinity and " + std::to_string(infinite(-1.0f)) +
      " -infinity. " +
      (rules && nans == 0 && infinite(1.0f) == 0
           ? "The rules about tokens that are not allowed (bad words, suppressed tokens, ...) leave none"
       : model->dtype() == DType::F16 ? "Numbers may have grown too large for fp16 (try --dtype bf16 or fp32), or the "
                                        "weights are damaged (--check-tensors "
                                        "names those that are)"
                                      : "The weights are probably damaged (--check-tensors names those that are)"));
}

Session::Session(std::shared_ptr<const Model> model, const SessionOptions& options) {
  check_options(options);
  impl_ = std::make_unique<Impl>(std::move(model), options);
}

Session::~Session() = default;

const Model& Session::model() const noexcept { return *impl_->model; }
const SessionOptions& Session::options() const noexcept { return impl_->options; }
uint64_t Session::cache_bytes() const noexcept { return impl_->decoder.cache_bytes(); }
std::span<const int32_t> Session::active() const noexcept { return impl_->active; }
int64_t Session::length(size_t i) const { return impl_->position.at(i) + 1; }
uint64_t Session::replayed_steps() const noexcept { return impl_->replayed; }

Tensor Session::forward(const TokenBatch& tokens, std::span<const int32_t> rows) {
  const RangeScope range(model().accelerator(), "forward");
  impl_->check_batch(tokens, rows);
  impl_->model->check_files();
  Impl::Turn turn(*impl_);
  turn.follow_caller();
  const auto count = static_cast<int64_t>(rows.size());
  if (!impl_->logits || impl_->logits.size(0) < count) {
    impl_->logits = Tensor();  // give it back first
    impl_->logits = impl_->summed_tensor({std::max<int64_t>(count, 1), impl_->model->config().vocab_size}, DType::F32);
  }
  impl_->run(tokens, rows, impl_->logits);
  turn.lead_caller(impl_->logits);
  return impl_->logits.slice(0, 0, count);
}

void Session::start(std::span<const std::vector<int32_t>> prompts, const Sampling& sampling, uint64_t seed,
                    uint64_t offset, const TokenRules& rules) {
  const RangeScope range(model().accelerator(), "prefill");
  Impl& impl = *impl_;
  check_sampling(sampling);
  std::optional<LogitBias> bias;
  if (!rules.empty()) bias.emplace(rules, impl.model->config().vocab_size);
  if (prompts.empty() || static_cast<int64_t>(prompts.size()) > impl.options.sequences) {
    throw InvalidArgument("start: " + std::to_string(prompts.size()) + " prompts; this session takes 1 to " +
                          std::to_string(impl.options.sequences));
  }
  std::vector<int32_t> ids, sequence, positions, rows;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto length = static_cast<int64_t>(prompts[i].size());
    if (length == 0) throw InvalidArgument("start: prompt " + std::to_string(i) + " has no tokens");
    if (length > impl.options.context) {
      throw InvalidArgument("start: prompt " + std::to_string(i) + " has " + std::to_string(length) +
                            " tokens, more than the context of " + std::to_string(impl.options.context));
    }
    for (int64_t p = 0; p < length; ++p) {
      ids.push_back(prompts[i][static_cast<size_t>(p)]);
      sequence.push_back(static_cast<int32_t>(i));
      positions.push_back(static_cast<int32_t>(p));
    }
    rows.push_back(static_cast<int32_t>(ids.size()) - 1);
  }
  const TokenBatch batch = {ids, sequence, positions};
  impl.check_batch(batch, rows);
  Impl::Turn turn(impl);
  turn.follow_caller();

  // Captured steps hold the sampling options.
  if (!(impl.sampling == sampling)) impl.captured.clear();
  impl.sampling = sampling;
  // ... and, where frequencies follow a sequence's length, which sequence each row is.
  if (impl.decoder.dynamic_rope()) impl.captured.clear();
  impl.active.clear();
  impl.position.clear();
  impl.prompt_length.clear();
  for (size_t i = 0; i < prompts.size(); ++i) {
    impl.active.push_back(static_cast<int32_t>(i));
    impl.position.push_back(static_cast<int64_t>(prompts[i].size()));
    impl.prompt_length.push_back(static_cast<int64_t>(prompts[i].size()));
  }
  impl.host_ids_fresh = false;
  impl.seed = seed;
  impl.offset = offset;
  if (!impl.options.deterministic) {
    upload(impl.rng, std::vector<int64_t>{std::bit_cast<int64_t>(seed), std::bit_cast<int64_t>(offset)});
  }
  impl.fill_seen(prompts);
  if (impl.counts_tokens() && impl.draws()) {
    impl.make_draw_tensor(impl.counts, DType::I32);
    impl.counts.fill(0);
  }
  impl.start_rules(prompts, std::move(bias));
  impl.write_active(/*drawn=*/false);
  impl.run(batch, rows, impl.decode_logits);
  impl.enqueue_draw(/*first=*/true);
}

std::span<const int32_t> Session::Impl::newest_tokens() {
  const size_t count = active.size();
  if (!host_ids_fresh && count > 0) {
    const auto end = static_cast<int64_t>(count);
    host_ids.slice(0, 0, end).copy_from(decode_ids.slice(0, 0, end));
    stream.synchronize();
    if (model->group()) model->group()->check();
    // After the step that may have read what somebody else wrote, and made no sense of it.
    model->check_files();
    const int32_t* const ids = host_ids.data_as<int32_t>();
    const int32_t* const missing = std::find(ids, ids + count, -1);
    if (missing != ids + count) fail_without_token(static_cast<size_t>(missing - ids));
    host_ids_fresh = true;
  }
  return {host_ids.data_as<int32_t>(), count};
}

std::span<const int32_t> Session::tokens() {
  const Impl::Turn turn(*impl_);
  return impl_->newest_tokens();
}

void Session::retain(std::span<const bool> keep) {
  Impl& impl = *impl_;
  if (keep.size() != impl.active.size()) {
    throw InvalidArgument("retain: " + std::to_string(keep.size()) + " answers for " +
                          std::to_string(impl.active.size()) + " active sequences");
  }
  if (std::find(keep.begin(), keep.end(), false) == keep.end()) return;
  const Impl::Turn turn(impl);
  const std::span<const int32_t> newest = impl.newest_tokens();
  std::vector<int32_t> kept_ids;
  for (size_t i = 0; i < keep.size(); ++i) {
    if (!keep[i]) continue;
    const size_t to = kept_ids.size();
    const auto move_row = [&](const Tensor& rows) {
      if (to != i) rows.select(0, static_cast<int64_t>(to)).copy_from(rows.select(0, static_cast<int64_t>(i)));
    };
    if (impl.draws() && impl.sampling.repetition_penalty != 1.0f) move_row(impl.seen);
    if (impl.draws() && impl.counts_tokens()) move_row(impl.counts);
    if (impl.draws() && impl.rules) move_row(impl.bias);
    kept_ids.push_back(newest[i]);
    impl.active[to] = impl.active[i];
    impl.position[to] = impl.position[i];
  }
  impl.active.resize(kept_ids.size());
  impl.position.resize(kept_ids.size());
  impl.host_ids_fresh = false;
  if (kept_ids.empty()) return;
  if (impl.decoder.dynamic_rope()) impl.captured.clear();
  upload(impl.decode_ids.slice(0, 0, static_cast<int64_t>(kept_ids.size())), kept_ids);
  impl.write_active(/*drawn=*/true);
}

void Session::step() {
  const RangeScope range(model().accelerator(), "decode step");
  Impl& impl = *impl_;
  const Impl::Turn turn(impl);
  if (impl.active.empty()) return;
  for (size_t i = 0; i < impl.active.size(); ++i) {
    if (impl.position[i] >= impl.options.context) {
      throw InvalidArgument("step: sequence " + std::to_string(impl.active[i]) + " has filled the context of " +
                            std::to_string(impl.options.context) + " tokens");
    }
    impl.decoder.set_sequence_length(impl.active[i], impl.position[i] + 1, /*restart=*/false);
  }
  if (impl.rules) {
    const std::span<const int32_t> newest = impl.newest_tokens();
    for (size_t i = 0; i < newest.size(); ++i) impl.rules->push(static_cast<size_t>(impl.active[i]), newest[i]);
    impl.write_bias();
  }
  if (const Graph* graph = impl.captured_step()) {
    impl.accelerator.replay_graph(*graph);
    ++impl.replayed;
  } else {
    impl.enqueue_step();
  }
  for (int64_t& position : impl.position) ++position;
  impl.host_ids_fresh = false;
}

}  // namespace anyaccel::llm
