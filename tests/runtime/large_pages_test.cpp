// Tests pages of a mapped file that are moved into large ones: the data stays what it was, for readers of other threads too,
// and without memory nothing changes. The mappings ask for small pages, which the kernel does not merge: what it answers where
// it does, or where that fails, comes from filters of system calls.
#include "base/process/large_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
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

#if defined(__x86_64__) || defined(__aarch64__)

// What happens to the call of mremap that puts a copy in the place of the file's pages.
enum class Fate {
  refused,       // the kernel finds that it lacks memory before it does anything
  fails_halfway  // after it has removed the old mapping
};
Fate fate = Fate::refused;

// What the kernel answers to a request to merge pages, 0 or an error, and how often it was asked.
int merge_error = 0;
volatile int merges = 0;

// The call's arguments lie in the registers, where its result is expected too.
void on_trapped_call(int /*signal*/, siginfo_t* info, void* context) {
  const bool is_merge = info->si_syscall == SYS_madvise;
  const int error = is_merge ? merge_error : ENOMEM;
#if defined(__x86_64__)
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto size = static_cast<size_t>(registers[REG_RDX]);
  auto* const place = reinterpret_cast<void*>(registers[REG_R8]);  // NOLINT(performance-no-int-to-ptr)
  registers[REG_RAX] = -error;
#else
  auto* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.regs;
  const auto size = static_cast<size_t>(registers[2]);
  auto* const place = reinterpret_cast<void*>(registers[4]);  // NOLINT(performance-no-int-to-ptr)
  registers[0] = static_cast<unsigned long long>(-error);
#endif
  if (is_merge) {
    merges = merges + 1;
  } else if (fate == Fate::fails_halfway) {
    munmap(place, size);
  }
}

// The calls that the filter traps are answered above from now on. Returns false where the system takes no filter.
bool trap_calls(std::span<sock_filter> filter) {
  struct sigaction action {};
  action.sa_sigaction = on_trapped_call;
  action.sa_flags = SA_SIGINFO;
  if (sigaction(SIGSYS, &action, nullptr) != 0) return false;
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Requests to merge pages get this answer from now on, with nothing done. Returns false where the system takes no filter.
bool answer_merges(int error) {
  merge_error = error;
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kCollapseAdvice, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  return trap_calls(code);
}

// Calls of mremap to a place that the caller names get this fate from now on; with `no_way_back` calls of mmap fail for a
// place that must be free. Returns false where the system takes no filter.
bool decide(Fate wanted, bool no_way_back) {
  fate = wanted;
  // The lower half of the fourth argument, the flags of both calls.
  constexpr uint32_t flags = offsetof(seccomp_data, args[3]);
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, flags),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MREMAP_FIXED, 0, 5),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, no_way_back ? SYS_mmap : UINT32_MAX, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, flags),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_FIXED_NOREPLACE, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  return trap_calls(code);
}

