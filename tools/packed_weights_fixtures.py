#!/usr/bin/env python3
"""Makes tests/data/packed_weights.safetensors: small quantized layers as Hugging Face directories store them, and
their decoded values.

    pip install torch safetensors compressed-tensors transformers
    python tools/packed_weights_fixtures.py

compressed-tensors decodes its own formats and, through its converter, AWQ; transformers decodes float8 with blocks and MXFP4; GPTQ
is decoded by PyTorch in the arithmetic of AutoGPTQ's own fallback (scales * (weight - zeros) in the dtype of the scales). The
file's metadata has each case's quantization_config.
"""
import json
import os

import torch
from compressed_tensors.compressors import (FloatQuantizationCompressor, IntQuantizationCompressor,
                                            PackedQuantizationCompressor)
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

torch.manual_seed(20261125)
tensors, configs = {}, {}


def put(case, config, parts, expected):
    configs[case] = config
    for name, tensor in parts.items():
        tensors[f"{case}.{name}"] = tensor.contiguous().clone()
    tensors[f"{case}.expected"] = expected.float().contiguous()


def scales_of(*shape, dtype=torch.float16):
    return (torch.rand(*shape) * 0.02 + 0.001).to(dtype)


def pack_words(numbers, bits, dim):
    """Packs values into the fields of words along a dimension, lowest bits first."""
    numbers = numbers.movedim(dim, -1).to(torch.int64)
    fields = 32 // bits
    words = (numbers.reshape(*numbers.shape[:-1], -1, fields) << (torch.arange(fields) * bits)).sum(-1)
    return (((words + 2**31) % 2**32) - 2**31).to(torch.int32).movedim(-1, dim)


def gptq(case, n, k, bits=4, group=32, sym=True, order=None, version=1, dtype=torch.float16, stored_middle=False):
    groups = (k + group - 1) // group
    q = torch.randint(0, 2**bits, (k, n))
    zeros = torch.full((groups, n), 2 ** (bits - 1)) if sym else torch.randint(0, 2**bits, (groups, n))
    scales = scales_of(groups, n, dtype=dtype)
    g_idx = torch.arange(k) // group if order is None else order
    stored = zeros if version == 2 or stored_middle else (zeros - 1) % 2**bits
    parts = {"qweight": pack_words(q, bits, 0), "qzeros": pack_words(stored, bits, 1), "scales": scales,
             "g_idx": g_idx.to(torch.int32)}
    expected = scales[g_idx] * (q - zeros[g_idx]).to(dtype)
    config = {"quant_method": "gptq", "bits": bits, "group_size": group if group < k else -1, "sym": sym,
              "desc_act": order is not None, "damp_percent": 0.01, "static_groups": False, "true_sequential": True}
    if version == 2:
        config["checkpoint_format"] = "gptq_v2"
    put(case, config, parts, expected.T)


gptq("gptq_sym", 32, 128)
gptq("gptq_sym_middle_stored", 16, 64, stored_middle=True)
gptq("gptq_zeros", 16, 96, sym=False)
gptq("gptq_order", 16, 128, sym=False, order=torch.randperm(128) // 32)
gptq("gptq_v2", 16, 64, sym=False, version=2)
gptq("gptq_8_bits", 8, 64, bits=8)
gptq("gptq_2_bits", 16, 64, bits=2, sym=False)
gptq("gptq_rows", 16, 96, group=96, dtype=torch.bfloat16)
gptq("gptq_short_group", 16, 80, sym=False)


def scheme(**weights):
    return QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights))


def compressed(case, compressor, format_name, n, k, parts, **weights):
    args = scheme(**weights)
    expected = compressor.decompress(dict(parts), args)["weight"]
    parts = {name: value for name, value in parts.items()}
    text = json.loads(args.weights.model_dump_json())
    config = {"quant_method": "compressed-tensors", "format": format_name, "quantization_status": "compressed", "ignore":
              ["lm_head"], "kv_cache_scheme": None,
              "config_groups": {"group_0": {"targets": ["Linear"], "weights": text, "input_activations": None,
                                            "output_activations": None}}}
    put(case, config, parts, expected)


