// Implements anyaccel/ops/ragged_ops.h: ragged batches, a paged cache, mixtures of experts; and the host's buffers for
// them.
#include "anyaccel/ops/ragged_ops.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "anyaccel/error.h"
#include "ops/builders.h"
#include "ops/host/panel_products.h"
#include "ops/host/placed_kernels.h"
#include "ops/host/quant_support.h"

namespace anyaccel::ops {
namespace {

using kernel_arguments::aa_i32, kernel_arguments::aa_i64;
#include "kernels/portable/ragged_arguments.h"

enum RaggedKernel : size_t {
  ragged_kv,
  ragged_attention,
  ragged_embed_rows,
  ragged_last_rows,
  ragged_top_k,
  ragged_expert_counts,
  ragged_expert_sums,
  ragged_scatter,
  ragged_gather,
};

const void* address_of(const Tensor& tensor) { return tensor ? tensor.data() : nullptr; }

// Checks that the tensor is present, has one of the float dtypes (or `dtype`) and these sizes (-1: any), and is on
// `device`.
void check_ragged(const char* op, const char* name, const Tensor& tensor, std::optional<DType> dtype,
                  std::initializer_list<int64_t> sizes, Device device) {
  if (dtype) {
    check_dtype(op, name, tensor, *dtype);
  } else {
    check_float(op, name, tensor);
  }
  std::string expected = "[";
  bool fits = tensor.ndim() == static_cast<int>(sizes.size());
  int dim = 0;
  for (const int64_t size : sizes) {
    if (dim > 0) expected += ", ";
    expected += size < 0 ? "any" : std::to_string(size);
    fits = fits && (size < 0 || tensor.size(dim) == size);
    ++dim;
  }
  if (!fits) refuse_call(op, std::string(name) + " must be " + expected + "], and is " + tensor_text(tensor));
  if (tensor.device() != device) {
    refuse_call(op, std::string(name) + " must be " + place_text(device) + " like the others, and is " +
                        place_text(tensor.device()) + "; Tensor::to() copies it");
  }
}

void check_batch(const char* op, const RaggedBatch& batch, int64_t rows, const Tensor& seqs) {
  if (batch.n_tokens < 0 || batch.n_tokens > rows) {
    refuse_call(op, "batch.n_tokens must be from 0 to " + std::to_string(rows) + ", the rows there are, and is " +
                        std::to_string(batch.n_tokens));
  }
  if (batch.n_sequences < 0 || (seqs && batch.n_sequences > seqs.size(0))) {
    refuse_call(op, "batch.n_sequences must be from 0 to " + std::to_string(seqs ? seqs.size(0) : 0) +
                        ", the rows of seqs, and is " + std::to_string(batch.n_sequences));
  }
}

// Returns all of the memory that a strided tensor spans, as one row.
Tensor span_of(const Tensor& tensor) {
  int64_t last = 0;
  for (int dim = 0; dim < tensor.ndim(); ++dim) last += (tensor.size(dim) - 1) * tensor.stride(dim);
  const int64_t stride = 1;
  return Tensor(tensor.storage(), tensor.dtype(), Shape{tensor.numel() == 0 ? 0 : last + 1}, {&stride, 1},
                tensor.storage_offset());
}

}  // namespace

struct RaggedOps::Impl {
  Accelerator& accelerator;
  std::shared_ptr<HostOpLibrary> code;
  PlacedKernels kernels;

  Impl(Accelerator& active, std::shared_ptr<HostOpLibrary> loaded)
      : accelerator(active),
        code(std::move(loaded)),
        kernels(active, code.get(), "ragged.cl",
                {"ragged_kv", "ragged_attention", "ragged_embed", "ragged_last_rows", "ragged_top_k",
                 "ragged_expert_counts", "ragged_expert_sums", "ragged_scatter", "ragged_gather"}) {}

  void run(const char* op, std::initializer_list<HostTensor> tensors,
           const std::function<void(std::span<Tensor>, Place)>& body) {
    run_dense(accelerator, kernels.on_devices(), op, tensors, body);
  }

