/* Extension "ops", version 1: a driver's own implementations of the named operations that models consist of.
 *
 * A driver may implement any subset. The host calls `find` for each op and caches the numbers; for an op that is not
 * found, or a call that `supports` rejects, it uses the next library in its lookup order (portable kernels, then the
 * CPU with copies there and back).
 *
 * The definitions belong to the version of the interface: the host loads no driver of another major version or draft
 * (base.h).
 *
 * The list below is the definition of every op: tensor order, shapes, parameters. The CPU accelerator's plain reference
 * implementation is its executable form. Conventions:
 *
 *  - Outputs come first, then inputs. "inout" tensors are read and written. "optional" ones may be absent: their place
 *    then holds dtype AA_DTYPE_NONE and data NULL.
 *  - "float" means F32, BF16 or F16; tensors of a call may differ in it unless stated otherwise. Arithmetic and
 *    accumulation are in F32 at least; a result is rounded once, to nearest even, when it is stored.
 *  - "index" means I32 or I64.
 *  - Every tensor may have any strides unless stated otherwise. Outputs never overlap an input unless stated otherwise.
 *  - The host has checked dtypes, shapes and optional tensors before `enqueue` is called. Values inside tensors (ids,
 *    positions) are not checked by the host: an op that meets a value out of range must not touch memory outside its
 *    tensors, and returns AA_OUT_OF_RANGE where it can tell synchronously.
 *  - Letters: T tokens of a step (of all sequences together), H hidden size, V vocabulary, M rows, N outputs, K inputs,
 *    B sequences, S cache slots of a sequence, D head size, Hq query heads, Hk key/value heads (Hq % Hk == 0).
 *
 *  name              tensors                                                                  params
 *  ----------------  -----------------------------------------------------------------------  -----------------------
 *  "embedding"       out float [T,H]; table float [V,H]; ids index [T]                        none
 *                    out[t] = table[ids[t]]. Also serves to gather rows.
 *  "rms_norm"        out float [..,H]; x float [..,H]; weight float [H] optional;             aa_norm_params
 *                    residual inout float [..,H] optional
 *                    With residual: residual += x first (rounded as stored) and the norm is of residual.
 *                    out = v / sqrt(mean(v*v) + eps) * weight. out may be x.
 *  "layer_norm"      out float [..,H]; x float [..,H]; weight float [H] optional;             aa_norm_params
 *                    bias float [H] optional; residual inout float [..,H] optional
 *                    out = (v - mean) / sqrt(var + eps) * weight + bias, population variance. out may be x.
 *  "linear"          out float [M,N]; x float [M,K]; w float [N,K]; bias float [N] optional;  none
 *                    residual float [M,N] optional
 *                    out = x * transpose(w) + bias + residual. residual may be out.
 *  "linear_multi"    x float [M,K]; then 1..4 times: out float [M,Ni]; w float [Ni,K];        none
 *                    bias float [Ni] optional
 *                    The same x through several weights in one call (query, key and value).
 *  "gated_linear"    out float [M,N]; x float [M,K]; w_gate float [N,K]; w_up float [N,K];    aa_activation_params
 *                    bias_gate float [N] optional; bias_up float [N] optional
 *                    out = act(x * transpose(w_gate) + bias_gate) * (x * transpose(w_up) + bias_up).
 *                    Where x, the weights and out are BF16, each product may be rounded to BF16 before act.
 *  "rope_table"      cos F32 [T,R]; sin F32 [T,R]; inv_freq F32 [R]; positions I32 [T]        aa_rope_table_params
 *                    cos[t,r] = cosf(positions[t] * inv_freq[r]) * scale, the angle rounded to F32, and sin likewise.
 *                    R = rotary size / 2.
 *  "rope"            q inout float [T,Hq,D]; k inout float [T,Hk,D] optional;                 aa_rope_params
 *                    cos F32 [T,R]; sin F32 [T,R]
 *                    Rotates pairs (i, i+R) of the first 2R elements of each head, or (2i, 2i+1) when interleaved.
 *  "cache_write"     k_cache inout float [B,Hk,S,D]; v_cache inout float [B,Hk,S,D];          none
 *                    k float [T,Hk,D]; v float [T,Hk,D]; sequence I32 [T]; positions I32 [T]
 *                    k_cache[sequence[t], :, positions[t], :] = k[t], the same for v; in the order of t where two name
 *                    the same slot.
 *  "attention"       out float [T,Hq,D]; q float [T,Hq,D]; k_cache float [B,Hk,S,D];          aa_attention_params
 *                    v_cache float [B,Hk,S,D]; sequence I32 [T]; positions I32 [T];
 *                    slopes F32 [Hq] optional; sinks F32 [Hq] optional
 *                    Query t sees cache slots j of sequence[t] with j <= positions[t] and, if window > 0,
 *                    j > positions[t] - window. Query head h reads key/value head h / (Hq / Hk). What lies in slots it
 *                    does not see, a NaN for instance, has no effect. Where out and the caches have one 16-bit type,
 *                    queries and softmax weights may be rounded to that type before they are multiplied.
 *                    slopes[h] * (j - positions[t]) is added to the score of slot j (ALiBi), after the soft cap.
 *                    sinks[h] is one more score in the sum by which the weights are divided, with no value.
 *  "activation"      out float [..]; x float [..] same shape. out may be x.                   aa_activation_params
 *  "gated_activation" out float [..]; gate float [..]; up float [..] same shape.              aa_activation_params
 *                    out = act(gate) * up. out may be gate or up. (The value of act at -infinity is not defined.)
 *  "softmax"         out float [..,V]; x float [..,V]. out may be x.                          aa_softmax_params
 *                    softmax(x * scale) over the last dimension, with the maximum subtracted.
 *  "add"             out float [..]; a float [..]; b float [..] same shape. out may be a or b. none
 *  "copy"            out any [..]; x any [..] same shape                                      none
 *                    Strided copy with conversion between any two dtypes. Float to integer truncates toward zero and
 *                    saturates (NaN gives 0); anything to BOOL is "not zero"; an integer narrows by wrapping. A finite
 *                    number too large for the format becomes infinity, in F8_E4M3 (which has none) a NaN. Every
 *                    conversion rounds once; denormals are kept.
 *  "increment"       x inout index [..]                                                       aa_increment_params
 *                    x += amount, on the device, so that a replayed graph can advance its own positions.
 *  "argmax"          out index [R]; x float [R,V]                                             none
 *                    The lowest index among equal maxima; a NaN counts as the maximum.
 *  "repetition_penalty" logits inout float [R,V]; seen U8 [R,V]                               aa_repetition_params
 *                    Where seen: logit > 0 ? logit / penalty : logit * penalty.
 *  "sample"          out index [R]; logits float [R,V]; rng I64 [2]; seen inout U8 [R,V] optional  aa_sample_params
 *                    Draws one token per row: scale by 1/temperature, keep the top_k largest (0: all) and renormalize,
 *                    keep the smallest set of most likely ones whose probabilities reach top_p, of these keep those
 *                    at least min_p times as likely as the likeliest and renormalize, and take the first whose running
 *                    sum exceeds u, all in order of falling probability (lower index first among equals). u for row r
 *                    is (word >> 8) * 2^-24 with word r % 4 of Philox 4x32-10 with key rng[0] and counter rng[1] + r /
 *                    4, as in "random". temperature 0 is argmax. A row whose largest logit is not finite (a NaN is
 *                    larger than all; -infinity is largest where there is nothing else) has no token, whatever the
 *                    parameters: out is -1. Marks the token, if there is one, in seen with 1. Does not advance rng.
 *  "random"          out any [..]                                                             aa_random_params
 *                    Element i (row-major) takes word i % 4 of Philox 4x32-10 with 64-bit key `seed` (low word first)
 *                    and 128-bit counter {offset + i / 4 as 64 bits low word first, 0, 0}.
 *                    uniform: low + (high - low) * ((word >> 8) * 2^-24), in F32 (each operation rounded, also where
 *                    that gives `high` itself).
 *                    normal: Box-Muller on words (0,1) and (2,3): r = sqrt(-2 ln(((w0 >> 8) + 1) * 2^-24)),
 *                    angle = 2 pi (w1 >> 8) * 2^-24; the even element takes r*cos, the odd one r*sin;
 *                    then low + high * value (mean and standard deviation), evaluated in double and rounded once.
 *                    bits: integer dtypes only; the word itself, truncated to the dtype's size (I32, U8, ...); an I64
 *                    element takes two words (2i, 2i+1 in the sequence of words), low word first.
 *                    uniform and normal numbers become an integer or F8 dtype by the rules of "copy".
 *  "embedding_shard" out float [T,H]; table float [V,H]; ids index [T]                        aa_embedding_shard_params
 *                    The table holds the rows first to first + V - 1 of a larger one: out[t] = table[ids[t] - first]
 *                    where that is a row of it, else zeros, whatever the id. The sum over all parts is "embedding".
 *
 *  "frequency_penalty" logits inout float [R,V]; counts inout I32 [R,V];                     aa_frequency_params
 *                    ids index [R] optional
 *                    With ids, counts[r, ids[r]] += 1 first (an id that is not a token is not counted). Then
 *                    logit -= frequency * count, and presence more where the count is not 0.
 *
 *  "quantized_linear" out float [M,N]; x float [M,K]; w U8 [N,C]; bias float [N] optional;   aa_quantized_params
 *                    residual float [M,N] optional
 *                    Since 2.0. out = x * transpose(W) + bias + residual, where row n of W [N,K] is what row n of w
 *                    decodes to. K is a multiple of the format's values, C = K / values * bytes, and the bytes of a row
 *                    of w are adjacent. residual may be out. With AA_QUANTIZED_ROUNDED each 32 values of a row of x may
 *                    be rounded to multiples of a 127th of the largest magnitude among them, or to bf16, and W to bf16.
 *  "quantized_embedding" out float [T,K]; table U8 [V,C]; ids index [T]                       aa_quantized_params
 *                    Since 2.0. "embedding" of the table that the bytes decode to; C as above. `rounding` has no
 *                    effect.
 *  "quantized_embedding_shard" out float [T,K]; table U8 [V,C]; ids index [T]                 aa_quantized_shard_params
 *                    Since 2.0. "embedding_shard" of the table that the bytes decode to; C as above.
 *  "quantized_cache_write" k_cache inout U8 [B,Hk,S,C]; v_cache inout U8 [B,Hk,S,C];         aa_cache_params
 *                    k float [T,Hk,D]; v float [T,Hk,D]; sequence I32 [T]; positions I32 [T]
 *                    Since 2.0. "cache_write" into rows of a format: D is a multiple of 32, and the bytes of a row are
 *                    adjacent. AA_CACHE_Q8_0: C = D / 32 * 34. Of each 32 values, d is the largest magnitude / 127,
 *                    rounded to a half, and q is value / d rounded to nearest even, from -127 to 127, in F32
 *                    arithmetic; q = 0 where d is 0. Where a value is not finite, or d no finite half, d is a NaN and
 *                    q = 0. d may be off by a unit in its last place, and q may be the other neighbour where value / d
 *                    is within 0.01 of the middle. AA_CACHE_F8_E4M3: C = D. Each value is rounded to nearest even;
 *                    finite ones beyond 448 become 448 with their sign, and others a NaN.
 *  "quantized_attention" out float [T,Hq,D]; q float [T,Hq,D]; k_cache U8 [B,Hk,S,C];         aa_quantized_attention_params
 *                    v_cache U8 [B,Hk,S,C]; sequence I32 [T]; positions I32 [T];
 *                    slopes F32 [Hq] optional; sinks F32 [Hq] optional
 *                    Since 2.0. "attention" over the keys and values that the bytes of such caches decode to. Where out
 *                    is bf16, queries, softmax weights and what int8 decodes to may be rounded to bf16 before they are
 *                    multiplied.
 *
 * Ops of training, since 2.0. No step of a model's generation uses them.
 *
 *  "matmul"          out inout float [..,M,N]; a float [..,M,K]; b float [..,K,N]            aa_accumulate_params
 *                    out = a * b, or out += a * b. Strides transpose (of a or b) and repeat one matrix for all (0).
 *                    out is not read without `accumulate`.
 *  "softmax_masked"  out float [..,V]; x float [..,V]; mask float [..,V] optional             aa_softmax_params
 *                    softmax(x * scale + mask) over the last dimension. A row of nothing but -infinity gives zeros. out
 *                    may be x.
 *  "softmax_backward" dx float [..,V]; y float [..,V]; dy float [..,V]                        aa_softmax_params
 *                    dx = scale * y * (dy - sum(dy * y)), y being the softmax. dx may be dy.
 *  "moments"         mean F32 [..]; variance F32 [..]; x float [..,H]                         aa_moments_params
 *                    The mean of each row and its population variance, plus eps. Not `centred`: 0, and the mean of the
 *                    squares plus eps, which rms_norm divides by.
 *  "norm_backward"   dx float [..,H]; dweight inout float [H] optional;                       aa_accumulate_params
 *                    dbias inout float [H] optional; dy float [..,H]; x float [..,H];
 *                    weight float [H] optional; mean F32 [..] optional; variance F32 [..]
 *                    The gradients of layer_norm, with `mean` and `variance` of "moments"; of rms_norm where mean is
 *                    absent. With n = (x - mean) / sqrt(variance) and g = dy * weight:
 *                    dx = (g - mean(g) - n * mean(g * n)) / sqrt(variance), without the term mean(g) for rms_norm;
 *                    dweight = the sum of dy * n over all rows, dbias that of dy; they are added to what is there with
 *                    `accumulate`. dx may be dy where dweight and dbias are absent.
 *  "layer_norm_inverse" x float [..,H]; y float [..,H]; weight float [H]; bias float [H];     none
 *                    mean F32 [..]; variance F32 [..]
 *                    x = (y - bias) / weight * sqrt(variance) + mean: what the layer_norm that gave y was of.
 *  "activation_backward" dx float [..]; x float [..]; dy float [..] same shape                aa_activation_params
 *                    dx = dy * act'(x); that of relu at 0 is 0. dx may be dy or x. (The value at an infinite x is not
 *                    defined.)
 *  "dropout"         out float [..]; mask U8 [..]; x float [..] same shape                    aa_dropout_params
 *                    mask = u >= ratio, out = mask ? x / (1 - ratio) : 0. u is what "random" gives the element as a
 *                    uniform number in [0, 1) for `seed` and `offset`. out may be x.
 *  "apply_mask"      out float [..]; x float [..]; mask U8 [..] same shape                    aa_softmax_params
 *                    out = mask ? x * scale : 0: dropout's gradient. out may be x.
 *  "column_sums"     out inout float [H]; x float [..,H]                                      aa_accumulate_params
 *                    The sum of all rows, or out plus that: a bias's gradient.
 *  "scaled_add"      out float [..]; a float [..]; b float [..] optional, same shape          aa_scaled_add_params
 *                    out = alpha * a + beta * b. out may be a or b.
 *  "multiply"        out float [..]; a float [..]; b float [..] same shape. out may be a or b. none
 *  "cross_entropy"   loss F32 [R]; dx inout float [R,V] optional; x float [R,V];              aa_softmax_params
 *                    targets index [R]
 *                    loss[r] = log(sum(exp(x[r]))) - x[r, targets[r]], and dx = scale * (softmax(x[r]) - 1 at the
 *                    target), its gradient times `scale`. Both are 0 in a row whose target is negative. dx is not read,
 *                    and may be x.
 *  "embedding_backward" dtable inout F32 [V,H]; dy float [T,H]; ids index [T]                 none
 *                    dtable[ids[t]] += dy[t], in the order of t where ids are equal: the gradient of "embedding".
 *  "gated_activation_backward" dgate float [..]; dup float [..]; out inout float [..] optional; aa_activation_params
 *                    gate float [..]; up float [..]; dy float [..] same shape
 *                    dgate = dy * up * act'(gate), dup = dy * act(gate), out = act(gate) * up: the gradients of
 *                    "gated_activation", and its result again. out is not read. Each of the three may be one of the
 *                    inputs.
 *
 * Fused ops, since 2.0. Each is a sequence of the ops above with F32 between them, unless it says otherwise, and only
 * for speed: the host asks for one where a model has that sequence, and runs the sequence itself where a driver lacks
 * the op or `supports` refuses the call. No driver has to have any, and none falls back to the CPU. Where its
 * parameters have `normed`, the result of the norm has that dtype instead of F32: each of its values is rounded once
 * before it is multiplied.
 *
 *  "norm_linear"     out float [M,N]; x float [M,K]; norm float [K] optional; w float [N,K];  aa_norm_linear_params
 *                    bias float [N] optional
 *                    linear(rms_norm(x, norm), w, bias). x is unchanged.
 *  "norm_gated_linear" out float [M,N]; x float [M,K]; norm float [K] optional;               aa_norm_activation_params
 *                    w_gate float [N,K]; w_up float [N,K]; bias_gate float [N] optional;
 *                    bias_up float [N] optional
 *                    gated_linear(rms_norm(x, norm), w_gate, w_up, bias_gate, bias_up).
 *  "norm_qkv_rope"   q out float [T,Hq,D]; k_cache inout float [B,Hk,S,D];                    aa_norm_rope_params
 *                    v_cache inout float [B,Hk,S,D]; x float [T,K]; norm float [K] optional;
 *                    w_q float [Hq*D,K]; bias_q float [Hq*D] optional; w_k float [Hk*D,K];
 *                    bias_k float [Hk*D] optional; w_v float [Hk*D,K]; bias_v float [Hk*D] optional;
 *                    cos F32 [T,R]; sin F32 [T,R]; sequence I32 [T]; positions I32 [T]
 *                    linear_multi of rms_norm(x, norm) by w_q, w_k and w_v; rope of the queries and keys; cache_write
 *                    of keys and values. Where normed, the weights and the caches are BF16, the products may be rounded
 *                    to BF16 before rope.
 *  "norm_quantized_gated_linear" out float [M,N]; x float [M,K]; norm float [K] optional;     aa_norm_quantized_params
 *                    w_gate U8 [N,C]; w_up U8 [N,C]; bias_gate float [N] optional; bias_up float [N] optional
 *                    "norm_gated_linear" of quantized weights, whose products are those of "quantized_linear".
 *  "norm_quantized_qkv_rope" as "norm_qkv_rope", with w_q U8 [Hq*D,C], w_k U8 [Hk*D,C] and    aa_norm_quantized_params
 *                    w_v U8 [Hk*D,C]
 *                    "norm_qkv_rope" of quantized weights, whose products are those of "quantized_linear".
 */
