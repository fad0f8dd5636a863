// Implements the decoder and the encoder.
#include "anyaccel/nn/models.h"

#include <cmath>

#include "anyaccel/error.h"

namespace anyaccel::nn {
namespace {

void check_batch(const Batch& batch, const char* model) {
  const Shape expected{batch.sequences * batch.length};
  for (const Tensor* tensor : {&batch.ids, &batch.targets}) {
    if (*tensor && tensor->shape() == expected) continue;
    throw InvalidArgument(std::string("nn::") + model + ": the batch's " + (tensor == &batch.ids ? "ids" : "targets") +
                          " have the shape " + tensor->shape().to_string() + ", expected " + expected.to_string() +
                          ", " + std::to_string(batch.sequences) + " sequences of " + std::to_string(batch.length));
  }
}

// Switches a context's training mode on or off for a scope.
class Training {
 public:
  Training(Context& context, bool training) : context_(context), before_(context.training) {
    context.training = training;
  }
  ~Training() { context_.training = before_; }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

 private:
  Context& context_;
  bool before_;
};

}  // namespace

Batch Batch::from_host(Context& context, int64_t sequences, int64_t length, std::span<const int32_t> ids,
                       std::span<const int32_t> targets) {
  const int64_t rows = sequences * length;
  if (static_cast<int64_t>(ids.size()) != rows || static_cast<int64_t>(targets.size()) != rows) {
    throw InvalidArgument("nn::Batch: got " + std::to_string(ids.size()) + " ids and " +
                          std::to_string(targets.size()) + " targets, expected " + std::to_string(rows) + " of each");
  }
  Batch batch;
  batch.sequences = sequences;
  batch.length = length;
  batch.ids = Tensor::from_host(ids.data(), {rows}, DType::I32, context.device());
  batch.targets = Tensor::from_host(targets.data(), {rows}, DType::I32, context.device());
  for (const int32_t target : targets) batch.counted += target >= 0 ? 1 : 0;
  return batch;
}

// -- Decoder

Decoder::Decoder(Parameters& parameters, const DecoderSizes& sizes)
    : parameters_(parameters), context_(parameters.context()), sizes_(sizes) {
  if (sizes.tokens < 1 || sizes.hidden < 1 || sizes.layers < 1 || sizes.intermediate < 1) {
    throw InvalidArgument("nn::Decoder: tokens, hidden, layers and intermediate must be at least 1");
  }
  const double out_deviation = sizes.deviation / std::sqrt(2.0 * static_cast<double>(sizes.layers));
  embedding_ =
      std::make_unique<Embedding>(parameters, "model.embed_tokens", sizes.tokens, sizes.hidden, sizes.deviation);
  for (int64_t i = 0; i < sizes.layers; ++i) {
    parameters.begin_group();
    layers_.push_back(std::make_unique<DecoderLayer>(parameters, "model.layers." + std::to_string(i), sizes.hidden,
                                                     sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.intermediate,
                                                     sizes.norm_eps, sizes.deviation, out_deviation));
  }
  parameters.begin_group();
  norm_ = std::make_unique<Norm>(parameters, "model.norm", sizes.hidden, sizes.norm_eps, false);
  head_ = sizes.tied
              ? std::make_unique<LanguageHead>(parameters, embedding_->weight())
              : std::make_unique<LanguageHead>(parameters, "lm_head", sizes.tokens, sizes.hidden, sizes.deviation);
}

Tensor Decoder::forward(const Batch& batch) {
  check_batch(batch, "Decoder");
  if (!positions_ || positions_->sequences != batch.sequences || positions_->length != batch.length) {
    positions_ =
        std::make_unique<Positions>(context_, batch.sequences, batch.length, sizes_.head_dim, sizes_.rope_theta);
  }
  Tensor x = embedding_->forward(batch.ids, DType::F32);
  for (const auto& layer : layers_) x = layer->forward(x, *positions_);
  return norm_->forward(x);
}

Tensor Decoder::losses(const Batch& batch) {
  const Training off(context_, false);
  return head_->losses(forward(batch), batch.targets);
}

Tensor Decoder::losses_and_gradients(const Batch& batch, float scale) {
  const Training on(context_, true);
  Tensor normed = forward(batch);
  const Tensor d_normed = context_.empty(normed.shape(), DType::F32);
  const Tensor losses = head_->losses_and_gradients(normed, batch.targets, scale, d_normed);
  normed = Tensor();
  const Tensor d = context_.empty(d_normed.shape(), DType::F32);
  norm_->backward(d_normed, d, false);
  int group = parameters_.groups() - 1;
  parameters_.ready(group);
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    (*layer)->backward(d);
    parameters_.ready(--group);
  }
  embedding_->backward(d);
  parameters_.ready(0);
  return losses;
}

