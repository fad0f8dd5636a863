// Implements bench jit: measures loading an op in a new process, when it was built before and when it was not.
//
// Each figure is the slowest op's: load() of every builder that has sources is timed in a separate process. jit.warm's
// ceiling is opening and closing the same library; jit.cold's is the compiler's own time for the same command.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "anyaccel/error.h"
#include "anyaccel/op_builder.h"
#include "base/files/files.h"
#include "base/process/toolchain.h"
#include "cli/bench/bench.h"
#include "cli/bench/child_process.h"
#include "ops/build/build_cache.h"

namespace anyaccel::cli::bench {
namespace {

// Sets an environment variable for the processes that start while this object exists.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Setting() {
    if (before_.empty()) {
      unsetenv(name_);
    } else {
      setenv(name_, before_.c_str(), 1);
    }
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  std::string before_;
};

double load_ms(const std::string& builder) {
  const std::string output = own_output({"bench", "--jit-probe", builder});
  if (output.empty()) {
    get_accelerator()->create_op_builder(builder)->load();  // prints the error
    throw Error("the process that loads " + builder + " failed");
  }
  return std::atof(output.c_str());
}

}  // namespace

int jit_probe(const std::string& builder) {
  auto op = get_accelerator()->create_op_builder(builder);
  if (!op) throw InvalidArgument("there is no op builder \"" + builder + "\"");
  get_accelerator()->synchronize();  // starts the device, which is `bench start`'s figure
  const auto begin = Clock::now();
  op->jit_load();
  std::printf("%.6f\n", 1e3 * seconds_since(begin));
  return 0;
}

void run_jit(const Options& options, std::vector<Result>& results) {
  cxx_command();  // without a compiler there is nothing to measure, which is an error that says what is missing
  const TemporaryFolder cache("jit");
  const Setting setting("ANYACCEL_CACHE_DIR", cache.path().string());
  Result warm;
  Result cold;
  for (const std::string& name : options.builders.empty() ? known_op_builders() : options.builders) {
    auto builder = get_accelerator()->create_op_builder(name);
    if (!builder)
      throw InvalidArgument("bench jit: there is no op builder \"" + name + "\"; `anyaccel info` lists them");
    std::string reason;
    if (!builder->is_compatible(&reason) || builder->sources().empty()) {
      if (options.builders.empty()) continue;
      throw InvalidArgument("bench jit: " + name +
                            (reason.empty() ? " has nothing to compile" : " cannot be used: " + reason));
    }
    const BuildPlan plan = builder->builder();
    std::vector<double> warm_times;
    std::vector<double> cold_times;
    double compiler = 1e9;
    double opening = 1e9;
    for (int run = 0; run < options.runs; ++run) {
      std::filesystem::remove_all(cache.file("ops"));
      cold_times.push_back(load_ms(name));

      const TemporaryFolder work("jit");
      const std::string library = work.file("library.so");
      auto begin = Clock::now();
      ops::compile_library(plan, work.path(), library);
      compiler = std::min(compiler, 1e3 * seconds_since(begin));

      for (int i = 0; i < 5; ++i) warm_times.push_back(load_ms(name));
      begin = Clock::now();
      void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
      opening = std::min(opening, 1e3 * seconds_since(begin));
      if (handle) dlclose(handle);
    }
    Result candidate{.name = "jit.warm", .unit = "ms", .ceiling = opening, .ceiling_name = "dlopen of " + plan.op_name};
    summarize(candidate, warm_times, true);
    if (candidate.value > warm.value) warm = candidate;
    candidate = {
        .name = "jit.cold", .unit = "ms", .ceiling = compiler, .ceiling_name = "the compiler on " + plan.op_name};
    summarize(candidate, cold_times, true);
    if (candidate.value > cold.value) cold = candidate;
  }
  if (warm.runs) results.push_back(warm);
  if (cold.runs) results.push_back(cold);
}

}  // namespace anyaccel::cli::bench
