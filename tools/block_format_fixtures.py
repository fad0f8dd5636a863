#!/usr/bin/env python3
"""Makes tests/data/block_formats.safetensors: blocks of quantized weights, and the values to which
the gguf package decodes them.

    pip install gguf==0.19.0 numpy safetensors
    python tools/block_format_fixtures.py

For each format NAME the file has NAME.blocks (uint8, blocks x bytes) and NAME.values (float32, blocks x values). The first
blocks hold random bytes with finite scales, the others random bytes altogether, and extremes: all bits clear, all bits set.
"""
import os
import numpy as np
import gguf
from safetensors.numpy import save_file

# The offsets of the half-precision scales in a block.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64],
          "MXFP4": []}

random = np.random.default_rng(20261124)
tensors = {}
for name, halves in HALVES.items():
    kind = gguf.GGMLQuantizationType[name]
    values, size = gguf.GGML_QUANT_SIZES[kind]
    finite, arbitrary = (4, 4) if values == 32 else (2, 1)
    blocks = random.integers(0, 256, (finite + arbitrary + 2, size), dtype=np.uint8)
    blocks[-2] = 0
    blocks[-1] = 255
    for at in halves:
        scales = random.normal(0, 0.1, finite).astype(np.float16)
        blocks[:finite, at:at + 2] = scales.view(np.uint8).reshape(finite, 2)
    if name == "MXFP4":
        blocks[:4, 0] = [0, 1, 127, 254]
    with np.errstate(all="ignore"):
        decoded = np.stack([gguf.quants.dequantize(block, kind) for block in blocks]).astype(np.float32)
    assert decoded.shape == (len(blocks), values)
    tensors[name + ".blocks"] = blocks
    tensors[name + ".values"] = decoded
here = os.path.dirname(os.path.abspath(__file__))
save_file(tensors, os.path.join(here, "..", "tests", "data", "block_formats.safetensors"))
