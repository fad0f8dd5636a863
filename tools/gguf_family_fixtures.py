#!/usr/bin/env python3
"""Make tests/data/gguf_families.json: what llama.cpp's converter makes of the directories of tests/data/families.json.

For each case whose architecture the converter knows, the file has the keys of the GGUF file in F32 (without those of the
tokenizer) and, for each of its tensors, where its values come from: ranges of the directory's tensors with strides, in the order
in which they follow each other, found by trying the transformations below and comparing every value with the converter's. So
gguf_families_test can write the same files without storing weights.

  pip install torch transformers sentencepiece pyyaml tqdm requests
  python tools/gguf_family_fixtures.py LLAMA_CPP   # a checkout, with convert_hf_to_gguf.py; its release is in the file
  # conversion/baichuan.py of that release calls itself without end; the last line of its modify_tensors has to be
  # "yield from super().modify_tensors(data_torch, name, bid)"
  python tools/gguf_family_fixtures.py LLAMA_CPP --keep FOLDER [NAME...]  # keeps the GGUF files, for other programs
"""

import json
import logging
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from family_fixtures import DATA, made  # noqa: E402

from safetensors.numpy import save_file  # noqa: E402

# Fields that published files have and transformers 5 no longer writes, or that the converter reads without a default.
OLDER_FIELDS = {
    "gpt2": lambda c: {"n_ctx": c["n_positions"]},
    "gpt_neox": lambda c: {"rotary_pct": c["rope_parameters"].get("partial_rotary_factor", 1.0)},
    "cohere2": lambda c: {"rotary_pct": 1.0},
    "mpt": lambda c: {"architectures": ["MPTForCausalLM"]},
    "falcon": lambda c: {"num_kv_heads": c["num_kv_heads"] if c.get("new_decoder_architecture") else 1 if c.get("multi_query", True)
                         else c["num_attention_heads"]},
    "phi3": lambda c: {"original_max_position_embeddings": c.get("original_max_position_embeddings", c["max_position_embeddings"])},
    "deepseek_v2": lambda c: {"scoring_func": "softmax"},
    "deepseek_v3": lambda c: {"scoring_func": "sigmoid"},
}


# What the format, or the converter, cannot say of a case: config.json with these fields says what the file says.
SLIDING, FULL = "sliding_attention", "full_attention"
SAID_INSTEAD = {
    "gemma2_1": {"query_pre_attn_scalar": 16},
    "gemma3_text_1": {"query_pre_attn_scalar": 16},
    "gemma3_text_2": {"query_pre_attn_scalar": 12, "layer_types": [SLIDING] * 3},
    "gemma3_text_3": {"query_pre_attn_scalar": 10},
    "gemma3_text_4": {"query_pre_attn_scalar": 12, "layer_types": [SLIDING] * 4},
    "smollm3_2": {"no_rope_layers": [1, 1, 1]},
    "smollm3_3": {"no_rope_layers": [1, 1, 1], "use_sliding_window": False, "layer_types": [FULL] * 3},
    "internlm3_2": {"rope_parameters": {"rope_type": "default", "rope_theta": 800.0}},
    "starcoder2_2": {"sliding_window": None},
    "starcoder2_3": {"hidden_act": "gelu_pytorch_tanh"},
    "glm_1": {"rms_norm_eps": 1e-5},
    "gpt2_3": {"scale_attn_weights": True, "activation_function": "gelu_new"},
    "gpt_neox_3": {"hidden_act": "gelu"},
    "falcon_7": {"alibi": False},
    "mixtral_2": {"sliding_window": None},
    "mixtral_3": {"hidden_act": "silu"},
    "qwen3_moe_1": {"norm_topk_prob": True},
    "olmoe_2": {"norm_topk_prob": False},
    "deepseek_v2_3": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "mscale": 0.8,
                                          "mscale_all_dim": 0.8, "original_max_position_embeddings": 16}},
    "deepseek_v3_2": {"rope_interleave": True},
    "bloom_2": {"apply_residual_connection_post_layernorm": False},
    "mpt_2": {"attn_config": None},
    "mpt_3": {"layer_norm_epsilon": 1e-5},
    "gpt_oss_1": {"swiglu_limit": 7.0},
    "gpt_oss_2": {"swiglu_alpha": 1.702},
    "gpt_oss_3": {"swiglu_limit": 7.0, "layer_types": [SLIDING, FULL, SLIDING]},
}
# Not kept: the converter writes sizes that are not those of the tensors, or leaves out the output matrix.
BROKEN = ("baichuan_3", "gemma_3", "phi_3", "glm_2", "glm_3", "gpt2_2", "falcon_6")


def expanded(case):
    return [[name.format(i), *rest] for name, *rest in case["tensors"] for i in range(case["layers"] if "{}" in name else 1)]


