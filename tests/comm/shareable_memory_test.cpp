// Tests memory of tensors that ranks of one host combine in place: that sums are those of copied memory, wherever the
// tensors lie, that nothing is copied, and what happens to memory that is released, forked, or of a rank that dies.
#include "base/process/shareable_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/tensor.h"
#include "comm/shared_memory/shared_memory_communicator.h"
#include "comm/shared_memory_ranks.h"

namespace anyaccel::comm {
namespace {

using test::Report;
using test::run_processes;
using test::run_threads;

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kRoom = 2 * kHugePage;

#define NEEDS_SHAREABLE_MEMORY()                                                                     \
  if (!ShareableMemory::instance().start()) {                                                        \
    GTEST_SKIP() << "the system gives no huge pages to shared memory, or limits addresses or files"; \
  }

// Memory for one rank's tensor.
class Memory {
 public:
  Memory() : data_(static_cast<char*>(ShareableMemory::instance().allocate(kRoom))) {
    if (data_ == nullptr) throw std::runtime_error("no shareable memory");
  }
  ~Memory() { ShareableMemory::instance().release(data_, kRoom); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* data() const { return data_; }

 private:
  char* data_;
};

// Bytes of a rank's values: numbers near 1 in fp32, any bits in integers.
std::vector<char> bytes_of_rank(int rank, int64_t count, DType dtype) {
  std::vector<char> bytes(static_cast<size_t>(count) * dtype_size(dtype));
  for (int64_t i = 0; i < count; ++i) {
    const float value = 1.0f + static_cast<float>((i * 7 + rank * 13) % 101) / 128.0f;
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    char* const at = bytes.data() + static_cast<size_t>(i) * dtype_size(dtype);
    if (dtype == DType::BF16) {
      const auto upper = static_cast<uint16_t>(bits >> 16);
      std::memcpy(at, &upper, sizeof(upper));
    } else {
      std::memcpy(at, &bits, dtype_size(dtype));
    }
  }
  return bytes;
}

// Reduces in place at different offsets on every rank, against copies of the same values.
void reduce_everywhere(const Membership& membership, bool first_rank_copies) {
  shm::SharedMemoryCommunicator group(membership);
  const Memory memory;
  const int rank = membership.rank;
  uint64_t copied = 0;
  // Empty, beside the number, in one slot, at the borders of a chunk of 256 KiB, in several chunks.
  for (const int64_t count : {0, 1, 28, 500, 513, 1025, 40001, 65535, 65536, 65537, 200001}) {
    for (const DType dtype : {DType::F32, DType::BF16, DType::I8}) {
      const size_t size = static_cast<size_t>(count) * dtype_size(dtype);
      const std::vector<char> start = bytes_of_rank(rank, count, dtype);
      std::vector<char> expected = start;
      group.all_reduce(expected.data(), count, dtype, ReduceOp::Sum);
      // A border of cache lines, of elements, or of neither.
      for (const size_t offset : {size_t{0}, 64 * static_cast<size_t>(rank), 4 * static_cast<size_t>(rank) + 12}) {
        char* const data = memory.data() + offset;
        data[size] = 77;
        std::copy(start.begin(), start.end(), data);
        copied = group.copied_bytes();
        if (first_rank_copies && rank == 0) {
          std::vector<char> own = start;
          group.all_reduce(own.data(), count, dtype, ReduceOp::Sum);
          ASSERT_EQ(own, expected) << count;
        } else {
          group.all_reduce(data, count, dtype, ReduceOp::Sum);
          ASSERT_EQ(std::vector<char>(data, data + size), expected) << count << ", offset " << offset;
          ASSERT_EQ(data[size], 77) << count;
        }
        if (!first_rank_copies && membership.size == 2 && size >= 4096) {
          // Gathered from where it is: the other member has the rest of each row.
          const std::array<size_t, 3> begins = {0, size / 4, size};
          std::vector<char> whole(size);
          std::iota(whole.begin(), whole.end(), '\1');
          std::fill(data, data + size, '\0');
          std::copy(whole.begin() + static_cast<ptrdiff_t>(begins[static_cast<size_t>(rank)]),
                    whole.begin() + static_cast<ptrdiff_t>(begins[static_cast<size_t>(rank) + 1]),
                    data + begins[static_cast<size_t>(rank)]);
          group.gather_columns(data, 1, begins.data());
          ASSERT_EQ(std::vector<char>(data, data + size), whole) << count;
        }
        // Growth: in place nothing goes through the slots, at any size; else everything that is not short does.
        if (!first_rank_copies) {
          ASSERT_EQ(group.copied_bytes(), copied) << count;
        } else if (size > 2048) {
          ASSERT_EQ(group.copied_bytes(), copied + size) << count;
        }
      }
    }
  }
  group.barrier();
}

TEST(ShareableMemory, RanksCombineTensorsInPlace) {
  NEEDS_SHAREABLE_MEMORY();
  for (const int size : {2, 3, 4}) {
    run_threads(size, [](const Membership& membership) { reduce_everywhere(membership, false); });
  }
}

TEST(ShareableMemory, AMemberMayHaveOtherMemory) {
  NEEDS_SHAREABLE_MEMORY();
  for (const int size : {2, 3}) {
    run_threads(size, [](const Membership& membership) { reduce_everywhere(membership, true); });
  }
}

void expect_no_reports(const std::vector<Report>& reports) {
  for (const Report& report : reports) {
    EXPECT_EQ(report.text, "");
    EXPECT_EQ(report.status, 0);
  }
}

TEST(ShareableMemory, ProcessesCombineTensorsInPlace) {
  NEEDS_SHAREABLE_MEMORY();  // of this process, so that the children are forked from one that has such memory
  const Memory of_parent;
  for (const int size : {2, 3}) {
    expect_no_reports(run_processes(size, [](const Membership& membership) {
      shm::SharedMemoryCommunicator group(membership);
      const int64_t count = 100003;
      // Memory that was released and is taken again is zeros, for the other ranks as well.
      for (int round = 0; round < 3; ++round) {
        const Memory memory;
        auto* const data = reinterpret_cast<float*>(memory.data()) + membership.rank;
        if (data[0] != 0.0f || data[count] != 0.0f) throw std::runtime_error("old values");
        for (int64_t i = 0; i < count; ++i) data[i] = static_cast<float>(membership.rank + i % 50);
        group.all_reduce(data, count, DType::F32, ReduceOp::Sum);
        for (int64_t i = 0; i < count; ++i) {
          const auto expected =
              static_cast<float>(membership.size * (membership.size - 1) / 2 + membership.size * (i % 50));
          if (data[i] != expected) throw std::runtime_error("wrong sum at " + std::to_string(i));
        }
        group.barrier();
      }
      if (group.copied_bytes() != 0) throw std::runtime_error("copied");
    }));
  }
}

TEST(ShareableMemory, ARankThatDiesIsNamed) {
  NEEDS_SHAREABLE_MEMORY();
  const std::vector<Report> reports = run_processes(3, [](const Membership& membership) {
    shm::SharedMemoryCommunicator group(membership);
    const Memory memory;
    auto* const data = reinterpret_cast<float*>(memory.data());
    group.all_reduce(data, 1000000, DType::F32, ReduceOp::Sum);
    if (membership.rank == 1) raise(SIGKILL);
    group.all_reduce(data, 1000000, DType::F32, ReduceOp::Sum);
  });
  for (const size_t r : {size_t{0}, size_t{2}}) {
    EXPECT_NE(reports[r].text.find("rank 1 on here died"), std::string::npos) << reports[r].text;
    EXPECT_NE(reports[r].text.find("all_reduce of 1000000 float32 (sum)"), std::string::npos) << reports[r].text;
  }
}

TEST(ShareableMemory, RangesAreGivenBack) {
  NEEDS_SHAREABLE_MEMORY();
  ShareableMemory& memory = ShareableMemory::instance();
  auto* const first = static_cast<char*>(memory.allocate(3 * kHugePage));
  auto* const second = static_cast<char*>(memory.allocate(1));
  auto* const third = static_cast<char*>(memory.allocate(kHugePage + 1));
  ASSERT_NE(first, nullptr);
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second) % kHugePage, 0u);
  EXPECT_TRUE(memory.contains(second, kHugePage));
  first[5] = second[5] = third[5] = 1;
  // In the order in which each neighbour joins the free range of the other.
  EXPECT_TRUE(memory.release(first, 3 * kHugePage));
  EXPECT_TRUE(memory.release(third, kHugePage + 1));
  EXPECT_TRUE(memory.release(second, 1));
  auto* const all = static_cast<char*>(memory.allocate(6 * kHugePage));
  EXPECT_EQ(all, first);
  for (size_t at = 5; at < 6 * kHugePage; at += kHugePage) EXPECT_EQ(all[at], 0) << at;
  EXPECT_TRUE(memory.release(all, 6 * kHugePage));
  int other = 0;
  EXPECT_FALSE(memory.release(&other, sizeof(other)));
  EXPECT_EQ(memory.allocate(memory.bytes() + 1), nullptr);
}

TEST(ShareableMemory, AChildDoesNotWriteIntoItsParentsTensors) {
  NEEDS_SHAREABLE_MEMORY();
  const Memory memory;
  memory.data()[0] = 5;
  const pid_t child = fork();
  if (child == 0) {
    ShareableMemory& own = ShareableMemory::instance();
    if (own.allocate(kHugePage) != nullptr || own.contains(memory.data(), 1)) _exit(1);
    if (!own.start()) _exit(2);
    auto* const data = static_cast<char*>(own.allocate(kHugePage));
    if (data == nullptr || data[0] != 0) _exit(3);
    data[0] = 6;
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory.data()[0], 5);
}

TEST(ShareableMemory, HoldsTensorsOfTheCpu) {
  NEEDS_SHAREABLE_MEMORY();
  Accelerator& accelerator = *get_accelerator();
  if (accelerator.name() != "cpu") GTEST_SKIP() << "the accelerator is " << accelerator.name();
  const Tensor tensor = Tensor::empty({int64_t{3} << 20}, DType::F32, accelerator.device(0));
  EXPECT_TRUE(ShareableMemory::instance().contains(tensor.data(), tensor.nbytes()));
}

}  // namespace
}  // namespace anyaccel::comm
