// Runs the fuzz targets on their seed files and on random changes of them, so that every build and every sanitizer sees
// damaged files, not only the libFuzzer programs. ANYACCEL_TEST_SEEDS=n makes n times as many changes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "fuzz/fuzz_adapter.cpp"
#include "fuzz/fuzz_config.cpp"
#include "fuzz/fuzz_gguf.cpp"
#include "fuzz/fuzz_grammar.cpp"
#include "fuzz/fuzz_prompt_cache.cpp"
#include "fuzz/fuzz_safetensors.cpp"
#include "fuzz/fuzz_targets.h"
#include "fuzz/fuzz_template.cpp"
#include "fuzz/fuzz_tokenizer.cpp"
#include "llm/test_directory.h"

namespace anyaccel::fuzz {
namespace {

using Target = void (*)(const uint8_t*, size_t);

constexpr int changes_of_each_file = 150;
const std::filesystem::path corpus = std::filesystem::path(ANYACCEL_TEST_DATA).parent_path() / "fuzz" / "corpus";

std::vector<std::string> read_corpus(const std::string& name) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(corpus / name)) {
    files.push_back(llm::testing::read_text(entry.path()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Makes a damaged file out of a good one: flips, removes, repeats, inserts and mixes parts.
class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  std::string change(std::string file, const std::string& other) {
    const size_t steps = 1 + below(4);
    for (size_t i = 0; i < steps; ++i) {
      const size_t at = below(file.size() + 1);
      const size_t length = std::min(file.size() - at, below(16));
      switch (below(8)) {
        case 0:
          if (at < file.size()) file[at] = static_cast<char>(below(256));
          break;
        case 1:
          if (at < file.size()) file[at] = static_cast<char>(file[at] ^ (1 << below(8)));
          break;
        case 2: file.erase(at, length); break;
        case 3: file.insert(at, file.substr(below(file.size() + 1), below(32))); break;
        case 4: file.insert(at, other.substr(below(other.size() + 1), below(64))); break;
        case 5: file.resize(at); break;
        case 6: change_number(file, at); break;
        case 7: file.insert(at, pieces_[below(std::size(pieces_))]); break;
      }
    }
    return file;
  }

 private:
  size_t below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  // The number behind `at` becomes one that is easy to get wrong.
  void change_number(std::string& file, size_t at) {
    const size_t begin = file.find_first_of("0123456789", at);
    if (begin == std::string::npos) return;
    const size_t end = std::min(file.find_first_not_of("0123456789", begin), file.size());
    file.replace(begin, end - begin, numbers_[below(std::size(numbers_))]);
  }

  static constexpr const char* numbers_[] = {
      "0",   "-1",         "1",          "255",     "4294967296",          "1e308",
      "1.5", "2147483647", "2147483648", "1000000", "9223372036854775807", "null",
      "[]"};
  static constexpr const char* pieces_[] = {"\"",      "{",    "[[[[[[[[", "}",      ",",       ":",
                                            "\\u0000", "\xff", "null",     "(a+)+$", "\xF0\x9F"};
  std::mt19937 random_;
};

void run(const std::string& name, Target target) {
  const std::vector<std::string> files = read_corpus(name);
  ASSERT_GE(files.size(), 3u);
  const char* setting = std::getenv("ANYACCEL_TEST_SEEDS");
  const int changes = changes_of_each_file * std::max(1, setting != nullptr ? std::atoi(setting) : 1);
  Mutator mutator(20240607);
  std::mt19937 pick(7);
  const auto use = [&](const std::string& bytes) {
    target(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  };
  for (const std::string& file : files) {
    use(file);
    for (int i = 0; i < changes; ++i) {
      const std::string changed = mutator.change(file, files[pick() % files.size()]);
      // Exceptions outside the family reach the test and fail it.
      ASSERT_NO_THROW(use(changed)) << "change " << i << " of a file of corpus/" << name;
    }
  }
}

TEST(FuzzCorpus, Safetensors) { run("safetensors", &safetensors); }
TEST(FuzzCorpus, Gguf) { run("gguf", &gguf); }
TEST(FuzzCorpus, Config) { run("config", &config); }
TEST(FuzzCorpus, ChatTemplate) { run("template", &chat_template); }
TEST(FuzzCorpus, Adapter) { run("adapter", &adapter); }
TEST(FuzzCorpus, Grammar) { run("grammar", &grammar); }
TEST(FuzzCorpus, PromptCache) { run("prompt_cache", &prompt_cache); }
TEST(FuzzCorpus, Tokenizer) { run("tokenizer", &tokenizer); }

}  // namespace
}  // namespace anyaccel::fuzz
