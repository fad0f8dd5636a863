#!/usr/bin/env python3
"""Writes tests/ops/inference_torch_values.h: the results of PyTorch (attention, with gradients by autograd) and
transformers (rotation) for the cases of attention_calls_test.

usage: tools/make_inference_values.py | clang-format --assume-filename=x.h > tests/ops/inference_torch_values.h

Inputs are those of make_attention_values.py: element i of number n is ((i * 7919 + n * 104729 + i * i % 8191 * 31) % 2003 - 1001) / 1001.
Of each result the header has the 2-norm and 24 elements, evenly spaced.
"""
import math

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

torch.set_default_dtype(torch.float64)


def numbers(n, *shape):
    i = torch.arange(math.prod(shape), dtype=torch.int64)
    return (((i * 7919 + n * 104729 + i * i % 8191 * 31) % 2003 - 1001).to(torch.float64) / 1001).reshape(shape)


def sampled(name, x):
    flat = x.detach().reshape(-1)
    picked = flat[[i * flat.numel() // 24 for i in range(24)]]
    print(f"inline constexpr double {name}[] = {{{', '.join(f'{v:.9g}' for v in [flat.norm().item(), *picked.tolist()])}}};")


def rotated(q, k, first, rotary, theta):
    """Rotates the first `rotary` elements of [B, heads, S, d]; transformers' function rotates all."""
    angles = torch.outer(torch.arange(first, first + q.shape[2], dtype=torch.float64),
                         theta ** (-torch.arange(0, rotary, 2, dtype=torch.float64) / rotary))
    angles = torch.cat([angles, angles], -1)[None]
    turned = apply_rotary_pos_emb(q[..., :rotary], k[..., :rotary], angles.cos(), angles.sin())
    return (torch.cat([turned[0], q[..., rotary:]], -1), torch.cat([turned[1], k[..., rotary:]], -1))


print(f"""// Made by tools/make_inference_values.py with PyTorch {torch.__version__.split('+')[0]}; do not edit.
#pragma once

namespace anyaccel::ops::torch_values {{
""")

# DeepSpeed's layers pass 1 / sqrt(sqrt(d)) to softmax_context, which scales both queries and keys; the factor of
# softmax_context_int8 scales scores.
batch, heads, nkv, size, rotary, theta = 2, 6, 3, 16, 8, 10000.0
factor = 1 / math.sqrt(math.sqrt(size))
print("// softmax_context: a prompt of 9 tokens and two steps of one; the results beside one another in this order.")
keys = values = None
results = []
for step, count in enumerate([9, 1, 1]):
    qkv = numbers(40 + step, batch, count, heads + 2 * nkv, size)
    q, k, v = (x.transpose(1, 2) for x in qkv.split([heads, nkv, nkv], 2))
    q, k = rotated(q, k, 0 if keys is None else keys.shape[2], rotary, theta)
    keys = k if keys is None else torch.cat([keys, k], 2)
    values = v if values is None else torch.cat([values, v], 2)
    wide = [x.repeat_interleave(heads // nkv, 1) for x in (keys, values)]
    out = scaled_dot_product_attention(q * factor, wide[0] * factor, wide[1], is_causal=count > 1, scale=1)
    results.append(out.transpose(1, 2).reshape(-1))
sampled("softmax_context", torch.cat(results))

q, k, v, dout = (numbers(n, *shape) for n, shape in
                 [(50, (2, 7, 6, 12)), (51, (2, 11, 3, 12)), (52, (2, 11, 3, 12)), (53, (2, 7, 6, 12))])
for name, causal in (("all", False), ("causal", True)):
    given = [x.clone().requires_grad_() for x in (q, k, v)]
    mask = torch.ones(7, 11, dtype=torch.bool).tril(11 - 7) if causal else None
    turned = [x.transpose(1, 2) for x in given]
    out = scaled_dot_product_attention(turned[0], turned[1].repeat_interleave(2, 1), turned[2].repeat_interleave(2, 1), mask, scale=0.4)
    out = out.transpose(1, 2)
    out.backward(dout)
    print(f"// flash_attn_func and its gradients, {name} keys.")
    sampled(f"flash_{name}", out)
    for letter, x in zip("qkv", given):
        sampled(f"flash_{name}_d{letter}", x.grad)

print("""
}  // namespace anyaccel::ops::torch_values""")
