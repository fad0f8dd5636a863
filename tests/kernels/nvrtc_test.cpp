// Every kernel compiles as CUDA C++, without headers of a vendor: checked with NVRTC, which needs no GPU. What registers and shared
// memory the tuned kernels take is compared with kernels/cuda/resources.txt. Skipped where NVRTC is not installed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "accelerators/cuda/compile/rtc.h"
#include "accelerators/cuda/ops/decode_plan.h"
#include "anyaccel/device_op.h"
#include "kernels/vendor_compilers.h"

namespace anyaccel {
namespace {

namespace fs = std::filesystem;

const fs::path resources_file = kernels_folder / "cuda/resources.txt";
// Tuned kernels have code for architectures, and take different registers on each: one type of elements is compiled for all of
// them, every type for the first.
const std::vector<std::string> architectures = {"sm_90", "sm_80", "sm_100"};
// Of the files whose names begin with "hopper_".
const std::vector<std::string> hopper_architectures = {"sm_90a"};
// Portable kernels have no code for an architecture, so that one choice of types is assembled for the first, and the others are
// compiled to PTX for the oldest, which has no instruction that a newer one lacks; a file without types is compiled for both. The
// assembler takes as long as all that comes before it, and what it could refuse, such as too much static shared memory, is the same
// for all of them.
constexpr const char* oldest_architecture = "compute_80";

// Null: not installed, and `tried` says where it was looked for.
const cuda::RuntimeCompiler* nvrtc(std::string& tried) { return cuda::find_nvrtc(0, 90, tried); }

// ---- kernels/portable --------------------------------------------------------------------------------------------------

class NvrtcTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string tried;
    if (!nvrtc(tried)) GTEST_SKIP() << "no NVRTC (a part of the CUDA toolkit): " << tried;
  }
};

TEST_P(NvrtcTest, Compiles) {
  const fs::path file = kernels_folder / "portable" / GetParam();
  const std::string source = expand_includes(file.string(), {cuda_dialect});
  EXPECT_EQ(source.find("__CUDA_ARCH__"), std::string::npos) << GetParam() << " has code for an architecture";
  std::string tried;
  const cuda::RuntimeCompiler& compiler = *nvrtc(tried);
  const std::vector<std::string> constants = {"-DAA_GROUP_SIZE=256", "-DAA_LANES=32",          "-DAA_SUBGROUP=32",
                                              "-DAA_ITEMS=256",      "-DAA_LOCAL_BYTES=49152", "-DAA_HAS_F16=1",
                                              "-DAA_HAS_F64=1"};
  const auto compile_for = [&](const std::string& architecture, std::vector<std::string> options,
                               cuda::RuntimeCompiler::Image image) {
    options.insert(options.begin(), constants.begin(), constants.end());
    options.insert(options.begin(), "--gpu-architecture=" + architecture);
    compile_unless_recorded(compiler, GetParam(), source, options, image);
  };
  const std::vector<std::vector<std::string>> choices = type_options(read_text(file));
  compile_for(architectures[0], choices[0], cuda::RuntimeCompiler::Image::native);
  for (size_t i = choices.size() > 1 ? 1 : 0; i < choices.size(); ++i) {
    compile_for(oldest_architecture, choices[i], cuda::RuntimeCompiler::Image::ptx);
  }
}

