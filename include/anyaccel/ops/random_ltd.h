// Random layer token drop, under DeepSpeed's names: the library that "RandomLTDBuilder" loads. A layer processes a
// random subset of the tokens, and its results are written back to their places among the others.
//
// Tensors are fp32, fp16 or bf16, and I32 for indices; the functions only copy, without arithmetic. Everything but
// token_sort_ and the samplers is enqueued on the calling thread's current stream and does not block. An
// InvalidArgument names the argument, what was found and what was expected. An index out of range is an error if the
// accelerator can detect it in time; otherwise it leaves rows undefined, but never touches memory outside the tensors.
#pragma once

#include <utility>
#include <vector>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/training.h"
#include "anyaccel/tensor.h"

namespace anyaccel::ops {

class RandomLTD : public OpLibrary {
 public:
  explicit RandomLTD(Accelerator& accelerator) : accelerator_(accelerator), ops_(accelerator) {}

  // Sorts each row of ids I32 [layers, B, reserved] in ascending order, in place. Values are distinct, from 0 to
  // original_tokens - 1. Runs on the host, with copies there and back, and blocks.
  Tensor token_sort_(const Tensor& ids, int64_t original_tokens);
  // x [B, S, C] with batch_first, else [S, B, C]; idx I32 [B, R]. Row r of sequence n of the result, [B, R, C] or [R,
  // B, C], is row idx[n, r] of that sequence.
  Tensor token_gather(const Tensor& x, const Tensor& idx, bool batch_first);
  // Writes the rows of `layer`, as gathered, back into `all`, which is returned. The indices of a sequence are
  // distinct.
  Tensor token_scatter_(const Tensor& all, const Tensor& layer, const Tensor& idx, bool batch_first);
  // Takes the rows and columns with each layer's indices from the mask: mask [B, 1, S, S], idx I32 [layers, B, R],
  // result [layers, B, 1, R, R].
  Tensor mask_gather_bert(const Tensor& mask, const Tensor& idx);
  // Returns the upper left [B, 1, R, R] of mask [B, 1, S, S].
  Tensor mask_gather_gpt(const Tensor& mask, int64_t reserved);

  // -- gradients

  // Returns the gradient of token_gather's x, with `tokens` = S: zeros except for the gathered rows.
  Tensor token_gather_backward(const Tensor& grad, const Tensor& idx, int64_t tokens, bool batch_first);
  // Returns the gradients of token_scatter_'s `all` (zero for the rows that were overwritten) and `layer`.
  std::pair<Tensor, Tensor> token_scatter_backward(const Tensor& grad, const Tensor& idx, bool batch_first);

  // -- samplers: they choose `reserved` of `tokens` positions for each layer and sequence, all equally likely, without
  //    repetition, in ascending order, with numbers of the device's default generator, the same on every accelerator.
  //    They block until the indices are on the device.

  // Returns I32 [layers, B, reserved], and the part of the mask for them (mask_gather_gpt) if there is a mask.
  std::pair<Tensor, Tensor> gpt_sample_tokens(int64_t reserved, int64_t tokens, int64_t batch, int64_t layers,
                                              const Device& device, const Tensor& attn_mask = {});
  // The same with masks of each layer's own rows and columns.
  std::pair<Tensor, std::vector<Tensor>> bert_sample_tokens(int64_t reserved, int64_t tokens, int64_t batch,
                                                            int64_t layers, const Device& device,
                                                            const Tensor& attn_mask);

 private:
  Tensor sample(const char* function, int64_t reserved, int64_t tokens, int64_t batch, int64_t layers,
                const Device& device);

  Accelerator& accelerator_;
  Training ops_;
};

}  // namespace anyaccel::ops
