// Holds the weights of a decoder model (of a family that docs/models.md lists) on the accelerator's device.
//
// A Model is loaded once, never changes, and may be used by any number of sessions and threads at once. It only holds
// weights; anyaccel/llm/session.h runs it. Several threads may load models at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/abi/ops.h"
#include "anyaccel/device.h"
#include "anyaccel/dtype.h"
#include "anyaccel/llm/model_config.h"
#include "anyaccel/tensor.h"

namespace anyaccel {
class Accelerator;
namespace comm {
class ProcessGroup;
}
}  // namespace anyaccel

namespace anyaccel::llm {

class WeightPages;  // llm/model/weight_pages.h

struct LoadProgress {
  uint64_t bytes_done = 0;   // of the checkpoint's tensors that are used
  uint64_t bytes_total = 0;  // of the same tensors
  std::string_view tensor;   // the tensor that was loaded, or of which a part was; valid during the call
};

// The precision of the activations that are inputs of a layer's matrix products (and of the output matrix), for any
// number of tokens in a step. The sums of products, the residual stream and norms are always fp32. So is attention, but
// where activations are rounded to bf16 and the cache is bf16, an accelerator may round its queries and softmax weights
// to bf16 too, as PyTorch and FlashAttention do.
enum class Activations {
  // BF16 for a bf16 model on an accelerator that multiplies bf16 faster than fp32; else F32. With quantized weights
  // they may be rounded to 8 bits in groups of 32.
  Auto,
  // Not rounded, and the same on every accelerator. Prompts of a bf16 model take longer where bf16 products are faster.
  F32,
  // Rounded to bf16, as PyTorch does for a model in bf16. For bf16 models only, without quantized weights.
  BF16,
};

// A LoRA adapter that is kept apart from the model's matrices, and the name by which a text chooses it.
struct NamedAdapter {
  std::string name;
  std::string directory;  // as PEFT stores it
};

struct LoadOptions {
  // F32, BF16 or F16. None: the dtype in the file when the accelerator supports it, else F32.
  DType dtype = DType::None;
  Activations activations = Activations::Auto;
  // Called on the loading thread after each tensor, and after each 16 MiB of weights that are used from their mapped
  // file and are not in memory yet: with this function, loading waits until the disk has delivered those, where
  // otherwise the first prompt would. An exception it throws ends the load.
  std::function<void(const LoadProgress&)> progress;
  // Tensor parallelism: the model is sharded over the members of the group (see ModelShard). Every member loads the
  // same directory with the same options. Null: this process holds the whole model.
  std::shared_ptr<comm::ProcessGroup> group;
  // Weights may be used directly from the mapped file. False: every tensor is read into memory once, and the files are
  // not needed after loading.
  bool map_files = true;
  // Not empty: matrices that are not quantized in the files are quantized while they load, a piece at a time, to this
  // type (one of load_types() of anyaccel/llm/quantize.h): as quantize_model() does it for a GGUF file, or, with int8
  // and int4, for a directory, so that layers are quantized and the embedding and output are not. A matrix that the
  // type does not fit gets another one, as quantize_model() says, or stays as it is. InvalidArgument if the accelerator
  // cannot compute with such weights, or if a dtype is set too.
  std::string quantize;
  // Not empty: a directory with a LoRA adapter as PEFT stores it. Its scaled products are added in fp32 to the matrices
  // that it names, which are then rounded to the model's dtype and held in memory; the others are used as without it.
  // CheckpointError for an adapter that is damaged, of another kind or another model's; InvalidArgument if a matrix
  // that it names is quantized.
  std::string adapter;
  // Adapters that are kept apart, so that each sequence of a session can have another one or none (see
  // Session::set_adapters). Their factors are held in the model's dtype; the matrices may be quantized. CheckpointError
  // for an adapter that is damaged, of another kind or another model's; InvalidArgument for names that are empty or
  // equal; NotImplementedError for one that changes other matrices than those of queries, keys, values, attention's
  // output, gate, up and down, such as those of experts.
  std::vector<NamedAdapter> adapters;
};

// A half-open range of indices, [begin, end).
struct Slice {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const noexcept { return end - begin; }
  friend bool operator==(const Slice&, const Slice&) = default;
};

// The shard of a model that one rank holds. Key/value heads may be on several ranks, everything else is on exactly one.
// Ranges may be empty on ranks other than 0.
struct ModelShard {
  int rank = 0;
  int ranks = 1;
  Slice query_heads;
  Slice kv_heads;
  Slice intermediate;
  Slice vocabulary;
  Slice expert = {};  // of the intermediate size of each expert
  Slice shared = {};  // of that of the shared expert
  // Rows of o and down, which are whole; empty: these are split by columns, and their results are summands.
  Slice hidden = {};

