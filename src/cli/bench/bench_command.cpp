// Implements the command anyaccel bench, with its table and JSON. The benchmarks are the other files of this folder.
#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string_view>
#include <thread>

#include "anyaccel/abi/ceilings.h"
#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "cli/bench/bench.h"
#include "cli/checks/checks.h"
#include "cli/commands/command_support.h"
#include "cli/json_output.h"
#include "cli/text_layout.h"
#include "runtime/driver/host_services.h"

namespace anyaccel::cli {
namespace bench {

double measure_ceiling(aa_ceiling kind, const Options& options) {
  auto* accelerator = dynamic_cast<DriverAccelerator*>(get_accelerator());
  if (!accelerator) return 0;
  const auto* table = static_cast<const abi::Calls<aa_ceilings_table>*>(
      accelerator->extension(AA_CEILINGS_EXTENSION, AA_CEILINGS_VERSION));
  if (!table) return 0;
  double value = 0;
  aa_status* status = table->measure(accelerator->device_handle(), kind, options.bytes, options.seconds, &value);
  if (!status) return value;
  release_status(status);
  return 0;
}

bool on_host() { return (get_accelerator()->device_properties().caps & AA_CAP_IS_HOST) != 0; }

double seconds_a_call(const std::function<void()>& call) {
  constexpr double least = 0.02;
  constexpr double most_calls = 1000;
  const auto time = [&](int calls) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    get_accelerator()->synchronize();
    return seconds_since(start) / calls;
  };
  return time(static_cast<int>(std::clamp(least / time(1), 1.0, most_calls)));
}

bool has_products_of_bf16(const Options& options) {
  Options brief = options;
  brief.seconds = 1e-3;
  return measure_ceiling(AA_CEILING_PRODUCT_BF16, brief) > 0;
}

double ceiling_around(aa_ceiling kind, const Options& options, const std::function<void()>& body) {
  const double before = measure_ceiling(kind, options);
  body();
  return std::max(before, measure_ceiling(kind, options));
}

std::vector<double> ceilings_in_turns(aa_ceiling kind, const Options& options, const std::function<void()>& run) {
  std::vector<double> ceilings{measure_ceiling(kind, options)};
  for (int i = 0; i < options.runs; ++i) {
    run();
    ceilings.push_back(measure_ceiling(kind, options));
  }
  return ceilings;
}

}  // namespace bench

namespace {

JsonValue machine_json() {
  utsname system{};
  uname(&system);
  JsonValue machine;
  machine["system"] = std::string(system.sysname) + " " + system.release;
  machine["architecture"] = system.machine;
  machine["cores"] = std::thread::hardware_concurrency();
  return machine;
}

JsonValue accelerator_json() {
  Accelerator& accelerator = *get_accelerator();
  const aa_device_props& props = accelerator.device_properties();
  return {{"name", accelerator.name()},
          {"device", props.name},
          {"arch", props.arch},
          {"compute_units", props.compute_units},
          {"chosen_by", detection_report().method}};
}

void print_table(const std::vector<bench::Result>& results) {
  // A line has 80 columns: what a long name takes, the bars lack.
  int name_width = 24;
  for (const bench::Result& r : results) name_width = std::max(name_width, static_cast<int>(r.name.size()));
  const int bar_width = std::max(40 - name_width, 0);
  std::printf("%-*s %10s %-9s %10s %6s\n", name_width, "name", "value", "unit", "ceiling", "ratio");
  for (const bench::Result& r : results) {
    std::string bar;
    const int filled = static_cast<int>(std::lround(std::clamp(r.ratio, 0.0, 1.0) * bar_width));
    for (int i = 0; i < bar_width; ++i) bar += i < filled ? "█" : "·";
    // An accelerator without the extension "ceilings" has none; "0: ..." and "none: ..." are ceilings of 0.
    if (r.ceiling == 0 && !r.ceiling_name.starts_with('0') && !r.ceiling_name.starts_with("none")) {
      std::printf("%-*s %10.4g %-9s %10s\n", name_width, r.name.c_str(), r.value, r.unit.c_str(), "-");
      print_entry("", 4, "not measured on this accelerator: " + r.ceiling_name);
      continue;
    }
    std::printf("%-*s %10.4g %-9s %10.4g %6.3f %s\n", name_width, r.name.c_str(), r.value, r.unit.c_str(), r.ceiling,
                r.ratio, r.ceiling > 0 ? bar.c_str() : "");
    print_entry("", 4, "ceiling: " + r.ceiling_name);
  }
}

JsonValue results_json(const std::vector<bench::Result>& results) {
  JsonValue all = JsonArray();
  for (const bench::Result& r : results) {
    all.push_back({{"name", r.name},
                   {"value", r.value},
                   {"unit", r.unit},
                   {"ceiling", r.ceiling},
                   {"ceiling_name", r.ceiling_name},
                   {"ratio", r.ratio},
                   {"runs", r.runs},
                   {"spread", r.spread}});
  }
  return all;
}

struct Benchmark {
  const char* name;
  // Null for the benchmarks that share a model, which run_model runs.
  void (*run)(const bench::Options& options, std::vector<bench::Result>& results);
  bool by_default = true;
};

// The benchmarks in the order in which they run.
constexpr Benchmark benchmarks[] = {
    {"start", bench::run_start},
    {"launch", bench::run_launch},
    {"alloc", bench::run_alloc},
    {"copy", bench::run_copy},
    {"adam", bench::run_adam},
    {"quant", bench::run_quant},
    {"jit", bench::run_jit},
    {"aio", bench::run_aio},
    {"product", bench::run_product},
    {"weights", bench::run_weights},
    {"transformer", bench::run_transformer},
    {"train", bench::run_train},
    {"attention", bench::run_attention},
    {"sampling", bench::run_sampling},
    {"sparse", bench::run_sparse},
    {"evoformer", bench::run_evoformer},
    {"allreduce", bench::run_allreduce},
    {"tp", bench::run_tp},
    {"decode", nullptr},
    {"batches", nullptr},
    {"prefill", nullptr},
    {"families", bench::run_families, false},
    {"quantized", bench::run_quantized, false},
};

// The processes that a benchmark starts. Returns the exit code; nothing if the arguments are those of a user.
std::optional<int> run_probe(int argc, char** argv) try {
  const std::string_view probe = argc > 1 ? argv[1] : "";
  if (argc == 2 && probe == "--start-probe") return bench::start_probe(false);
  if (argc == 2 && probe == "--device-probe") return bench::start_probe(true);
  if (argc == 2 && probe == "--clock-probe") return bench::clock_probe();
  if (argc == 2 && probe == "--allreduce-probe") return bench::allreduce_probe();
  if (argc == 3 && probe == "--load-probe") return bench::load_probe(argv[2]);
  if (argc == 3 && probe == "--jit-probe") return bench::jit_probe(argv[2]);
  if (argc == 3 && probe == "--tp-probe") return bench::tp_probe(argv[2]);
  return std::nullopt;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench %s: %s\n", argv[1], error.what());
  return 1;
}

}  // namespace

