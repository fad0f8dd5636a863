// Weights that are used from a file in small pages: sessions move them into large ones from step to step, and results stay.
#include "llm/model/weight_pages.h"

#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/llm/make_model.h"
#include "anyaccel/llm/session.h"
#include "base/process/kernel_text.h"
#include "base/process/large_pages.h"
#include "llm/test_directory.h"

namespace anyaccel::llm {
namespace {

using testing::TestDirectory;

// Bytes of a file that this process has in memory, in pages of the file. `each` gets every mapping of it.
template <class Each>
int64_t bytes_of_file(const std::string& name, Each each) {
  int64_t sum = 0;
  bool inside = false;
  const std::string text = kernel_file("/proc/self/smaps");
  for_lines(text, [&](std::string_view line) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(std::string(line.substr(0, 40)).c_str(), "%lx-%lx ", &begin, &end) == 2) {
      inside = line.ends_with(name);
      if (inside) each(begin, end);
    } else if (inside) {
      sum += number_of(line, "Rss:").value_or(0) * 1024;
    }
  });
  return sum;
}

std::vector<float> last_logits(const std::shared_ptr<const Model>& model, int steps) {
  SessionOptions options;
  options.context = 256;
  Session session(model, options);
  std::vector<float> logits;
  for (int i = 0; i < steps; ++i) {
    const int32_t id = i % 7 + 3, row = 0, position = i, sequence = 0;
    const Tensor result =
        session.forward({{&id, 1}, {&sequence, 1}, {&position, 1}}, std::span<const int32_t>(&row, 1));
    get_accelerator()->synchronize();
    logits.assign(result.data_as<float>(), result.data_as<float>() + result.numel());
  }
  return logits;
}

TEST(WeightPages, AreMovedFromStepToStep) {
  if (gives_no_large_pages("enabled")) GTEST_SKIP() << "the system gives no large pages";
  if ((get_accelerator()->device_properties().caps & AA_CAP_IS_HOST) == 0)
    GTEST_SKIP() << "weights are not used from the file";
  const TestDirectory folder;
  struct statfs system {};
  ASSERT_EQ(statfs(folder.path().c_str(), &system), 0);
  if (system.f_type == TMPFS_MAGIC) GTEST_SKIP() << "files of a file system in memory are not copied";
  ModelShape shape = find_model_shape("tiny");
  shape.intermediate_size = 16384;  // six matrices of 2 MiB
  make_model(shape, folder.path().string());
  LoadOptions options;
  const auto mapped = Model::load(folder.path().string(), options);
  ASSERT_GT(mapped->mapped_bytes(), 2 * kLargePage);
  const std::string name = (folder.path() / "model.safetensors").string();
  bytes_of_file(name, [](unsigned long begin, unsigned long end) {
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_NOHUGEPAGE);  // NOLINT(performance-no-int-to-ptr)
  });
  const auto none = [](unsigned long, unsigned long) {};
  const std::vector<float> before = last_logits(mapped, 12);
  const int64_t in_file = bytes_of_file(name, none);
  EXPECT_GE(in_file, static_cast<int64_t>(mapped->mapped_bytes() / 2));
  const std::vector<float> meanwhile = last_logits(mapped, 100);
  EXPECT_LE(bytes_of_file(name, none), in_file - static_cast<int64_t>(kLargePage));
  options.map_files = false;
  const auto read = Model::load(folder.path().string(), options);
  EXPECT_EQ(read->mapped_bytes(), 0U);
  EXPECT_EQ(before, last_logits(read, 12));
  EXPECT_EQ(meanwhile, last_logits(read, 100));
}

}  // namespace
}  // namespace anyaccel::llm