  friend bool operator==(const ModelShard&, const ModelShard&) = default;
};

// Letters as in abi/ops.h: H hidden size, Hq query heads, Hk key/value heads, D head size, I intermediate size.
// Matrices are [outputs, inputs] in the model's dtype; norms and biases are fp32. An empty handle: the architecture
// does not have the tensor. In a sharded model Hq, Hk, I and V are the sizes of this rank's shard, tensors without
// elements are empty handles, and the biases of o and down are on rank 0 only. If ModelShard::hidden is not empty, o and
// down, and their biases, have those of the H rows instead, and Hq and I of their columns are those of the whole model.
//
// A matrix whose format is not 0 is quantized: U8 [outputs, bytes of a row], see aa_block_format of abi/ops.h.
struct MatrixFormats {
  aa_block_format q{}, k{}, v{}, o{}, gate{}, up{}, down{}, router{}, shared_weight{}, q_a{}, kv_a{}, kv_b{};
};

// An expert of a feed-forward block, see ExpertsConfig. Its intermediate size is I.
struct ExpertWeights {
  Tensor gate, up;                       // [I, H]
  Tensor down;                           // [H, I]
  Tensor gate_bias, up_bias, down_bias;  // [I], [I], [H]
  MatrixFormats formats;
};

// The factors of all adapters that are kept apart for one matrix, each scaled: they add b a x to the matrix's product
// with x. R is the sum of the adapters' ranks; rows of a and columns of b belong to one adapter (Model::adapter_ranks).
// Without elements if no adapter changes the matrix.
struct LowRank {
  Tensor a;  // [R, inputs]
  Tensor b;  // [outputs, R]
};

struct LayerAdapters {
  LowRank q, k, v, o, gate, up, down;
};

struct LayerWeights {
  Tensor input_norm;       // [H]; biases of norms are absent in RMS norms
  Tensor input_norm_bias;  // [H]
  Tensor attention_norm;   // [H]: of attention's result
  Tensor q, k, v;          // [Hq*D, H], [Hk*D, H], [Hk*D, H]
  // Of latent attention, in place of k and v; R is LatentConfig::rank, Q query_rank.
  Tensor q_a, q_a_bias, q_a_norm;      // [Q, H], [Q], [Q]; q is [Hq*D, Q] then
  Tensor kv_a, kv_a_bias, kv_a_norm;   // [R + rotated, H], [R + rotated], [R]
  Tensor kv_b;                         // [Hq*(plain + value), R]
  Tensor q_bias, k_bias, v_bias;       // [Hq*D], [Hk*D], [Hk*D]
  Tensor q_norm, k_norm;               // [D], or [Hq*D] and [Hk*D] (see HeadNorm)
  Tensor q_norm_bias, k_norm_bias;     // [D]
  Tensor sinks;                        // [Hq]
  Tensor o, o_bias;                    // [H, Hq*D], [H]
  Tensor post_norm;                    // [H]: of the feed-forward block
  Tensor post_norm_bias;               // [H]
  Tensor mlp_norm;                     // [H]: of the feed-forward block's result
  Tensor gate, up;                     // [I, H]
  Tensor gate_bias, up_bias;           // [I]
  Tensor down, down_bias;              // [H, I], [H]
  Tensor router;                       // [E, H]: of layers with experts, which have those in place of gate, up and down
  Tensor router_bias;                  // [E]
  Tensor choice_bias;                  // [E]
  Tensor shared_weight;                // [1, H]: the shared expert's weight is the sigmoid of this product
  std::vector<ExpertWeights> experts;  // E, then the shared expert
  MatrixFormats formats;
  LayerAdapters adapters;
  // Rows 2 i and 2 i + 1 of a head of q and k are rotated together, instead of i and i + D / 2, as in GGUF files of
  // llama models.
  bool rotates_pairs = false;
};

struct ModelWeights {
  Tensor embedding;  // [V, H]
  std::vector<LayerWeights> layers;
  Tensor positions;                            // [positions, H]; fp32 as norms are
  Tensor embedding_norm, embedding_norm_bias;  // [H]
  Tensor final_norm, final_norm_bias;          // [H]
  Tensor lm_head;                              // [V, H]; shares the embedding's memory when they are tied
  Tensor lm_head_bias;                         // [V]
  aa_block_format embedding_format{};
  aa_block_format lm_head_format{};
};

struct ModelShape;  // anyaccel/llm/make_model.h

class WeightFile;  // anyaccel/llm/safetensors.h

class Model {
 public:
  // Reads config.json and the safetensors files of a Hugging Face directory, or a GGUF file (its name ends in .gguf),
  // and puts the weights on the current device of get_accelerator(). If the file has the requested dtype and the
  // accelerator works in host memory, the weights stay in the mapped file: nothing is copied and pages are read when
  // first used. Otherwise tensors are converted and copied one at a time, and the file's pages are released after each.
  // Query and key matrices of a llama model in a GGUF file are copied unless they stay quantized, since their rows are
  // stored in another order. Blocks until every copy is complete.
  //
  // Throws CheckpointError for a missing or damaged file, a file that is written to meanwhile (as far as
  // WeightFile::check_unchanged can tell), a tensor that is missing or does not have the shape that follows from
  // config.json (naming the tensor, the shapes found and expected), or an unknown architecture; InvalidArgument for a
  // dtype that is not a float type of the ops or that the accelerator does not support; OutOfMemoryError.
  static std::shared_ptr<const Model> load(const std::string& directory, const LoadOptions& options = {});

