// Translates between the names of tensors in GGUF files and in Hugging Face directories.
#pragma once

#include <string>
#include <string_view>

namespace anyaccel::llm {

// Translates "blk.3.attn_q.weight" to "model.layers.3.self_attn.q_proj.weight"; empty for an unknown name.
std::string hugging_face_name(std::string_view name);
// The inverse, for a name that decoder_tensors() returns.
std::string gguf_name(std::string_view name);

}  // namespace anyaccel::llm
