// Implements bench aio: compares reading a file into a tensor and writing it from one with fio, using the same file,
// block size and depth.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>

#include "anyaccel/error.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/ops/async_io.h"
#include "base/process/shell.h"
#include "base/process/subprocess.h"
#include "base/text/json.h"
#include "cli/bench/bench.h"
#include "cli/bench/child_process.h"

namespace anyaccel::cli::bench {
namespace {

// Seconds of each side of a run. Virtual disks are fast in bursts and then slow down: both sides start with an
// uncounted second, measure for long, and alternate in going first.
constexpr double run_seconds = 5;

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

// Returns GB/s by fio's own clock; 0 if it fails. Its first second does not count, because a new process touches its
// buffers for the first time then, unlike a program that has read before.
double run_fio(const std::string& fio, const std::string& file, bool write, const Options& options) {
  const std::string text =
      output_of(fio, {"--name=bench", "--filename=" + file, std::string("--rw=") + (write ? "write" : "read"),
                      "--ioengine=io_uring", "--direct=1", "--bs=" + std::to_string(options.block_size),
                      "--iodepth=" + std::to_string(options.queue_depth),
                      "--size=" + std::to_string(options.file_bytes), "--time_based=1", "--ramp_time=1",
                      "--runtime=" + std::to_string(static_cast<int>(run_seconds)), "--output-format=json"});
  try {
    const JsonDocument report = JsonDocument::parse(text, "fio");
    const JsonRef job = report.root().at("jobs")[0];
    return 1e-9 * job.at(write ? "write" : "read").at("bw_bytes").number(0, 1e15);
  } catch (const CheckpointError&) {
    return 0;
  }
}

// Does the same without fio: one thread transfers one block after the other.
double run_plain(const std::string& file, bool write, char* memory, size_t room, const Options& options) {
  const size_t block = std::min(room, size_t{4} << 20);
  const int fd = open(file.c_str(), (write ? O_WRONLY : O_RDONLY) | O_DIRECT | O_CLOEXEC);
  if (fd < 0) return 0;
  const auto start = Clock::now();
  size_t done = 0;
  while (done < options.file_bytes) {
    const size_t length = std::min(block, options.file_bytes - done);
    const ssize_t got = write ? pwrite(fd, memory, length, static_cast<off_t>(done))
                              : pread(fd, memory, length, static_cast<off_t>(done));
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
  // fio uses only as much memory as its transfers in flight, and caches make a difference: so this side reuses the same
  // amount of memory. It is the memory of an ordinary tensor, which is in huge pages; fio has no option for those.
  const size_t room =
      std::min(options.file_bytes, static_cast<size_t>(options.block_size) * static_cast<size_t>(options.queue_depth));
  const Tensor tensor = Tensor::empty({static_cast<int64_t>(room)}, DType::U8);
  char* const memory = tensor.data_as<char>();
  std::vector<ops::AioRequest> requests;
  for (size_t at = 0; at < options.file_bytes; at += room) {
    const size_t length = std::min(room, options.file_bytes - at);
    requests.push_back({tensor.slice(0, 0, static_cast<int64_t>(length)), file.path(), static_cast<int64_t>(at)});
  }
  std::mt19937_64 random(1);
  for (size_t i = 0; i + 8 <= room; i += 8) {
    const uint64_t word = random();
    std::memcpy(memory + i, &word, 8);
  }
  handle.sync_pwrite(requests);

  const std::string fio = find_program("fio");
  for (const bool write : {false, true}) {
    Result result{.name = write ? "aio.write" : "aio.read", .unit = "GB/s", .ceiling_name = ""};
    std::vector<double> values;
    std::vector<double> ceilings;
    int rounds = 1;
    // fio loops over the file without a pause; so this side must not wait for the last transfers of every round either.
    const auto go_round = [&](int times) {
      const auto start = Clock::now();
      for (int round = 0; round < times; ++round) {
        if (write) {
          handle.async_pwrite(requests);
        } else {
          handle.async_pread(requests);
        }
      }
      handle.wait();
      return seconds_since(start);
    };
    const auto own_rate = [&] {
      double warm_up = 0;
      int warm_up_rounds = 0;
      for (; warm_up < 1; ++warm_up_rounds) warm_up += go_round(1);
      rounds = std::clamp(static_cast<int>(std::lround(run_seconds * warm_up_rounds / warm_up)), 1, 64);
      return 1e-9 * static_cast<double>(options.file_bytes) * rounds / go_round(rounds);
    };
    const auto peer_rate = [&] {
      return fio.empty() ? run_plain(file.path(), write, memory, room, options)
                         : run_fio(fio, file.path(), write, options);
    };
    for (int run = 0; run < options.runs; ++run) {
      double value = 0;
      double ceiling = 0;
      if (run % 2 == 0) {
        value = own_rate();
        ceiling = peer_rate();
      } else {
        ceiling = peer_rate();
        value = own_rate();
      }
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
