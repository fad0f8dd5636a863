#!/usr/bin/env python3
"""Make the reference data in tests/data that the C++ tests compare against.

Everything here is computed by the Python packages `transformers`, `tokenizers`
and `sentencepiece`; nothing is downloaded.  The script writes

  tests/data/models/<name>/       a tiny Hugging Face model directory with random
                                  bf16 weights (config.json, safetensors,
                                  generation_config.json), and the logits and
                                  greedy tokens that transformers computes from
                                  it (expected.json, expected.safetensors)
  tests/data/tokenizers/<name>/   a small trained tokenizer (tokenizer.json or
                                  tokenizer.model), and what it does to a list
                                  of texts (cases.json) and of token lists
                                  (decode_cases.json)
  tests/data/config_fields/       what every field of config.json does
                                  (tools/config_fixtures.py)
  tests/data/tokenizer_directories/<name>.json
                                  a directory whose special tokens lie in
                                  several files, and what AutoTokenizer makes
                                  of it (tokenizer_directories.py)
  tests/data/generation_settings.json
                                  answers and probabilities under the settings of
                                  generation_config.json
                                  (tools/generation_fixtures.py)

tests/data/README.md describes the files and the meaning of every key.

How to run it (the versions used last are in tests/data/README.md):

  pip install torch transformers tokenizers sentencepiece protobuf safetensors numpy
  python tools/make_fixtures.py                # make everything
  python tools/make_fixtures.py --models       # only the models
  python tools/make_fixtures.py --tokenizers   # only the tokenizers
  python tools/make_fixtures.py --config       # only the fields of config.json
  python tools/make_fixtures.py --generation   # only generation_settings.json
  python tools/make_fixtures.py --only qwen2   # only the fixtures named qwen2
  python tools/make_fixtures.py --check        # change nothing: read the stored
                                               # fixtures again, compute the
                                               # values again, and compare

The result is deterministic for given package versions: weights come from a
seeded numpy generator, and the texts for training come from this file.
"""

import argparse
import copy
import io
import json
import os
import random
import re
import shutil
import sys
import tempfile
import zlib
from collections import Counter
from pathlib import Path

import tokenizer_directories

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"

# ----------------------------------------------------------------------------
# Part A: models
# ----------------------------------------------------------------------------

VOCAB = 320
PROMPT_LEN = 24
STEPS = 32
# A seed is kept if there is a clear winner at every greedy step, so that small rounding differences cannot change the
# tokens.
MIN_GAP = 0.05
MIN_DISTINCT = 12  # so that the text does not repeat one or two tokens
MAX_SEEDS = 2000

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 64,
    "initializer_range": 0.02,
    "intermediate_size": 128,
    "max_position_embeddings": 256,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": VOCAB,
}


def changed(base, remove=(), **changes):
    """Returns a copy of a config with some keys set and some removed."""
    config = copy.deepcopy(base)
    config.update(changes)
    for key in remove:
        del config[key]
    return config


def newer_keys(config, rope):
    """Returns the config as transformers 5 writes it, with `dtype` and `rope_parameters`."""
    config = changed(config, remove=[k for k in ("torch_dtype", "rope_theta", "rope_scaling") if k in config])
    config["dtype"] = "bfloat16"
    config["rope_parameters"] = rope
    return config


MODELS = {
    "llama_gqa": {
        "config": changed(LLAMA, num_hidden_layers=3, intermediate_size=96),
        "batch": [5, 11, 19],
        "tokenizer": True,
        "notes": "Llama, grouped-query attention with 4 heads and 2 key/value heads, untied lm_head.",
    },
    "llama_tied": {
        "config": changed(LLAMA, tie_word_embeddings=True, head_dim=24, intermediate_size=160),
        "notes": "Llama, tied embeddings (the file has no lm_head.weight), head_dim 24 is not "
                 "hidden_size / num_attention_heads (16).",
    },
    "llama3_rope": {
        "config": changed(
            LLAMA, rope_theta=500000.0, eos_token_id=[2, 3], max_position_embeddings=512,
            rope_scaling={"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                          "original_max_position_embeddings": 64, "rope_type": "llama3"}),
        "ablate": {"rope_scaling": None},
        "notes": "Rope scaling 'llama3'. With these numbers inv_freq[0] is kept, inv_freq[1] lies in the "
                 "smoothed band and the others are divided by the factor. eos_token_id is a list.",
    },
    "llama_linear": {
        "config": changed(
            LLAMA, remove=["num_key_value_heads"], rms_norm_eps=0.01,
            rope_scaling={"type": "linear", "factor": 4.0}),
        "ablate": {"rope_scaling": None},
        "notes": "Rope scaling 'linear', written with the older key 'type'. num_key_value_heads is absent, "
                 "so it equals num_attention_heads. rms_norm_eps is large so that it matters.",
    },
    "llama_dynamic": {
        "config": newer_keys(
            changed(LLAMA, max_position_embeddings=16),
            {"factor": 2.0, "rope_theta": 10000.0, "rope_type": "dynamic"}),
        "ablate": {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}},
        "batch": [6, 30],
        "notes": "Rope scaling 'dynamic' (NTK), max_position_embeddings 16. What transformers does: in every "
                 "forward call seq_len is the largest position id plus 1. When seq_len is larger than every "
                 "seq_len seen before (starting from max_position_embeddings), inv_freq is computed again "
                 "for that seq_len: base = rope_theta * (factor * seq_len / max_position_embeddings - "
                 "(factor - 1)) ** (dim / (dim - 2)), inv_freq[i] = base ** (-2 i / dim). The prompt is one "
                 "forward call, so all its positions use seq_len = prompt length (24). Then each generated "
                 "token is one forward call with seq_len 25, 26, ...: the query and the new key are rotated "
                 "with the inv_freq of that seq_len, while the keys already in the cache keep the rotation "
                 "they were stored with. While seq_len <= max_position_embeddings the unscaled inv_freq is "
                 "used. A freshly loaded model was used for every prompt, because transformers keeps the "
                 "largest seq_len between calls. The first prompt of 'batch' (6 tokens) starts below "
                 "max_position_embeddings and grows past it while generating.",
    },
    "llama_yarn": {
        "config": newer_keys(
            changed(LLAMA, max_position_embeddings=256, num_key_value_heads=1),
            {"beta_fast": 8.0, "beta_slow": 1.0, "factor": 4.0, "original_max_position_embeddings": 64,
             "rope_theta": 10000.0, "rope_type": "yarn"}),
        "ablate": {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}},
        "notes": "Rope scaling 'yarn' with explicit beta_fast and beta_slow. attention_factor is not given, so "
                 "cos and sin are multiplied by 0.1 * ln(factor) + 1. One key/value head.",
    },
    "mistral_window": {
        "config": changed(
            LLAMA, remove=["attention_bias", "mlp_bias", "pretraining_tp", "rope_scaling"],
            architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=8),
        "ablate": {"sliding_window": None},
        "batch": [4, 40],
        "notes": "Mistral, sliding_window 8: position i attends to positions i-7 .. i. The first prompt of "
                 "'batch' (4 tokens) starts inside the window and grows past it.",
    },
    "qwen2": {
        "config": changed(
            LLAMA, remove=["attention_bias", "mlp_bias", "pretraining_tp", "rope_scaling"],
            architectures=["Qwen2ForCausalLM"], model_type="qwen2", rms_norm_eps=1e-06, rope_theta=1000000.0,
            tie_word_embeddings=True, sliding_window=8, use_sliding_window=False, max_window_layers=1),
        "ablate": {"zero": "_proj.bias"},
        "notes": "Qwen2: biases on q, k and v (the config does not say so; the architecture does), tied "
                 "embeddings. sliding_window is set but use_sliding_window is false, so attention is full.",
    },
    "qwen3": {
        "config": newer_keys(
            changed(
                LLAMA, remove=["mlp_bias", "pretraining_tp"], architectures=["Qwen3ForCausalLM"],
                model_type="qwen3", head_dim=32, rms_norm_eps=1e-06, sliding_window=None,
                use_sliding_window=False, max_window_layers=2, intermediate_size=96,
                layer_types=["full_attention", "full_attention"]),
            {"rope_theta": 1000000.0, "rope_type": "default"}),
        "ablate": {"one": "self_attn.q_norm.weight"},
        "notes": "Qwen3: RMS norm on each head of q and k before rope (q_norm, k_norm), explicit head_dim 32.",
    },
    "llama_bias": {
        "config": changed(LLAMA, attention_bias=True, mlp_bias=True, intermediate_size=96),
        "ablate": {"zero": "_proj.bias"},
        "shards": 2,
        "notes": "Llama with attention_bias (q, k, v and o) and mlp_bias (gate, up and down), stored in two "
                 "files with model.safetensors.index.json.",
    },
}

