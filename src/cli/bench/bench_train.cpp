// Implements bench train: measures steps of examples/train, a separate program beside this one, since the command does
// not contain the layers for training. It measures the same steps again with the optimizer's states on the host, and in
// a file.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "anyaccel/error.h"
#include "base/text/json.h"
#include "cli/bench/bench.h"
#include "cli/bench/child_process.h"

namespace anyaccel::cli::bench {
namespace {

namespace fs = std::filesystem;

// The bundled model's shape, with bytes as tokens.
constexpr int64_t hidden = 192, layers = 6, heads = 6, kv_heads = 2, intermediate = 512, batch = 8, length = 256;

// Returns the operations of a step's products: each is done once forward and twice backward; attention uses half of the
// scores.
double operations() {
  constexpr int64_t tokens = 258, head_dim = hidden / heads;
  const int64_t attention = 2 * hidden * heads * head_dim + 2 * hidden * kv_heads * head_dim;
  const int64_t weights = layers * (attention + 3 * hidden * intermediate) + tokens * hidden;
  const int64_t scores = layers * heads * head_dim * length;  // for one token: scores and their products with values
  return 6.0 * static_cast<double>(batch * length) * static_cast<double>(weights + scores);
}

// A folder that is removed at the end.
class Folder {
 public:
  Folder(const std::string& parent, const char* name) {
    std::string made = (fs::path(parent.empty() ? "." : parent) / (std::string(name) + "-XXXXXX")).string();
    if (!mkdtemp(made.data())) throw Error("bench train: cannot make a folder in '" + parent + "'");
    path_ = made;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Returns the milliseconds of each step.
std::vector<double> steps_of(const fs::path& program, const Options& options, const std::string& offload) {
  std::vector<std::string> arguments = {"--bench", std::to_string(options.runs)};
  const auto add = [&](const char* name, int64_t value) {
    arguments.insert(arguments.end(), {name, std::to_string(value)});
  };
  add("--hidden", hidden);
  add("--layers", layers);
  add("--heads", heads);
  add("--kv-heads", kv_heads);
  add("--intermediate", intermediate);
  add("--batch", batch);
  add("--length", length);
  if (!offload.empty()) arguments.insert(arguments.end(), {"--offload", offload});
  const std::string output = output_of(program.string(), arguments);
  if (output.empty()) {
    throw Error("bench train: " + program.string() + " printed no figures; run it with --bench 1 to see why");
  }
  const JsonDocument document = JsonDocument::parse(output, program.string());
  const JsonRef times = document.root().at("milliseconds");
  std::vector<double> values;
  for (size_t i = 0; i < times.size(); ++i) values.push_back(times[i].number(0, 1e12));
  return values;
}

}  // namespace

void run_train(const Options& options, std::vector<Result>& results) {
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path() / "anyaccel_train";
  std::error_code error;
  if (!fs::exists(program, error)) {
    std::fprintf(stderr,
                 "anyaccel bench: train is left out: there is no %s (built by: cmake --build build/release --target "
                 "anyaccel_train)\n",
                 program.c_str());
    return;
  }
  const Folder folder(options.directory, "bench-train");
  Result step{.name = "train.f32", .unit = "GFLOP/s", .ceiling_name = "fp32 fused multiply-add"};
  std::vector<double> plain;
  step.ceiling = 1e-9 * ceiling_around(AA_CEILING_FMA_F32, options, [&] { plain = steps_of(program, options, ""); });
  std::vector<double> rates;
  for (const double milliseconds : plain) rates.push_back(1e-6 * operations() / milliseconds);
  summarize(step, rates, false);
  results.push_back(step);

  // The steps alternate with steps whose states are on the device, which are the limit.
  struct Case {
    const char* name;
    std::string place;
  };
  for (const Case& c : {Case{"train.offload_host", "host"}, Case{"train.offload_files", folder.path().string()}}) {
    Result device{.name = "", .unit = "ms", .ceiling_name = ""};
    summarize(device, steps_of(program, options, ""), true);
    Result offload{.name = c.name, .unit = "ms", .ceiling_name = "the same step with the states on the device"};
    offload.ceiling = device.value;
    summarize(offload, steps_of(program, options, c.place), true);
    results.push_back(offload);
  }
}

}  // namespace anyaccel::cli::bench
