#!/usr/bin/env python3
"""Checks that transformers and compressed-tensors read what `anyaccel quantize MODEL DIRECTORY` writes.

    pip install torch transformers compressed-tensors accelerate
    tools/check_quantized_directory.py build/release/bin/anyaccel models/stories

Quantizes the model to int8 and int4, loads each directory with transformers in fp32 arithmetic, and compares its greedy text with
anyaccel's, its weights with those that the definition gives, and the largest differences with the original's. Prints a line for each
and fails if anything differs.
"""
import argparse
import os
import subprocess
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPT = "Once upon a time"


def decoded(directory, bits):
    """The matrices of a directory by name, from the definition of pack-quantized."""
    tensors = load_file(os.path.join(directory, "model.safetensors"))
    found = {}
    for name, words in tensors.items():
        if not name.endswith(".weight_packed"):
            continue
        module = name.removesuffix("_packed")
        scales = tensors[module + "_scale"]
        rows, columns = tensors[module + "_shape"].tolist()
        fields = 32 // bits
        values = torch.stack([(words.to(torch.int64) >> bits * i) & (2**bits - 1) for i in range(fields)], -1)
        values = values.reshape(rows, columns) - 2 ** (bits - 1)
        group = columns // scales.shape[1]
        found[module] = values.to(torch.float32) * scales.to(torch.float32).repeat_interleave(group, 1)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("anyaccel")
    parser.add_argument("model")
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)
    failed = False
    for bits in (8, 4):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out")
            subprocess.run([arguments.anyaccel, "quantize", "--quiet", arguments.model, out, "--type", f"int{bits}"],
                           check=True, stdout=subprocess.DEVNULL)
            model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, device_map="cpu").eval()
            expected = decoded(out, bits)
            ids = AutoTokenizer.from_pretrained(out)(PROMPT, return_tensors="pt")
            chosen = model.generate(**ids, max_new_tokens=40, do_sample=False)
            theirs = AutoTokenizer.from_pretrained(out).decode(chosen[0, ids["input_ids"].shape[1]:], skip_special_tokens=True)
            ours = subprocess.run([arguments.anyaccel, "generate", "--quiet", "--greedy", "--max-new-tokens", "40", "--activations",
                                   "fp32", "--model", out, "--prompt", PROMPT], check=True, capture_output=True, text=True,
                                  env={**os.environ, "DS_ACCELERATOR": "cpu"}).stdout
            same_text = theirs.strip() in ours and len(theirs.strip()) > 20
            # transformers decompresses when the model first runs.
            weights = {name: value for name, value in model.state_dict().items() if name in expected}
            worst = max((weights[name].float() - value).abs().max().item() for name, value in expected.items()
                        if name in weights)
            good = same_text and len(weights) == len(expected) and worst <= 1e-6
            failed |= not good
            print(f"int{bits}: {len(weights)} of {len(expected)} matrices, largest difference {worst:.3g}, greedy text",
                  "the same" if same_text else f"differs:\n{theirs!r}\n{ours!r}")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