  // Returns the number of columns of a row that an item processes.
  int64_t piece(Place place, int64_t columns) { return kernels.group_size(place) == 1 ? columns : 4; }

  void write_cache(const char* op, const Tensor& kv_cache, const Tensor& q, const Tensor& k, const Tensor& v,
                   int64_t rotary_dim, float theta_base, const Tensor& inv_freq, const RaggedBatch& batch,
                   const Tensor& seqs, const Tensor& tokens_to_seq, const Tensor& kv_blocks) {
    check_float(op, "kv_cache", kv_cache);
    const Device device = kv_cache.device();
    check_ragged(op, "kv_cache", kv_cache, {}, {-1, -1, 2, -1, -1}, device);
    if (!kv_cache.is_contiguous()) refuse_call(op, "kv_cache must be contiguous");
    if (kv_cache.size(1) == 0) {
      refuse_call(op, "kv_cache must have blocks of at least one position, and is " + tensor_text(kv_cache));
    }
    const DType dtype = kv_cache.dtype();
    const int64_t kv_heads = kv_cache.size(3), size = kv_cache.size(4);
    check_ragged(op, "q", q, dtype, {-1, -1}, device);
    const int64_t rows = q.size(0);
    if (size < 1 || q.size(1) % size != 0) {
      refuse_call(op, "q must be [T, heads * " + std::to_string(size) + "], and is " + tensor_text(q));
    }
    check_ragged(op, "k", k, dtype, {rows, kv_heads * size}, device);
    check_ragged(op, "v", v, dtype, {rows, kv_heads * size}, device);
    check_ragged(op, "seqs", seqs, DType::I32, {-1, 4}, device);
    check_ragged(op, "tokens_to_seq", tokens_to_seq, DType::I32, {-1}, device);
    check_ragged(op, "kv_blocks", kv_blocks, DType::I32, {-1, -1}, device);
    check_batch(op, batch, std::min(rows, tokens_to_seq.size(0)), seqs);
    if (kv_blocks.size(0) < batch.n_sequences) {
      refuse_call(op, "kv_blocks must have a row for each of " + std::to_string(batch.n_sequences) +
                          " sequences, and is " + tensor_text(kv_blocks));
    }
    if (rotary_dim < 0 || rotary_dim > size || rotary_dim % 2 != 0) {
      refuse_call(op, "rotary_dim must be even and from 0 to " + std::to_string(size) + ", and is " +
                          std::to_string(rotary_dim));
    }
    const HostUse in = HostUse::In;
    run(op,
        {{&kv_cache, HostUse::InOut},
         {&q, rotary_dim == 0 ? in : HostUse::InOut},
         {&k, in},
         {&v, in},
         {&inv_freq, in},
         {&seqs, in},
         {&tokens_to_seq, in},
         {&kv_blocks, in}},
        [&](std::span<Tensor> t, Place place) {
          aa_ragged s{};
          s.tokens = batch.n_tokens;
          s.sequences = batch.n_sequences;
          s.max_blocks = kv_blocks.size(1);
          s.cache_blocks = kv_cache.size(0);
          s.block = kv_cache.size(1);
          s.q_heads = q.size(1) / size;
          s.kv_heads = kv_heads;
          s.size = size;
          s.rotated = rotary_dim;
          s.log_theta = inv_freq ? 0.0f : std::log(theta_base);
          s.dtype = static_cast<int32_t>(dtype);
          kernels.items(ragged_kv, place, s.tokens * (s.q_heads + s.kv_heads), t[0].data(), t[1].data(),
                        address_of(t[2]), address_of(t[3]), address_of(t[4]), address_of(t[5]), address_of(t[6]),
                        address_of(t[7]), s);
        });
  }
};

RaggedOps::RaggedOps(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code)
    : impl_(std::make_unique<Impl>(accelerator, std::move(code))) {}
RaggedOps::~RaggedOps() = default;

int64_t RaggedOps::build_atoms(const Tensor& atoms, const RaggedBatch& batch, const Tensor& seqs, int64_t q_block,
                               int64_t kv_block) const {
  const char* op = "build_atoms";
  check_ragged(op, "atoms", atoms, DType::I32, {-1, 8}, Device{});
  check_ragged(op, "seqs", seqs, DType::I32, {-1, 4}, Device{});
  check_batch(op, batch, INT32_MAX, seqs);
  if (!atoms.is_contiguous()) refuse_call(op, "atoms must be contiguous");
  if (q_block < 1 || kv_block < 1) {
    refuse_call(op, "q_block and kv_block must be at least 1, and are " + std::to_string(q_block) + " and " +
                        std::to_string(kv_block));
  }
  const Tensor rows = seqs.contiguous();
  const auto* sequences = static_cast<const InflightSeq*>(rows.data());
  auto* out = static_cast<AttentionAtom*>(atoms.data());
  int64_t count = 0;
  for (int32_t i = 0; i < batch.n_sequences; ++i) {
    const InflightSeq& sequence = sequences[i];
    if (sequence.n_tokens < 0 || sequence.seen_tokens < 0 || sequence.start_idx < 0) {
      refuse_call(op, "row " + std::to_string(i) + " of seqs has a negative number");
    }
    for (int64_t done = 0; done < sequence.n_tokens; done += q_block) {
      if (count == atoms.size(0)) {
        refuse_call(op, "atoms has " + std::to_string(atoms.size(0)) + " rows, which is too few: sequence " +
                            std::to_string(i) + " needs more");
      }
      AttentionAtom atom;
      atom.sequence = i;
      atom.q_start_idx = static_cast<int32_t>(sequence.start_idx + done);
      atom.q_len = static_cast<int32_t>(std::min<int64_t>(q_block, sequence.n_tokens - done));
      atom.global_q_idx = static_cast<int32_t>(sequence.seen_tokens + done);
      atom.total_extent = atom.global_q_idx + atom.q_len;
      atom.kv_blocks = static_cast<int32_t>(ceil_div(atom.total_extent, kv_block));
      out[count++] = atom;
    }
  }
  return count;
}

void RaggedOps::flash_attn_by_atoms(const Tensor& out, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                                    const Tensor& atoms, const Tensor& kv_blocks, float softmax_scale, bool is_causal) {
  const char* op = "flash_attn_by_atoms";
  check_float(op, "q", q);
  const Device device = q.device();
  check_ragged(op, "q", q, {}, {-1, -1}, device);
  check_ragged(op, "out", out, q.dtype(), {q.size(0), q.size(1)}, device);
  check_ragged(op, "k_cache", k_cache, q.dtype(), {-1, -1, -1, -1}, device);
  check_ragged(op, "v_cache", v_cache, q.dtype(), {k_cache.size(0), k_cache.size(1), k_cache.size(2), k_cache.size(3)},
               device);
  check_ragged(op, "atoms", atoms, DType::I32, {-1, 8}, device);
  check_ragged(op, "kv_blocks", kv_blocks, DType::I32, {-1, -1}, device);
  const int64_t kv_heads = k_cache.size(2), size = k_cache.size(3);
  if (size < 1 || size > AA_MOST_HEAD_SIZE) {
    refuse_call(op, "heads have from 1 to " + std::to_string(AA_MOST_HEAD_SIZE) + " elements, and k_cache is " +
                        tensor_text(k_cache));
  }
  if (kv_heads < 1 || q.size(1) % size != 0 || q.size(1) / size % kv_heads != 0) {
    refuse_call(op, "q must be [T, heads * " + std::to_string(size) + "] with a multiple of " +
                        std::to_string(kv_heads) + " heads, and is " + tensor_text(q));
  }
  if (k_cache.stride(3) != 1 || v_cache.stride(3) != 1) {
    refuse_call(op, "the elements of a head must be neighbours in k_cache and v_cache");
  }
  if (!std::isfinite(softmax_scale)) refuse_call(op, "softmax_scale must be a finite number");
  if (q.numel() == 0 || atoms.size(0) == 0 || k_cache.numel() == 0) return;
  const Tensor keys = span_of(k_cache), values = span_of(v_cache);
  const HostUse in = HostUse::In;
  impl_->run(op, {{&out, HostUse::InOut}, {&q, in}, {&keys, in}, {&values, in}, {&atoms, in}, {&kv_blocks, in}},
             [&](std::span<Tensor> t, Place place) {
               aa_atoms s{};
               s.count = atoms.size(0);
               s.q_rows = q.size(0);
               // The atoms may be on the device, so the largest number of queries in one of them is only known after
               // reading them back.
               s.q_most = 1;
               const std::vector<int32_t> numbers = t[4].to_vector<int32_t>();
               for (size_t i = 2; i < numbers.size(); i += 8) {
                 s.q_most = std::max<int64_t>(s.q_most, std::min<int64_t>(numbers[i], q.size(0)));
               }
               s.sequences = kv_blocks.size(0);
               s.max_blocks = kv_blocks.size(1);
               s.cache_blocks = k_cache.size(0);
               s.block = k_cache.size(1);
               s.heads = q.size(1) / size;
               s.heads_per_kv = s.heads / kv_heads;
               s.size = size;
               for (int i = 0; i < 3; ++i) {
                 s.k_stride[i] = k_cache.stride(i);
                 s.v_stride[i] = v_cache.stride(i);
               }
               s.scale = softmax_scale;
               s.causal = is_causal ? 1 : 0;
               s.dtype = static_cast<int32_t>(q.dtype());
               impl_->kernels.groups(ragged_attention, place, s.count * s.q_most * s.heads, t[0].data(),
                                     address_of(t[1]), address_of(t[2]), address_of(t[3]), address_of(t[4]),
                                     address_of(t[5]), s);
             });
}

void RaggedOps::kv_rotary_embeddings(const Tensor& kv_cache, const Tensor& q, const Tensor& k, const Tensor& v,
                                     int64_t rotary_dim, float theta_base, const RaggedBatch& batch, const Tensor& seqs,
                                     const Tensor& tokens_to_seq, const Tensor& kv_blocks) {
  const char* op = "kv_rotary_embeddings";
  if (!(theta_base > 1) || !std::isfinite(theta_base)) {
    refuse_call(op, "theta_base must be a number above 1, and is " + std::to_string(theta_base));
  }
  impl_->write_cache(op, kv_cache, q, k, v, rotary_dim, theta_base, {}, batch, seqs, tokens_to_seq, kv_blocks);
}

void RaggedOps::kv_trained_rotary_embeddings(const Tensor& kv_cache, const Tensor& q, const Tensor& k, const Tensor& v,
                                             const Tensor& inv_freq, const RaggedBatch& batch, const Tensor& seqs,
                                             const Tensor& tokens_to_seq, const Tensor& kv_blocks) {
  const char* op = "kv_trained_rotary_embeddings";
  check_present(op, "kv_cache", kv_cache);
  check_ragged(op, "inv_freq", inv_freq, DType::F32, {-1}, kv_cache.device());
  impl_->write_cache(op, kv_cache, q, k, v, 2 * inv_freq.size(0), 2, inv_freq, batch, seqs, tokens_to_seq, kv_blocks);
}

void RaggedOps::linear_kv_copy(const Tensor& kv_cache, const Tensor& q, const Tensor& k, const Tensor& v,
                               const RaggedBatch& batch, const Tensor& seqs, const Tensor& tokens_to_seq,
                               const Tensor& kv_blocks) {
  impl_->write_cache("linear_kv_copy", kv_cache, q, k, v, 0, 2, {}, batch, seqs, tokens_to_seq, kv_blocks);
}

void RaggedOps::ragged_embed(const Tensor& out, const Tensor& ids, const Tensor& table, const Tensor& position_table,
                             int64_t position_offset, const RaggedBatch& batch, const Tensor& seqs,
                             const Tensor& tokens_to_seq) {
  const char* op = "ragged_embed";
  check_float(op, "out", out);
  const Device device = out.device();
  check_ragged(op, "out", out, {}, {-1, -1}, device);
  check_present(op, "ids", ids);
  if (ids.dtype() != DType::I32 && ids.dtype() != DType::I64) {
    refuse_call(op, "ids must be int32 or int64, and is " + tensor_text(ids));
  }
  check_ragged(op, "ids", ids, ids.dtype(), {out.size(0)}, device);
  check_ragged(op, "table", table, out.dtype(), {-1, out.size(1)}, device);
  if (position_table) check_ragged(op, "position_table", position_table, out.dtype(), {-1, out.size(1)}, device);
  check_ragged(op, "seqs", seqs, DType::I32, {-1, 4}, device);
  check_ragged(op, "tokens_to_seq", tokens_to_seq, DType::I32, {-1}, device);
  check_batch(op, batch, std::min(out.size(0), tokens_to_seq.size(0)), seqs);
  if (out.numel() == 0) return;
  const HostUse in = HostUse::In;
  impl_->run(
      op, {{&out, HostUse::InOut}, {&ids, in}, {&table, in}, {&position_table, in}, {&seqs, in}, {&tokens_to_seq, in}},
      [&](std::span<Tensor> t, Place place) {
        aa_ragged_rows s{};
        s.tokens = batch.n_tokens;
        s.rows = table.size(0);
        s.columns = out.size(1);
        s.piece = impl_->piece(place, s.columns);
        s.positions = position_table ? position_table.size(0) : 0;
        s.position_offset = position_offset;
        s.sequences = batch.n_sequences;
        s.dtype = static_cast<int32_t>(out.dtype());
        s.wide_ids = ids.dtype() == DType::I64 ? 1 : 0;
        impl_->kernels.items(ragged_embed_rows, place, s.tokens * ceil_div(s.columns, s.piece), t[0].data(),
                             address_of(t[1]), address_of(t[2]), address_of(t[3]), address_of(t[4]), address_of(t[5]),
                             s);
      });
}

void RaggedOps::gather_for_logits(const Tensor& out, const Tensor& x, const RaggedBatch& batch, const Tensor& seqs) {
  const char* op = "gather_for_logits";
  check_float(op, "x", x);
  check_ragged(op, "x", x, {}, {-1, -1}, x.device());
  check_ragged(op, "out", out, x.dtype(), {batch.n_sequences, x.size(1)}, x.device());
  check_ragged(op, "seqs", seqs, DType::I32, {-1, 4}, x.device());
  check_batch(op, batch, x.size(0), seqs);
  if (out.numel() == 0) return;
  const HostUse in = HostUse::In;
  impl_->run(op, {{&out, HostUse::InOut}, {&x, in}, {&seqs, in}}, [&](std::span<Tensor> t, Place place) {
    aa_ragged_rows s{};
    s.rows = batch.n_tokens;
    s.columns = x.size(1);
    s.piece = impl_->piece(place, s.columns);
    s.sequences = batch.n_sequences;
    s.dtype = static_cast<int32_t>(x.dtype());
    impl_->kernels.items(ragged_last_rows, place, s.sequences * ceil_div(s.columns, s.piece), t[0].data(),
                         address_of(t[1]), address_of(t[2]), s);
  });
}

void RaggedOps::top_k_gating(const Tensor& counts, const Tensor& scores, const Tensor& experts, const Tensor& offsets,
                             const Tensor& logits, const RaggedBatch& batch) {
  const char* op = "top_k_gating";
  check_float(op, "logits", logits);
  const Device device = logits.device();
  check_ragged(op, "logits", logits, {}, {-1, -1}, device);
  const int64_t rows = logits.size(0), all = logits.size(1);
  check_ragged(op, "counts", counts, DType::I32, {all}, device);
  check_ragged(op, "scores", scores, DType::F32, {rows, -1}, device);
  const int64_t k = scores.size(1);
  check_ragged(op, "experts", experts, DType::I32, {rows, k}, device);
  check_ragged(op, "offsets", offsets, DType::I32, {rows, k}, device);
  if (k < 1 || k > AA_MOST_CHOICES || k > all) {
    refuse_call(op, "a token has from 1 to " + std::to_string(std::min<int64_t>(AA_MOST_CHOICES, all)) +
                        " experts, and scores is " + tensor_text(scores));
  }
  check_batch(op, {batch.n_tokens, 0}, rows, {});
  const HostUse out = HostUse::Out;
  impl_->run(op, {{&counts, HostUse::InOut}, {&scores, out}, {&experts, out}, {&offsets, out}, {&logits, HostUse::In}},
             [&](std::span<Tensor> t, Place place) {
               aa_experts s{};
               s.tokens = batch.n_tokens;
               s.rows = rows;
               s.experts = all;
               s.k = k;
               s.dtype = static_cast<int32_t>(logits.dtype());
               impl_->kernels.items(ragged_top_k, place, rows, t[1].data(), t[2].data(), t[3].data(), address_of(t[4]),
                                    s);
               impl_->kernels.items(ragged_expert_counts, place, all, t[0].data(), t[3].data(), address_of(t[2]), s);
             });
}

void RaggedOps::moe_scatter(const Tensor& moe_input, const Tensor& cumsum, const Tensor& slots, const Tensor& x,
                            const Tensor& counts, const Tensor& experts, const Tensor& offsets) {
  const char* op = "moe_scatter";
  check_float(op, "x", x);
  const Device device = x.device();
  check_ragged(op, "x", x, {}, {-1, -1}, device);
  check_ragged(op, "slots", slots, DType::I32, {x.size(0), -1}, device);
  const int64_t k = slots.size(1);
  check_ragged(op, "moe_input", moe_input, x.dtype(), {x.size(0) * k, x.size(1)}, device);
  check_ragged(op, "counts", counts, DType::I32, {-1}, device);
  check_ragged(op, "cumsum", cumsum, DType::I64, {counts.size(0)}, device);
  check_ragged(op, "experts", experts, DType::I32, {x.size(0), k}, device);
  check_ragged(op, "offsets", offsets, DType::I32, {x.size(0), k}, device);
  if (x.size(1) < 1) refuse_call(op, "x must have columns, and is " + tensor_text(x));
  const HostUse in = HostUse::In;
  impl_->run(op,
             {{&moe_input, HostUse::InOut},
              {&cumsum, HostUse::Out},
              {&slots, HostUse::Out},
              {&x, in},
              {&counts, in},
              {&experts, in},
              {&offsets, in}},
             [&](std::span<Tensor> t, Place place) {
               aa_experts s{};
               s.rows = x.size(0);
               s.experts = counts.size(0);
               s.k = k;
               s.columns = x.size(1);
               s.piece = impl_->piece(place, s.columns);
               s.dtype = static_cast<int32_t>(x.dtype());
               impl_->kernels.items(ragged_expert_sums, place, s.experts, t[1].data(), address_of(t[4]), s);
               impl_->kernels.items(ragged_scatter, place, s.rows * k * ceil_div(s.columns, s.piece), t[0].data(),
                                    t[2].data(), address_of(t[3]), address_of(t[1]), address_of(t[5]), address_of(t[6]),
                                    s);
             });
}

void RaggedOps::moe_gather(const Tensor& out, const Tensor& moe_output, const Tensor& scores, const Tensor& slots,
                           const Tensor& counts, bool normalize) {
  const char* op = "moe_gather";
  check_float(op, "out", out);
  const Device device = out.device();
  check_ragged(op, "out", out, {}, {-1, -1}, device);
  check_ragged(op, "slots", slots, DType::I32, {out.size(0), -1}, device);
  const int64_t k = slots.size(1);
  check_ragged(op, "moe_output", moe_output, out.dtype(), {out.size(0) * k, out.size(1)}, device);
  check_ragged(op, "scores", scores, DType::F32, {out.size(0), k}, device);
  check_ragged(op, "counts", counts, DType::I32, {-1}, device);
  const HostUse in = HostUse::In;
  if (out.numel() != 0) {
    impl_->run(op, {{&out, HostUse::InOut}, {&moe_output, in}, {&scores, in}, {&slots, in}},
               [&](std::span<Tensor> t, Place place) {
                 aa_experts s{};
                 s.rows = out.size(0);
                 s.k = k;
                 s.columns = out.size(1);
                 s.piece = impl_->piece(place, s.columns);
                 s.dtype = static_cast<int32_t>(out.dtype());
                 s.normalize = normalize ? 1 : 0;
                 impl_->kernels.items(ragged_gather, place, s.rows * ceil_div(s.columns, s.piece), t[0].data(),
                                      address_of(t[1]), address_of(t[2]), address_of(t[3]), s);
               });
  }
  if (counts.numel() != 0) counts.fill(0);
}

// ---- RaggedUtils ----------------------------------------------------------------------------------------------------

Tensor RaggedUtils::allocate_fast_host_buffer(const Tensor& device_tensor) const {
  const char* op = "allocate_fast_host_buffer";
  check_present(op, "device_tensor", device_tensor);
  return accelerator_.pin_memory(Tensor::empty(device_tensor.shape(), device_tensor.dtype()));
}

Tensor RaggedUtils::allocate_view_on(const Tensor& like, const Tensor& buffer, int64_t offset_bytes) const {
  check_present("allocate_view_on", "like", like);
  return allocate_view_like(like.shape(), like.strides(), like, buffer, offset_bytes);
}

Tensor RaggedUtils::allocate_view_like(const Shape& shape, std::span<const int64_t> strides,
                                       const Tensor& dtype_example, const Tensor& buffer, int64_t offset_bytes) const {
  const char* op = "allocate_view_like";
  check_present(op, "dtype_example", dtype_example);
  check_present(op, "buffer", buffer);
  if (!buffer.is_contiguous()) refuse_call(op, "buffer must be contiguous, and is " + tensor_text(buffer));
  if (strides.size() != static_cast<size_t>(shape.ndim())) {
    refuse_call(op, "there must be a stride for each of the " + std::to_string(shape.ndim()) +
                        " dimensions, and there are " + std::to_string(strides.size()));
  }
  const auto element = static_cast<int64_t>(dtype_size(dtype_example.dtype()));
  const int64_t begin = buffer.storage_offset() * static_cast<int64_t>(dtype_size(buffer.dtype())) + offset_bytes;
  if (offset_bytes < 0 || begin % element != 0) {
    refuse_call(op, "offset_bytes must not be negative and must put elements of " + std::to_string(element) +
                        " bytes in place, and is " + std::to_string(offset_bytes));
  }
  int64_t last = 0;  // the element of the view that is farthest from the first one
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    const int64_t stride = strides[static_cast<size_t>(dim)];
    if (stride < 0) refuse_call(op, "strides must not be negative, and one is " + std::to_string(stride));
    int64_t reach = 0;
    if (shape[dim] > 0 && (__builtin_mul_overflow(shape[dim] - 1, stride, &reach) ||
                           __builtin_add_overflow(last, reach, &last) || last > INT64_MAX / 16)) {
      refuse_call(op, "the strides reach farther than a tensor can");
    }
  }
  const int64_t needed = shape.numel() == 0 ? 0 : (last + 1) * element;
  if (offset_bytes > static_cast<int64_t>(buffer.nbytes()) ||
      needed > static_cast<int64_t>(buffer.nbytes()) - offset_bytes) {
    refuse_call(op, "the view needs " + std::to_string(needed) + " bytes from byte " + std::to_string(offset_bytes) +
                        " on, and buffer has " + std::to_string(buffer.nbytes()));
  }
  return Tensor(buffer.storage(), dtype_example.dtype(), shape, strides, begin / element);
}

std::unique_ptr<OpBuilder> make_ragged_ops_builder(Accelerator& accelerator) {
  return std::make_unique<BundledOpBuilder<RaggedOps>>("RaggedOpsBuilder", std::vector<std::string>{"ragged_ops.cpp"},
                                                       accelerator);
}
std::unique_ptr<OpBuilder> make_ragged_utils_builder(Accelerator& accelerator) {
  return std::make_unique<IncludedOpBuilder<RaggedUtils>>("RaggedUtilsBuilder", accelerator);
}

}  // namespace anyaccel::ops