def write_directory(case, folder):
    values = {name: made(name, case["seed"], *rest) for name, *rest in expanded(case)}
    config = case["config"] | OLDER_FIELDS.get(case["family"], lambda c: {})(case["config"])
    if case["family"] == "phi3":
        config["rope_parameters"] = config["rope_parameters"] | {"original_max_position_embeddings": config["original_max_position_embeddings"]}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(values, folder / "model.safetensors", {"format": "pt"})
    # Gemma 3's conversion counts the tokens.
    tokens = {f"t{i}": i for i in range(config["vocab_size"])}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": tokens, "merges": []}, "added_tokens": []}))
    return config, values


def convert(folder, out, for_llama_cpp):
    """Runs the converter without a tokenizer, in whose place llama.cpp needs the size of the vocabulary."""
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    import gguf
    with torch.inference_mode():
        hparams = ModelBase.load_hparams(folder, False)
        stored = json.loads((folder / "config.json").read_text())
        kind = get_model_class(get_model_architecture(hparams, ModelType.TEXT))

        def set_vocab(self):
            self._set_vocab_none()
            if for_llama_cpp and not any(key.endswith(".vocab_size") for part in self.gguf_writer.kv_data for key in part):
                self.gguf_writer.add_vocab_size(stored["vocab_size"])
        kind = type(kind.__name__, (kind,), {"set_vocab": set_vocab, "model_arch": kind.model_arch})
        # transformers leaves out fields that its own class does not have.
        original = ModelBase.load_hparams
        ModelBase.load_hparams = staticmethod(lambda *_, **__: hparams | {k: v for k, v in stored.items() if k not in hparams or k == "rope_parameters"})
        try:
            kind(folder, gguf.LlamaFileType.ALL_F32, out, eager=True).write()
        finally:
            ModelBase.load_hparams = original


