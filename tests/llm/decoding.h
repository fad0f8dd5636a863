// Decode loops of the model tests.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/llm/session.h"

namespace anyaccel::testing {

// The first `count` new tokens of each prompt; none of them ends early.
inline std::vector<std::vector<int32_t>> decode(llm::Session& session, std::span<const std::vector<int32_t>> prompts,
                                                size_t count, const llm::Sampling& sampling = {}) {
  std::vector<std::vector<int32_t>> answers(prompts.size());
  session.start(prompts, sampling, 1);
  for (;;) {
    const std::span<const int32_t> tokens = session.tokens();
    for (size_t i = 0; i < tokens.size(); ++i) answers[static_cast<size_t>(session.active()[i])].push_back(tokens[i]);
    if (answers[0].size() == count) return answers;
    session.step();
  }
}

// The accelerator's compile backend ("eager", "graph") for its lifetime.
class BackendGuard {
 public:
  explicit BackendGuard(const std::string& backend) : before_(get_accelerator()->get_compile_backend()) {
    get_accelerator()->set_compile_backend(backend);
  }
  ~BackendGuard() { get_accelerator()->set_compile_backend(before_); }
  BackendGuard(const BackendGuard&) = delete;
  BackendGuard& operator=(const BackendGuard&) = delete;

 private:
  std::string before_;
};

}  // namespace anyaccel::testing
