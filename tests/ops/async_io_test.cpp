// Tests of asynchronous I/O, each with io_uring and with the pool of threads: any offset, length and address against
// plain pread and pwrite, what lies next to it, every way to fail, and systems that refuse what is asked.
#include "anyaccel/ops/async_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "refuse_system_calls.h"
#include "this_build.h"

namespace anyaccel::ops {
namespace {

using Bytes = std::vector<char>;

Bytes random_bytes(size_t count, uint64_t seed) {
  Bytes bytes(count);
  std::mt19937_64 engine(seed);
  for (char& byte : bytes) byte = static_cast<char>(engine() >> 32);
  return bytes;
}

// A uint8 view of `bytes` that begins `shift` bytes behind a page's boundary.
struct Buffer {
  Buffer(size_t bytes, size_t shift, char fill = 0)
      : memory(static_cast<char*>(std::aligned_alloc(4096, (bytes + shift + 8192) / 4096 * 4096)), &std::free),
        tensor(Tensor::from_blob(memory.get() + shift, Shape{static_cast<int64_t>(bytes)}, DType::U8, nullptr)) {
    std::memset(memory.get(), fill, bytes + shift + 1);
  }
  char* data() const { return static_cast<char*>(tensor.data()); }

  std::unique_ptr<char, decltype(&std::free)> memory;
  Tensor tensor;
};

class AsyncIOTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("DS_ACCELERATOR", "cpu", 0); }
  void SetUp() override {
    const char* wanted = std::getenv("ANYACCEL_TEST_DIR");  // a directory on a disk
    std::string pattern =
        std::string(wanted ? wanted : std::filesystem::temp_directory_path()) + "/anyaccel-aio-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory = pattern;
  }
  void TearDown() override {
    unsetenv("ANYACCEL_AIO");
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
  }

