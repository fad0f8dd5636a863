#!/usr/bin/env python3
"""Writes tests/ops/e4m3_torch_values.h: PyTorch's roundings of fp32 numbers to float8_e4m3fn.

    pip install torch
    python tools/make_e4m3_values.py

The numbers are each finite value of the format, the middle between it and the next larger one, and the two neighbours of the
middle, which round to different values; and, as other programs write such caches, numbers beyond 448, which are clamped first.
"""
import os

import torch

codes = torch.arange(0x7f, dtype=torch.uint8)
values = codes.view(torch.float8_e4m3fn).float()
middles = (values[:-1] + values[1:]) / 2
big = torch.tensor([448.0, 456.0, 464.0, 465.0, 480.0, 1e5, 3e38])
numbers = torch.cat([values, middles, torch.nextafter(middles, torch.tensor(0.0)),
                     torch.nextafter(middles, torch.tensor(1e9)), big, torch.tensor([1e-30])])
numbers = torch.cat([numbers, -numbers])
rounded = numbers.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)

path = os.path.join(os.path.dirname(__file__), "..", "tests", "ops", "e4m3_torch_values.h")
with open(path, "w") as out:
    out.write(f"// Made by tools/make_e4m3_values.py with PyTorch {torch.__version__.split('+')[0]}; do not edit.\n")
    out.write("#pragma once\n\n#include <cstdint>\n\nnamespace anyaccel::ops::torch_values {\n\n")
    out.write("// The bits of an fp32 number, and of what it becomes.\nstruct RoundedToE4m3 {\n  uint32_t number;\n"
              "  uint8_t rounded;\n};\ninline constexpr RoundedToE4m3 rounded_to_e4m3[] = {\n")
    bits = numbers.view(torch.int32).tolist()
    for begin in range(0, len(bits), 6):
        pairs = zip(bits[begin:begin + 6], rounded.tolist()[begin:begin + 6])
        out.write("    " + " ".join(f"{{0x{b & 0xffffffff:08x}, 0x{r:02x}}}," for b, r in pairs) + "\n")
    out.write("};\n\n}  // namespace anyaccel::ops::torch_values\n")