int run_bench(int argc, char** argv) {
  if (const auto code = run_probe(argc, argv)) return *code;
  CommandLine line("Figures of this machine, each beside its ceiling measured in the same run.", "anyaccel bench");
  std::vector<std::string> names;
  bench::Options options;
  bool json = false;
  std::vector<std::string> known;
  std::string list;
  for (const Benchmark& benchmark : benchmarks) list += std::string(" ") + known.emplace_back(benchmark.name);
  line.add_option("names", names, "which:" + list + " (default: all but families and quantized)").one_of(known);
  line.add_option("--model", options.model,
                  "model for decode, batches, prefill, tp and quantized (default: one of random weights)")
      .existing_path();
  line.add_option("--shape", options.shape, "shape of the random model (see make-model)").show_default().not_empty();
  line.add_option("--family", options.families,
                  "a family that families measures; give it again for more (default: all)")
      .one_each()
      .not_empty();
  line.add_option("--builder", options.builders, "an op builder that jit loads; give it again for more (default: all)")
      .one_each()
      .not_empty();
  line.add_option("--prompt-tokens", options.prompt_tokens, "length of the prompt of prefill and tp")
      .within(1, 1 << 20)
      .show_default();
  line.add_option("--bytes", options.bytes, "bytes that copy, quant and their ceilings move")
      .within(size_t{1} << 16, size_t{1} << 40)
      .show_default();
  line.add_option("--runs", options.runs, "repetitions of each figure").within(1, 1000).show_default();
  line.add_option("--seconds", options.seconds, "time for each ceiling").within(0.01, 60.0).show_default();
  line.add_option("--elements", options.elements, "elements of each tensor of adam.bandwidth")
      .within(int64_t{64}, int64_t{1} << 40)
      .show_default();
  line.add_option("--dir", options.directory, "where aio makes its file; on a disk (default: the current directory)")
      .existing_directory();
  line.add_option("--file-bytes", options.file_bytes, "size of aio's file")
      .within(size_t{1} << 20, size_t{1} << 40)
      .show_default();
  line.add_option("--block-size", options.block_size, "bytes of one transfer of aio")
      .within(int64_t{4096}, int64_t{1} << 30)
      .show_default();
  line.add_option("--queue-depth", options.queue_depth, "transfers of aio that are under way at once")
      .within(1, 4096)
      .show_default();
  line.add_json_flag(json, "one JSON object instead of a table");
  return run_command(line, argc, argv, [&] {
    std::vector<bench::Result> results;
    const auto wanted = [&](const char* name) {
      return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
    };
    try {
      for (const Benchmark& benchmark : benchmarks) {
        if (benchmark.run && (names.empty() ? benchmark.by_default : wanted(benchmark.name)))
          benchmark.run(options, results);
      }
      if (wanted("decode") || wanted("batches") || wanted("prefill")) {
        bench::run_model(options, wanted("decode"), wanted("batches"), wanted("prefill"), results);
      }
    } catch (const std::exception&) {
      if (json) {
        throw PartialResult(std::current_exception(),
                            {{"anyaccel", ANYACCEL_VERSION}, {"results", results_json(results)}});
      }
      if (!results.empty()) print_table(results);
      throw;
    }
    const char* rank = std::getenv("RANK");
    if (results.empty() && rank && std::atoi(rank) > 0) return 0;  // the first rank of the job prints
    if (!json) {
      std::fprintf(stderr, "%s\n\n", accelerator_choice_summary().c_str());
      print_table(results);
      return 0;
    }
    JsonValue object;
    object["anyaccel"] = ANYACCEL_VERSION;
    object["machine"] = machine_json();
    object["accelerator"] = accelerator_json();
    object["results"] = results_json(results);
    print_json(object);
    return 0;
  });
}

}  // namespace anyaccel::cli
