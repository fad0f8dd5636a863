// The names of tensors in GGUF files and in Hugging Face directories.
#pragma once

#include <string>
#include <string_view>

namespace anyaccel::llm {

// "blk.3.attn_q.weight" to "model.layers.3.self_attn.q_proj.weight"; empty for a name that is not known.
std::string hugging_face_name(std::string_view name);
// The inverse, for a name of decoder_tensors().
std::string gguf_name(std::string_view name);

}  // namespace anyaccel::llm
