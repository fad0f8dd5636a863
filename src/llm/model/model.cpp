// Configures models, and makes models with random weights.
#include "anyaccel/llm/model.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/comm/process_group.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/safetensors.h"
#include "anyaccel/ops/inference.h"
#include "llm/config/shape_config.h"
#include "llm/model/decoder_tensors.h"
#include "llm/model/load_plan.h"
#include "llm/model/tensor_parallel.h"
#include "llm/model/weight_pages.h"

namespace anyaccel::llm {

std::shared_ptr<const Model> Model::random(Accelerator& accelerator, const ModelShape& shape, DType dtype,
                                           uint64_t seed, std::shared_ptr<comm::ProcessGroup> group,
                                           Activations activations) {
  check_computes(accelerator, dtype);
  std::shared_ptr<Model> model(new Model());
  model->configure(config_of_shape(shape, dtype), std::move(group), accelerator.device(accelerator.current_device()));
  model->dtype_ = dtype;
  model->choose_product_dtype(activations);
  ModelWeights& weights = model->weights_;
  weights.layers.resize(static_cast<size_t>(model->config_.num_hidden_layers));
  const auto ops = accelerator.create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  // Uniform numbers are identical on every accelerator; normal ones depend on the rounding of a sine.
  const double limit = std::sqrt(3.0) * made_up_standard_deviation;
  for (const TensorSlot& slot : decoder_tensors(model->config_, model->shard().hidden.size() > 0)) {
    const bool matrix = slot.kind == TensorKind::Matrix;
    Tensor tensor = Tensor::empty(slot.shape, matrix ? dtype : DType::F32, model->device_);
    if (matrix) {
      ops->random(tensor, AA_RANDOM_UNIFORM, seed++, 0, -limit, limit);
    } else {
      tensor.fill(slot.kind == TensorKind::Norm ? 1.0 : 0.0);
    }
    if (const Slice held = held_slice(slot, model->shard(), model->config_.head_dim);
        held.size() < slot.shape[slot.split_dim]) {
      if (held.size() == 0) continue;
      tensor = tensor.slice(slot.split_dim, held.begin, held.end).clone();
    }
    model->weight_bytes_ += tensor.nbytes();
    slot.in(weights) = std::move(tensor);
  }
  if (model->config_.tie_word_embeddings) weights.lm_head = weights.embedding;
  accelerator.current_stream().synchronize();
  return model;
}

void Model::choose_product_dtype(Activations wanted) {
  if (wanted == Activations::BF16 && dtype_ != DType::BF16) {
    throw InvalidArgument("model: activations in bf16 were asked for, and the model is " +
                          std::string(dtype_name(dtype_)) +
                          "; expected a bf16 model (--dtype bf16), or --activations auto or fp32");
  }
  const uint64_t fast = accelerator().device_properties(device_.index).dtypes_matrix;
  const bool faster = dtype_ == DType::BF16 && (fast >> AA_DTYPE_BF16 & 1) != 0;
  const bool rounds = wanted == Activations::BF16 || (wanted == Activations::Auto && faster);
  product_dtype_ = rounds ? DType::BF16 : DType::F32;
}

void Model::configure(ModelConfig config, std::shared_ptr<comm::ProcessGroup> group, Device device) {
  config_ = std::move(config);
  device_ = device;
  if (group && group->size() > 1) group_ = std::move(group);
  if (group_ && config_.head_norm == HeadNorm::Whole) {
    throw InvalidArgument("model: a model of type " + std::string(family_name(config_.family)) +
                          " norms all heads of a layer together, and is not split over ranks (" +
                          std::to_string(group_->size()) + " were asked for)");
  }
  const int ranks = group_ ? group_->size() : 1;
  // Ranks that share host memory gather what the last products of a layer need, so that these read whole rows: the two
  // halves of each row, one in each of two ranks of a Zen 5, were read at 0.82 to 0.86 of the speed of whole rows.
  ShardPolicy policy;
  policy.whole_rows = group_ && group_->backend() == "shm" && config_.hidden_size >= ranks &&
                      (accelerator().device_properties(device_.index).caps & AA_CAP_IS_HOST) != 0;
  shards_ = plan_shards(config_, ranks, policy);
  rank_ = static_cast<size_t>(group_ ? group_->rank() : 0);
  notes_ = config_.notes;
  const std::vector<std::string> of_plan = empty_shard_notes(shards_);
  notes_.insert(notes_.end(), of_plan.begin(), of_plan.end());
}

int32_t Model::find_adapter(std::string_view name) const {
  if (name.empty()) return -1;
  const auto found = std::ranges::find(adapters_, name);
  if (found != adapters_.end()) return static_cast<int32_t>(found - adapters_.begin());
  std::string all;
  for (const std::string& known : adapters_) all += (all.empty() ? "" : ", ") + known;
  throw InvalidArgument("model: no adapter has the name \"" + std::string(name) + "\"; expected " +
                        (all.empty() ? "none, as the model was loaded without" : "one of " + all));
}

void Model::check_files() const {
  for (const auto& file : mapped_files_) file->check_unchanged();
}

void Model::use_large_pages() const {
  if (weight_pages_ != nullptr) weight_pages_->after_step();
}

bool Model::moves_weights() const { return weight_pages_ != nullptr && weight_pages_->is_busy(); }

}  // namespace anyaccel::llm