// Runs `check` in a child with pages that were found, where filters stay; it returns 0, or the number of what is wrong.
int in_child(bool scans, const std::function<int(const Mapping&, LargePages&)>& check) {
  const Mapping mapping;
  const pid_t child = fork();
  if (child == 0) {
    mapping.access(0, kBytes);
    LargePages pages(mapping.span(), mapping.descriptor());
    if (pages.find(scans) < 7 * kLargePage) _exit(1);
    const int wrong = check(mapping, pages);
    _exit(mapping.is_unchanged() ? wrong : 2);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}
constexpr int kNoFilter = 77;

// What the kernel has merged is not copied.
TEST_P(LargePagesTest, MergedPagesAreNotCopied) {
  const int wrong = in_child(GetParam(), [](const Mapping& mapping, LargePages& pages) {
    if (!answer_merges(0)) return kNoFilter;
    if (pages.has_moved()) return 3;
    if (pages.move(2 * kLargePage) != 2 * kLargePage || merges != 1 || !pages.has_moved()) return 4;
    if (pages.move(kLargePage) != kLargePage || merges != 2 || pages.refused()) return 5;
    return mapping.copied() == 0 ? 0 : 6;
  });
  if (wrong == kNoFilter) GTEST_SKIP() << "the system takes no filter of system calls";
  EXPECT_EQ(wrong, 0);
}

// A kernel that cannot merge pages of this file is asked once.
TEST_P(LargePagesTest, PagesThatCannotBeMergedAreCopied) {
  const int wrong = in_child(GetParam(), [](const Mapping& mapping, LargePages& pages) {
    if (!answer_merges(EINVAL)) return kNoFilter;
    for (int i = 1; i <= 3; ++i) {
      if (pages.move(kLargePage) != kLargePage) return 3;
      if (mapping.copied() != i * static_cast<int64_t>(kLargePage)) return 4;
    }
    return merges == 1 ? 0 : 5;
  });
  if (wrong == kNoFilter) GTEST_SKIP() << "the system takes no filter of system calls";
  EXPECT_EQ(wrong, 0);
}

// After any other error what was not merged is copied, and the next part may be merged again.
TEST_P(LargePagesTest, PagesThatAreNotMergedThisTimeAreCopied) {
  for (const int error : {EAGAIN, EBUSY, ENOMEM}) {
    const int wrong = in_child(GetParam(), [error](const Mapping& mapping, LargePages& pages) {
      if (!answer_merges(error)) return kNoFilter;
      if (pages.move(kLargePage) != kLargePage || merges != 1) return 3;
      if (mapping.copied() != static_cast<int64_t>(kLargePage)) return 4;
      merge_error = 0;
      if (pages.move(kLargePage) != kLargePage || merges != 2) return 5;
      return mapping.copied() == static_cast<int64_t>(kLargePage) ? 0 : 6;
    });
    if (wrong == kNoFilter) GTEST_SKIP() << "the system takes no filter of system calls";
    EXPECT_EQ(wrong, 0) << std::strerror(error);
  }
}

// Where the copy fails too, nothing is moved, and nothing more is tried.
TEST_P(LargePagesTest, PagesThatAreNeitherMergedNorCopiedStay) {
  const int wrong = in_child(GetParam(), [](const Mapping& mapping, LargePages& pages) {
    if (!answer_merges(ENOMEM) || !decide(Fate::refused, false)) return kNoFilter;
    if (pages.move(2 * kLargePage) != 0 || !pages.refused() || merges != 1) return 3;
    if (pages.move(kLargePage) != 0 || merges != 1) return 4;
    return mapping.copied() == 0 ? 0 : 5;
  });
  if (wrong == kNoFilter) GTEST_SKIP() << "the system takes no filter of system calls";
  EXPECT_EQ(wrong, 0);
}

// If the kernel has removed the file's pages when it finds no memory for the copy's place, they are mapped again.
TEST_P(LargePagesTest, ACopyThatCannotBePutInPlaceChangesNothing) {
  for (const Fate wanted : {Fate::refused, Fate::fails_halfway}) {
    const int wrong = in_child(GetParam(), [wanted](const Mapping& mapping, LargePages& pages) {
      if (!decide(wanted, false)) return kNoFilter;
      if (pages.move(2 * kLargePage) != 0 || !pages.refused() || pages.move(kLargePage) != 0) return 3;
      return mapping.copied() == 0 ? 0 : 4;
    });
    if (wrong == kNoFilter) GTEST_SKIP() << "the system takes no filter of system calls";
    EXPECT_EQ(wrong, 0) << (wanted == Fate::refused ? "refused" : "halfway");
  }
}

// A process that has lost a part of its weights ends, and says why.
TEST_P(LargePagesTest, PagesThatCannotBeMappedAgainEndTheProcess) {
  const Mapping mapping;
  mapping.access(0, kBytes);
  LargePages pages(mapping.span(), mapping.descriptor());
  ASSERT_GT(pages.find(GetParam()), 0U);
  EXPECT_DEATH(
      {
        mapping.access(0, kBytes);
        if (!decide(Fate::fails_halfway, true)) {
          std::fputs("a part of the weights could not be mapped again: not tested\n", stderr);
          std::abort();
        }
        pages.move(kLargePage);
      },
      "a part of the weights could not be mapped again.*(Cannot allocate memory; out of memory|not tested)");
}

#endif

}  // namespace
}  // namespace anyaccel
