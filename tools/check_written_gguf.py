#!/usr/bin/env python3
"""Lets llama.cpp run the GGUF files that anyaccel writes of the directories of tests/data/families.json.

For each case, `anyaccel quantize` writes the directory in F32 and in one quantized type. llama.cpp computes the logits of the prompt and
the greedy tokens from the first, with keys and values in F32; they are compared with those that transformers computed (the largest
difference of a row over its largest logit). Of the second, the greedy tokens that llama.cpp also finds are counted. Where such a
file cannot say what config.json does, the fields of "said_instead" in tests/data/gguf_families.json are used, for which there
are no logits: llama.cpp only has to load and run the file.

  pip install llama-cpp-python
  python tools/check_written_gguf.py build/release/bin/anyaccel [NAME...]
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
DTYPES = {"float32": "F32", "uint8": "U8"}


def made(name, seed, shape, scale, offset, dtype="float32"):
    """As in family_fixtures.py, which needs torch."""
    base = 0xCBF29CE484222325
    for byte in name.encode():
        base = ((base ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    z = np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64((base + seed * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    unit = (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24) - np.float32(0.5)
    values = (unit * np.float32(scale) + np.float32(offset)).reshape(shape)
    return np.floor(values).astype(np.uint8) if dtype == "uint8" else values


def write_directory(case, config, folder):
    header, data = {}, b""
    for name, shape, scale, offset, *dtype in case["tensors"]:
        for layer in range(case["layers"] if "{}" in name else 1):
            full = name.format(layer)
            values = made(full, case["seed"], shape, scale, offset, *dtype)
            header[full] = {"dtype": DTYPES[str(values.dtype)], "shape": shape, "data_offsets": [len(data), len(data) + values.nbytes]}
            data += values.tobytes()
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps(config))
    special = ["<unk>", "<s>", "</s>"]
    vocabulary = special + ["\u2581"] + [chr(0x100 + i) for i in range(4, config["vocab_size"])]
    added = [{"id": i, "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
             for i, t in enumerate(special)]
    steps = [{"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]
    (folder / "tokenizer.json").write_text(json.dumps({
        "added_tokens": added, "normalizer": {"type": "Sequence", "normalizers": steps},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "vocab": {t: i for i, t in enumerate(vocabulary)}, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}))


def stored_logits(name):
    with open(DATA / "families.safetensors", "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        entry = json.loads(file.read(size))[name]
        file.seek(8 + size + entry["data_offsets"][0])
        count = entry["data_offsets"][1] - entry["data_offsets"][0]
        return np.frombuffer(file.read(count), np.float32).reshape(entry["shape"])


def run(path, tokens):
    model = llama_cpp.Llama(str(path), n_ctx=64, n_batch=64, n_ubatch=64, logits_all=True, verbose=False, type_k=0, type_v=0, n_threads=1,
                            n_threads_batch=1, flash_attn=False)
    model.eval(tokens)
    return np.array(model.scores[:len(tokens)])


def main():
    anyaccel, wanted = sys.argv[1], sys.argv[2:]
    families = json.loads((DATA / "families.json").read_text())
    said = {c["name"]: c["said_instead"] for c in json.loads((DATA / "gguf_families.json").read_text())["cases"] if "said_instead" in c}
    rows, failed = families["rows"], []
    for case in families["cases"]:
        name = case["name"]
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            (folder / "in").mkdir()
            write_directory(case, case["config"], folder / "in")

            def quantize(kind):
                out = folder / f"{kind}.gguf"
                return out, subprocess.run([anyaccel, "quantize", "--quiet", str(folder / "in"), str(out), "--type", kind],
                                           capture_output=True, text=True, env={**os.environ, "DS_ACCELERATOR": "cpu"})
            out, result = quantize("f32")
            instead = result.returncode != 0
            if instead and name in said:
                write_directory(case, case["config"] | said[name], folder / "in")
                out, result = quantize("f32")
            if result.returncode != 0:
                print(f"{name}: not written: {result.stderr.strip().splitlines()[-1].split(': ')[-1]}", flush=True)
                continue
            tokens = case["prompt"] + case["greedy"][:-1]
            try:
                found = run(out, tokens)
                quantized = run(quantize("q8_0")[0], tokens)
            except (ValueError, RuntimeError) as error:
                failed.append(name)
                print(f"{name}: llama.cpp cannot load it: {error}", flush=True)
                continue
            if not np.isfinite(found).all():
                failed.append(name)
            same = (found.argmax(1) == quantized.argmax(1)).mean()
            if instead:
                print(f"{name}: loaded, with other settings; {same:.2f} of the tokens in q8_0", flush=True)
                continue
            expected = stored_logits(name).reshape(len(rows), -1)
            worst = (abs(found[rows] - expected).max(1) / abs(expected).max(1)).max()
            if worst > 2e-3:
                failed.append(name)
            print(f"{name}: {worst:.1e}; {same:.2f} of the tokens in q8_0", flush=True)
    print("different or not loaded:", ", ".join(failed) or "none")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