COMMON_NOTES = (
    " Weights are stored as bf16 and were upcast to fp32; everything was computed in fp32 on the CPU with "
    "eager attention. prompt_logits[t] are the logits after prompt token t. step_logits[i] are the logits from "
    "which greedy_ids[i] was taken, so step_logits[0] equals prompt_logits[T-1]; every later row comes from a "
    "forward call with one token and the KV cache. min_gap is the smallest difference between the two largest "
    "logits over all greedy steps. No greedy token is an EOS token."
)


def eos_ids(config):
    eos = config["eos_token_id"]
    return eos if isinstance(eos, list) else [eos]


def make_prompt(rng, length):
    return [1] + [int(i) for i in rng.integers(4, VOCAB, length - 1)]


def make_weights(model, config, seed):
    """Returns random values for every parameter, rounded to bf16.

    The scales keep the hidden state near 1, the attention scores spread enough
    for a peaked softmax, and the logits at a standard deviation of about 2.
    """
    import numpy as np
    import torch

    rng = np.random.default_rng(seed)
    weights = {}
    for name, param in model.state_dict().items():
        shape = tuple(param.shape)
        if name == "lm_head.weight" and config["tie_word_embeddings"]:
            continue
        if name.endswith("q_norm.weight") or name.endswith("k_norm.weight"):
            value = rng.uniform(0.5, 2.0, shape)
        elif "norm" in name:
            value = rng.uniform(0.5, 1.5, shape)
        elif name.endswith(".bias"):
            value = rng.normal(0.0, 0.5, shape)
        elif name == "model.embed_tokens.weight":
            value = rng.normal(0.0, 0.25 if config["tie_word_embeddings"] else 1.0, shape)
        elif name == "lm_head.weight":
            value = rng.normal(0.0, 2.0 / shape[1] ** 0.5, shape)
        elif "q_proj" in name or "k_proj" in name:
            value = rng.normal(0.0, 1.3 / shape[1] ** 0.5, shape)
        else:
            value = rng.normal(0.0, 1.5 / shape[1] ** 0.5, shape)
        weights[name] = torch.tensor(value, dtype=torch.float32).to(torch.bfloat16)
    return weights


def write_json(path, value, **kwargs):
    path.write_text(json.dumps(value, indent=2, **kwargs) + "\n", encoding="utf-8")


def write_model(folder, spec, weights):
    import transformers
    from safetensors.torch import save_file

    config = spec["config"]
    if "dtype" in config:
        config = dict(config, transformers_version=transformers.__version__)
    write_json(folder / "config.json", config, sort_keys=True)
    write_json(folder / "generation_config.json",
               {"_from_model_config": True, "bos_token_id": config["bos_token_id"],
                "eos_token_id": config["eos_token_id"], "transformers_version": transformers.__version__})
    meta = {"format": "pt"}
    shards = spec.get("shards", 1)
    if shards == 1:
        save_file(weights, folder / "model.safetensors", metadata=meta)
        return
    names = sorted(weights)
    total = sum(w.numel() * w.element_size() for w in weights.values())
    weight_map, part, size = {}, 0, 0
    parts = [{} for _ in range(shards)]
    for name in names:
        if size > total * (part + 1) / shards:
            part += 1
        parts[part][name] = weights[name]
        size += weights[name].numel() * weights[name].element_size()
        weight_map[name] = f"model-{part + 1:05d}-of-{shards:05d}.safetensors"
    for i, tensors in enumerate(parts):
        save_file(tensors, folder / f"model-{i + 1:05d}-of-{shards:05d}.safetensors", metadata=meta)
    write_json(folder / "model.safetensors.index.json",
               {"metadata": {"total_size": total}, "weight_map": weight_map})


def load_model(folder):
    import torch
    from transformers import AutoModelForCausalLM

    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[key], f"{folder}: {key}: {info[key]}"
    assert all(p.dtype == torch.float32 for p in model.parameters())
    return model.eval()


def reset_rope(model):
    """Resets the rotary embedding to its state in a freshly loaded model."""
    rope = model.model.rotary_emb
    if rope.rope_type == "dynamic":
        rope.inv_freq = rope.original_inv_freq.clone()
        rope.max_seq_len_cached = rope.original_max_seq_len


def greedy(model, prompt, steps=STEPS):
    """Returns (prompt_logits [T, V], step_logits [steps, V], greedy ids, smallest gap)."""
    import torch

    reset_rope(model)
    with torch.no_grad():
        out = model(torch.tensor([prompt]), use_cache=True)
        prompt_logits = out.logits[0].clone()
        rows, ids, row = [], [], prompt_logits[-1]
        for step in range(steps):
            rows.append(row.clone())
            ids.append(int(row.argmax()))
            if step + 1 < steps:
                out = model(torch.tensor([[ids[-1]]]), past_key_values=out.past_key_values, use_cache=True)
                row = out.logits[0, -1]
    step_logits = torch.stack(rows)
    best = step_logits.topk(2, dim=-1).values
    return prompt_logits, step_logits, ids, float((best[:, 0] - best[:, 1]).min())