#ifndef ANYACCEL_ABI_OPS_H_
#define ANYACCEL_ABI_OPS_H_

#include "anyaccel/abi/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AA_OPS_EXTENSION "ops"
#define AA_OPS_VERSION 1u

/* The maximum number of tensors of one call. */
#define AA_OP_MAX_TENSORS 16

typedef struct aa_norm_params {
  uint32_t struct_size;
  float eps;
} aa_norm_params;

/* since 2.0 */
typedef struct aa_norm_linear_params {
  uint32_t struct_size;
  float eps;
  int32_t normed; /* the dtype of the norm's result: AA_DTYPE_F32, AA_DTYPE_BF16 or AA_DTYPE_F16 */
} aa_norm_linear_params;

/* since 2.0 */
typedef struct aa_norm_rope_params {
  uint32_t struct_size;
  float eps;
  int32_t interleaved; /* as in aa_rope_params */
  int32_t normed;      /* as in aa_norm_linear_params */
} aa_norm_rope_params;

/* since 2.0 */
typedef struct aa_embedding_shard_params {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t first; /* >= 0: the id of the table's first row */
} aa_embedding_shard_params;

typedef enum aa_activation {
  AA_ACTIVATION_SILU = 0,      /* x * sigmoid(x) */
  AA_ACTIVATION_GELU = 1,      /* x * 0.5 * (1 + erf(x / sqrt 2)) */
  AA_ACTIVATION_GELU_TANH = 2, /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
  AA_ACTIVATION_RELU = 3,
  AA_ACTIVATION_SIGMOID = 4,
  AA_ACTIVATION_TANH = 5
} aa_activation;

