#!/usr/bin/env python3
"""Makes tests/data/adapters: small LoRA adapters with random factors, and the logits that PEFT computes with each.

    pip install torch transformers peft safetensors
    python tools/adapter_fixtures.py

The models are tests/data/models/llama_gqa, and two that are made here: one of GPT-2, whose matrices are stored transposed and
hold three parts, and one of Phi 3, whose fused matrices are ranges of rows. Each folder has the adapter as PEFT saves it, and
expected.json: the model, a prompt, and in fp32 the logits of its last tokens, its mean loss and the mean of its last hidden
states.
"""
import json
import os
import shutil

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, GPT2Config, Phi3Config

here = os.path.dirname(os.path.abspath(__file__))
data = os.path.join(here, "..", "tests", "data")
folder = os.path.join(data, "adapters")
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def made(name, config):
    """Saves a model with random weights, in bf16."""
    path = os.path.join(folder, "models", name)
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    model.save_pretrained(path)
    for unused in ("generation_config.json",):
        if os.path.exists(os.path.join(path, unused)):
            os.remove(os.path.join(path, unused))
    return f"adapters/models/{name}"


def adapter(name, model_name, **settings):
    torch.manual_seed(2)
    model = AutoModelForCausalLM.from_pretrained(os.path.join(data, model_name), dtype=torch.float32)
    tuned = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **settings))
    for parameter_name, parameter in tuned.named_parameters():
        if "lora_" in parameter_name:
            parameter.data = torch.randn(parameter.shape) * 0.2
    tuned.eval()
    ids = [(7 * i + 3) % model.config.vocab_size for i in range(11)]
    with torch.no_grad():
        result = tuned(torch.tensor([ids]), labels=torch.tensor([ids]), output_hidden_states=True)
        logits = result.logits[0]
        states = result.hidden_states[-1][0]  # after the final norm
    path = os.path.join(folder, name)
    tuned.save_pretrained(path, save_embedding_layers=False)
    os.remove(os.path.join(path, "README.md"))
    config = json.load(open(os.path.join(path, "adapter_config.json")))
    config["base_model_name_or_path"] = model_name
    config["target_modules"] = sorted(config["target_modules"])
    json.dump(config, open(os.path.join(path, "adapter_config.json"), "w"), indent=2)
    with open(os.path.join(path, "expected.json"), "w") as out:
        json.dump({"model": model_name, "prompt_ids": ids, "logits": [round(x, 6) for x in logits[-3:].flatten().tolist()],
                   "mean_loss": result.loss.item(), "mean_state": [round(x, 6) for x in states.mean(0).tolist()]}, out)


def main():
    shutil.rmtree(folder, ignore_errors=True)
    llama = "models/llama_gqa"
    adapter("llama_patterns", llama, r=4, lora_alpha=6, target_modules=ALL, rank_pattern={"layers.1.self_attn.q_proj": 7, "down_proj": 2},
            alpha_pattern={"up_proj": 11, "model.layers.0.self_attn.v_proj": 3})
    adapter("llama_rslora", llama, r=5, lora_alpha=3, target_modules=["q_proj", "down_proj", "lm_head"], use_rslora=True,
            layers_to_transform=None)
    adapter("llama_other", llama, r=3, lora_alpha=5, target_modules=["q_proj", "v_proj", "down_proj"], use_rslora=True)
    gpt2 = made("gpt2", GPT2Config(n_embd=24, n_layer=2, n_head=3, n_positions=32, vocab_size=50, bos_token_id=0, eos_token_id=1))
    adapter("gpt2", gpt2, r=3, lora_alpha=5, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)
    phi3 = made("phi3", Phi3Config(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, intermediate_size=40,
                                   vocab_size=50, max_position_embeddings=64, original_max_position_embeddings=64, bos_token_id=0,
                                   eos_token_id=1, pad_token_id=0))
    adapter("phi3", phi3, r=3, lora_alpha=5, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"])


if __name__ == "__main__":
    main()