class Recipes:
    """Finds where the values of a GGUF file's tensors come from."""

    def __init__(self, values, config):
        self.values = values
        heads = config.get("num_attention_heads") or config.get("n_head") or config.get("n_heads")
        groups = config.get("num_key_value_heads") or config.get("num_kv_heads") or heads
        self.heads, self.groups = heads, groups
        self.config = config

    @staticmethod
    def piece(name, view):
        """Describes a view of an array of indices: the tensor's name, the first index, sizes and strides."""
        strides = [int(s) // view.itemsize for s in view.strides]
        first = int(view.flat[0])
        shape = [int(n) for n in view.shape]
        # Neighbouring dimensions that are one range become one.
        for i in reversed(range(len(shape) - 1)):
            if strides[i] == shape[i + 1] * strides[i + 1]:
                shape[i:i + 2], strides[i:i + 2] = [shape[i] * shape[i + 1]], [strides[i + 1]]
        return [name, first, shape, strides]

    def views(self, name):
        """Returns lists of views that may follow one another in a tensor."""
        index = np.arange(self.values[name].size, dtype=np.int64).reshape(self.values[name].shape)
        yield [index]
        rows = index.shape[0]
        if index.ndim == 2:
            yield [index.T]
        for heads in {self.heads, self.groups}:
            if rows % (2 * heads) == 0:
                yield [index.reshape(heads, 2, rows // heads // 2, *index.shape[1:]).swapaxes(1, 2)]
        if index.ndim == 2 and self.config.get("kv_lora_rank") and "kv_b" in name:
            both = index.reshape(self.heads, -1, index.shape[1])
            plain = self.config["qk_nope_head_dim"]
            yield [both[:, :plain].swapaxes(1, 2)]
            yield [both[:, plain:]]
        size = self.config.get("hidden_size", 0) // self.heads
        if "query_key_value" in name and rows == (self.heads + 2 * self.groups) * size:
            by_group = index.reshape(self.groups, self.heads // self.groups + 2, size, *index.shape[1:])
            yield [by_group[:, :-2], by_group[:, -2:-1], by_group[:, -1:]]
        if rows % 3 == 0:  # Baichuan's, of which queries and keys are paired
            for third in index.reshape(3, rows // 3, *index.shape[1:]):
                yield [third]
                yield [third.reshape(self.heads, 2, rows // 6 // self.heads, *index.shape[1:]).swapaxes(1, 2)] if rows % (6 * self.heads) == 0 else []
        if rows % 2 == 0:
            yield [index[:rows // 2]]
            yield [index[rows // 2:]]
            yield [index[::2]]
            yield [index[1::2]]
        if index.ndim > 1:
            half = index.shape[1] // 2
            yield [index[:, :half]]
            yield [index[:, half:]]
            yield [index[:, ::2]]
            yield [index[:, 1::2]]
        if index.ndim == 3:
            turned = index.swapaxes(1, 2)
            yield [turned]
            yield [turned[:, ::2]]
            yield [turned[:, 1::2]]

    def of_one(self, name, data):
        flat = self.values[name].reshape(-1)
        if flat.dtype != np.float32:
            return None
        for views in self.views(name):
            if sum(v.size for v in views) != data.size:
                continue
            found = np.concatenate([flat[v].reshape(-1) for v in views])
            for added in (0, 1):
                if np.array_equal(found + np.float32(added), data.reshape(-1)):
                    return {"from": [self.piece(name, v) for v in views], "plus": added}
        return None

    def find(self, layer, data):
        names = [n for n in self.values if (re.search(r"\.(\d+)\.", n) or [0, "-1"])[1] == str(layer)]
        for name in names:
            found = self.of_one(name, data)
            if found:
                return found
        # One matrix of each expert after the other.
        ends = {re.sub(r"experts\.\d+\.", "experts.#.", n) for n in names if re.search(r"experts\.\d+\.", n)}
        for end in sorted(ends):
            count = sum(re.sub(r"experts\.\d+\.", "experts.#.", n) == end for n in names)
            each = [end.replace("#", str(i)) for i in range(count)]
            if np.array_equal(np.concatenate([self.values[n].reshape(-1) for n in each]), data.reshape(-1)):
                whole = [self.piece(n, np.arange(self.values[n].size, dtype=np.int64)) for n in each]
                return {"from": whole, "plus": 0}
        return None


def short(recipe, shape, values):
    """Leaves out what is usual."""
    if recipe["plus"] == 0:
        recipe.pop("plus")
    sources = recipe["from"]
    whole = all(first == 0 and strides == [1] and sizes == [values[name].size] for name, first, sizes, strides in sources)
    if whole:
        recipe["from"] = [name for name, *_ in sources]
    return recipe | {"shape": shape}


def listed_once(tensors):
    """Returns the first layer's tensors with {} for the number, if those of the others are the same."""
    def with_number(tensor, number):
        return json.loads(re.sub(rf"(blk|layers|blocks|h)\.{number}\.", r"\1.{}.", json.dumps(tensor)))
    numbers = sorted({int(m[1]) for t in tensors if (m := re.match(r"blk\.(\d+)\.", t["name"]))})
    by_layer = [[with_number(t, n) for t in tensors if t["name"].startswith(f"blk.{n}.")] for n in numbers]
    others = [t for t in tensors if not t["name"].startswith("blk.")]
    if all(layer == by_layer[0] for layer in by_layer):
        return others + by_layer[0]
    return tensors


def described(path, values, config):
    import gguf
    reader = gguf.GGUFReader(path)
    keys = {}
    for name, field in reader.fields.items():
        if name.startswith(("GGUF.", "tokenizer.", "general.")) and name != "general.architecture":
            continue
        value = field.contents()
        kind = field.types[0].name
        # A float as short as its 32 bits allow.
        keys[name] = [kind, float(str(np.float32(value))) if kind == "FLOAT32" else value]
        if name == "phi2.feed_forward_length":  # it is taken to be four times the hidden size
            keys[name][1] = config["intermediate_size"]
    recipes, tensors = Recipes(values, config), []
    for tensor in reader.tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        entry = {"name": tensor.name}
        layer = int(m[1]) if (m := re.match(r"blk\.(\d+)\.", tensor.name)) else -1
        data = np.array(tensor.data)
        if tensor.tensor_type.name != "F32":
            raise ValueError(f"{tensor.name} is {tensor.tensor_type.name}")
        recipe = recipes.find(layer, data)
        if recipe is None and data.size <= 64:
            entry |= {"values": [float(str(v)) for v in data.reshape(-1)], "shape": shape}
        elif recipe is None:
            raise ValueError(f"{tensor.name} {shape}: no recipe")
        else:
            entry |= short(recipe, shape, values)
        tensors.append(entry)
    return keys, listed_once(tensors)


def main():
    root = Path(sys.argv[1]).resolve()
    keep = Path(sys.argv[3]) if "--keep" in sys.argv else None
    wanted = sys.argv[4:]
    sys.path[:0] = [str(root), str(root / "gguf-py")]
    logging.disable(logging.WARNING)
    cases, refused = [], {}
    for case in json.loads((DATA / "families.json").read_text())["cases"]:
        if case["name"] in BROKEN or (wanted and case["name"] not in wanted):
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            out = (keep or folder) / (case["name"] + ".gguf")
            config, values = write_directory(case, folder)
            try:
                convert(folder, out, keep is not None)
                keys, tensors = described(out, values, config)
            except (Exception, SystemExit) as error:
                refused[case["name"]] = f"{type(error).__name__}: {error}"
                print(case["name"], refused[case["name"]], flush=True)
                continue
            said = {"said_instead": SAID_INSTEAD[case["name"]]} if case["name"] in SAID_INSTEAD else {}
            cases.append({"name": case["name"], "keys": keys, "tensors": tensors} | said)
            print(case["name"], keys["general.architecture"][1], flush=True)
    if keep:
        return
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (DATA / "gguf_families.json").write_text('{"cases":[\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