typedef struct aa_activation_params {
  uint32_t struct_size;
  int32_t kind; /* aa_activation */
} aa_activation_params;

/* since 2.0 */
typedef struct aa_norm_activation_params {
  uint32_t struct_size;
  float eps;
  int32_t kind;   /* aa_activation */
  int32_t normed; /* as in aa_norm_linear_params */
} aa_norm_activation_params;

typedef struct aa_rope_table_params {
  uint32_t struct_size;
  float scale; /* multiplies cosine and sine (yarn's attention factor); 1 for the others */
} aa_rope_table_params;

typedef struct aa_rope_params {
  uint32_t struct_size;
  int32_t interleaved; /* 0: pairs (i, i + R), as Hugging Face stores Llama; 1: pairs (2i, 2i + 1) */
} aa_rope_params;

typedef struct aa_attention_params {
  uint32_t struct_size;
  float scale;    /* multiplies q*k, usually 1/sqrt(D) */
  int32_t window; /* 0: no window */
  float softcap;  /* 0: none; else score = softcap * tanh(score / softcap) */
} aa_attention_params;

typedef struct aa_softmax_params {
  uint32_t struct_size;
  float scale;
} aa_softmax_params;

typedef struct aa_increment_params {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t amount;
} aa_increment_params;

typedef struct aa_repetition_params {
  uint32_t struct_size;
  float penalty; /* > 0 */
} aa_repetition_params;