  // Creates a model of the given shape, of any family, with random weights on the current device of `accelerator`,
  // without any file: matrices are uniform with mean 0 and standard deviation 0.02, norms 1, biases 0. The same shape,
  // dtype and seed give the same weights on every accelerator, bit for bit; the members of a group get shards of them.
  // Blocks. InvalidArgument for a dtype that the accelerator does not support, or Activations::BF16 for another;
  // OutOfMemoryError.
  static std::shared_ptr<const Model> random(Accelerator& accelerator, const ModelShape& shape, DType dtype,
                                             uint64_t seed = 0, std::shared_ptr<comm::ProcessGroup> group = {},
                                             Activations activations = Activations::Auto);

  // Returns the configuration of the whole model, even if this process holds only a shard.
  const ModelConfig& config() const noexcept { return config_; }
  // Returns the shard that this process holds.
  const ModelShard& shard() const noexcept { return shards_[rank_]; }
  // Returns those of all ranks.
  const std::vector<ModelShard>& shards() const noexcept { return shards_; }
  // Returns the group of ranks that the model is sharded over; null if this process holds all of it.
  const std::shared_ptr<comm::ProcessGroup>& group() const noexcept { return group_; }
  // Returns hashes of the files and options (llm/model/model_identity.h), which are equal on ranks that loaded the same;
  // "" without a group, and for random weights.
  const std::string& identity() const noexcept { return identity_; }
  const ModelWeights& weights() const noexcept { return weights_; }
  Accelerator& accelerator() const noexcept { return *device_.accelerator; }
  Device device() const noexcept { return device_; }
  // Returns the dtype of the matrices that are not quantized, and of cached keys and values.
  DType dtype() const noexcept { return dtype_; }
  // Returns F32, or BF16 if the inputs of products are rounded to bf16 (see Activations).
  DType product_dtype() const noexcept { return product_dtype_; }
  // True if products with quantized matrices may round their inputs (aa_quantized_rounding), which Activations::F32
  // forbids.
  bool rounds_quantized() const noexcept { return rounds_quantized_; }
  // Returns the formats of the matrices that stay quantized, such as "Q4_K, Q6_K"; "" if there are none.
  const std::string& quantized_formats() const noexcept { return quantized_formats_; }
  // Returns the bytes of all weights of this process; tied ones are counted once.
  uint64_t weight_bytes() const noexcept { return weight_bytes_; }
  // Returns the number of those bytes that are used directly from the mapped file.
  uint64_t mapped_bytes() const noexcept { return mapped_bytes_; }
  // Calls WeightFile::check_unchanged() for the files from which weights are used directly; Session does so in every
  // step.
  void check_files() const;
  // With ANYACCEL_WEIGHT_PAGES=large (docs/model_files.md), on an accelerator that is the host and without a group: moves a
  // part of the weights that are used from files in pages of 4 KiB into pages of 2 MiB. Session calls it in every step: the
  // first ones do nothing, and there is nothing to do after the last part. Any thread.
  void use_large_pages() const;
  // Whether it has not looked for weights in small pages yet, or has found some that are still to be moved: then a step takes
  // longer than those after the last part. False where it does nothing at all. Any thread.
  bool moves_weights() const;
  // Returns the names of the adapters that are kept apart.
  const std::vector<std::string>& adapters() const noexcept { return adapters_; }
  // Returns the index of a name in adapters(), or -1 for "". InvalidArgument that lists them if there is no such name.
  int32_t find_adapter(std::string_view name) const;
  // Returns for each adapter its range of the R rows and columns of LowRank.
  const std::vector<Slice>& adapter_ranks() const noexcept { return adapter_ranks_; }
  // Returns notes for the user: tensors of the checkpoint and fields of config.json that were ignored, ranks that hold
  // nothing.
  const std::vector<std::string>& notes() const noexcept { return notes_; }

 private:
  friend class ModelLoader;
  Model() = default;

  // Stores the arguments, and the shard of the config that this rank of the group holds.
  void configure(ModelConfig config, std::shared_ptr<comm::ProcessGroup> group, Device device);
  // Called once the dtype is known.
  void choose_product_dtype(Activations wanted);

  ModelConfig config_;
  std::vector<ModelShard> shards_;
  size_t rank_ = 0;
  std::shared_ptr<comm::ProcessGroup> group_;
  std::string identity_;
  ModelWeights weights_;
  Device device_;
  DType dtype_ = DType::None;
  DType product_dtype_ = DType::F32;
  bool rounds_quantized_ = false;
  std::string quantized_formats_;
  uint64_t weight_bytes_ = 0;
  uint64_t mapped_bytes_ = 0;
  std::vector<std::string> notes_;
  std::vector<std::string> adapters_;
  std::vector<Slice> adapter_ranks_;
  std::vector<std::shared_ptr<const WeightFile>> mapped_files_;  // files from which weights are used directly
  std::shared_ptr<WeightPages> weight_pages_;                    // null: they stay where they are
};

}  // namespace anyaccel::llm
