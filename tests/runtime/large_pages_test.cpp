// Tests pages of a mapped file that are moved into large ones: the data stays what it was, for readers of other threads too, and
// without memory nothing changes. The mappings ask for small pages, which the kernel does not merge: that is not tested here.
#include "base/process/large_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/files/file_descriptor.h"
#include "base/process/kernel_text.h"
#include "temporary_folder.h"

namespace anyaccel {
namespace {

constexpr size_t kBytes = 8 * kLargePage + 12345;

// A mapped file, all of it in small pages.
class Mapping {
 public:
  Mapping() : text_(kBytes, '\0') {
    for (size_t i = 0; i < text_.size(); ++i) text_[i] = static_cast<char>(i * 2654435761U >> 13);
    file_ = FileDescriptor(open(folder_.write("file", text_).c_str(), O_RDONLY | O_CLOEXEC));
    data_ = static_cast<std::byte*>(mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE, file_.get(), 0));
    EXPECT_NE(data_, MAP_FAILED);
    EXPECT_EQ(madvise(data_, kBytes, MADV_NOHUGEPAGE), 0);
  }
  ~Mapping() { munmap(data_, kBytes); }
  std::span<const std::byte> span() const { return {data_, kBytes}; }
  int descriptor() const { return file_.get(); }
  void access(size_t begin, size_t end) const {
    for (size_t at = begin; at < end; at += 4096) sum_ = sum_ + static_cast<int>(data_[at]);
  }
  bool is_unchanged() const { return std::memcmp(data_, text_.data(), kBytes) == 0; }
  // Bytes in memory of the process's own, as the kernel says.
  int64_t copied() const {
    int64_t sum = 0;
    bool inside = false;
    const auto begin = reinterpret_cast<uintptr_t>(data_);
    const std::string text = kernel_file("/proc/self/smaps");
    for_lines(text, [&](std::string_view line) {
      unsigned long first = 0, last = 0;
      if (std::sscanf(std::string(line.substr(0, 40)).c_str(), "%lx-%lx ", &first, &last) == 2) {
        inside = first >= begin && first < begin + kBytes;
      } else if (inside) {
        sum += number_of(line, "Anonymous:").value_or(0) * 1024;
      }
    });
    return sum;
  }

 private:
  test::TemporaryFolder folder_;
  std::string text_;
  FileDescriptor file_;
  std::byte* data_ = nullptr;
  mutable volatile int sum_ = 0;
};

// Whether the system gave a large page for a first move; it may have none left.
bool gives_pages(LargePages& pages) { return pages.move(kLargePage) == kLargePage || !pages.refused(); }

size_t move_all(LargePages& pages, size_t part) {
  size_t moved = 0;
  while (const size_t some = pages.move(part)) moved += some;
  return moved;
}

// Both ways to find small pages: by PAGEMAP_SCAN where the kernel has it, and as kernels before it do.
class LargePagesTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (gives_no_large_pages("enabled")) GTEST_SKIP() << "the system gives no large pages";
    const Mapping mapping;
    mapping.access(0, kBytes);
    LargePages pages(mapping.span(), mapping.descriptor());
    struct statfs system {};
    ASSERT_EQ(statfs(std::filesystem::temp_directory_path().c_str(), &system), 0);
    if (system.f_type == TMPFS_MAGIC) GTEST_SKIP() << "files of a file system in memory are not copied";
    if (pages.find(GetParam()) == 0) GTEST_SKIP() << "several memory nodes, or large pages of another size";
    if (!gives_pages(pages)) GTEST_SKIP() << "the system has no large page left";
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, LargePagesTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Present" : "Older"; });

TEST_P(LargePagesTest, MoveWhatWasAccessed) {
  const Mapping mapping;
  LargePages pages(mapping.span(), mapping.descriptor());
  EXPECT_EQ(pages.find(GetParam()), 0U);
  EXPECT_EQ(pages.move(kLargePage), 0U);
  EXPECT_FALSE(pages.has_moved());
  mapping.access(0, kBytes);
  const size_t found = pages.find(GetParam());
  EXPECT_GE(found, 7 * kLargePage);
  EXPECT_LE(found, 8 * kLargePage);
  EXPECT_EQ(pages.move(2 * kLargePage + 5), 2 * kLargePage);
  EXPECT_EQ(pages.move(1), kLargePage);  // at least one
  EXPECT_TRUE(pages.has_moved());
  EXPECT_TRUE(mapping.is_unchanged());
  EXPECT_EQ(mapping.copied(), static_cast<int64_t>(3 * kLargePage));
  EXPECT_EQ(move_all(pages, 64 * kLargePage), found - 3 * kLargePage);
  EXPECT_TRUE(mapping.is_unchanged());
  EXPECT_EQ(mapping.copied(), static_cast<int64_t>(found));
  EXPECT_EQ(pages.find(GetParam()), 0U);
}

TEST_P(LargePagesTest, LeaveWhatWasNotAccessed) {
  const Mapping mapping;
  // Reading a page maps its neighbours too, as many as lie together in the page cache.
  mapping.access(0, 2 * kLargePage + kLargePage / 2);
  LargePages pages(mapping.span(), mapping.descriptor());
  const size_t found = pages.find(GetParam());
  EXPECT_GE(found, kLargePage);
  EXPECT_LT(found, 6 * kLargePage);
  EXPECT_EQ(move_all(pages, kLargePage), found);
  EXPECT_TRUE(mapping.is_unchanged());
}

TEST_P(LargePagesTest, ReadersSeeTheDataMeanwhile) {
  const Mapping mapping;
  mapping.access(0, kBytes);
  LargePages pages(mapping.span(), mapping.descriptor());
  ASSERT_GT(pages.find(GetParam()), 0U);
  std::atomic<bool> ends{false};
  std::atomic<int> started{0}, wrong{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!ends) {
        if (!mapping.is_unchanged()) ++wrong;
        ++started;
      }
    });
  }
  while (started < 2) std::this_thread::yield();
  while (pages.move(kLargePage) > 0) std::this_thread::yield();
  ends = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(mapping.copied(), 0);
}

TEST_P(LargePagesTest, FilesInMemoryAreNotCopied) {
  const FileDescriptor file(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), kBytes), 0);
  auto* const data = static_cast<std::byte*>(mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE, file.get(), 0));
  ASSERT_NE(data, MAP_FAILED);
  madvise(data, kBytes, MADV_NOHUGEPAGE);
  volatile int sum = 0;
  for (size_t at = 0; at < kBytes; at += 4096) sum = sum + static_cast<int>(data[at]);
  LargePages pages({data, kBytes}, file.get());
  EXPECT_EQ(pages.find(GetParam()), 0U);
  EXPECT_EQ(pages.move(kLargePage), 0U);
  munmap(data, kBytes);
}

// A limit on the process's memory of its own leaves the file's pages where they are.
TEST_P(LargePagesTest, WithoutMemoryNothingChanges) {
  const Mapping mapping;
  mapping.access(0, kBytes);
  const pid_t child = fork();
  if (child == 0) {
    mapping.access(0, kBytes);
    LargePages pages(mapping.span(), mapping.descriptor());
    if (pages.find(GetParam()) == 0) _exit(1);
    const rlimit none{0, 0};
    if (setrlimit(RLIMIT_AS, &none) != 0) _exit(2);
    if (pages.move(4 * kLargePage) != 0 || pages.has_moved() || !pages.refused()) _exit(3);
    _exit(mapping.is_unchanged() ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace anyaccel