typedef struct aa_sample_params {
  uint32_t struct_size;
  float temperature; /* >= 0 */
  int32_t top_k;     /* 0: all */
  float top_p;       /* (0, 1] */
  float min_p;       /* [0, 1]; 0: all. since 2.0 */
} aa_sample_params;

/* since 2.0 */
typedef struct aa_frequency_params {
  uint32_t struct_size;
  float presence;
  float frequency;
} aa_frequency_params;

/* Formats of quantized weights. A block holds consecutive values of a row; each comment begins with the number of
 * values and the number of bytes of a block. The enumerators have the numbers of GGUF files, and the layouts are those
 * of ggml. In each formula i is the index of a value in its block; d and m are halves (IEEE binary16, little-endian)
 * and the other fields bytes, in the order given; all arithmetic is fp32, where products are exact.
 * nibble(i) = (q[i % 16] >> 4 * (i / 16)) & 15. fifth(i) = bit i of the 32 bits of h, shifted left by 4.
 * pair(i) = (q[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32)) & 3. since 2.0 */
typedef enum aa_block_format {
  AA_BLOCK_Q4_0 = 2, /* 32 values, 18 bytes: d, q[16]. d * (nibble(i) - 8) */
  AA_BLOCK_Q4_1 = 3, /* 32, 20: d, m, q[16]. d * nibble(i) + m */
  AA_BLOCK_Q5_0 = 6, /* 32, 22: d, h[4], q[16]. d * ((nibble(i) | fifth(i)) - 16) */
  AA_BLOCK_Q5_1 = 7, /* 32, 24: d, m, h[4], q[16]. d * (nibble(i) | fifth(i)) + m */
  AA_BLOCK_Q8_0 = 8, /* 32, 34: d, q[32] signed. d * q[i] */
  /* 256, 84: s[16], q[64], d, m. j = i / 16; d * (s[j] & 15) * pair(i) - m * (s[j] >> 4) */
  AA_BLOCK_Q2_K = 10,
  /* 256, 110: h[32], q[64], s[12], d. j = i / 16;
   * scale = ((s[j % 8] >> 4 * (j / 8)) & 15 | ((s[8 + j % 4] >> 2 * (j / 4)) & 3) << 4) - 32;
   * d * scale * ((pair(i) | ((h[i % 32] >> i / 32) & 1) << 2) - 4) */
  AA_BLOCK_Q3_K = 11,
  /* 256, 144: d, m, s[12], q[128]. j = i / 32;
   * d * scale * ((q[32 * (i / 64) + i % 32] >> 4 * (j % 2)) & 15) - m * least, where
   * for j < 4: scale = s[j] & 63, least = s[j + 4] & 63; else scale = s[j + 4] & 15 | s[j - 4] >> 6 << 4,
   * least = s[j + 4] >> 4 | s[j] >> 6 << 4 */
  AA_BLOCK_Q4_K = 12,
  /* 256, 176: d, m, s[12], h[32], q[128]. As Q4_K, and bit j of h[i % 32] is the fifth bit of the value */
  AA_BLOCK_Q5_K = 13,
  /* 256, 210: q[128], h[64], s[16] signed, d. c = i / 128, g = i % 128 / 32, l = i % 32; d * s[i / 16] *
   * (((q[64 * c + 32 * (g % 2) + l] >> 4 * (g / 2)) & 15 | ((h[32 * c + l] >> 2 * g) & 3) << 4) - 32) */
  AA_BLOCK_Q6_K = 14,
  /* 32, 18: d, q[16]. d * T[nibble(i)], T = -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113 */
  AA_BLOCK_IQ4_NL = 20,
  /* 256, 136: d, h as 16 bits, s[4], q[128]. j = i / 32;
   * d * ((s[j / 2] >> 4 * (j % 2) & 15 | (h >> 2 * j & 3) << 4) - 32) * T[(q[16 * j + i % 16] >> 4 * (i % 32 / 16)) & 15] */
  AA_BLOCK_IQ4_XS = 23,
  /* 256, 54: q[48], h[4], d. Byte b and digit p are q[i % 32] and i / 32 for i < 160,
   * q[32 + (i - 160) % 16] and (i - 160) / 16 for i < 240, else h[(i - 240) % 4] and (i - 240) / 4;
   * d * (((b * 3^p % 256) * 3 >> 8) - 1) */
  AA_BLOCK_TQ1_0 = 34,
  AA_BLOCK_TQ2_0 = 35, /* 256, 66: q[64], d. d * (pair(i) - 1) */
  AA_BLOCK_MXFP4 = 39  /* 32, 17: e, q[16]. 2^(e - 128) * F[nibble(i)], F = 0 1 2 3 4 6 8 12 0 -1 -2 -3 -4 -6 -8 -12 */
} aa_block_format;

