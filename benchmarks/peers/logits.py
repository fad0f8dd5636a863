#!/usr/bin/env python3
"""Compares what anyaccel and llama.cpp compute from the same quantized GGUF file, on the CPU.

usage: benchmarks/peers/logits.py --model DIR [--command PATH] [--types q4_0,...] [--threads N]

DIR is a Llama with a tokenizer, as `anyaccel make-model --shape llama-100m --out DIR` writes it. For each type `anyaccel quantize`
makes a file. The same weights dequantized by the gguf package, in fp32, with which llama.cpp computes in fp32, give the truth.
Both programs round what goes into the products to 8 bits, each in its own way, so that neither is exact.

The rows are: the token after prompts of several lengths ("prompt N"), then the tokens that follow one by one ("decode"), and
those of several sequences at once ("decode of 8"); each of these has kernels of its own. For each, `ours` and `llama.cpp` are the
largest differences of the log-probabilities of our 50 most likely tokens from the truth, over the largest logit of the truth, and
`ratio` is the first over the second. Ends with an error where ours is more than twice llama.cpp's.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy

import machine
import model as peers

TYPES = "q8_0,q4_0,q4_1,q5_0,q5_1,q2_k,q3_k,q4_k,q5_k,q6_k,iq4_nl,iq4_xs,mxfp4"
TOP, NEW, SEQUENCES, MOST_OVER = 50, 12, 8, 2.0
WORDS = "once upon a time there was a little girl who liked to play in the garden with her dog and a red ball".split()
# Words of each prompt; most tokens are letters. The lengths take the kernels for few rows and for tiles of rows.
LENGTHS = [1, 4, 20, 100]


def text(words, seed):
    state, out = seed, []
    for _ in range(words):
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        out.append(WORDS[(state >> 33) % len(WORDS)])
    return " ".join(out)


def rewritten(source, target, dequantize):
    """Writes the file without its tokenizer, which llama.cpp does not accept of every made model, and with weights in fp32 if wanted."""
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    writer.add_tokenizer_model("no_vocab")
    left_out = ("GGUF.", "tokenizer.", "general.architecture", "general.file_type", "general.quantization_version")
    for key, field in reader.fields.items():
        if key.startswith(left_out):
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), kind, sub_type=sub)
    for tensor in reader.tensors:
        if dequantize or tensor.tensor_type == gguf.GGMLQuantizationType.F32:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, numpy.ascontiguousarray(values.astype(numpy.float32)))
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Llama(peers.LlamaCpp):
    """With keys and values in fp32, so that nothing but the products with weights is rounded; anyaccel keeps 16 bits of them."""

    def hold(self, slots):
        self.parameters.type_k = self.parameters.type_v = 0  # GGML_TYPE_F32
        super().hold(slots)

    def steps(self, prompt, new):
        """Log-probabilities after the prompt and after each of the new tokens but the last, and each row's largest logit."""
        self.library.llama_memory_clear(self.library.llama_get_memory(self.context), True)
        rows = []
        for part in [prompt] + [[token] for token in new[:-1]]:
            logits = self.run(part).astype(numpy.float64)
            most = logits.max()
            rows.append((logits - most - numpy.log(numpy.exp(logits - most).sum()), abs(logits).max()))
        return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model directory with a tokenizer")
    parser.add_argument("--command", default=machine.COMMAND, help="the anyaccel command (default: %(default)s)")
    parser.add_argument("--types", default=TYPES, help="(default: %(default)s)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    environment = dict(os.environ, DS_ACCELERATOR="cpu", OMP_NUM_THREADS=str(options.threads))

    def generate(file, prompts):
        command = [options.command, "generate", "--model", file, "--greedy", "--ignore-eos", "--max-new-tokens", str(NEW)]
        command += ["--json", "--quiet", "--top-logprobs", str(TOP)]
        for prompt in prompts:
            command += ["--prompt", prompt]
        output = subprocess.run(command, check=True, text=True, env=environment, stdout=subprocess.PIPE).stdout
        return json.loads(output)["completions"]

    failed = False
    print("differences of log-probabilities from llama.cpp's with the same weights in fp32, over the largest logit\n")
    print(f"{'type':8} {'rows':12} {'ours':>10} {'llama.cpp':>10} {'ratio':>6}")
    for kind in options.types.split(","):
        with tempfile.TemporaryDirectory() as folder:
            file, same, plain = (os.path.join(folder, name + ".gguf") for name in (kind, "same", "fp32"))
            subprocess.run([options.command, "quantize", options.model, file, "--type", kind, "--quiet"], check=True,
                           env=environment, stdout=subprocess.DEVNULL)  # fmt: skip
            rewritten(file, same, False)
            rewritten(file, plain, True)
            runs = [(f"prompt {n}", generate(file, [text(n, 1)])) for n in LENGTHS]
            runs.append((f"decode of {SEQUENCES}", generate(file, [text(12 + i, i) for i in range(SEQUENCES)])))
            answers = [Llama(path, options.threads) for path in (same, plain)]
            worst = {}
            for name, completions in runs:
                for completion in completions:
                    theirs, truth = (a.steps(completion["prompt_ids"], completion["token_ids"]) for a in answers)
                    if name.startswith("prompt"):
                        name = f"prompt {len(completion['prompt_ids'])}"
                    for i, row in enumerate(completion["logprobs"]):
                        step = name if i == 0 or not name.startswith("prompt") else "decode"
                        ids = [t["id"] for t in row["top"]]
                        exact, scale = truth[i][0][ids], truth[i][1]
                        ours = abs(numpy.array([t["logprob"] for t in row["top"]]) - exact).max() / scale
                        other = abs(theirs[i][0][ids] - exact).max() / scale
                        kept = worst.setdefault(step, [0.0, 0.0])
                        worst[step] = [max(kept[0], ours), max(kept[1], other)]
            for name, (ours, other) in worst.items():
                bad = ours > MOST_OVER * other
                failed |= bad
                print(f"{kind:8} {name:12} {ours:10.2e} {other:10.2e} {ours / other:6.2f}{' !' if bad else ''}", flush=True)
    sys.exit(bool(failed))  # numpy's False would be an error


if __name__ == "__main__":
    main()