// -- Encoder

Encoder::Encoder(Parameters& parameters, const EncoderSizes& sizes)
    : parameters_(parameters), context_(parameters.context()), sizes_(sizes) {
  if (sizes.tokens < 1 || sizes.positions < 1 || sizes.layers < 1) {
    throw InvalidArgument("nn::Encoder: tokens, positions and layers must be at least 1");
  }
  const double out_deviation = sizes.deviation / std::sqrt(2.0 * static_cast<double>(sizes.layers));
  embedding_ =
      std::make_unique<Embedding>(parameters, "embeddings.tokens", sizes.tokens, sizes.hidden, sizes.deviation);
  place_embedding_ =
      std::make_unique<Embedding>(parameters, "embeddings.positions", sizes.positions, sizes.hidden, sizes.deviation);
  for (int64_t i = 0; i < sizes.layers; ++i) {
    parameters.begin_group();
    layers_.push_back(std::make_unique<EncoderLayer>(
        parameters, "layers." + std::to_string(i),
        EncoderLayer::Sizes{sizes.hidden, sizes.heads, sizes.intermediate, sizes.largest_batch, sizes.norm_eps,
                            sizes.dropout, sizes.dropout, sizes.pre_norm},
        sizes.deviation, out_deviation));
  }
  parameters.begin_group();
  norm_ = std::make_unique<Norm>(parameters, "norm", sizes.hidden, sizes.norm_eps, true);
  head_ = std::make_unique<LanguageHead>(parameters, embedding_->weight());
}

Tensor Encoder::forward(const Batch& batch) {
  check_batch(batch, "Encoder");
  if (batch.length > sizes_.positions) {
    throw InvalidArgument("nn::Encoder: the batch's sequences have " + std::to_string(batch.length) +
                          " tokens, expected at most " + std::to_string(sizes_.positions));
  }
  std::vector<int32_t> places;
  for (int64_t row = 0; row < batch.sequences * batch.length; ++row) {
    places.push_back(static_cast<int32_t>(row % batch.length));
  }
  const Tensor place_ids =
      Tensor::from_host(places.data(), {batch.sequences * batch.length}, DType::I32, context_.device());
  const Tensor rows = embedding_->forward(batch.ids, context_.dtype());
  context_.ops().add(rows, rows, place_embedding_->forward(place_ids, context_.dtype()));
  Tensor x = rows.view({batch.sequences, batch.length, sizes_.hidden});
  for (const auto& layer : layers_) x = layer->forward(x, {});
  return norm_->forward(x.view({batch.sequences * batch.length, sizes_.hidden}));
}

Tensor Encoder::losses(const Batch& batch) {
  const Training off(context_, false);
  return head_->losses(forward(batch), batch.targets);
}

Tensor Encoder::losses_and_gradients(const Batch& batch, float scale) {
  const Training on(context_, true);
  Tensor normed = forward(batch);
  const Tensor d_normed = context_.empty(normed.shape());
  const Tensor losses = head_->losses_and_gradients(normed, batch.targets, scale, d_normed);
  normed = Tensor();
  Tensor d = context_.empty(d_normed.shape());
  norm_->backward(d_normed, d, false);
  int group = parameters_.groups() - 1;
  parameters_.ready(group);
  d = d.view({batch.sequences, batch.length, sizes_.hidden});
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    d = (*layer)->backward(d);
    parameters_.ready(--group);
  }
  const Tensor rows = d.view({batch.sequences * batch.length, sizes_.hidden});
  embedding_->backward(rows);
  place_embedding_->backward(rows);
  parameters_.ready(0);
  return losses;
}

}  // namespace anyaccel::nn