/* since 2.0 */
typedef enum aa_quantized_rounding {
  AA_QUANTIZED_EXACT = 0,  /* inputs and decoded weights are not rounded */
  AA_QUANTIZED_ROUNDED = 1 /* they may be rounded, as described above */
} aa_quantized_rounding;

/* since 2.0 */
typedef struct aa_quantized_params {
  uint32_t struct_size;
  int32_t format;   /* aa_block_format */
  int32_t rounding; /* aa_quantized_rounding */
} aa_quantized_params;

/* since 2.0 */
typedef struct aa_norm_quantized_params {
  uint32_t struct_size;
  float eps;
  int32_t format;      /* aa_block_format, of all weights */
  int32_t rounding;    /* aa_quantized_rounding */
  int32_t kind;        /* aa_activation, of the gated product; else 0 */
  int32_t interleaved; /* as in aa_rope_params, of queries and keys; else 0 */
} aa_norm_quantized_params;

/* since 2.0 */
typedef struct aa_quantized_shard_params {
  uint32_t struct_size;
  int32_t format; /* aa_block_format */
  int64_t first;  /* as in aa_embedding_shard_params */
} aa_quantized_shard_params;

/* Formats of the rows of a quantized cache of keys and values. since 2.0 */
typedef enum aa_cache_format {
  AA_CACHE_Q8_0 = 8,      /* blocks of AA_BLOCK_Q8_0: 32 values, 34 bytes */
  AA_CACHE_F8_E4M3 = 256, /* a byte for each value, of the dtype AA_DTYPE_F8_E4M3 */
} aa_cache_format;