  std::string path(const std::string& name) const { return directory + '/' + name; }
  std::string file(const std::string& name, const Bytes& content) const {
    std::ofstream(path(name), std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
    return path(name);
  }
  static Bytes content(const std::string& name) {
    std::ifstream in(name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static AsyncIO library() { return AsyncIO(*get_accelerator()); }

  std::string directory;
};

// With both ways to carry out transfers.
class AsyncIOBoth : public AsyncIOTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    AsyncIOTest::SetUp();
    setenv("ANYACCEL_AIO", GetParam(), 1);
    try {
      library().aio_handle();
    } catch (const UnavailableError& error) {
      GTEST_SKIP() << error.what();
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, AsyncIOBoth, ::testing::Values("uring", "threads"),
                         [](const auto& one) { return std::string(one.param); });

template <class E = Error, class F>
E error_of(F&& call) {
  try {
    call();
  } catch (const E& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return E("");
}

void expect_contains(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << "expected " << part << " in: " << text;
}

// ---- reading and writing ---------------------------------------------------------------------------------------------

TEST_P(AsyncIOBoth, SaysWhatItIs) {
  AioHandle handle = library().aio_handle();
  EXPECT_EQ(handle.get_block_size(), 1 << 20);
  EXPECT_EQ(handle.get_queue_depth(), 128);
  EXPECT_FALSE(handle.get_single_submit());
  EXPECT_TRUE(handle.get_overlap_events());
  EXPECT_EQ(handle.get_intra_op_parallelism(), 1);
  EXPECT_EQ(handle.get_alignment() % 512, 0);
  EXPECT_STREQ(handle.backend(), std::string(GetParam()) == "uring" ? "io_uring" : "threads");
  AioHandle other = library().aio_handle(8192, 4, true, false, 3);
  EXPECT_EQ(other.get_block_size(), 8192);
  EXPECT_EQ(other.get_queue_depth(), 4);
  EXPECT_TRUE(other.get_single_submit());
  EXPECT_FALSE(other.get_overlap_events());
  EXPECT_EQ(other.get_intra_op_parallelism(), 3);
  handle = std::move(other);
  EXPECT_EQ(handle.get_block_size(), 8192);
  EXPECT_EQ(handle.wait(), 0u);
}

TEST_P(AsyncIOBoth, ReadsAnyRange) {
  const Bytes all = random_bytes(700'001, 1);
  const std::string name = file("a", all);
  std::mt19937_64 random(2);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (const bool overlap : {true, false}) {
    for (const int ranges : {1, 3}) {
      AioHandle handle = library().aio_handle(16384, 8, ranges == 3, overlap, ranges);
      for (int i = 0; i < 60; ++i) {
        // A third begins at a disk's block, a third ends at one, a third lies in aligned memory.
        const size_t offset = below(3) ? below(all.size()) : below(all.size() / 512) * 512;
        size_t length = below(4) ? below(all.size() - offset + 1) : std::min<size_t>(below(6000), all.size() - offset);
        if (!below(3))
          length = (offset + length) / 512 * 512 > offset ? (offset + length) / 512 * 512 - offset : length;
        if (!below(6)) length = all.size() - offset;
        const size_t shift = below(3) ? below(3) ? offset % 4096 : below(4096) : 0;
        SCOPED_TRACE(std::to_string(offset) + " + " + std::to_string(length) + " shift " + std::to_string(shift));
        const Buffer buffer(length, shift, 'x');
        handle.pread(buffer.tensor, name, i % 5 == 0, false, static_cast<int64_t>(offset));
        ASSERT_TRUE(std::equal(buffer.data(), buffer.data() + length, all.begin() + static_cast<long>(offset)));
        ASSERT_EQ(buffer.data()[length], 'x');
        ASSERT_TRUE(std::all_of(buffer.memory.get(), buffer.data(), [](char c) { return c == 'x'; }));
      }
    }
  }
}

TEST_P(AsyncIOBoth, WritesAnyRangeAndNothingElse) {
  std::mt19937_64 random(3);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (const bool overlap : {true, false}) {
    for (const int ranges : {1, 3}) {
      AioHandle handle = library().aio_handle(16384, 8, false, overlap, ranges);
      Bytes expected = random_bytes(300'001, 4);
      const std::string name = file("a" + std::to_string(ranges) + std::to_string(overlap), expected);
      for (int i = 0; i < 50; ++i) {
        const size_t offset = below(3) ? below(310'000) : below(80) * 4096;
        const size_t length = below(4) ? below(200'000) : below(9000);
        const size_t shift = below(2) ? below(4096) : 0;
        SCOPED_TRACE(std::to_string(offset) + " + " + std::to_string(length) + " shift " + std::to_string(shift));
        const Buffer buffer(length, shift);
        const Bytes bytes = random_bytes(length, 100 + static_cast<uint64_t>(i));
        std::copy(bytes.begin(), bytes.end(), buffer.data());
        handle.pwrite(buffer.tensor, name, i % 5 == 0, false, static_cast<int64_t>(offset));
        if (length && expected.size() < offset + length) expected.resize(offset + length);
        std::copy(bytes.begin(), bytes.end(), expected.begin() + static_cast<long>(std::min(offset, expected.size())));
        ASSERT_TRUE(content(name) == expected);
      }
      // The content that direct reads see.
      const Buffer back(expected.size(), 0);
      handle.sync_pread(back.tensor, name);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), back.data()));
    }
  }
}

// Requests under way that share pages of the file.
TEST_P(AsyncIOBoth, NeighboursUnderWayDoNotDisturbEachOther) {
  AioHandle handle = library().aio_handle(8192, 16, false, true, 2);
  std::mt19937_64 random(5);
  for (int round = 0; round < 3; ++round) {
    const Bytes expected = random_bytes(400'000, 6 + static_cast<uint64_t>(round));
    const std::string name = path("n" + std::to_string(round));
    std::vector<std::unique_ptr<Buffer>> buffers;
    size_t count = 0;
    for (size_t at = 0; at < expected.size();) {
      const size_t length = std::min<size_t>(1 + random() % 20'000, expected.size() - at);
      buffers.push_back(std::make_unique<Buffer>(length, random() % 3 ? at % 4096 : 0));
      std::copy_n(expected.begin() + static_cast<long>(at), length, buffers.back()->data());
      handle.async_pwrite(buffers.back()->tensor, name, static_cast<int64_t>(at));
      at += length;
      ++count;
    }
    EXPECT_EQ(handle.wait(), count);
    EXPECT_TRUE(content(name) == expected);
  }
}

TEST_P(AsyncIOBoth, ManyRequestsAndFiles) {
  AioHandle handle = library().aio_handle(65536, 32, false, true, 2);
  std::vector<AioRequest> writes;
  std::vector<AioRequest> reads;
  for (int i = 0; i < 300; ++i) {
    const Tensor values = Tensor::empty({1000 + i * 7}, DType::F32);
    values.fill(i);
    writes.push_back({values, path("f" + std::to_string(i % 30)), i / 30 * 20'000});
    reads.push_back({Tensor::empty(values.shape(), DType::F32), writes.back().file, writes.back().file_offset});
  }
  const std::vector<int64_t> numbers = handle.async_pwrite(writes);
  EXPECT_EQ(numbers.size(), 300u);
  EXPECT_EQ(handle.wait(), 300u);
  ASSERT_EQ(handle.results().size(), 300u);
  EXPECT_EQ(handle.results()[7].request, numbers[7]);
  EXPECT_EQ(handle.results()[7].file, path("f7"));
  EXPECT_TRUE(handle.results()[7].ok());
  EXPECT_TRUE(handle.results()[7].write);
  handle.async_pread(reads);
  EXPECT_EQ(handle.wait(), 300u);
  for (int i = 0; i < 300; ++i) ASSERT_EQ(reads[static_cast<size_t>(i)].buffer.select(0, 999).item<float>(), i);
  for (const AioRequest& read : reads) read.buffer.fill(-1);
  handle.sync_pread(reads);
  EXPECT_EQ(reads[299].buffer.select(0, 5).item<float>(), 299);
  handle.sync_pwrite(writes);
  EXPECT_EQ(handle.wait(), 0u);
}

TEST_P(AsyncIOBoth, ReadAndWriteAreOfWholeFiles) {
  const AsyncIO aio = library();
  const Tensor out = Tensor::empty({100, 33}, DType::F64);
  out.fill(2.5);
  aio.aio_write(out, path("whole"), 4096, 3, false, false, true);
  const Tensor in = Tensor::empty({100, 33}, DType::F64);
  aio.aio_read(in, path("whole"), 4096, 3, true, true, true);
  EXPECT_EQ(in.to_vector<double>(), out.to_vector<double>());
  AioHandle handle = aio.aio_handle();
  handle.read(in.slice(0, 1, 100), path("whole"), false, 33 * 8);
  const Error error = error_of([&] { handle.read(in.slice(0, 1, 100), path("whole")); });
  expect_contains(error.what(), "the file has 26400 bytes, the buffer 26136");
}

TEST_P(AsyncIOBoth, WritesToADescriptor) {
  const int fd = open(path("fd").c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GE(fd, 0);
  AioHandle handle = library().aio_handle();
  const Bytes expected = random_bytes(50'000, 9);
  const Buffer buffer(expected.size(), 0);
  std::copy(expected.begin(), expected.end(), buffer.data());
  handle.async_pwrite(buffer.tensor, fd, 0);
  EXPECT_EQ(handle.wait(), 1u);
  EXPECT_TRUE(content(path("fd")) == expected);
  EXPECT_EQ(lseek(fd, 0, SEEK_CUR), 0);
  close(fd);
  const int read_only = open(path("fd").c_str(), O_RDONLY);
  handle.async_pwrite(buffer.tensor, read_only, 0);
  const Error error = error_of([&] { handle.wait(); });
  expect_contains(error.what(), "file descriptor " + std::to_string(read_only));
  EXPECT_EQ(error.native_code(), EBADF);
  handle.async_pwrite(buffer.tensor, 999);  // not open
  EXPECT_EQ(error_of([&] { handle.wait(); }).native_code(), EBADF);
  close(read_only);
  // A file without a name.
  const int memory = memfd_create("aio", MFD_CLOEXEC);
  handle.async_pwrite(buffer.tensor, memory, 3);
  handle.wait();
  Bytes back(expected.size());
  EXPECT_EQ(pread(memory, back.data(), back.size(), 3), static_cast<ssize_t>(back.size()));
  EXPECT_TRUE(back == expected);
  close(memory);
  EXPECT_THROW(handle.async_pwrite(buffer.tensor, -1, 0), InvalidArgument);
}

TEST_P(AsyncIOBoth, EmptyTensorsAndRelativePaths) {
  AioHandle handle = library().aio_handle();
  const Tensor nothing = Tensor::empty({0}, DType::F32);
  handle.sync_pwrite(nothing, path("empty"));
  EXPECT_TRUE(std::filesystem::exists(path("empty")));
  handle.sync_pread(nothing, path("empty"));
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(directory);
  const Tensor one = Tensor::empty({1}, DType::I64);
  one.fill(77);
  handle.async_pwrite(one, "relative");
  std::filesystem::current_path(before);
  handle.wait();
  one.fill(0);
  handle.sync_pread(one, path("relative"));
  EXPECT_EQ(one.item<int64_t>(), 77);
}

TEST_P(AsyncIOBoth, AHandleFinishesItsWorkWhenItGoes) {
  const Tensor values = Tensor::empty({1 << 20}, DType::F32);
  values.fill(3);
  {
    AioHandle handle = library().aio_handle(65536, 4);
    for (int i = 0; i < 4; ++i) handle.async_pwrite(values, path("g" + std::to_string(i)));
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(std::filesystem::file_size(path("g" + std::to_string(i))), 4u << 20);
  Tensor in = Tensor::empty({1 << 20}, DType::F32);
  AioHandle handle = library().aio_handle();
  handle.async_pread(in, path("g3"));
  const Tensor view = in.slice(0, 1000, 1001);
  in = Tensor();  // the handle holds it
  handle.wait();
  EXPECT_EQ(view.item<float>(), 3);
}

TEST_P(AsyncIOBoth, SeveralThreadsUseOneHandle) {
  AioHandle handle = library().aio_handle(16384, 8, false, true, 2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Tensor out = Tensor::empty({40'000}, DType::F32);
      const Tensor in = Tensor::empty({40'000}, DType::F32);
      for (int i = 0; i < 8; ++i) {
        out.fill(t * 100 + i);
        const std::string name = path("t" + std::to_string(t));
        if (i % 2) {
          handle.sync_pwrite(out, name);
        } else {
          handle.async_pwrite(out, name);
          handle.wait();
        }
        handle.sync_pread(in, name);
        EXPECT_EQ(in.select(0, 39'999).item<float>(), t * 100 + i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- tensors ---------------------------------------------------------------------------------------------------------

TEST_P(AsyncIOBoth, StridedTensors) {
  AioHandle handle = library().aio_handle();
  const Tensor matrix = Tensor::empty({30, 50}, DType::I32);
  for (int64_t i = 0; i < 30; ++i) matrix.select(0, i).fill(static_cast<double>(i));
  handle.sync_pwrite(matrix.transpose(0, 1), path("s"));
  const Tensor plain = Tensor::empty({50, 30}, DType::I32);
  handle.sync_pread(plain, path("s"));
  EXPECT_EQ(plain.to_vector<int32_t>(), matrix.transpose(0, 1).to_vector<int32_t>());
  const Tensor target = Tensor::zeros({30, 50}, DType::I32);
  handle.async_pread(target.transpose(0, 1), path("s"));
  handle.wait();
  EXPECT_EQ(target.to_vector<int32_t>(), matrix.to_vector<int32_t>());
  EXPECT_THROW(handle.sync_pread(Tensor::empty({1}, DType::I32).expand({1500}), path("s")), InvalidArgument);
}

TEST_P(AsyncIOBoth, PinnedMemoryIsRegisteredWhenItComesBack) {
  AioHandle handle = library().aio_handle(16384, 8);
  Tensor pinned = handle.new_cpu_locked_tensor(100'000, DType::U8);
  EXPECT_TRUE(handle.is_pinned(pinned));
  EXPECT_TRUE(handle.is_pinned(pinned.slice(0, 5, 6)));
  EXPECT_FALSE(handle.is_pinned(Tensor::empty({3}, DType::U8)));
  const Bytes expected = random_bytes(100'000, 11);
  for (int i = 0; i < 5; ++i) {
    std::copy(expected.begin(), expected.end(), pinned.data_as<char>());
    handle.sync_pwrite(pinned.slice(0, i, 100'000), path("p"), i);
    handle.async_pread(pinned.slice(0, 10, 90'000), path("p"), 10);
    handle.wait();
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), pinned.data_as<char>()));
  }
  EXPECT_TRUE(content(path("p")) == expected);
  // Memory that is given back and comes again at the same address has other pages.
  for (int i = 0; i < 10; ++i) {
    const auto fill = static_cast<char>(i);
    EXPECT_TRUE(handle.free_cpu_locked_tensor(pinned));
    pinned = handle.new_cpu_locked_tensor(100'000, DType::U8);
    for (int use = 0; use < 3; ++use) {
      std::memset(pinned.data(), fill + use, 100'000);
      handle.sync_pwrite(pinned, path("p"));
      ASSERT_TRUE(content(path("p")) == Bytes(100'000, static_cast<char>(fill + use)));
    }
  }
}

TEST_P(AsyncIOBoth, TensorsOfAnAcceleratorThatTheHostCannotReach) {
  // Its memory holds inverted bytes, so that whoever touches it by mistake is found out.
  const LoadedDriver driver = load_plugin(test::built("tests/plugins/minimal.so"));
  DriverAccelerator accelerator(driver.table, "plugin");
  const AsyncIO aio(accelerator);
  AioHandle handle = aio.aio_handle();
  std::vector<float> values(5000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Tensor out = Tensor::from_host(values.data(), {5000}, DType::F32, accelerator.device());
  handle.async_pwrite(out, path("d"));
  handle.wait();
  Bytes raw(values.size() * 4);
  std::memcpy(raw.data(), values.data(), raw.size());
  EXPECT_TRUE(content(path("d")) == raw);
  const Tensor in = Tensor::empty({5000}, DType::F32, accelerator.device());
  handle.async_pread(in, path("d"));
  handle.wait();
  EXPECT_EQ(in.to_vector<float>(), values);
  const Tensor again = Tensor::empty({50, 100}, DType::F32, accelerator.device());
  handle.sync_pread(again.transpose(0, 1), path("d"));
  EXPECT_EQ(again.transpose(0, 1).contiguous().to_vector<float>(), values);
}

TEST_P(AsyncIOBoth, TensorsOfTheCpuAccelerator) {
  AioHandle handle = library().aio_handle();
  const Tensor out = Tensor::empty({12'345}, DType::BF16, get_accelerator()->device());
  out.fill(1.5);
  handle.sync_pwrite(out, path("c"));
  const Tensor in = Tensor::zeros({12'345}, DType::BF16, get_accelerator()->device());
  handle.async_pread(in, path("c"));
  handle.wait();
  EXPECT_EQ(in.to_vector<float>(), out.to_vector<float>());
}

// ---- failures --------------------------------------------------------------------------------------------------------

TEST_P(AsyncIOBoth, ReadingPastTheEnd) {
  const std::string name = file("short", random_bytes(6000, 12));
  AioHandle handle = library().aio_handle(4096, 4);
  const Tensor buffer = Tensor::empty({8192}, DType::U8);
  const Error error = error_of([&] { handle.sync_pread(buffer, name, 4096); });
  expect_contains(error.what(), "reading 8192 bytes at offset 4096 of " + name);
  expect_contains(error.what(), "the file has 6000 bytes, and 12288 are needed");
  EXPECT_EQ(error.code(), AA_OUT_OF_RANGE);
  EXPECT_NO_THROW(handle.sync_pread(buffer.slice(0, 0, 6000), name));
}

TEST_P(AsyncIOBoth, EveryRequestTellsItsOwnFailure) {
  const std::string good = file("good", random_bytes(100'000, 13));
  AioHandle handle = library().aio_handle(4096, 4, false, true, 2);
  std::vector<Tensor> buffers;
  for (int i = 0; i < 6; ++i) buffers.push_back(Tensor::empty({50'000}, DType::U8));
  std::vector<int64_t> ids;
  ids.push_back(handle.async_pread(buffers[0], good));
  ids.push_back(handle.async_pread(buffers[1], path("missing")));
  ids.push_back(handle.async_pread(buffers[2], good, 50'000));
  ids.push_back(handle.async_pread(buffers[3], directory));
  ids.push_back(handle.async_pwrite(buffers[4], path("nowhere/file")));
  ids.push_back(handle.async_pread(buffers[5], good, 60'000));
  const Error error = error_of([&] { handle.wait(); });
  expect_contains(error.what(), "reading 50000 bytes at offset 0 of " + path("missing") + " failed: No such file");
  expect_contains(error.what(), "4 of 6 requests failed");
  EXPECT_EQ(error.code(), AA_NOT_FOUND);
  EXPECT_EQ(error.native_code(), ENOENT);
  const std::vector<AioResult> results = handle.results();
  ASSERT_EQ(results.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(results[i].request, ids[i]);
    EXPECT_EQ(results[i].ok(), i == 0 || i == 2) << results[i].message;
  }
  EXPECT_EQ(results[3].error, EISDIR);
  EXPECT_EQ(results[4].error, ENOENT);
  expect_contains(results[5].message, "the file has 100000 bytes");
  EXPECT_EQ(handle.wait(), 0u);  // said once
}

TEST_P(AsyncIOBoth, FilesThatCannotBeWritten) {
  AioHandle handle = library().aio_handle();
  const Tensor buffer = Tensor::zeros({100'000}, DType::U8);
  Error error = error_of([&] { handle.sync_pwrite(buffer, directory); });
  EXPECT_EQ(error.native_code(), EISDIR);
  error = error_of([&] { handle.sync_pwrite(buffer, "/dev/full"); });
  EXPECT_EQ(error.native_code(), ENOSPC);
  EXPECT_EQ(error.code(), AA_RESOURCE_EXHAUSTED);
  expect_contains(error.what(), "writing 100000 bytes at offset 0 of /dev/full failed: No space left");
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  error = error_of([&] { handle.sync_pwrite(buffer, path("pipe")); });
  EXPECT_EQ(error.native_code(), ESPIPE);
  EXPECT_THROW(handle.sync_pwrite(buffer, ""), InvalidArgument);
  EXPECT_THROW(handle.sync_pwrite(buffer, std::string("a\0b", 3)), InvalidArgument);
  EXPECT_THROW(handle.sync_pwrite(buffer, path("x"), -1), InvalidArgument);
  EXPECT_THROW(handle.sync_pwrite(Tensor(), path("x")), InvalidArgument);
  EXPECT_THROW(handle.sync_pread(buffer, path("x"), std::numeric_limits<int64_t>::max()), InvalidArgument);
}

// Runs `body` in a child, so that what it changes about the process is gone afterwards. `body` returns what is wrong.
void in_child(const std::function<std::string()>& body) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    std::string wrong;
    try {
      wrong = body();
    } catch (const std::exception& error) {
      wrong = std::string("threw ") + error.what();
    }
    [[maybe_unused]] const ssize_t written = write(ends[1], wrong.data(), wrong.size());
    _exit(wrong.empty() ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char piece[512];
  for (ssize_t got = 0; (got = read(ends[0], piece, sizeof(piece))) > 0;) text.append(piece, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status << ": " << text;
}

std::string check_round_trip(AioHandle& handle, const std::string& name, const Tensor& buffer) {
  const Bytes expected = random_bytes(buffer.nbytes(), 21);
  for (int i = 0; i < 3; ++i) {
    std::copy(expected.begin(), expected.end(), static_cast<char*>(buffer.data()));
    handle.sync_pwrite(buffer, name);
    buffer.fill(0);
    handle.sync_pread(buffer, name);
    if (std::memcmp(buffer.data(), expected.data(), expected.size()) != 0) return "the bytes differ";
  }
  return "";
}

TEST_P(AsyncIOBoth, ALimitOnFileSizesIsAnError) {
  in_child([&] {
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    AioHandle handle = library().aio_handle();
    const Tensor buffer = Tensor::zeros({2 << 20}, DType::U8);
    try {
      handle.sync_pwrite(buffer, path("big"));
      return std::string("nothing was thrown");
    } catch (const Error& error) {
      if (error.native_code() != EFBIG) return std::string(error.what());
      if (std::string(error.what()).find("ulimit -f") == std::string::npos) return std::string(error.what());
    }
    return check_round_trip(handle, path("small"), buffer.slice(0, 0, 1 << 20));
  });
}

// Enough for a ring but not for a buffer, and not enough for a ring.
TEST_P(AsyncIOBoth, LittleLockedMemory) {
  ASSERT_EQ(chmod(directory.c_str(), 0777), 0);
  for (const rlim_t bytes : {rlim_t{256} << 10, rlim_t{4096}}) {
    in_child([&] {
      const Tensor pinned = library().aio_handle().new_cpu_locked_tensor(1 << 20, DType::U8);
      const rlimit limit{bytes, bytes};
      setrlimit(RLIMIT_MEMLOCK, &limit);
      // Root is not held to the limit, so it becomes another user first.
      if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) return std::string();
      if (bytes == 4096) setenv("ANYACCEL_AIO", "auto", 1);
      AioHandle handle = library().aio_handle(65536, 8);
      return check_round_trip(handle, path("locked" + std::to_string(bytes)), pinned);
    });
  }
}

TEST_P(AsyncIOBoth, ReadOnlyFiles) {
  ASSERT_EQ(chmod(directory.c_str(), 0777), 0);
  const std::string name = file("read_only", random_bytes(100, 14));
  ASSERT_EQ(chmod(name.c_str(), 0444), 0);
  in_child([&] {
    if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) return std::string();
    AioHandle handle = library().aio_handle();
    try {
      handle.sync_pwrite(Tensor::zeros({100}, DType::U8), name);
      return std::string("nothing was thrown");
    } catch (const Error& error) {
      if (error.code() != AA_PERMISSION_DENIED) return std::string(error.what());
    }
    return std::string();
  });
}

TEST_P(AsyncIOBoth, AFullDisk) {
  if (getuid() != 0) GTEST_SKIP() << "only root may mount a small file system to fill";
  const std::string small = path("small");
  ASSERT_EQ(mkdir(small.c_str(), 0700), 0);
  if (mount("tmpfs", small.c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "the system refuses to mount a small tmpfs to fill: " << std::strerror(errno);
  }
  {
    AioHandle handle = library().aio_handle(65536, 8);
    const Tensor big = Tensor::zeros({3 << 20}, DType::U8);
    const Error error = error_of([&] { handle.sync_pwrite(big, small + "/big"); });
    EXPECT_EQ(error.native_code(), ENOSPC);
    std::filesystem::remove(small + "/big");
    // A file system of another kind, with or without O_DIRECT.
    const Tensor fits = Tensor::zeros({500'001}, DType::U8);
    EXPECT_EQ(check_round_trip(handle, small + "/fits", fits), "");
    EXPECT_EQ(std::filesystem::file_size(small + "/fits"), 500'001u);
  }
  EXPECT_EQ(umount(small.c_str()), 0) << std::strerror(errno);
}

TEST_P(AsyncIOBoth, ValidationNoticesWhatChanged) {
  // Every read of a character device of random bytes differs.
  AioHandle handle = library().aio_handle();
  const Tensor buffer = Tensor::zeros({4096}, DType::U8);
  const Error error = error_of([&] { handle.pread(buffer, "/dev/urandom", true, false); });
  EXPECT_EQ(error.code(), AA_DATA_LOSS);
  expect_contains(error.what(), "/dev/urandom");
}

TEST_P(AsyncIOBoth, AChildOfForkIsToldApart) {
  AioHandle handle = library().aio_handle();
  const Tensor buffer = Tensor::zeros({100'000}, DType::U8);
  handle.async_pwrite(buffer, path("parent"));
  in_child([&] {
    try {
      handle.sync_pwrite(buffer, path("child"));
      return std::string("nothing was thrown");
    } catch (const InvalidArgument&) {
    }
    const AioHandle gone = std::move(handle);
#ifdef __SANITIZE_THREAD__  // which does not support threads in the child of a threaded process
    return std::string();
#endif
    AioHandle own = library().aio_handle();
    return check_round_trip(own, path("own"), buffer);
  });
  EXPECT_EQ(handle.wait(), 1u);
}

// ---- systems that refuse ---------------------------------------------------------------------------------------------

TEST_F(AsyncIOTest, TheEnvironmentChooses) {
  setenv("ANYACCEL_AIO", "threads", 1);
  EXPECT_STREQ(library().aio_handle().backend(), "threads");
  setenv("ANYACCEL_AIO", "fast", 1);
  const auto error = error_of<InvalidArgument>([] { library().aio_handle(); });
  EXPECT_STREQ(error.what(), "ANYACCEL_AIO is \"fast\"; it must be uring, threads or auto");
  unsetenv("ANYACCEL_AIO");
  EXPECT_THROW(library().aio_handle(0), InvalidArgument);
  EXPECT_THROW(library().aio_handle(4096, 0), InvalidArgument);
  EXPECT_THROW(library().aio_handle(4096, 5000), InvalidArgument);
  EXPECT_THROW(library().aio_handle(4096, 1, false, false, 0), InvalidArgument);
}

// As in a container.
void refuse_system_call(long number) {
  if (!test::refuse_system_calls({number}, EPERM)) throw Error("the system takes no seccomp filter");
}

TEST_F(AsyncIOTest, WhereIoUringIsRefusedThreadsDoIt) {
  in_child([&] {
    refuse_system_call(__NR_io_uring_setup);
    AioHandle handle = library().aio_handle(16384, 8, false, true, 2);
    if (std::string(handle.backend()) != "threads") return std::string(handle.backend());
    return check_round_trip(handle, path("a"), Tensor::zeros({300'001}, DType::U8));
  });
  in_child([&] {
    refuse_system_call(__NR_io_uring_setup);
    setenv("ANYACCEL_AIO", "uring", 1);
    try {
      library().aio_handle();
      return std::string("nothing was thrown");
    } catch (const UnavailableError& error) {
      const std::string text = error.what();
      return text.find("Operation not permitted") != std::string::npos ? std::string() : text;
    }
  });
}

TEST_F(AsyncIOTest, ARingThatMayNotBeUsedIsAnErrorNotAHang) {
  setenv("ANYACCEL_AIO", "uring", 1);
  try {
    library().aio_handle();
  } catch (const UnavailableError& error) {
    GTEST_SKIP() << error.what();
  }
  const std::string name = file("a", random_bytes(100'000, 15));
  in_child([&] {
    refuse_system_call(__NR_io_uring_enter);
    AioHandle handle = library().aio_handle(4096, 8);
    try {
      handle.sync_pread(Tensor::zeros({100'000}, DType::U8), name);
      return std::string("nothing was thrown");
    } catch (const Error& error) {
      return error.native_code() == EPERM ? std::string() : std::string(error.what());
    }
  });
}

TEST_F(AsyncIOTest, LoadsByName) {
  auto aio = get_accelerator()->create_op_builder("AsyncIOBuilder")->load_as<AsyncIO>();
  aio->aio_write(Tensor::zeros({3}, DType::F32), path("b"));
  EXPECT_EQ(std::filesystem::file_size(path("b")), 12u);
}

// ---- deepspeed_memcpy ------------------------------------------------------------------------------------------------

TEST_F(AsyncIOTest, MemcpyOfEveryDtypeAndSize) {
  const AsyncIO aio = library();
  for (const DType dtype : {DType::U8, DType::BF16, DType::F32, DType::F64, DType::I64}) {
    for (const int64_t n : {0, 1, 7, 31, 33, 1000}) {
      const Tensor source = Tensor::empty({n + 2}, dtype);
      source.fill(5);
      const Tensor target = Tensor::zeros({n + 2}, dtype);
      aio.deepspeed_memcpy(target.slice(0, 1, n + 1), source.slice(0, 1, n + 1));
      const std::vector<double> values = target.to_vector<double>();
      EXPECT_EQ(values.front(), 0);
      EXPECT_EQ(values.back(), 0);
      for (int64_t i = 1; i <= n; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], 5);
    }
  }
  const Bytes large = random_bytes((33 << 20) + 17, 16);
  const Tensor target = Tensor::empty({static_cast<int64_t>(large.size())}, DType::U8);
  aio.deepspeed_memcpy(target, Tensor::from_blob(const_cast<char*>(large.data()), target.shape(), DType::U8, nullptr));
  EXPECT_EQ(std::memcmp(target.data(), large.data(), large.size()), 0);
  // Another shape with as many elements, and the accelerator's memory.
  const Tensor device = Tensor::zeros({4, 6}, DType::F32, get_accelerator()->device());
  const Tensor ones = Tensor::empty({6, 4}, DType::F32);
  ones.fill(1);
  aio.deepspeed_memcpy(device, ones.transpose(0, 1));
  EXPECT_EQ(device.to_vector<float>(), std::vector<float>(24, 1.0f));
  EXPECT_THROW(aio.deepspeed_memcpy(device, Tensor::zeros({23}, DType::F32)), InvalidArgument);
  EXPECT_THROW(aio.deepspeed_memcpy(device, Tensor::zeros({24}, DType::F64)), InvalidArgument);
  EXPECT_THROW(aio.deepspeed_memcpy(device, Tensor()), InvalidArgument);
}

}  // namespace
}  // namespace anyaccel::ops