def good(config, ids, gap):
    return (gap >= MIN_GAP and len(set(ids)) >= MIN_DISTINCT and not set(ids) & set(eos_ids(config)))


def make_model(name, spec):
    import numpy as np
    import torch
    import transformers
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = DATA / "models" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = spec["config"]
    write_json(folder / "config.json", config)
    empty = AutoModelForCausalLM.from_config(
        AutoConfig.from_pretrained(folder), attn_implementation="eager", dtype=torch.float32).eval()

    base = zlib.crc32(name.encode()) % 100000
    for seed in range(base, base + MAX_SEEDS):
        weights = make_weights(empty, config, seed)
        empty.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
        empty.tie_weights()
        rng = np.random.default_rng(seed + 1000003)
        prompt = make_prompt(rng, PROMPT_LEN)
        ids, gap = greedy(empty, prompt)[2:]
        if not good(config, ids, gap):
            continue
        # For prompts of other lengths, draws several for each length and keeps the first good one.
        batch = []
        for length in spec.get("batch", []):
            for _ in range(200):
                other = make_prompt(rng, length)
                other_ids, other_gap = greedy(empty, other)[2:]
                if good(config, other_ids, other_gap):
                    batch.append({"prompt_ids": other, "greedy_ids": other_ids, "min_gap": round(other_gap, 6)})
                    break
        if len(batch) == len(spec.get("batch", [])):
            break
    else:
        raise SystemExit(f"{name}: no good seed found")

    write_model(folder, spec, weights)

    # The stored values are computed from the written directory, loaded again.
    model = load_model(folder)
    prompt_logits, step_logits, ids2, gap2 = greedy(model, prompt)
    assert ids2 == ids, name
    for item in batch:
        assert greedy(load_model(folder), item["prompt_ids"])[2] == item["greedy_ids"], name

    expected = {"prompt_ids": prompt, "greedy_ids": ids, "min_gap": round(gap2, 6), "seed": seed,
                "transformers": transformers.__version__, "torch": torch.__version__,
                "notes": spec["notes"] + COMMON_NOTES}
    if batch:
        expected["batch"] = batch
        expected["notes"] += (" 'batch' lists further prompts of different lengths; each was run alone, without "
                              "padding, and is to be compared with the same prompt inside a batch.")
    if spec.get("tokenizer"):
        expected["text"] = make_model_tokenizer(folder, config)
    lines = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in expected.items()]
    (folder / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    save_file({"prompt_logits": prompt_logits.contiguous(), "step_logits": step_logits.contiguous()},
              folder / "expected.safetensors", metadata={"format": "pt"})
    print(f"model {name}: seed {seed} (+{seed - base}), gap {gap2:.4f}, logits std {prompt_logits.std():.2f}, "
          f"distinct {len(set(ids))}, {folder_size(folder)} bytes")


def make_model_tokenizer(folder, config):
    """Returns a byte-level tokenizer of 320 tokens, so that one model directory works from text to text."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(training_lines(), trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=["<pad>", "<s>", "</s>"], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tok.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    assert tok.get_vocab_size() == VOCAB
    tok.save(str(folder / "tokenizer.json"), pretty=False)
    template = ("{{ bos_token }}{% for message in messages %}{{ '[' + message['role'] + '] ' + "
                "message['content'] + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '[assistant] ' }}"
                "{% endif %}")
    write_json(folder / "tokenizer_config.json",
               {"add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "eos_token": "</s>",
                "pad_token": "<pad>", "clean_up_tokenization_spaces": False, "model_max_length": 256,
                "chat_template": template, "tokenizer_class": "PreTrainedTokenizerFast"})

    fast = PreTrainedTokenizerFast.from_pretrained(folder)
    model = load_model(folder)
    starts = ["The quick brown fox", "Once upon a time", "Hello, world!", "The weather today is", "In the morning",
              "A model reads tokens", "The answer is", "Numbers such as 42"]
    for prompt in starts + [f"{one}. {two}" for one in starts for two in starts]:
        prompt_ids = fast(prompt)["input_ids"]
        ids, gap = greedy(model, prompt_ids)[2:]
        if gap >= MIN_GAP and not set(ids) & set(eos_ids(config)):
            break
    else:
        raise SystemExit(f"{folder}: no text prompt with a clear winner at every step")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How are you?"}]
    rendered = fast.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return {"prompt": prompt, "prompt_ids": prompt_ids, "greedy_ids": ids, "min_gap": round(gap, 6),
            "greedy_text": fast.decode(ids, skip_special_tokens=True),
            "chat": {"messages": messages, "rendered": rendered,
                     "ids": fast(rendered, add_special_tokens=False)["input_ids"]}}


def check_model(name, spec):
    """Reads a stored model directory again and compares; also shows that the feature under test matters."""
    import numpy as np
    import torch
    from safetensors.torch import load_file

    folder = DATA / "models" / name
    expected = json.loads((folder / "expected.json").read_text())
    stored = load_file(folder / "expected.safetensors")
    model = load_model(folder)
    prompt_logits, step_logits, ids, gap = greedy(model, expected["prompt_ids"])
    diff = max(float((prompt_logits - stored["prompt_logits"]).abs().max()),
               float((step_logits - stored["step_logits"]).abs().max()))
    assert ids == expected["greedy_ids"], f"{name}: greedy ids differ"
    assert diff < 1e-4, f"{name}: logits differ by {diff}"
    assert abs(gap - expected["min_gap"]) < 1e-4
    assert stored["prompt_logits"].shape == (len(expected["prompt_ids"]), VOCAB)
    assert stored["step_logits"].shape == (len(ids), VOCAB)
    for item in expected.get("batch", []):
        assert greedy(load_model(folder), item["prompt_ids"])[2] == item["greedy_ids"], f"{name}: batch"
    if "text" in expected:
        from transformers import PreTrainedTokenizerFast
        fast, text = PreTrainedTokenizerFast.from_pretrained(folder), expected["text"]
        assert fast(text["prompt"])["input_ids"] == text["prompt_ids"], f"{name}: text"
        assert greedy(model, text["prompt_ids"])[2] == text["greedy_ids"], f"{name}: text"
        assert fast.decode(text["greedy_ids"], skip_special_tokens=True) == text["greedy_text"], f"{name}: text"

    # Compares with the tokens of generate(), which users call.
    reset_rope(model)
    prompt = torch.tensor([expected["prompt_ids"]])
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=STEPS,
                         pad_token_id=0)
    assert out[0, prompt.shape[1]:].tolist() == ids, f"{name}: generate() differs"

    # Compares with one pass without a KV cache (for dynamic rope this is not the same computation).
    if name != "llama_dynamic":
        with torch.no_grad():
            whole = model(torch.tensor([expected["prompt_ids"] + ids[:-1]]), use_cache=False).logits[0]
        cache_diff = float((whole[len(expected["prompt_ids"]) - 1:] - step_logits).abs().max())
        assert cache_diff < 1e-3, f"{name}: KV cache differs by {cache_diff}"

    if "batch" in expected and name != "llama_dynamic":  # dynamic rope would use the longest prompt for all
        prompts = [item["prompt_ids"] for item in expected["batch"]]
        width = max(map(len, prompts))
        padded = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        out = model.generate(padded, attention_mask=mask, do_sample=False, max_new_tokens=STEPS, pad_token_id=0)
        assert out[:, width:].tolist() == [i["greedy_ids"] for i in expected["batch"]], f"{name}: padded batch"

    effect = None
    ablate = spec.get("ablate")
    if ablate:
        import tempfile
        with tempfile.TemporaryDirectory() as tmp:
            other_folder = Path(tmp) / name
            shutil.copytree(folder, other_folder)
            if "zero" in ablate or "one" in ablate:
                other = load_model(other_folder)
                key, value = next(iter(ablate.items()))
                with torch.no_grad():
                    for pname, param in other.named_parameters():
                        if pname.endswith(value):
                            param.fill_(1.0 if key == "one" else 0.0)
            else:
                config = json.loads((folder / "config.json").read_text())
                config.update(ablate)
                write_json(other_folder / "config.json", config)
                other = load_model(other_folder)
            effect = float((greedy(other, expected["prompt_ids"])[0] - prompt_logits).abs().max())
            assert effect > 0.1, f"{name}: switching the feature off changes the logits by only {effect}"
    rope = model.model.rotary_emb
    reset_rope(model)
    print(f"model {name}: ok, largest difference {diff:.1e}, logits std {np.std(prompt_logits.numpy()):.2f}"
          + (f", feature off changes logits by {effect:.2f}" if effect is not None else "")
          + f", inv_freq {[round(float(f), 5) for f in rope.inv_freq[:4]]}, cos/sin factor {rope.attention_scaling:.4f}")


# ----------------------------------------------------------------------------
# Part B: tokenizers
# ----------------------------------------------------------------------------

# Text for training. The tokenizers must be small, so this is short; the lines
# are shuffled into longer ones below.
ENGLISH = """
The quick brown fox jumps over the lazy dog, and then it runs away into the forest.
It's a matter of fact that they're not going to the station; we've seen them, I'm sure, and she'll say so.
He doesn't know what we'd do if the weather changed before the morning.
A language model reads a sequence of tokens and predicts the next token from everything that came before it.
The memory of the machine is large enough to hold all the weights and the cache for each of the layers.
Once upon a time there was a small village at the foot of a mountain, where people lived from farming and fishing.
Please read the following instructions carefully before you start the program for the first time.
You are a helpful assistant. Answer the question in a few sentences, and say when you do not know the answer.
What is the difference between the two methods? The first is faster, the second needs less memory.
In the summer the children were playing near the river while their parents prepared the dinner.
The number of requests per second depends on the length of the prompt and on the size of the batch.
"I think," she said, "that this is the best thing that could have happened to us!"
The history of computing shows that simple ideas often win over complicated ones.
Water boils at 100 degrees Celsius; ice melts at 0 degrees. The year is 2024, the month is 12, the day is 31.
Call 555-0123 or write to someone@example.com, or visit https://www.example.com/path?query=value#part for more.
Prices rose by 3.5% to $1,234.56 in 1999, and by 12% to 20,000 in 2008.
The working directory contains the files that the test needs for checking the running of the application.
There is nothing more interesting than understanding how something works and then building it again.
""".strip().splitlines()

CODE = r"""
def main(argc, argv):
    for i in range(10):
        if i % 2 == 0:
            print("value:", i, end="\n")
        else:
            continue
    return None

int main(int argc, char **argv) {
	for (int i = 0; i < 10; ++i) {
		std::cout << "value: " << i << std::endl;
	}
	return 0;
}
#include <vector>
const std::vector<float>& values() const { return values_; }
if (x == nullptr || y != 0) { throw std::runtime_error("error"); }
{"name": "value", "list": [1, 2, 3], "nested": {"key": true, "other": null}}
SELECT id, name FROM users WHERE id = 42 AND name != 'none';
function add(a, b) { return a + b; }  // adds two numbers
""".strip("\n").splitlines()

OTHER = """
Der schnelle braune Fuchs springt über den faulen Hund, während die Kinder draußen spielen.
Die Größe des Gebäudes überrascht die Besucher, aber die Straße davor ist schön und ruhig.
Le garçon a mangé une pomme près de la forêt, où il faisait très froid cet été-là.
L'élève naïf rêvait d'être à l'école; ça n'était pas déjà prévu.
El niño comió mañana con su señora en España. ¿Qué hora es? ¡Qué día!
今天天气很好，我们去公园散步。语言模型读取一串词元。
我不知道他在说什么，但是我们今天很好。
これは日本語の文章です。カタカナとひらがなと漢字があります。
안녕하세요. 오늘은 날씨가 좋습니다.
مرحبا بالعالم، كيف حالك اليوم؟ هذا نص قصير.
नमस्ते दुनिया, आप कैसे हैं? यह एक छोटा पाठ है।
Привет, мир! Как дела? Это короткий текст на русском языке.
Γειά σου Κόσμε, τι κάνεις σήμερα;
I love it 😀 😀 👍 ❤️ 🎉 and this too 🚀 😀!
""".strip().splitlines()


def training_lines():
    rng = random.Random(20240501)
    lines = []
    for _ in range(6):
        for group in (ENGLISH, OTHER, CODE):
            part = list(group)
            if group is not CODE:
                rng.shuffle(part)
            lines += part
        for _ in range(20):  # mixed words and numbers
            words = [rng.choice(rng.choice(ENGLISH).split()) for _ in range(8)]
            words.insert(rng.randrange(8), str(rng.randrange(10 ** rng.randrange(1, 6))))
            lines.append(rng.choice([" ", " ", "  "]).join(words))
        lines += ["    indented", "        twice indented", "\tone tab", "\t\ttwo tabs", "end of paragraph\n\n",
                  "line one\r\nline two\r\n"]
    return lines


# Texts for the cases. Characters that are invisible or that an editor could
# change (combining marks, joiners, odd spaces) are written as escapes.
TEXTS = [
    "",
    " ",
    "  ",
    "   ",
    "a",
    " a",
    "a ",
    "Hello, world!",
    " Hello, world!",
    "Hello,  world!   How are   you?",
    "   three leading spaces",
    "three trailing spaces   ",
    "The quick brown fox jumps over the lazy dog.",
    "It's, they're, I'm, we've, she'll, he'd, can't, THEY'RE, I'M, IT'S, Don'T",
    "'s 't 're 've 'm 'll 'd '' 'x ’s it’s",
    "'tis the season; rock 'n' roll; the dogs' bones",
    "I\u2019m using \u201ccurly\u201d quotes \u2014 and dashes \u2013 here\u2026",
    "0 1 12 123 1234 12345 123456 1234567890",
    "3.14159 -42 +1e-10 0xDEADBEEF 1,234,567.89 50% $99.99 \u20ac5",
    "abc123def456 x1 y22 z333 4a 55b",
    "\u0661\u0662\u0663\u0664 \u0967\u0968\u0969 \u2160\u2161\u2162 \u00bd\u00b2\u2075 \uff11\uff12\uff13\uff14",
    "def f(x):\n    return x + 1\n",
    "if (a == b) {\n\treturn a->b[0] ? &c : *d;\n}\n",
    "for (int i=0;i<n;++i){sum+=v[i]*w[i];}//done",
    "#include <vector>\r\n\r\nint main() {\r\n  return 0;\r\n}\r\n",
    "{\"key\": [1, 2.5, null, true], \"nested\": {\"a\": \"b\\n\"}}",
    "<div class=\"x\">&nbsp;</div><!-- comment -->",
    "https://www.example.com/path/to/page?query=value&other=1#part",
    "someone@example.com, user_name, kebab-case, CamelCase, SCREAMING_CASE",
    "\t",
    "\t\ttwo tabs\tbetween\t\twords\t",
    "\n",
    "\n\n",
    "\n\n\n\n",
    "line one\nline two\n\nline four\n\n\n",
    "line one\r\nline two\r\n\r\nline four",
    "old mac\rline ends\r\r",
    " \n \n  \n",
    "text   \n   text \n",
    "space before newline \nand after\n and tab\n\tx",
    "    def indented():\n        pass\n\n\n    # end",
    "a\u00a0b\u2003c\u3000d\u200be\u2028f\u2029g\u0085h",
    "vertical\u000btab and form\u000cfeed",
    "bell\u0007 escape\u001b[31m unit\u001f delete\u007f one\u0001",
    "caf\u00e9 na\u00efve r\u00e9sum\u00e9 \u00fcber \u00c5ngstr\u00f6m",
    "cafe\u0301 nai\u0308ve re\u0301sume\u0301 u\u0308ber A\u030angstro\u0308m",
    "\u212b \u00c5 A\u030a \u2126 \u03a9 \ufb01 \u1e9b\u0323",
    "e\u0301\u0302\u0303\u0304 stacked marks q\u0307\u0323 q\u0323\u0307",
    "\u0301leading combining mark",
    "Gr\u00f6\u00dfe stra\u00dfe \u00dcBER \u0130stanbul \u0131",
    "Le gar\u00e7on a mang\u00e9 une pomme pr\u00e8s de la for\u00eat.",
    "\u00bfQu\u00e9 hora es? \u00a1Ma\u00f1ana!",
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec\u53bb\u516c\u56ed\u6563\u6b65\u3002",
    "\u9f98\u9f49\u9f7e\U00020000\U0002a6d6 rare characters",
    "\u3053\u308c\u306f\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3067\u3059\u3002\u304b\u3099 \u30ab\u3099",
    "\uc548\ub155\ud558\uc138\uc694 \u1112\u1161\u11ab\u1100\u1173\u11af",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c \u0643\u064a\u0641 \u062d\u0627\u0644\u0643\u061f",
    "\u0627\u0644\u0652\u0639\u064e\u0631\u064e\u0628\u0650\u064a\u0651\u064e\u0629\u064f \u0640\u0640\u0640",
    "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd \u05e2\u05d5\u05dc\u05dd",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e, \u0915\u094d\u0937\u0924\u094d\u0930\u093f\u092f \u0958 \u0915\u093c",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 \u0ba4\u0bae\u0bbf\u0bb4\u0bcd",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0407\u0436\u0430\u043a \u0419\u0439 \u0418\u0306",
    "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u039a\u03cc\u03c3\u03bc\u03b5 \u1f04\u03bd\u03b8\u03c1\u03c9\u03c0\u03bf\u03c2",
    "\U0001f600 \U0001f600\U0001f600 hello\U0001f44dworld \u2764\ufe0f",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 family \U0001f469\u200d\U0001f4bb",
    "\U0001f44b\U0001f3fb\U0001f44b\U0001f3fd\U0001f44b\U0001f3ff \U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7 1\ufe0f\u20e3",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f \U0001fae8",
    "\ufffd replacement, \ue000 private, \U000f0000 plane 15, \U0010fffd last, \ufeffBOM",
    "\U0001d4d7\U0001d4ee\U0001d4f5\U0001d4f5\U0001d4f8 \U00010348\U00010330 \u2200x\u2208\u211d: x\u00b2\u22650",
    "a" * 300,
    "antidisestablishmentarianism" * 6,
    "\u4f60" * 40,
    "=" * 79,
    "!" * 5 + "?" * 5 + "." * 5 + "-" * 5 + "_" * 5,
    " " * 50 + "x" + " " * 17 + "y",
    "\n" * 12 + "x" + "\t" * 9,
    "one . two , three ; four ( five ) [ six ] { seven }",
    "$x^2 + \\frac{1}{2}\\alpha$ \\\\ `code` **bold** _it_ ~~no~~",
    "\u2581already\u2581has\u2581the mark \u2581\u2581 x",
    "\u0120byte\u010alevel\u0109letters",
    "<0x41><0x0A> <0xZZ>",
    "Mixed: caf\u00e9\u4f60\u597d\U0001f600 \u0645\u0631\u062d\u0628\u0627 123abc\r\n\tend ",
    "user: What's the answer to 6 x 7?\nassistant: It's 42!\n",
]


def special_texts(tokens):
    """Returns texts that contain special and added tokens in many positions."""
    texts = []
    for token in tokens:
        texts += [token, f"Hello {token} world", f"Hello{token}world", f"  {token}  {token}{token} x",
                  f"{token}\n\n{token} 's", f"x{token}", f"{token}x", f"({token}), {token[:-1]} {token.upper()}"]
    if len(tokens) > 1:
        texts += ["".join(tokens), " ".join(tokens), " ".join(reversed(tokens)) + " "]
    return texts


LLAMA3_REGEX = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2_REGEX = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
               r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def train_bytelevel(pre_tokenizer, normalizer, vocab_size):
    """Returns (vocab, merges) of a byte-level BPE."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tok.normalizer = normalizer
    tok.train_from_iterator(training_lines(), trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False, min_frequency=2,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    return vocab_and_merges(tok)


def vocab_and_merges(tok):
    model = json.loads(tok.to_str())["model"]
    return model["vocab"], [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]


def make_gpt2_bytelevel(folder):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    pre = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    vocab, merges = train_bytelevel(pre, None, 800)
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    tok.add_special_tokens(["<|endoftext|>", AddedToken("<mask>", lstrip=True, normalized=False)])
    tok.add_tokens([AddedToken("<right>", rstrip=True, normalized=False),
                    AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
                    AddedToken("word", single_word=True, normalized=False),
                    AddedToken("long-added-token", normalized=True),
                    AddedToken("long-added", normalized=True)])
    tok.save(str(folder / "tokenizer.json"), pretty=True)
    # The older way to write merges, one string with a space, is still common: use it here.
    data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    data["model"]["merges"] = [" ".join(m) for m in merges]
    (folder / "tokenizer.json").write_text(
        json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return ["<|endoftext|>", "<mask>", "<right>", "<both>", "word", "long-added-token", "long-added"], [
        "word words sword word's word, word-word _word_ Word word2 2word \u00e9word word\u00e9 (word)",
        "long-added long-added-token long-added-tokens xlong-addedx",
        "a <mask> b<mask>c \n <mask> \n d", "a <right> b<right>c <right> \n d", "a <both> b \t<both>\n c",
        "<|endoftext|><|endoftext|>\n<|endoftext| >"]


def make_llama3_style(folder):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

    pre = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3_REGEX), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    vocab, merges = train_bytelevel(pre, None, 900)
    # Whole words that no merge builds: with ignore_merges they must still come out as one token.
    for word in ["\u0120tokenizer", "\u0120unreachable", "Bonjour", "\u0120zzz", "\u0120\u00e9t\u00e9", "999"]:
        ids = "".join(byte_letters(word.replace("\u0120", " ")))
        assert ids not in vocab, word
        vocab[ids] = len(vocab)
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=True))
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|start_header_id|>",
               "<|end_header_id|>", "<|eot_id|>"]
    tok.add_special_tokens([AddedToken(t, normalized=False) for t in special])
    bos = tok.token_to_id("<|begin_of_text|>")
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single="<|begin_of_text|> $A", pair="<|begin_of_text|>:0 $A:0 <|begin_of_text|>:1 $B:1",
            special_tokens=[("<|begin_of_text|>", bos)])])
    tok.save(str(folder / "tokenizer.json"), pretty=False)
    return special[:1] + special[3:], [
        "the tokenizer is unreachable zzz", "Bonjour Bonjours tokenizer tokenizers xtokenizer", "999 9999 99999 1999",
        "un \u00e9t\u00e9 \u00e9t\u00e9",
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nYou are a helpful assistant.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nWhat's 2+2?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"]


def byte_letters(text):
    """Returns the characters that byte-level BPE uses for the bytes of a text (GPT-2's table)."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table = {b: chr(b) for b in keep}
    for n, b in enumerate(b for b in range(256) if b not in table):
        table[b] = chr(256 + n)
    return [table[b] for b in text.encode("utf-8")]


def make_qwen2_style(folder):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    pre = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2_REGEX), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    vocab, merges = train_bytelevel(pre, normalizers.NFC(), 900)
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tok.add_special_tokens([AddedToken(t, normalized=False) for t in special])
    plain = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
    tok.add_tokens([AddedToken(t, normalized=False) for t in plain])
    # Two accented words, of which one is matched in the normalized text and one in the original text.
    tok.add_tokens([AddedToken("d\u00e9j\u00e0", normalized=True), AddedToken("pr\u00e9vu", normalized=False)])
    tok.save(str(folder / "tokenizer.json"), pretty=False)
    return special + plain, [
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nHi, what's up?<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call><|im_end|>",
        "d\u00e9j\u00e0 pr\u00e9vu de\u0301ja\u0300 pre\u0301vu", "xd\u00e9j\u00e0x xpr\u00e9vux xde\u0301ja\u0300x",
        "<think\u0301> <think>\u0301e"]


def train_metaspace(vocab_size):
    """Returns (pieces in order, merges) of a BPE over text with spaces written as U+2581."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    lines = [line.strip("\n").replace("\t", " ").replace("\r\n", " ") for line in training_lines()]
    # The most frequent characters are chosen here because the trainer breaks ties in no fixed order.
    counts = Counter("".join(lines).replace(" ", "\u2581"))
    alphabet = sorted(counts, key=lambda c: (-counts[c], c))[:140]
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    tok.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False, min_frequency=2,
        limit_alphabet=len(alphabet), initial_alphabet=alphabet))
    vocab, merges = vocab_and_merges(tok)
    pieces = sorted(vocab, key=vocab.get)
    # Adds runs of spaces, which training on words cannot find.
    for run in (2, 4, 8):
        pieces.append("\u2581" * run)
        merges.insert(10 * run, ("\u2581" * (run // 2),) * 2)
    return pieces, merges


def make_llama2_like(folder, metaspace):
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    pieces, merges = train_metaspace(750)
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
    if metaspace:
        byte_tokens.remove("<0xF3>")  # so that some characters have no bytes to fall back to
    first = ["<unk>", "<s>", "</s>"]
    vocab = {t: i for i, t in enumerate(first + byte_tokens + pieces)}
    assert len(vocab) == len(first) + len(byte_tokens) + len(pieces)
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if metaspace:
        tok.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="first", split=False)
    else:
        tok.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tok.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                     decoders.Strip(" ", 1, 0)])
    tok.add_special_tokens([AddedToken(t, normalized=False) for t in first])
    tokens = ["<s>", "</s>", "<unk>"]
    if metaspace:
        tok.add_special_tokens([AddedToken("[INST]", normalized=False), AddedToken("[/INST]", normalized=False),
                                AddedToken("<mask>", lstrip=True, normalized=False)])
        tok.add_tokens([AddedToken("<right>", rstrip=True, normalized=False),
                        AddedToken("term", single_word=True, normalized=False),
                        AddedToken("<norm>", normalized=True)])
        tokens += ["[INST]", "[/INST]", "<mask>", "<right>", "term", "<norm>"]
    else:
        # With this normalizer a token that is matched after normalization becomes U+2581 + token.
        tok.add_tokens([AddedToken("<fill>", normalized=True), AddedToken("<raw>", normalized=False)])
        tokens += ["<fill>", "<raw>"]
    tok.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    tok.save(str(folder / "tokenizer.json"), pretty=metaspace)
    extra = ["[INST] Hello there [/INST] Hi </s><s>[INST] Again [/INST]",
             "\U000c0000\U000c0001 x \U000ffffd\u4f60\U000c0000",
             "a\U000c0000b\U000c0000\U000c0000 c",
             "terms term term's (term) xterm term2", "a <mask> b<mask>c  <mask>", "a <right> b<right>  c"]
    return tokens, extra