/* since 2.0 */
typedef struct aa_cache_params {
  uint32_t struct_size;
  int32_t format; /* aa_cache_format */
} aa_cache_params;

/* since 2.0 */
typedef struct aa_quantized_attention_params {
  uint32_t struct_size;
  float scale; /* this and the next two as in aa_attention_params */
  int32_t window;
  float softcap;
  int32_t format; /* as in aa_cache_params */
} aa_quantized_attention_params;

/* since 2.0 */
typedef struct aa_accumulate_params {
  uint32_t struct_size;
  int32_t accumulate; /* 0: the output is overwritten; 1: it is added to */
} aa_accumulate_params;

/* since 2.0 */
typedef struct aa_moments_params {
  uint32_t struct_size;
  float eps;
  int32_t centred; /* 0 or 1 */
} aa_moments_params;

/* since 2.0 */
typedef struct aa_dropout_params {
  uint32_t struct_size;
  float ratio;     /* [0, 1): share of the elements that become 0 */
  uint64_t seed;   /* as in aa_random_params */
  uint64_t offset; /* in counters, of four elements each */
} aa_dropout_params;

/* since 2.0 */
typedef struct aa_scaled_add_params {
  uint32_t struct_size;
  float alpha;
  float beta;
} aa_scaled_add_params;

