// bench aio: a file read into a tensor and written from one, beside fio with the same file, block size and depth.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "anyaccel/error.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/ops/async_io.h"
#include "cli/bench/bench.h"
#include "cli/bench/child_process.h"

namespace anyaccel::cli::bench {
namespace {

// The file that both sides read and write; removed at the end.
class BenchFile {
 public:
  explicit BenchFile(const std::string& directory, size_t bytes) {
    struct statvfs space {};
    if (statvfs(directory.c_str(), &space) != 0) {
      throw UnavailableError("bench aio: " + directory + ": " + std::strerror(errno));
    }
    if (static_cast<size_t>(space.f_bavail) * space.f_frsize < bytes + bytes / 8) {
      throw UnavailableError("bench aio: " + directory + " has no room for a file of " + std::to_string(bytes) +
                             " bytes; name another directory with --dir, or a smaller --file-bytes");
    }
    path_ = directory + "/anyaccel-bench-XXXXXX";
    const int fd = mkstemp(path_.data());
    if (fd < 0) throw UnavailableError("bench aio: cannot make a file in " + directory + ": " + std::strerror(errno));
    close(fd);
  }
  ~BenchFile() { unlink(path_.c_str()); }
  BenchFile(const BenchFile&) = delete;
  BenchFile& operator=(const BenchFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string file = folder + '/' + name;
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

// GB/s by fio's own clock; 0 when it fails. Its first second does not count: a new process touches its buffers for the
// first time then, as a program that has read before does not.
double run_fio(const std::string& fio, const std::string& file, bool write, const Options& options) {
  const std::string text = output_of(
      fio, {"--name=bench", "--filename=" + file, std::string("--rw=") + (write ? "write" : "read"),
            "--ioengine=io_uring", "--direct=1", "--bs=" + std::to_string(options.block_size),
            "--iodepth=" + std::to_string(options.queue_depth), "--size=" + std::to_string(options.file_bytes),
            "--time_based=1", "--ramp_time=1", "--runtime=2", "--output-format=json"});
  const auto report = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (report.is_discarded() || !report.contains("jobs")) return 0;
  return 1e-9 * report["jobs"].at(0).at(write ? "write" : "read").value("bw_bytes", 0.0);
}

// The same without fio: blocks one after the other, by one thread.
double run_plain(const std::string& file, bool write, char* memory, const Options& options) {
  constexpr size_t block = size_t{4} << 20;
  const int fd = open(file.c_str(), (write ? O_WRONLY : O_RDONLY) | O_DIRECT | O_CLOEXEC);
  if (fd < 0) return 0;
  const auto start = Clock::now();
  size_t done = 0;
  while (done < options.file_bytes) {
    const size_t length = std::min(block, options.file_bytes - done);
    const ssize_t got = write ? pwrite(fd, memory + done, length, static_cast<off_t>(done))
                              : pread(fd, memory + done, length, static_cast<off_t>(done));
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  const double seconds = seconds_since(start);
  close(fd);
  return done == options.file_bytes ? 1e-9 * static_cast<double>(done) / seconds : 0;
}

}  // namespace

void run_aio(const Options& options, std::vector<Result>& results) {
  auto aio = get_accelerator()->create_op_builder("AsyncIOBuilder")->load_as<ops::AsyncIO>();
  ops::AioHandle handle = aio->aio_handle(options.block_size, options.queue_depth);
  const BenchFile file(options.directory.empty() ? std::filesystem::current_path().string() : options.directory,
                       options.file_bytes);
  // At a page's boundary, as get_alignment() asks for, and touched.
  std::shared_ptr<void> memory(std::aligned_alloc(size_t{1} << 21, (options.file_bytes + (1 << 21)) >> 21 << 21),
                               &std::free);
  if (!memory) throw OutOfMemoryError("bench aio: no memory for " + std::to_string(options.file_bytes) + " bytes");
  const Tensor tensor =
      Tensor::from_blob(memory.get(), Shape{static_cast<int64_t>(options.file_bytes)}, DType::U8, memory);
  std::mt19937_64 random(1);
  for (size_t i = 0; i + 8 <= options.file_bytes; i += 8) {
    const uint64_t word = random();
    std::memcpy(static_cast<char*>(memory.get()) + i, &word, 8);
  }
  handle.sync_pwrite(tensor, file.path());

  const std::string fio = find_program("fio");
  for (const bool write : {false, true}) {
    Result result{.name = write ? "aio.write" : "aio.read", .unit = "GB/s", .ceiling_name = ""};
    std::vector<double> values;
    std::vector<double> ceilings;
    for (int run = 0; run < options.runs + 1; ++run) {
      const auto start = Clock::now();
      if (write) {
        handle.sync_pwrite(tensor, file.path());
      } else {
        handle.sync_pread(tensor, file.path());
      }
      const double value = 1e-9 * static_cast<double>(options.file_bytes) / seconds_since(start);
      const double ceiling = fio.empty() ? run_plain(file.path(), write, static_cast<char*>(memory.get()), options)
                                         : run_fio(fio, file.path(), write, options);
      if (run == 0) continue;  // warms both up
      values.push_back(value);
      if (ceiling > 0) ceilings.push_back(ceiling);
    }
    if (!ceilings.empty()) {
      Result peer;
      summarize(peer, ceilings, false);
      result.ceiling = peer.value;
      result.ceiling_name = fio.empty() ? "one thread, O_DIRECT, 4 MiB (no fio)" : "fio io_uring, O_DIRECT";
    } else {
      result.ceiling_name = "none: no fio, or no O_DIRECT there";
    }
    summarize(result, values, false);
    results.push_back(result);
  }
}

}  // namespace anyaccel::cli::bench