def make_llama2_style(folder):
    return make_llama2_like(folder, metaspace=False)


def make_metaspace_style(folder):
    return make_llama2_like(folder, metaspace=True)


def make_sentencepiece(folder, **options):
    import sentencepiece as spm

    lines = [line for text in training_lines() for line in text.replace("\r", "").split("\n") if line]
    out = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, model_type="bpe", vocab_size=800, byte_fallback=True,
        normalization_rule_name="identity", character_coverage=0.98, split_digits=True,
        unk_id=0, bos_id=1, eos_id=2, pad_id=-1, num_threads=1, minloglevel=2, **options)
    (folder / "tokenizer.model").write_bytes(out.getvalue())


def make_sentencepiece_bpe(folder):
    # These are the options of the Llama models.
    make_sentencepiece(folder, remove_extra_whitespaces=False, allow_whitespace_only_pieces=True)
    return ["<s>", "</s>", "<unk>"], []


def make_sentencepiece_user(folder):
    make_sentencepiece(folder, remove_extra_whitespaces=True, add_dummy_prefix=False,
                       user_defined_symbols=["<code>", "<tool>"], control_symbols=["<ctrl>"])
    return ["<s>", "<code>", "<tool>", "<ctrl>"], ["<code>x = 1  +  2<tool><tool>\n<code>", "a<code", "  <code>  "]