def packed(case, n, k, bits, group, symmetric=True, dtype=torch.bfloat16):
    columns = k // group if group else 1
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1)
    q = torch.randint(low, high, (n, k), dtype=torch.int8)
    scales = scales_of(n, columns, dtype=dtype)
    zeros = torch.zeros(n, columns, dtype=torch.int8) if symmetric else torch.randint(low, high, (n, columns), dtype=torch.int8)
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
    parts = {"weight_packed": pack_to_int32(q, bits), "weight_scale": scales, "weight_shape": torch.tensor([n, k])}
    if not symmetric:
        parts["weight_zero_point"] = pack_to_int32(zeros, bits, packed_dim=0)
    weights = dict(num_bits=bits, type="int", symmetric=symmetric, strategy="group" if group else "channel")
    if group:
        weights["group_size"] = group
    compressed(case, PackedQuantizationCompressor, "pack-quantized", n, k, parts, **weights)


packed("packed_4_bits", 16, 128, 4, 32, dtype=torch.float16)
packed("packed_zeros", 24, 128, 4, 64, symmetric=False)
packed("packed_rows", 16, 96, 4, 0)
packed("packed_8_bits", 8, 64, 8, 32)
packed("packed_3_bits", 20, 96, 3, 32, symmetric=False)
packed("packed_5_bits", 10, 64, 5, 32)

q = torch.randint(-128, 128, (12, 64), dtype=torch.int8)
compressed("int8_rows", IntQuantizationCompressor, "int-quantized", 12, 64,
           {"weight": q, "weight_scale": scales_of(12, 1, dtype=torch.float32)}, num_bits=8, type="int", symmetric=True,
           strategy="channel")
f8 = torch.randn(12, 64).to(torch.float8_e4m3fn)
compressed("float8_rows", FloatQuantizationCompressor, "float-quantized", 12, 64,
           {"weight": f8, "weight_scale": scales_of(12, 1, dtype=torch.bfloat16)}, num_bits=8, type="float", symmetric=True,
           strategy="channel")
compressed("float8_tensor", FloatQuantizationCompressor, "float-quantized", 12, 64,
           {"weight": f8, "weight_scale": scales_of(1, dtype=torch.float32)}, num_bits=8, type="float", symmetric=True,
           strategy="tensor")

# AWQ stores the columns 8 c + t in this order of nibbles.
n, k, group = 32, 128, 64
q, zeros, scales = torch.randint(0, 16, (k, n)), torch.randint(0, 16, (k // group, n)), scales_of(k // group, n)
nibble = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])


def awq_order(numbers):
    placed = torch.empty_like(numbers)
    for column in range(numbers.shape[1]):
        placed[:, column // 8 * 8 + nibble[column % 8]] = numbers[:, column]
    return pack_words(placed, 4, 1)


parts = {"qweight": awq_order(q), "qzeros": awq_order(zeros), "scales": scales}
config = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm",
          "modules_to_not_convert": None}
converter = AutoAWQConverter.from_autoawq_config({**config, "modules_to_not_convert": []}) if hasattr(
    AutoAWQConverter, "from_autoawq_config") else None
converted = converter.process({f"m.{name}": value.clone() for name, value in parts.items()})
converted = {name[2:]: value for name, value in converted.items()}
expected = PackedQuantizationCompressor.decompress(
    converted, scheme(num_bits=4, type="int", symmetric=False, strategy="group", group_size=group))["weight"]
put("awq", config, parts, expected)

# Float8 with blocks, of which the last are partial. transformers' function rejects those: whole blocks are decoded and
# cut.
blocks = torch.randn(64, 96).to(torch.float8_e4m3fn)
inverse = scales_of(2, 3, dtype=torch.float32)
whole = Fp8Dequantize(None)._dequantize_one(blocks, inverse)
config = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [32, 32]}
put("float8_blocks", config, {"weight": blocks, "weight_scale_inv": inverse}, whole)
put("float8_partial_blocks", config, {"weight": blocks[:40, :72].contiguous(), "weight_scale_inv": inverse}, whole[:40, :72])

# MXFP4 as in gpt-oss, for one plain layer.
blocks = torch.randint(0, 256, (16, 4, 16), dtype=torch.uint8)
exponents = torch.randint(110, 130, (16, 4), dtype=torch.uint8)
expected = convert_moe_packed_tensors(blocks[None], exponents[None], dtype=torch.float32)[0]
put("mxfp4", {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    {"weight_blocks": blocks, "weight_scales": exponents}, expected.T if expected.shape[0] != 16 else expected)
here = os.path.dirname(os.path.abspath(__file__))
save_file(tensors, os.path.join(here, "..", "tests", "data", "packed_weights.safetensors"),
          metadata={case: json.dumps(config) for case, config in configs.items()})
print(len(configs), "cases")
