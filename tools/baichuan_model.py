"""Baichuan for transformers, after the code in the published directories (Baichuan-7B, Baichuan-13B and Baichuan2): what
family_fixtures.py computes with, since transformers has no class of its own. Everything is computed without a cache, from all tokens
so far; the tokens before are kept in past_key_values."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast


class BaichuanConfig(PretrainedConfig):
    model_type = "baichuan"


def rotated(x, positions):
    """Rotates halves of heads [batch, heads, tokens, size] with the base 10000."""
    size = x.shape[-1]
    frequencies = 1.0 / 10000 ** (torch.arange(0, size, 2).float() / size)
    angles = torch.outer(positions.float(), frequencies)
    angles = torch.cat((angles, angles), dim=-1)
    turned = torch.cat((-x[..., size // 2:], x[..., :size // 2]), dim=-1)
    return x * angles.cos() + turned * angles.sin()


def slopes(heads):
    """Returns the slopes of a power of two of heads, then every second one of twice as many."""
    def of_power(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start ** i for i in range(n)]
    if math.log2(heads).is_integer():
        return of_power(heads)
    below = 2 ** math.floor(math.log2(heads))
    return of_power(below) + slopes(2 * below)[0::2][:heads - below]


class Norm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.rotates = config.num_attention_heads, hasattr(config, "max_position_embeddings")
        self.W_pack = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x):
        batch, tokens, hidden = x.shape
        q, k, v = self.W_pack(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        positions = torch.arange(tokens)
        bias = torch.triu(torch.full((tokens, tokens), float("-inf")), 1)
        if self.rotates:
            q, k = rotated(q, positions), rotated(k, positions)
        else:
            bias = bias + torch.tensor(slopes(self.heads))[:, None, None] * positions
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]) + bias
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, hidden))


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attn, self.mlp = Attention(config), FeedForward(config)
        self.input_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = Norm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class BaichuanForCausalLM(PreTrainedModel):
    config_class = BaichuanConfig

    def __init__(self, config):
        super().__init__(config)
        self.model = Body(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids, past_key_values=None, **_):
        ids = input_ids if past_key_values is None else torch.cat((past_key_values, input_ids), dim=1)
        logits = self.lm_head(self.model(ids))[:, -input_ids.shape[1]:]
        return CausalLMOutputWithPast(logits=logits, past_key_values=ids)


AutoConfig.register("baichuan", BaichuanConfig)
AutoModelForCausalLM.register(BaichuanConfig, BaichuanForCausalLM)
