"""Records what every field of config.json does in transformers; part of make_fixtures.py (--config).

For each of the model types that the library reads, the fields of transformers' configuration class are
listed, and then tried out: one tiny model directory, one field changed, and the logits of a prompt and of a
few decode steps compared with those of the unchanged model.  tests/data/config_fields holds the result:

  model.safetensors   weights for every trial: all biases, q_norm and k_norm too, of which a model uses what
                      its configuration asks for
  fields.json         the fields with their defaults, and the trials: what was changed, whether transformers
                      then fails, gives the same logits ("none") or others ("changes", with some of them)
"""

import copy
import json
import shutil
import tempfile
from pathlib import Path

VOCAB = 64
HIDDEN = 32
LAYERS = 3
PROMPT = [1] + [(7 * i * i + 11 * i) % 59 + 4 for i in range(19)]
STEPS = [17, 42, 9, 55, 23, 31, 12, 48]  # fed one by one after the prompt
ROWS = [9, 19, 20, 23, 27]               # rows of the prompt's and the steps' logits that are kept
COLUMNS = [0, 9, 18, 27, 36, 45, 54, 63]

BASE = {
    "architectures": [""],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "head_dim": 8,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "model_type": "",
    "num_attention_heads": 4,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": VOCAB,
}

FAMILIES = {
    "llama": ("LlamaForCausalLM", {}),
    "mistral": ("MistralForCausalLM", {"sliding_window": None}),
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3ForCausalLM", {}),
}

FULL, SLIDING = "full_attention", "sliding_attention"
MIXED = [SLIDING, FULL, SLIDING]
QUARTER = [1.0, 1.5, 2.0, 4.0]
FLAT = [1.0, 1.0, 1.0, 1.0]