INSTANTIATE_TEST_SUITE_P(PortableKernels, NvrtcTest, ::testing::ValuesIn(files_of("portable", ".cl")),
                         [](const auto& info) { return fs::path(info.param).stem().string(); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NvrtcTest);

// ---- kernels/cuda ------------------------------------------------------------------------------------------------------

struct Resources {
  int registers = 0, spill_bytes = 0, shared_bytes = 0;
  std::string hash;    // CompileRecord's, of the source and the options
  size_t kernels = 0;  // that these gave: a table that lacks one of them does not stand for compiling them
};
using Table = std::map<std::string, Resources>;  // by "kernel architecture"

// The resources of each kernel, as ptxas writes them into its log.
Table parse_log(const std::string& log, const std::string& architecture, const std::string& hash) {
  static const std::regex entry("Compiling entry function '([^']+)'");
  static const std::regex spills("([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads");
  static const std::regex registers("Used ([0-9]+) registers");
  static const std::regex shared("([0-9]+) bytes smem");
  Table found;
  std::istringstream lines(log);
  std::smatch match;
  Resources* kernel = nullptr;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, match, entry)) kernel = &found[match[1].str() + " " + architecture];
    if (!kernel) continue;
    kernel->hash = hash;
    if (std::regex_search(line, match, spills)) {
      // Also of the functions that the kernel calls.
      kernel->spill_bytes = std::max({kernel->spill_bytes, std::stoi(match[1]), std::stoi(match[2])});
    }
    if (std::regex_search(line, match, registers)) kernel->registers = std::stoi(match[1]);
    if (std::regex_search(line, match, shared)) kernel->shared_bytes = std::stoi(match[1]);
  }
  for (auto& [name, r] : found) r.kernels = found.size();
  return found;
}

struct Job {
  std::string file, source, architecture;
  std::vector<std::string> options;
};

// The definitions under which the product compiles a file, beside element types: one of the sizes that its kernels
// are made for, "AA_HEAD=64" where the file has "#if !defined(AA_HEAD) || AA_HEAD == 64", and the shapes of
// decode_plan.h for kernels of decode_products.h. "": there is nothing to choose.
std::vector<std::string> sizes_of(const std::string& text) {
  static const std::regex size("!defined\\((AA_[A-Z]+)\\) \\|\\| AA_[A-Z]+ == ([0-9]+)");
  std::vector<std::string> sizes;
  for (size_t kernel = 0; kernel < cuda::decode_kernels.size() && text.find("AA_DECODE_KERNELS(") != std::string::npos;
       ++kernel) {
    sizes.push_back("AA_SHAPE=" + std::to_string(cuda::decode_shape(kernel)));
  }
  for (std::sregex_iterator i(text.begin(), text.end(), size), end; i != end; ++i) {
    sizes.push_back((*i)[1].str() + "=" + (*i)[2].str());
  }
  return sizes.empty() ? std::vector<std::string>{""} : sizes;
}

std::vector<Job> tuned_jobs() {
  std::vector<Job> jobs;
  for (const std::string& file : files_of("cuda", ".cu")) {
    const fs::path path = kernels_folder / "cuda" / file;
    const std::string source = expand_includes(path.string(), {(kernels_folder / "portable").string(), cuda_dialect});
    const std::string text = read_text(path);
    const bool hopper = file.starts_with("hopper_");
    for (const std::string& architecture : hopper ? hopper_architectures : architectures) {
      for (const std::vector<std::string>& types : type_options(text)) {
        for (const std::string& size : sizes_of(text)) {
          Job& job =
              jobs.emplace_back(Job{file,
                                    source,
                                    architecture,
                                    {"--gpu-architecture=" + architecture, "--ptxas-options=-v", "-diag-suppress=177",
                                     "-DAA_GROUP_SIZE=1", "-DAA_LANES=1", "-DAA_SUBGROUP=0", "-DAA_ITEMS=1",
                                     "-DAA_LOCAL_BYTES=0", "-DAA_HAS_F16=1", "-DAA_HAS_F64=1"}});
          job.options.insert(job.options.end(), types.begin(), types.end());
          if (!size.empty()) job.options.push_back("-D" + size);
        }
        if (!hopper && architecture != architectures[0]) break;
      }
    }
  }
  return jobs;
}

// "nvrtc 13.0": registers are given out differently by another version.
std::string compiler_version(const cuda::RuntimeCompiler& compiler) {
  return compiler.identity().substr(0, compiler.identity().find(" ("));
}

Table read_table(std::string& version) {
  Table table;
  std::ifstream stream(resources_file);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("# nvrtc")) version = line.substr(2);
    std::istringstream words(line);
    std::string kernel, architecture;
    Resources r;
    if (line.empty() || line[0] == '#') continue;
    words >> kernel >> architecture >> r.registers >> r.spill_bytes >> r.shared_bytes >> r.hash >> r.kernels;
    EXPECT_TRUE(words) << resources_file
                       << ": not \"kernel architecture registers spill_bytes shared_bytes hash kernels\": " << line;
    table[kernel + " " + architecture] = r;
  }
  return table;
}