typedef enum aa_random_kind { AA_RANDOM_BITS = 0, AA_RANDOM_UNIFORM = 1, AA_RANDOM_NORMAL = 2 } aa_random_kind;

typedef struct aa_random_params {
  uint32_t struct_size;
  int32_t kind; /* aa_random_kind */
  uint64_t seed;
  uint64_t offset; /* in counters, of four words each */
  double low;      /* uniform: lower end; normal: mean */
  double high;     /* uniform: upper end; normal: standard deviation */
} aa_random_params;

/* A weight in the driver's own layout. */
typedef struct aa_packed aa_packed;

/* One call of one op. The host owns it; a driver that runs the call later or captures it copies what it needs. */
typedef struct aa_op_call {
  uint32_t struct_size;
  int32_t op;               /* the number that `find` returned */
  const aa_tensor* tensors; /* tensor_count of them, in the order of the list above */
  uint32_t tensor_count;
  uint32_t params_size;       /* bytes at params; 0 for "none" */
  const void* params;         /* the op's params struct, or NULL */
  aa_memory* const* memories; /* with AA_DRIVER_WANTS_MEMORY: tensor_count of them; else NULL */
  /* NULL, or tensor_count of them: where an entry is not NULL, that tensor's data is NULL and its elements are in the
   * packed weight. Only for the driver that packed it, and only if `supports` accepted such a call. */
  aa_packed* const* packed;
} aa_op_call;