# Values of one field.
SINGLE = {
    "add_cross_attention": [True],
    "attention_bias": [True, False],
    "attention_chunk_size": [4],
    "attention_dropout": [0.1],
    "attn_implementation": ["sdpa"],
    "auto_map": [{}],
    "bos_token_id": [3, None],
    "chunk_size_feed_forward": [4],
    "configuration_files": [[]],
    "cross_attention_hidden_size": [16],
    "decoder": [{"model_type": "llama"}],
    "do_sample": [True],
    "dtype": ["bfloat16"],
    "eos_token_id": [5, [2, 5], None],
    "fusion_config": [{}],
    "gradient_checkpointing": [True],
    "head_dim": [8, 16, None],
    "hidden_act": ["gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh", "gelu_python_tanh",
                   "gelu_accurate", "relu", "swish", "relu2", "quick_gelu", "mish", "tanh", "sigmoid", "gelu_10",
                   "linear", "no_such_function", None],
    "hidden_size": [64],
    "id2label": [{"0": "a", "1": "b", "2": "c"}],
    "initializer_range": [0.5],
    "intermediate_size": [32],
    "is_causal": [False, True],
    "is_decoder": [True],
    "is_encoder_decoder": [True],
    "kv_sharing_modes": [["store", "reuse", "reuse"]],
    "label2id": [{"a": 0, "b": 1, "c": 2}],
    "layer_types": [MIXED, [FULL] * LAYERS, [FULL, SLIDING], ["chunked_attention"] * LAYERS, ["attention"] * LAYERS,
                    ["linear_attention"] * LAYERS, ["no_such_type"] * LAYERS, None],
    "max_length": [7],
    "max_position_embeddings": [16],
    "max_window_layers": [1],
    "mlp_bias": [True],
    "name_or_path": ["somewhere"],
    "no_such_field": [1],
    "num_attention_heads": [2],
    "num_hidden_layers": [2],
    "num_key_value_heads": [4, 3, None],
    "num_labels": [3],
    "original_max_position_embeddings": [16],
    "output_attentions": [True],
    "output_hidden_states": [True],
    "pad_token_id": [3, -1],
    "partial_rotary_factor": [0.5, 1.0],
    "per_layer_config": [{"1": {"intermediate_size": 32}}, {"1": {"rms_norm_eps": 0.5}}, {}],
    "pretraining_tp": [2],
    "problem_type": ["regression"],
    "pruned_heads": [{"0": [1]}],
    "quantization_config": [{"quant_method": "gptq", "bits": 4}, None],
    "return_dict": [False],
    "rms_norm_eps": [0.5],
    "rope_parameters": [
        {"rope_type": "default", "rope_theta": 500.0},
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "linear", "factor": 0.5},
        {"rope_type": "linear"},
        {"rope_type": "dynamic", "factor": 4.0},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 32},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
        {"rope_type": "yarn", "factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 4.0,
         "beta_slow": 2.0, "truncate": False},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.5},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 0.7,
         "mscale_all_dim": 0.3},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 0.7},
        {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 16},
        {"rope_type": "longrope", "short_factor": FLAT, "long_factor": QUARTER, "factor": 4.0,
         "original_max_position_embeddings": 23},
        {"rope_type": "longrope", "short_factor": QUARTER, "long_factor": FLAT,
         "original_max_position_embeddings": 16},
        {"rope_type": "longrope", "short_factor": QUARTER, "long_factor": FLAT, "factor": 2.0},
        {"rope_type": "longrope", "short_factor": QUARTER, "long_factor": QUARTER, "attention_factor": 1.2,
         "original_max_position_embeddings": 16},
        {"rope_type": "longrope", "short_factor": QUARTER[:2], "long_factor": QUARTER, "factor": 2.0},
        {"rope_type": "proportional", "partial_rotary_factor": 0.5},
        {"rope_type": "proportional", "partial_rotary_factor": 0.8, "factor": 2.0},
        {"rope_type": "linear", "factor": 4.0, "partial_rotary_factor": 0.5},
        {"rope_type": "default", "partial_rotary_factor": 0.5},
        {"rope_type": "default", "mrope_section": [2, 1, 1]},
        {"rope_type": "default", "no_such_key": 3},
        {"rope_type": "default", "rope_theta": None},
        {"rope_type": "mrope", "mrope_section": [2, 1, 1]},
        {"rope_type": "su", "short_factor": FLAT, "long_factor": QUARTER},
        {"rope_type": "axial"},
        {FULL: {"rope_type": "default", "rope_theta": 500.0}, SLIDING: {"rope_type": "default"}},
        {},
        None,
    ],
    "rope_scaling": [{"type": "linear", "factor": 4.0}, {"rope_type": "default", "type": "linear", "factor": 4.0},
                     {"type": "su", "factor": 4.0}, {}, None],
    "rope_theta": [500.0, None],
    "sep_token_id": [3],
    "sliding_window": [6, 64, None],
    "temperature": [0.5],
    "text_config": [{"model_type": "llama"}],
    "tie_encoder_decoder": [True],
    "tie_last_hidden_states": [False],
    "tie_word_embeddings": [True, None],
    "tokenizer_class": ["LlamaTokenizer"],
    "torch_dtype": ["float16"],
    "torchscript": [True],
    "transformers_version": ["4.0.0"],
    "transformers_weights": ["model.safetensors", "other.safetensors"],
    "use_bfloat16": [True],
    "use_bidirectional_attention": [True],
    "use_cache": [False],
    "use_sliding_window": [True, False],
    "vocab_size": [32],
}

