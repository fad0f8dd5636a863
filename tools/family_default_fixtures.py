#!/usr/bin/env python3
"""Make tests/data/family_defaults.json: the values that transformers' configuration class of each family has for fields that
config.json leaves out, for a model of eight layers.

  pip install transformers   # the version used last is in the file itself; PyTorch is not needed
  python tools/family_default_fixtures.py
"""

import json
from pathlib import Path

import transformers
from transformers import CONFIG_MAPPING, PreTrainedConfig

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
FAMILIES = ["llama", "mistral", "ministral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "stablelm", "olmo2",
            "smollm3", "granite", "internlm3", "cohere", "cohere2", "starcoder2", "glm", "glm4", "gpt2", "gptj", "gpt_neox", "opt",
            "falcon", "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "granitemoeshared", "deepseek_v2", "deepseek_v3",
            "bloom", "mpt", "gpt_oss"]
# DeepSeek V2's class has no number of experts per token.
SETTINGS = {"deepseek_v2": {"num_experts_per_tok": 6}}


def without_the_base(values, base):
    return {name: value for name, value in values.items() if name not in base or name == "tie_word_embeddings"}


def main():
    base = PreTrainedConfig().to_dict()
    families = {}
    for family in FAMILIES:
        values = CONFIG_MAPPING[family](num_hidden_layers=8, **SETTINGS.get(family, {})).to_dict()
        families[family] = without_the_base(values, base) | {"model_type": family}
        if "attn_config" in values:
            families[family]["attn_config"] = without_the_base(values["attn_config"], base)
    text = {"transformers": transformers.__version__, "families": families}
    (DATA / "family_defaults.json").write_text(json.dumps(text, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