# Replacements of characters, in the form that SentencePiece's trainer compiles: code points in hexadecimal. The table
# of nmt_nfkc takes 240 KB; this one has entries of each kind: wider to narrower, one to many, many to one, one to none,
# and entries that begin with another one.
CHARACTER_RULES = [
    ("A0", "20"), ("3000", "20"), ("9", "20"), ("A", "20"), ("D", "20"), ("200B", "20"), ("FB01", "66 69"), ("2460", "31"),
    ("FF21", "41"), ("FF11", "31"), ("FF01", "21"), ("41 30A", "C5"), ("65 301", "E9"), ("65 301 302", "1EBF"), ("2126", "3A9"),
    ("BD", "31 2044 32"), ("AD", ""), ("7", ""), ("1112 1161 11AB", "D55C"), ("1F600 1F3FB", "1F600"), ("2026", "2E 2E 2E"),
    ("304B 3099", "304C"), ("DF", "73 73"), ("130", "69 307"), ("928 93C", "929")]


def train_unigram(**options):
    """Returns the bytes of a trained SentencePiece model."""
    import sentencepiece as spm

    rules = "\n".join(f"{source}\t{target}" for source, target in CHARACTER_RULES)
    lines = [line for text in training_lines() for line in text.replace("\r", "").split("\n") if line]
    out = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as table:
        table.write(rules + "\n")
        table.flush()
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=out, model_type="unigram", character_coverage=0.98,
            normalization_rule_tsv=table.name, unk_id=0, bos_id=1, eos_id=2, pad_id=-1, num_threads=1, minloglevel=2, **options)
    return out.getvalue()


