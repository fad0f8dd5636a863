#!/usr/bin/env python3
"""Writes tests/ops/attention_torch_values.h: the results of PyTorch and DeepSpeed for the cases of
sparse_attn_test and evoformer_attn_test.

usage: tools/make_attention_values.py DEEPSPEED > tests/ops/attention_torch_values.h

DEEPSPEED is a checkout of github.com/microsoft/DeepSpeed that still has deepspeed/ops/sparse_attention: its
layouts and its sdd_segment are run here, nothing of it is copied. Needs PyTorch and a C++ compiler.

Element i of input number n is ((i * 7919 + n * 104729 + i * i % 8191 * 31) % 2003 - 1001) / 1001, which the tests compute too. Of
each result the header has the 2-norm and 24 elements, evenly spaced.
"""
import importlib.util
import math
import pathlib
import sys

import torch
import torch.utils.cpp_extension

torch.set_default_dtype(torch.float64)
deepspeed = pathlib.Path(sys.argv[1])


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


configs = load(deepspeed / "deepspeed/ops/sparse_attention/sparsity_config.py")


def numbers(n, *shape):
    i = torch.arange(math.prod(shape), dtype=torch.int64)
    return (((i * 7919 + n * 104729 + i * i % 8191 * 31) % 2003 - 1001).to(torch.float64) / 1001).reshape(shape)