void write_table(const Table& table, const std::string& version) {
  std::ofstream stream(resources_file);
  stream << "# What each kernel of this folder takes: kernel, architecture, registers of a thread, bytes spilled, "
            "bytes of\n"
            "# static shared memory, a hash of its source and options, with which it is not compiled again, and the "
            "number of\n"
            "# kernels with that hash.\n"
            "# Compared by tests/kernels/nvrtc_test.cpp; written anew by\n"
            "# ANYACCEL_WRITE_RESOURCES=1 build/release/tests/nvrtc_test. Look at the difference before keeping it.\n# "
         << version << "\n";
  for (const auto& [name, r] : table) {
    stream << name << " " << r.registers << " " << r.spill_bytes << " " << r.shared_bytes << " " << r.hash << " "
           << r.kernels << "\n";
  }
  ASSERT_TRUE(stream.good()) << resources_file;
}

TEST(NvrtcTunedKernels, TakeNoMoreThanTheTableSays) {
  std::string tried;
  const cuda::RuntimeCompiler* compiler = nvrtc(tried);
  if (!compiler) GTEST_SKIP() << "no NVRTC (a part of the CUDA toolkit): " << tried;
  // With a driver installed, NVRTC 13 keeps compiled programs; ptxas is to run, and to tell what it did.
  ::setenv("CUDA_CACHE_DISABLE", "1", 1);
  const std::vector<Job> jobs = tuned_jobs();
  std::string version;
  const Table table = read_table(version);
  const bool is_known = version == compiler_version(*compiler);
  Table measured;
  std::mutex mutex;  // guards `measured`
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < jobs.size(); i = next++) {
      const Job& job = jobs[i];
      // Every #include is resolved by name: there are no folders to search, and no header of the vendor's is needed.
      EXPECT_EQ(job.source.find("#include <"), std::string::npos) << job.file;
      const std::string hash =
          CompileRecord::hash_of(*compiler, job.file, job.source, job.options, cuda::RuntimeCompiler::Image::native);
      Table of_job;
      for (const auto& [name, r] : table) {
        if (is_known && r.hash == hash) of_job[name] = r;
      }
      std::string log = "(the table)";
      if (of_job.empty() || of_job.begin()->second.kernels != of_job.size()) {
        log = compile_once(*compiler, job.file, job.source, job.options);
        of_job = parse_log(log, job.architecture, hash);
      }
      const std::scoped_lock lock(mutex);
      for (const auto& [name, r] : of_job) {
        measured[name] = r;
        if (job.file.starts_with("decode_")) {
          EXPECT_EQ(r.spill_bytes, 0) << job.file << ": " << name << " spills registers";
        }
        EXPECT_GT(r.registers, 0) << "the log tells nothing of " << name << ":\n" << log;
      }
    }
  };
  std::vector<std::thread> threads(std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
  for (std::thread& thread : threads) thread = std::thread(work);
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(measured.empty());

  if (HasFailure()) return;
  if (CompileRecord::is_written()) return write_table(measured, compiler_version(*compiler));
  const std::string renew = "; if that is meant, run this test once with ANYACCEL_WRITE_RESOURCES=1";
  if (version != compiler_version(*compiler)) {
    GTEST_SKIP() << resources_file << " was made with " << version << ", this is " << compiler_version(*compiler);
  }
  for (const auto& [name, r] : measured) {
    const auto known = table.find(name);
    if (known == table.end()) {
      ADD_FAILURE() << name << " is not in " << resources_file << renew;
      continue;
    }
    const Resources& k = known->second;
    EXPECT_LE(r.registers, k.registers) << name << " takes more registers than recorded" << renew;
    EXPECT_LE(r.spill_bytes, k.spill_bytes) << name << " spills more than recorded" << renew;
    EXPECT_LE(r.shared_bytes, k.shared_bytes) << name << " takes more shared memory than recorded" << renew;
  }
  for (const auto& [name, r] : table) {
    EXPECT_TRUE(measured.contains(name)) << name << " of " << resources_file << " is gone" << renew;
  }
}

}  // namespace
}  // namespace anyaccel