# Several fields together. "without": tensors left out of the file; "absent": fields left out of config.json.
TOGETHER = [
    {"set": {"sliding_window": 6, "layer_types": MIXED}},
    {"set": {"sliding_window": None, "layer_types": MIXED}},
    {"set": {"sliding_window": None, "layer_types": [FULL] * LAYERS}},
    {"set": {"sliding_window": 6, "use_sliding_window": True}},
    {"set": {"sliding_window": 6, "use_sliding_window": True, "max_window_layers": 1}},
    {"set": {"sliding_window": 6, "use_sliding_window": True, "max_window_layers": 1, "layer_types": MIXED}},
    {"set": {"sliding_window": 6, "use_sliding_window": False, "layer_types": MIXED}},
    {"set": {"sliding_window": None, "use_sliding_window": True, "layer_types": MIXED}},
    {"set": {"sliding_window": None, "use_sliding_window": True, "max_window_layers": 1}},
    {"set": {"rope_scaling": {"rope_type": "linear", "factor": 4.0},
             "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}},
    {"set": {"rope_theta": 300.0, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}},
    {"set": {"rope_theta": 300.0, "rope_parameters": {"rope_type": "linear", "factor": 4.0}}},
    {"set": {"original_max_position_embeddings": 16, "rope_parameters":
             {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}},
    {"set": {"original_max_position_embeddings": 16, "rope_parameters":
             {"rope_type": "longrope", "short_factor": FLAT, "long_factor": QUARTER}}},
    {"set": {"original_max_position_embeddings": 16, "rope_parameters": {"rope_type": "dynamic", "factor": 4.0}}},
    {"set": {"max_position_embeddings": 16, "rope_parameters": {"rope_type": "dynamic", "factor": 4.0}}},
    {"set": {"max_position_embeddings": 22, "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}},
    {"set": {"partial_rotary_factor": 0.5, "rope_parameters": {"rope_type": "linear", "factor": 4.0}}},
    {"set": {"tie_word_embeddings": True}, "without": ["lm_head.weight"]},
    {"set": {"tie_word_embeddings": True}, "without": ["model.embed_tokens.weight"]},
    {"set": {"tie_word_embeddings": False}, "without": ["lm_head.weight"]},
    {"set": {}, "absent": ["tie_word_embeddings"], "without": ["lm_head.weight"]},
    {"set": {}, "absent": ["num_key_value_heads"]},
    {"set": {}, "absent": ["head_dim"]},
    {"set": {}, "absent": ["rope_theta"]},
    {"set": {}, "absent": ["rms_norm_eps"]},
    {"set": {}, "absent": ["hidden_act"]},
    {"set": {}, "absent": ["sliding_window"]},
]


def base_config(family):
    architecture, more = FAMILIES[family]
    return dict(copy.deepcopy(BASE), model_type=family, architectures=[architecture], **more)


def class_fields(family):
    """Returns every field that the class or a base class declares, with its default as JSON."""
    import dataclasses

    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    result = {}
    for field in dataclasses.fields(CONFIG_MAPPING[family]):
        default = field.default
        result[field.name] = default if isinstance(default, (bool, int, float, str, list, dict, type(None))) else None
    return result


def rope_keys():
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, RopeParameters
    return sorted(RopeParameters.__annotations__), sorted(["default", *ROPE_INIT_FUNCTIONS])


def make_weights():
    import numpy as np
    import torch

    rng = np.random.default_rng(4711)
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,),
              "lm_head.weight": (VOCAB, HIDDEN)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name, rows, columns in (("self_attn.q_proj", 32, 32), ("self_attn.k_proj", 16, 32),
                                    ("self_attn.v_proj", 16, 32), ("self_attn.o_proj", 32, 32),
                                    ("mlp.gate_proj", 48, 32), ("mlp.up_proj", 48, 32), ("mlp.down_proj", 32, 48)):
            shapes[prefix + name + ".weight"] = (rows, columns)
            shapes[prefix + name + ".bias"] = (rows,)
        for name, size in (("input_layernorm", 32), ("post_attention_layernorm", 32), ("self_attn.q_norm", 8),
                           ("self_attn.k_norm", 8)):
            shapes[prefix + name + ".weight"] = (size,)
    weights = {}
    for name, shape in shapes.items():
        if "norm" in name:
            value = rng.uniform(0.5, 1.5, shape)
        elif name.endswith(".bias"):
            value = rng.normal(0.0, 0.5, shape)
        elif "embed" in name:
            value = rng.normal(0.0, 1.0, shape)
        else:
            value = rng.normal(0.0, 1.5 / shape[1] ** 0.5, shape)
        weights[name] = torch.tensor(value, dtype=torch.float32).to(torch.bfloat16).contiguous()
    return weights


def run(config, weights):
    """Returns the stored rows of the logits that transformers computes from a directory; its exceptions are passed on."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        save_file(weights, Path(folder) / "model.safetensors", metadata={"format": "pt"})
        kwargs = {} if "attn_implementation" in config else {"attn_implementation": "eager"}
        model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True,
                                                           **kwargs)
        if info["missing_keys"]:
            raise ValueError(f"random weights for {sorted(info['missing_keys'])[:1]}")
        model = model.eval()
        with torch.no_grad():
            out = model(torch.tensor([PROMPT]), use_cache=True, return_dict=True)
            rows = [out.logits[0]]
            for token in STEPS:
                out = model(torch.tensor([[token]]), past_key_values=out.past_key_values, use_cache=True,
                            return_dict=True)
                rows.append(out.logits[0])
        return torch.cat(rows)


def try_out(config, weights, expected):
    """Returns the effect of a changed configuration: {"effect": ...}."""
    import torch

    try:
        logits = run(config, weights)
    except Exception as error:  # whatever a configuration can raise
        return {"effect": "fails", "error": type(error).__name__}
    if not torch.isfinite(logits).all():
        return {"effect": "fails", "error": "not finite"}
    if logits.shape == expected.shape and float((logits - expected).abs().max()) < 1e-5:
        return {"effect": "none"}
    kept = logits[ROWS][:, [c for c in COLUMNS if c < logits.shape[1]]]
    return {"effect": "changes", "logits": [round(float(x), 5) for x in kept.flatten()]}


def trials(family):
    for field, values in SINGLE.items():
        for value in values:
            yield {"set": {field: value}}
    yield from copy.deepcopy(TOGETHER)


def compute():
    import torch
    import transformers

    torch.set_num_threads(1)
    weights = make_weights()
    keys, types = rope_keys()
    result = {"transformers": transformers.__version__, "prompt": PROMPT, "steps": STEPS, "rows": ROWS,
              "columns": COLUMNS, "rope_keys": keys, "rope_types": types,
              "generation": transformers.GenerationConfig._get_default_generation_params(), "families": {}}
    for family in FAMILIES:
        base = base_config(family)
        expected = run(base, weights)
        done = []
        for trial in trials(family):
            config = {**base, **trial["set"]}
            for field in trial.get("absent", []):
                config.pop(field, None)
            kept = {name: w for name, w in weights.items() if name not in trial.get("without", [])}
            done.append({**trial, **try_out(config, kept, expected)})
        result["families"][family] = {
            "base": base, "fields": class_fields(family),
            "logits": [round(float(x), 5) for x in expected[ROWS][:, COLUMNS].flatten()], "trials": done}
        counts = {e: sum(t["effect"] == e for t in done) for e in ("none", "changes", "fails")}
        print(f"config {family}: {len(result['families'][family]['fields'])} fields, {counts}")
    return result, weights


def as_text(result):
    """Returns the trials as JSON, one on each line."""
    lines = []
    for family, value in result["families"].items():
        trial_lines = ",\n".join("    " + json.dumps(t, sort_keys=True) for t in value["trials"])
        head = ",\n".join(f"   {json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in value.items()
                          if k != "trials")
        lines.append(f"  {json.dumps(family)}: {{\n{head},\n   \"trials\": [\n{trial_lines}\n   ]}}")
    head = ",\n".join(f" {json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in result.items()
                      if k != "families")
    return "{\n" + head + ",\n \"families\": {\n" + ",\n".join(lines) + "\n }\n}\n"


def make(folder):
    from safetensors.torch import save_file

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    result, weights = compute()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "fields.json").write_text(as_text(result), encoding="ascii")


def check(folder):
    stored = json.loads((folder / "fields.json").read_text())
    result = json.loads(as_text(compute()[0]))
    for family, value in result["families"].items():
        for new, old in zip(value["trials"], stored["families"][family]["trials"], strict=True):
            logits = zip(new.pop("logits", []), old.pop("logits", []), strict=True)
            assert all(abs(a - b) < 1e-4 for a, b in logits), f"{family}: {new['set']}: logits differ"
            assert new == old, f"{family}: {new} was {old}"
        value.pop("logits"), stored["families"][family].pop("logits")
    assert result == stored
    print("config: ok")