def sampled(name, x):
    flat = x.detach().reshape(-1)
    picked = flat[[i * flat.numel() // 24 for i in range(24)]]
    values = ", ".join(f"{v:.9g}" for v in [flat.norm().item(), *picked.tolist()])
    print(f"inline constexpr double {name}[] = {{{values}}};")


def hexadecimal(layout):
    bits = "".join(str(int(b)) for b in layout.reshape(-1).tolist())
    bits += "0" * (-len(bits) % 4)
    return "".join(f"{int(bits[i:i + 4], 2):x}" for i in range(0, len(bits), 4))


print(f"""// Made by tools/make_attention_values.py with PyTorch {torch.__version__.split("+")[0]} and DeepSpeed's layouts; do not edit.
#pragma once

namespace anyaccel::ops::torch_values {{
""")

# ---- layouts, with their names in the test ---------------------------------------------------------------------------
print("// Layouts of `heads` heads and `blocks` blocks a row, four blocks a digit.")
print("struct StoredLayout {\n  const char* name;\n  int heads, blocks;\n  const char* bits;\n};")
print("inline constexpr StoredLayout layouts[] = {")
uni, bi = {"attention": "unidirectional"}, {"attention": "bidirectional"}
cases = {
    "dense": (configs.DenseSparsityConfig, {}, 5),
    "fixed": (configs.FixedSparsityConfig, {}, 16),
    "fixed short window": (configs.FixedSparsityConfig, {}, 14),
    "fixed unidirectional": (configs.FixedSparsityConfig, uni, 15),
    "fixed horizontal": (configs.FixedSparsityConfig, {"num_global_blocks": 2, "horizontal_global_attention": True}, 13),
    "fixed patterns": (configs.FixedSparsityConfig,
                       {"different_layout_per_head": True, "num_different_global_patterns": 3, **uni}, 10),
    "fixed patterns both ways": (configs.FixedSparsityConfig,
                                 {"different_layout_per_head": True, "num_different_global_patterns": 4, "num_local_blocks": 8,
                                  "num_global_blocks": 2, "horizontal_global_attention": True}, 21),
    "variable": (configs.VariableSparsityConfig, {}, 11),
    "variable windows": (configs.VariableSparsityConfig, {"local_window_blocks": [2, 5, 3], "global_block_indices": [1, 7, 40]}, 19),
    "variable ranges": (configs.VariableSparsityConfig,
                        {"local_window_blocks": [3], "global_block_indices": [2, 9], "global_block_end_indices": [4, 30],
                         "horizontal_global_attention": True}, 12),
    "variable unidirectional": (configs.VariableSparsityConfig,
                                {"local_window_blocks": [1, 4], "global_block_indices": [0, 6],
                                 "global_block_end_indices": [2, 7], **uni}, 13),
    "bigbird": (configs.BigBirdSparsityConfig, {"num_random_blocks": 0}, 9),
    "bigbird wide": (configs.BigBirdSparsityConfig,
                     {"num_random_blocks": 0, "num_sliding_window_blocks": 6, "num_global_blocks": 2}, 12),
    "bigbird unidirectional": (configs.BigBirdSparsityConfig,
                               {"num_random_blocks": 0, "num_global_blocks": 3, **uni}, 10),
    "longformer": (configs.BSLongformerSparsityConfig, {"global_block_indices": [0, 5]}, 11),
    "longformer ranges": (configs.BSLongformerSparsityConfig,
                          {"num_sliding_window_blocks": 5, "global_block_indices": [1, 6], "global_block_end_indices": [3, 20], **uni},
                          10),
    "sliding": (configs.LocalSlidingWindowSparsityConfig, {}, 9),
    "sliding both ways": (configs.LocalSlidingWindowSparsityConfig, {"num_sliding_window_blocks": 4, **bi}, 9),
}
made = {}
for name, (config, options, blocks) in cases.items():
    heads = 4 if options.get("different_layout_per_head") else 2
    made[name] = config(num_heads=heads, block=8, **options).make_layout(blocks * 8)
    print(f'    {{"{name}", {heads}, {blocks}, "{hexadecimal(made[name])}"}},')
print("};\n")

# ---- sdd_segment ---------------------------------------------------------------------------------------------------------
native = torch.utils.cpp_extension.load("sparse_utils", [str(deepspeed / "csrc/sparse_attention/utils.cpp")],
                                        build_directory=None)
print("// sdd_segment of those layouts: width, rows, then the sum over rows r (from 0) and columns c of (r % 97 + 1)(c + 1) value, and\n"
      "// the last row; for each width in order.")
print("struct StoredSegments {\n  const char* name;\n  int start_width;\n  long long values[40];\n};")
print("inline constexpr StoredSegments segments[] = {")
for name, width in [("fixed", 8), ("fixed short window", 4), ("fixed patterns", 2), ("variable windows", 4), ("bigbird wide", 8),
                    ("longformer ranges", 2), ("dense", 4), ("sliding", 1)]:
    values = []
    for got, blocks in native.sdd_segment(made[name].to(torch.int32).clone(), width):
        r = torch.arange(blocks.shape[0]) % 97 + 1
        c = torch.arange(4) + 1
        values += [got, blocks.shape[0], int((blocks.long() * r[:, None] * c[None, :]).sum()), *blocks[-1].tolist()]
    print(f'    {{"{name}", {width}, {{{", ".join(map(str, values))}}}}},')
print("};\n")

# ---- sparse self-attention ------------------------------------------------------------------------------------------------
print("// SparseSelfAttention of q, k, v (inputs 1, 2, 3) [2, 4, 128, 32] over the layout \"fixed unidirectional\"'s settings for blocks")
print("// of 16, gradients for dout input 4; rpe is input 5 over [2, 4, 128, 128], the key mask hides every seventh key, and the")
print("// attention mask (mul) what comes after a query.")
Z, H, S, D, block = 2, 4, 128, 32, 16
layout = configs.FixedSparsityConfig(num_heads=H, block=block, **uni).make_layout(S)
seen = layout.bool().repeat_interleave(block, 1).repeat_interleave(block, 2)
q, k, v = (numbers(n, Z, H, S, D).requires_grad_() for n in (1, 2, 3))
scores = q @ k.transpose(-1, -2) / math.sqrt(D) + numbers(5, Z, H, S, S)
scores = scores.masked_fill(torch.arange(S) % 7 == 3, -math.inf).masked_fill(torch.ones(S, S).tril() == 0, -math.inf)
out = torch.softmax(scores.masked_fill(~seen, -math.inf), -1) @ v
out.backward(numbers(4, Z, H, S, D))
for name, x in [("out", out), ("dq", q.grad), ("dk", k.grad), ("dv", v.grad)]:
    sampled(f"sparse_{name}", x)

# ---- evoformer attention --------------------------------------------------------------------------------------------------
print("\n// Evoformer attention of q, k, v (inputs 1, 2, 3) [1, 6, 72, 4, 32] with bias1 (input 4, [1, 6, 1, 1, 72]) and bias2 (input 5,")
print("// [1, 1, 4, 72, 72]); gradients for dout input 6.")
B, N, L, H, D = 1, 6, 72, 4, 32
q, k, v = (numbers(n, B, N, L, H, D).requires_grad_() for n in (1, 2, 3))
bias1, bias2 = numbers(4, B, N, 1, 1, L).requires_grad_(), numbers(5, B, 1, H, L, L).requires_grad_()
scores = torch.einsum("bnihd,bnjhd->bnhij", q, k) / math.sqrt(D) + bias1 + bias2
out = torch.einsum("bnhij,bnjhd->bnihd", torch.softmax(scores, -1), v)
out.backward(numbers(6, B, N, L, H, D))
for name, x in [("out", out), ("lse", torch.logsumexp(scores, -1)), ("dq", q.grad), ("dk", k.grad), ("dv", v.grad),
                ("db1", bias1.grad), ("db2", bias2.grad)]:
    sampled(f"evoformer_{name}", x)
print("\n}  // namespace anyaccel::ops::torch_values")