def make_sentencepiece_unigram(folder):
    (folder / "tokenizer.model").write_bytes(train_unigram(
        vocab_size=600, user_defined_symbols=["<code>", "to", "<tool>"], control_symbols=["<ctrl>"]))
    return ["<s>", "<code>", "<ctrl>"], ["to the toto tomato", "<code>x = 1  +  2<tool><tool>\n<code>", "  <code>  "]


def make_sentencepiece_suffix(folder):
    (folder / "tokenizer.model").write_bytes(train_unigram(
        vocab_size=800, byte_fallback=True, treat_whitespace_as_suffix=True, remove_extra_whitespaces=False))
    return ["<s>", "<unk>"], []


def make_unigram(folder):
    import sentencepiece.sentencepiece_model_pb2 as messages
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    model = messages.ModelProto.FromString(train_unigram(vocab_size=600))
    pieces = [(p.piece, p.score) for p in model.pieces] + [("<0x41>", -30.0), ("ab", -3.0), ("aba", -6.0), ("ba", -3.0)]
    tok = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    tok.normalizer = normalizers.Sequence([
        normalizers.Nmt(), normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap),
        normalizers.Replace(" {2,}", " ")])
    tok.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always")
    tok.decoder = decoders.Metaspace(replacement="\u2581", prepend_scheme="always")
    tok.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    tok.add_special_tokens(["<s>", "</s>", "<unk>"])
    tok.save(str(folder / "tokenizer.json"), pretty=False)
    return ["<s>", "</s>", "<unk>"], ["abababa", "\U000c0000\U000c0001 x \U000ffffd", "a\U000c0000b\U000c0000\U000c0000 c"]


