// The names of tensors in GGUF files, and their translation to those of Hugging Face directories.
#pragma once

#include <string>
#include <string_view>

#include "anyaccel/llm/model_config.h"

namespace anyaccel::llm {

// The names that llama.cpp's converter gives the parts of a decoder. Families change a few (FamilyDefinition::describe_gguf).
constexpr TensorNames gguf_tensor_names = {.embedding = "token_embd",
                                           .positions = "position_embd",
                                           .layer = "blk.",
                                           .input_norm = "attn_norm",
                                           .q = "attn_q",
                                           .k = "attn_k",
                                           .v = "attn_v",
                                           .o = "attn_output",
                                           .q_a = "attn_q_a",
                                           .q_a_norm = "attn_q_a_norm",
                                           .q_b = "attn_q_b",
                                           .kv_a = "attn_kv_a_mqa",
                                           .kv_a_norm = "attn_kv_a_norm",
                                           .kv_b = "attn_kv_b",
                                           .k_b = "attn_k_b",
                                           .v_b = "attn_v_b",
                                           .sinks = "attn_sinks.weight",
                                           .q_norm = "attn_q_norm",
                                           .k_norm = "attn_k_norm",
                                           .mlp_norm = "ffn_norm",
                                           .gate = "ffn_gate",
                                           .up = "ffn_up",
                                           .down = "ffn_down",
                                           .router = "ffn_gate_inp",
                                           .choice_bias = "exp_probs_b.bias",
                                           .stacked_gate_up = "",
                                           .stacked_down = "ffn_down_exps",
                                           .stacked_gate = "ffn_gate_exps",
                                           .stacked_up = "ffn_up_exps",
                                           .stacked_router = "ffn_gate_inp",
                                           .shared_gate = "ffn_gate_shexp",
                                           .shared_up = "ffn_up_shexp",
                                           .shared_down = "ffn_down_shexp",
                                           .shared_weight = "ffn_gate_inp_shexp",
                                           .final_norm = "output_norm",
                                           .lm_head = "output"};

// Both translate the names of the first four families, whose models have those of a directory whatever they are read
// from.
// Translates "blk.3.attn_q.weight" to "model.layers.3.self_attn.q_proj.weight"; empty for an unknown name.
std::string hugging_face_name(std::string_view name);
// The inverse, for a name that decoder_tensors() returns.
std::string gguf_name(std::string_view name);

}  // namespace anyaccel::llm
