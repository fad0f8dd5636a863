// Copies keys and values of a session's sequences to the host and back.
#include <string>
#include <string_view>

#include "anyaccel/error.h"
#include "llm/generate/session_impl.h"

namespace anyaccel::llm {

void Session::Impl::each_cache(int32_t sequence, int64_t tokens, const std::function<void(const Tensor&)>& use) const {
  if (model->group()) {
    throw NotImplementedError("prompt cache: the model is split over ranks; use one rank, or no prompt cache");
  }
  if (decoder.dynamic_rope()) {
    throw NotImplementedError(
        "prompt cache: the positions of this model depend on the length of the text (rope type dynamic or longrope), so "
        "that no keys can be kept; use no prompt cache");
  }
  if (sequence < 0 || sequence >= options.sequences || tokens < 0 || tokens > options.context) {
    throw InvalidArgument("prompt cache: " + std::to_string(tokens) + " tokens of sequence " +
                          std::to_string(sequence) + "; this session has " + std::to_string(options.sequences) +
                          " sequences of " + std::to_string(options.context) + " tokens");
  }
  for (const Tensor& cache : decoder.caches()) use(cache.select(0, sequence).slice(1, 0, tokens));
}

uint64_t Session::token_cache_bytes() const {
  uint64_t bytes = 0;
  impl_->each_cache(0, 1, [&](const Tensor& part) { bytes += part.nbytes(); });
  return bytes;
}

std::string Session::cache_contents(int32_t sequence, int64_t tokens) {
  const Impl::Turn turn(*impl_);
  std::string contents;
  impl_->each_cache(sequence, tokens, [&](const Tensor& part) {
    const Tensor host = part.to(Device{}).contiguous();
    contents.append(static_cast<const char*>(host.data()), host.nbytes());
  });
  return contents;
}

void Session::restore_cache(int32_t sequence, int64_t used, std::string_view contents, int64_t tokens) {
  const uint64_t expected = token_cache_bytes() * static_cast<uint64_t>(tokens);
  if (used < 1 || used > tokens || contents.size() != expected) {
    throw InvalidArgument("prompt cache: " + std::to_string(contents.size()) + " bytes of keys and values for " +
                          std::to_string(tokens) + " tokens; expected " + std::to_string(expected));
  }
  const Impl::Turn turn(*impl_);
  impl_->each_cache(sequence, used, [&](const Tensor& part) {
    const Tensor host = Tensor::from_host(contents.data(), {part.size(0), tokens, part.size(2)}, part.dtype());
    contents.remove_prefix(host.nbytes());
    part.copy_from(host.slice(1, 0, used).contiguous());
  });
  impl_->stream.synchronize();
}

}  // namespace anyaccel::llm
