// Weights that are used from a file in small pages: sessions move them into large ones from step to step, and results stay. Pages that
// the kernel merges itself are not tested.
#include "llm/model/weight_pages.h"

#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
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

// Whether any of a file's pages were moved: copies are memory of the process's own.
bool moved(const WeightFile& file) {
  bool inside = false;
  int64_t sum = 0;
  const auto first = reinterpret_cast<uintptr_t>(file.mapping().data());
  const std::string text = kernel_file("/proc/self/smaps");
  for_lines(text, [&](std::string_view line) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(std::string(line.substr(0, 40)).c_str(), "%lx-%lx ", &begin, &end) == 2) {
      inside = begin >= first && begin < first + file.mapping().size();
    } else if (inside) {
      sum += number_of(line, "Anonymous:").value_or(0);
    }
  });
  return sum > 0;
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

// A model of twelve or more MB in a file, whose mapping is in small pages.
class WeightPagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gives_no_large_pages("enabled")) GTEST_SKIP() << "the system gives no large pages";
    if ((get_accelerator()->device_properties().caps & AA_CAP_IS_HOST) == 0) {
      GTEST_SKIP() << "weights are not used from the file";
    }
    struct statfs system {};
    ASSERT_EQ(statfs(folder_.path().c_str(), &system), 0);
    if (system.f_type == TMPFS_MAGIC) GTEST_SKIP() << "files of a file system in memory are not copied";
    ModelShape shape = find_model_shape("tiny");
    shape.intermediate_size = 16384;  // six matrices of 2 MiB
    make_model(shape, folder_.path().string());
    const auto file = SafetensorsFile::open(name());
    use_small_pages();
    access(*file);
    if (file->find_small_pages() == 0 || (file->move_to_large_pages(kLargePage) == 0 && file->refuses_large_pages())) {
      GTEST_SKIP() << "no large page is left, or there are several memory nodes, or large pages of another size";
    }
  }
  std::string name() const { return (folder_.path() / "model.safetensors").string(); }
  // Bytes that this process has in memory in pages of the file.
  int64_t bytes_of_file() const {
    return llm::bytes_of_file(name(), [](unsigned long, unsigned long) {});
  }
  void use_small_pages() const {
    llm::bytes_of_file(name(), [](unsigned long begin, unsigned long end) {
      madvise(reinterpret_cast<void*>(begin), end - begin, MADV_NOHUGEPAGE);  // NOLINT(performance-no-int-to-ptr)
    });
  }
  static void access(const WeightFile& file) {
    volatile int sum = 0;
    for (size_t at = 0; at < file.mapping().size(); at += 4096) sum = sum + static_cast<int>(file.mapping()[at]);
  }
  const TestDirectory folder_;
};

TEST_F(WeightPagesTest, AreMovedFromStepToStep) {
  LoadOptions options;
  ::setenv("ANYACCEL_WEIGHT_PAGES", "large", 1);
  const auto mapped = Model::load(folder_.path().string(), options);
  ASSERT_GT(mapped->mapped_bytes(), 4 * kLargePage);
  use_small_pages();
  EXPECT_TRUE(mapped->moves_weights());
  const std::vector<float> before = last_logits(mapped, 12);
  EXPECT_TRUE(mapped->moves_weights());
  const int64_t in_file = bytes_of_file();
  EXPECT_GE(in_file, static_cast<int64_t>(mapped->mapped_bytes() / 2));
  const std::vector<float> meanwhile = last_logits(mapped, 100);
  EXPECT_LE(bytes_of_file(), in_file - static_cast<int64_t>(4 * kLargePage));
  EXPECT_FALSE(mapped->moves_weights());
  ::unsetenv("ANYACCEL_WEIGHT_PAGES");
  const auto stays = Model::load(folder_.path().string(), options);
  EXPECT_FALSE(stays->moves_weights());
  const int64_t before_use = bytes_of_file();
  EXPECT_EQ(meanwhile, last_logits(stays, 100));
  EXPECT_GE(bytes_of_file(), before_use + static_cast<int64_t>(4 * kLargePage));
  options.map_files = false;
  const auto read = Model::load(folder_.path().string(), options);
  EXPECT_EQ(read->mapped_bytes(), 0U);
  EXPECT_EQ(before, last_logits(read, 12));
  EXPECT_EQ(meanwhile, last_logits(read, 100));
}

// Two files, of which the second is accessed only after the first look.
TEST_F(WeightPagesTest, AreLookedForAgain) {
  const auto first = SafetensorsFile::open(name()), second = SafetensorsFile::open(name());
  use_small_pages();
  access(*first);
  WeightPages pages({first, second}, [] { return int64_t{1} << 40; });
  for (int step = 0; step < 15; ++step) pages.after_step();
  EXPECT_TRUE(pages.is_busy());
  pages.after_step();
  EXPECT_FALSE(moved(*first));
  EXPECT_TRUE(pages.is_busy());
  for (int step = 16; step < 255; ++step) pages.after_step();
  EXPECT_TRUE(moved(*first));
  EXPECT_FALSE(pages.is_busy());
  EXPECT_FALSE(moved(*second));
  access(*second);
  for (int step = 255; step < 300; ++step) pages.after_step();
  EXPECT_TRUE(moved(*second));
  EXPECT_EQ(std::memcmp(first->mapping().data(), second->mapping().data(), first->mapping().size()), 0);
}

TEST_F(WeightPagesTest, StayWhereMemoryIsShort) {
  const auto file = SafetensorsFile::open(name());
  use_small_pages();
  access(*file);
  int64_t available = static_cast<int64_t>(3 * kLargePage);  // less than twice of what would be copied
  WeightPages pages({file}, [&] { return available; });
  for (int step = 0; step < 100; ++step) pages.after_step();
  EXPECT_FALSE(moved(*file));
  // What the accelerator throws ends it, and no step.
  WeightPages others({file}, []() -> int64_t { throw std::runtime_error("unknown"); });
  for (int step = 0; step < 300; ++step) others.after_step();
  EXPECT_FALSE(moved(*file));
}

}  // namespace
}  // namespace anyaccel::llm