def make_unigram_bytes(folder):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    import sentencepiece.sentencepiece_model_pb2 as messages
    model = messages.ModelProto.FromString(train_unigram(vocab_size=800, byte_fallback=True))
    tok = Tokenizer(models.Unigram([(p.piece, p.score) for p in model.pieces], unk_id=0, byte_fallback=True))
    tok.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tok.pre_tokenizer = pre_tokenizers.CharDelimiterSplit("|")
    tok.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tok.save(str(folder / "tokenizer.json"), pretty=False)
    return ["<s>"], ["a|b||c", "\U000c0000\U000c0001 x \U000ffffd"]


def make_wordpiece(folder):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    lines = [line.strip("\n") for line in training_lines()]
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=40))
    tok.normalizer = normalizers.BertNormalizer(lowercase=True)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    alphabet = sorted(c for c, n in Counter("".join(lines).lower()).most_common(120) if not c.isspace())
    tok.train_from_iterator(lines, trainers.WordPieceTrainer(
        vocab_size=500, show_progress=False, special_tokens=special, limit_alphabet=len(alphabet), initial_alphabet=alphabet))
    # The vocabulary is rewritten in a fixed order, because the trainer breaks ties in none.
    vocab = tok.get_vocab(with_added_tokens=False)
    words = sorted(vocab, key=lambda t: (special.index(t) if t in special else len(special), len(t), t))
    tok.model = models.WordPiece({t: i for i, t in enumerate(words)}, unk_token="[UNK]", max_input_chars_per_word=40)
    tok.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tok.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    tok.add_special_tokens(special)
    tok.save(str(folder / "tokenizer.json"), pretty=False)
    return ["[CLS]", "[MASK]"], ["do not don't I 'm we 've they 're it 's n't .", "a ? b ! c , d ' e"]


