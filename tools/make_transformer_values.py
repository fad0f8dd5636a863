#!/usr/bin/env python3
"""Writes tests/ops/transformer_torch_values.h: the output and gradients of PyTorch's
TransformerEncoderLayer for the layers of tests/ops/transformer_test.cpp, in double.

    tools/make_transformer_values.py > tests/ops/transformer_torch_values.h

Needs torch and numpy. Inputs are the numbers of the function `wave` there and here. Of each result its sum, the sum of its
squares, and seven of its elements are kept.
"""
import numpy as np
import torch
import torch.nn.functional as F

B, S, H, HEADS, I = 2, 37, 96, 4, 200
EPS = 1e-5


def wave(count, phase, scale):
    i = np.arange(count, dtype=np.float64)
    return (scale * np.sin(0.37 * i + phase) * np.cos(0.011 * i)).astype(np.float32).astype(np.float64)


def tensor(shape, phase, scale, offset=0.0):
    values = wave(int(np.prod(shape)), phase, scale) + offset
    return torch.tensor(values.astype(np.float32).astype(np.float64).reshape(shape))


def case(pre_norm):
    layer = torch.nn.TransformerEncoderLayer(
        H, HEADS, I, dropout=0.0, activation=lambda x: F.gelu(x, approximate="tanh"), layer_norm_eps=EPS,
        batch_first=True, norm_first=pre_norm, dtype=torch.float64)
    attention_norm, other_norm = (layer.norm2, layer.norm1) if pre_norm else (layer.norm1, layer.norm2)
    weights = [
        (layer.self_attn.in_proj_weight, 1, 0.15, 0), (layer.self_attn.in_proj_bias, 2, 0.1, 0),
        (layer.self_attn.out_proj.weight, 3, 0.15, 0), (layer.self_attn.out_proj.bias, 4, 0.1, 0),
        (attention_norm.weight, 5, 0.2, 1), (attention_norm.bias, 6, 0.1, 0),
        (layer.linear1.weight, 7, 0.15, 0), (layer.linear1.bias, 8, 0.1, 0),
        (layer.linear2.weight, 9, 0.1, 0), (layer.linear2.bias, 10, 0.1, 0),
        (other_norm.weight, 11, 0.2, 1), (other_norm.bias, 12, 0.1, 0)]
    with torch.no_grad():
        for parameter, phase, scale, offset in weights:
            parameter.copy_(tensor(parameter.shape, phase, scale, offset))
    x = tensor((B, S, H), 13, 1.0).requires_grad_()
    mask = torch.zeros(B, S, dtype=torch.float64)
    mask[0, 30:] = -10000.0
    mask[1, ::5] = -float("inf")
    layer.train()
    output = layer(x, src_key_padding_mask=mask)
    output.backward(tensor((B, S, H), 14, 1.0))
    return [output] + [x.grad] + [parameter.grad for parameter, _, _, _ in weights]


def main():
    names = ["output", "input", "attn_qkvw", "attn_qkvb", "attn_ow", "attn_ob", "attn_nw", "attn_nb", "inter_w", "inter_b",
             "output_w", "output_b", "norm_w", "norm_b"]
    print("// Made by tools/make_transformer_values.py from PyTorch %s: sum, sum of squares, and seven elements of each result."
          % torch.__version__.split("+")[0])
    print("#pragma once\n")
    print("namespace anyaccel::transformer_values {\n")
    print("struct Result {\n  const char* name;\n  double sum, squares, elements[7];\n};\n")
    for pre_norm in (True, False):
        print("inline constexpr Result %s[] = {" % ("pre_norm" if pre_norm else "post_norm"))
        for name, value in zip(names, case(pre_norm)):
            flat = value.detach().reshape(-1)
            picked = [flat[i * (len(flat) - 1) // 6].item() for i in range(7)]
            print('    {"%s", %.10g, %.10g, {%s}},' % (name, flat.sum().item(), (flat * flat).sum().item(),
                                                      ", ".join("%.9g" % v for v in picked)))
        print("};\n")
    print("}  // namespace anyaccel::transformer_values")


main()
