#include "llm/checkpoint/gguf_names.h"

#include <array>

#include "anyaccel/error.h"

namespace anyaccel::llm {
namespace {

constexpr TensorNames directory_tensor_names = {};

using Member = std::string_view TensorNames::*;
constexpr std::array<Member, 3> model_members = {&TensorNames::embedding, &TensorNames::final_norm,
                                                 &TensorNames::lm_head};
constexpr std::array<Member, 11> layer_members = {&TensorNames::input_norm, &TensorNames::mlp_norm, &TensorNames::q,
                                                  &TensorNames::k,          &TensorNames::v,        &TensorNames::o,
                                                  &TensorNames::q_norm,     &TensorNames::k_norm,   &TensorNames::gate,
                                                  &TensorNames::up,         &TensorNames::down};

template <size_t N>
std::string_view find_name(const std::array<Member, N>& members, std::string_view name, const TensorNames& from,
                           const TensorNames& to) {
  for (const Member member : members) {
    if (from.*member == name) return to.*member;
  }
  return {};
}

std::string other_name(std::string_view name, const TensorNames& from, const TensorNames& to) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view suffix = name.substr(dot);
  if (suffix != ".weight" && suffix != ".bias") return {};
  std::string_view stem = name.substr(0, dot);
  if (!stem.starts_with(from.layer)) {
    const std::string_view found = find_name(model_members, stem, from, to);
    return found.empty() ? std::string() : std::string(found) + std::string(suffix);
  }
  stem.remove_prefix(from.layer.size());
  const size_t end = stem.find('.');
  if (end == std::string_view::npos || stem.find_first_not_of("0123456789") != end || end == 0) return {};
  const std::string_view found = find_name(layer_members, stem.substr(end + 1), from, to);
  if (found.empty()) return {};
  return std::string(to.layer) + std::string(stem.substr(0, end + 1)) + std::string(found) + std::string(suffix);
}

}  // namespace

std::string hugging_face_name(std::string_view name) {
  return other_name(name, gguf_tensor_names, directory_tensor_names);
}

std::string gguf_name(std::string_view name) {
  std::string found = other_name(name, directory_tensor_names, gguf_tensor_names);
  if (found.empty()) throw InvalidArgument("gguf: there is no name for the tensor " + std::string(name));
  return found;
}

}  // namespace anyaccel::llm