def make_wordlevel(folder):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    words = Counter(word for line in training_lines() for word in re.findall(r"\w+|[^\w\s]+", line.lower()))
    names = ["[UNK]", "[BOS]"] + sorted(words, key=lambda w: (-words[w], w))[:400]
    tok = Tokenizer(models.WordLevel({w: i for i, w in enumerate(names)}, unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=True)
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    tok.post_processor = processors.TemplateProcessing(single="[BOS] $A", special_tokens=[("[BOS]", 1)])
    tok.add_special_tokens(["[UNK]", "[BOS]"])
    tok.save(str(folder / "tokenizer.json"), pretty=False)
    return ["[BOS]"], []


TOKENIZERS = {
    "gpt2_bytelevel": make_gpt2_bytelevel,
    "llama3_style": make_llama3_style,
    "qwen2_style": make_qwen2_style,
    "llama2_style": make_llama2_style,
    "metaspace_style": make_metaspace_style,
    "sentencepiece_bpe": make_sentencepiece_bpe,
    "sentencepiece_user": make_sentencepiece_user,
    "sentencepiece_unigram": make_sentencepiece_unigram,
    "sentencepiece_suffix": make_sentencepiece_suffix,
    "unigram": make_unigram,
    "unigram_bytes": make_unigram_bytes,
    "wordpiece": make_wordpiece,
    "wordlevel": make_wordlevel,
}


class HfTokenizer:
    def __init__(self, folder):
        from tokenizers import Tokenizer
        self.tok = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.size = self.tok.get_vocab_size(with_added_tokens=True)

    def encode(self, text, special):
        return self.tok.encode(text, add_special_tokens=special).ids

    def decode(self, ids, skip_special=True):
        return self.tok.decode(ids, skip_special_tokens=skip_special)


class SpTokenizer:
    """Tokenizes with SentencePiece; `special` prepends BOS, as the Llama models do."""

    def __init__(self, folder):
        import sentencepiece as spm
        self.sp = spm.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
        self.size = self.sp.get_piece_size()

    def encode(self, text, special):
        ids = self.sp.encode(text)
        return [self.sp.bos_id()] + ids if special else ids

    def decode(self, ids, skip_special=True):
        return self.sp.decode(ids)


def open_tokenizer(folder):
    return HfTokenizer(folder) if (folder / "tokenizer.json").exists() else SpTokenizer(folder)


def encode_case(tok, text):
    ids = tok.encode(text, True)
    return {"text": text, "ids": ids, "ids_no_special": tok.encode(text, False), "decoded": tok.decode(ids)}


def decode_case(tok, ids):
    case = {"ids": ids, "decoded": tok.decode(ids)}
    if isinstance(tok, HfTokenizer):
        case["decoded_all"] = tok.decode(ids, skip_special=False)
    return case


def write_lines(path, items):
    """Writes a JSON list with one item per line, ASCII only so that no editor can change the texts."""
    path.write_text("[\n" + ",\n".join(json.dumps(i) for i in items) + "\n]\n", encoding="ascii")


def make_tokenizer(name, make):
    folder = DATA / "tokenizers" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tokens, extra = make(folder)
    tok = open_tokenizer(folder)  # opened from the written file, so that the stored file is the one that was used

    texts = list(dict.fromkeys(TEXTS + extra + special_texts(tokens)))
    write_lines(folder / "cases.json", [encode_case(tok, t) for t in texts])

    # Adds token lists that are not the encoding of any text: cut in the middle of a character, or random.
    rng = random.Random(7)
    lists = []
    for text in ["\U0001f600\u4f60\u597d\u9f98", "caf\u00e9 \U0001f468\u200d\U0001f469", " \u4eca\u5929 \U00020000"]:
        ids = tok.encode(text, False)
        lists += [ids[:n] for n in range(1, len(ids))] + [ids[n:] for n in range(1, len(ids))]
    lists += [[i] for i in range(0, tok.size, max(1, tok.size // 40))]
    lists += [[rng.randrange(tok.size) for _ in range(rng.randrange(2, 14))] for _ in range(40)]
    lists.append([])
    unique = [list(t) for t in dict.fromkeys(tuple(ids) for ids in lists)]
    write_lines(folder / "decode_cases.json", [decode_case(tok, ids) for ids in unique])
    print(f"tokenizer {name}: {tok.size} tokens, {len(texts)} texts, {len(unique)} token lists, "
          f"{folder_size(folder)} bytes")


def check_tokenizer(name):
    folder = DATA / "tokenizers" / name
    tok = open_tokenizer(folder)
    cases = json.loads((folder / "cases.json").read_text())
    assert len(cases) >= 60
    for case in cases:
        assert encode_case(tok, case["text"]) == case, f"{name}: {case['text']!r}"
    decodes = json.loads((folder / "decode_cases.json").read_text())
    for case in decodes:
        assert decode_case(tok, case["ids"]) == case, f"{name}: {case['ids']}"
    used = {i for c in cases for i in c["ids"]}
    print(f"tokenizer {name}: ok, {tok.size} tokens ({len(used)} used), {len(cases)} texts, {len(decodes)} token lists")


# ----------------------------------------------------------------------------

def folder_size(folder):
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())


def main():
    parser = argparse.ArgumentParser(description="Make or check the reference data in tests/data.")
    parser.add_argument("--models", action="store_true", help="only the models")
    parser.add_argument("--tokenizers", action="store_true", help="only the tokenizers")
    parser.add_argument("--generation", action="store_true", help="only the generation settings")
    parser.add_argument("--config", action="store_true", help="only the fields of config.json")
    parser.add_argument("--only", metavar="NAME", action="append", help="only this fixture (may be repeated)")
    parser.add_argument("--check", action="store_true", help="check the stored files, change nothing")
    args = parser.parse_args()
    both = not (args.models or args.tokenizers or args.config or args.generation)
    wanted = lambda name: not args.only or name in args.only

    if args.tokenizers or both:
        for name, make in TOKENIZERS.items():
            if wanted(name):
                check_tokenizer(name) if args.check else make_tokenizer(name, make)
        if args.check:
            tokenizer_directories.check(DATA, wanted)
        elif not args.only or set(args.only) & set(tokenizer_directories.DIRECTORIES):
            tokenizer_directories.make(DATA, sys.modules[__name__], wanted)
    if args.models or both:
        chosen = {name: spec for name, spec in MODELS.items() if wanted(name)}
        if chosen:
            import torch
            import transformers
            torch.set_num_threads(1)
            transformers.logging.set_verbosity_error()
            transformers.utils.logging.disable_progress_bar()
            for name, spec in chosen.items():
                check_model(name, spec) if args.check else make_model(name, spec)
    if args.config or (both and not args.only):
        import transformers

        import config_fixtures
        transformers.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        (config_fixtures.check if args.check else config_fixtures.make)(DATA / "config_fields")
    if args.generation or (both and wanted("generation_settings")):
        import generation_fixtures
        folder = DATA / "models" / "llama_gqa"
        call = generation_fixtures.check if args.check else generation_fixtures.make
        call(load_model(folder), folder, DATA / "generation_settings.json")
    print(f"total size of {DATA.name}: {folder_size(DATA)} bytes")


if __name__ == "__main__":
    sys.exit(main())