/* A weight to be packed: tensor number `tensor` of calls like `example`, whose data pointers are NULL. */
typedef struct aa_pack {
  uint32_t struct_size;
  uint32_t flags; /* none yet */
  uint32_t tensor;
  uint32_t hints; /* none yet */
  const aa_op_call* example;
} aa_pack;

typedef struct aa_ops_table {
  AA_EXTENSION_HEAD;

  /* T N. Returns the driver's number for an op; AA_NOT_FOUND when it does not have the op. The driver chooses the
   * numbers, which are >= 0 and constant while the instance lives. since 2.0 */
  AA_CALL(find, aa_instance* instance, const char* name, int32_t* out_op);
  /* T N. Writes 1 when exactly this call (dtypes, shapes, strides, alignment of the data) can run on the device, else
   * 0. Where data pointers are NULL, the answer is for tensors aligned as mem_alloc aligns them. since 2.0 */
  AA_CALL(supports, aa_device* device, const aa_op_call* call, int32_t* out_supported);
  /* T N S, but the first call with a shape may compile. Runs the call in order on the stream. While the stream captures
   * a graph, the call is recorded. Writes 1 to out_taken; or 0 if `supports` would have written 0, with nothing done
   * and no status created, so that the host can try the next library without having called `supports`. since 2.0 */
  AA_CALL(enqueue, aa_stream* stream, const aa_op_call* call, int32_t* out_taken);

  /* Weights in the driver's own layout. The host asks once for each weight while it loads a model, and frees the
   * ordinary form; checkpoints, and ops that the driver does not run on the packed form, get ordinary tensors through
   * `unpack`. A driver that has packed_size has all four functions. */

  /* T N. Returns the bytes that the packed form takes; 0: the weight is best left as it is. since 2.0 */
  AA_CALL(packed_size, aa_device* device, const aa_pack* what, size_t* out_bytes);
  /* T S. Packs a contiguous weight, in order on the stream, into device memory of that size, which belongs to the host
   * and outlives the packed weight. The memory of `weight` may be reused for later work of the stream. since 2.0 */
  AA_CALL(pack, aa_stream* stream, const aa_pack* what, const aa_tensor* weight, const aa_allocation* into,
          aa_packed** out_packed);
  /* T S. Writes the ordinary form, bit for bit the weight that was packed, to a contiguous tensor, in order on the
   * stream. since 2.0 */
  AA_CALL(unpack, aa_stream* stream, aa_packed* packed, const aa_tensor* out_weight);
  /* X N. Destroys a packed weight. No incomplete work uses it. since 2.0 */
  AA_CALL(packed_destroy, aa_packed* packed);
} aa_ops_table;

/* Ops that compute by row: "linear_by_row", "linear_multi_by_row", "gated_linear_by_row", "attention_by_row",
 * "quantized_linear_by_row" and "quantized_attention_by_row" are the ops without "_by_row", with the same tensors,
 * parameters and `supports`, and an additional guarantee: the bits of a row of out (of attention: of a token and head)
 * depend only on that row's inputs, the weights and the cache slots that it sees, and not on the number of rows, the
 * other rows, or the row's place among them. A driver that has them guarantees the same for those of the following that
 * it has: rms_norm, layer_norm, rope_table, rope, cache_write, quantized_cache_write, embedding, quantized_embedding,
 * activation, gated_activation, add, scaled_add, argmax, repetition_penalty, frequency_penalty, and for sample with one
 * row, whose token does not depend on where the row lies in memory. The host calls them for deterministic
 * sessions; if a driver has only some of them, it uses none, unless portable kernels have the others. A driver without a
 * quantized op need not have its form by row. */

#ifdef __cplusplus
}
#endif
#endif /* ANYACCEL_ABI_OPS_H_ */
