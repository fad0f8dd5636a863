// Implements bench tp: compares one model over two ranks of a core each with one process with one core and one with
// both.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>

#include "anyaccel/comm/process_group.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/session.h"
#include "base/process/process_memory.h"
#include "base/process/processors.h"
#include "cli/bench/bench.h"
#include "cli/bench/rank_processes.h"
#include "cli/bench/temporary_model.h"

namespace anyaccel::cli::bench {
namespace {

constexpr int decode_steps = 16;

// One configuration of the model, and its best figures: other load on the machine only slows it down, and slows two
// processes that wait for each other more than a single one.
struct RankSetting {
  explicit RankSetting(const std::vector<std::vector<int>>& cores, const std::string& model)
      : ranks(std::make_unique<RankProcesses>(cores, std::vector<std::string>{"bench", "--tp-probe", model})) {}

  std::unique_ptr<RankProcesses> ranks;
  std::vector<double> prefill, decode;  // tokens a second
  double own_bytes = 0;                 // beside the mapped weights; of the rank that needs the most
};

// Returns rank 0's tokens per second.
double tokens_per_second(RankProcesses& ranks, const std::string& command, double tokens) {
  const double seconds = std::stod(ranks.ask(command)[0]);
  return seconds > 0 ? tokens / seconds : 0;
}

double best(const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); }

void add_scaling(const char* what, const std::vector<double>& two_ranks, const std::vector<double>& one_core,
                 const std::vector<double>& two_cores, std::vector<Result>& results) {
  Result result{.name = std::string("tp.") + what, .unit = "tok/s", .ceiling_name = "one process on both cores"};
  result.ceiling = best(two_cores);
  summarize(result, two_ranks, false);
  result.value = best(two_ranks);
  result.ratio = result.value / result.ceiling;
  results.push_back(result);
  Result speedup{.name = std::string("tp.") + what + "_speedup", .unit = "x", .ceiling_name = "2 x one core"};
  speedup.value = best(two_ranks) / best(one_core);
  speedup.ceiling = 2;
  speedup.ratio = speedup.value / 2;
  speedup.runs = result.runs;
  speedup.spread = result.spread;
  results.push_back(speedup);
}

}  // namespace

// Answers "prefill N" (tokens) and "decode N" (steps) with seconds, "memory" with the bytes of the process's own memory.
int tp_probe(const std::string& directory) {
  const auto group = comm::init_process_group();
  llm::LoadOptions options;
  options.group = group;
  const auto model = llm::Model::load(directory, options);
  std::unique_ptr<llm::Session> session;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string command;
    int64_t count = 0;
    words >> command >> count;
    if (command == "memory") {
      std::printf("%lld\n", static_cast<long long>(process_memory().own));
      std::fflush(stdout);
      continue;
    }
    const auto length = static_cast<size_t>(count);
    if (!session) session = std::make_unique<llm::Session>(model, llm::SessionOptions{.sequences = 1, .context = 1024});
    double seconds = 0;
    if (command == "prefill") {
      const std::vector<int32_t> ids = random_prompt(*model, length);
      const std::vector<int32_t> sequence(length, 0);
      std::vector<int32_t> positions(length);
      std::iota(positions.begin(), positions.end(), 0);
      const std::vector<int32_t> rows{static_cast<int32_t>(length - 1)};
      group->barrier();
      const auto start = Clock::now();
      session->forward({ids, sequence, positions}, rows);
      get_accelerator()->synchronize();
      seconds = seconds_since(start);
    } else {
      const std::vector<std::vector<int32_t>> prompts{random_prompt(*model, 64)};
      session->start(prompts, {}, 0);
      // The first steps capture the graph.
      for (int i = 0; i < 3; ++i) session->step();
      session->tokens();
      group->barrier();
      const auto start = Clock::now();
      for (int64_t i = 0; i < count; ++i) {
        session->step();
        session->tokens();
      }
      seconds = seconds_since(start);
    }
    std::printf("%.9f\n", seconds);
    std::fflush(stdout);
  }
  comm::destroy_process_group();
  return 0;
}

void run_tp(const Options& options, std::vector<Result>& results) {
  if (!on_host()) {
    std::fprintf(stderr, "tp: measured on the CPU only, with a core for each rank\n");
    return;
  }
  const std::vector<int> cores = allowed_processors();
  if (cores.size() < 2) {
    std::fprintf(stderr, "tp: two ranks of one core each need two cores; %zu may be used\n", cores.size());
    return;
  }
  std::unique_ptr<TemporaryModel> temporary;
  std::string directory = options.model;
  if (directory.empty()) {
    temporary = std::make_unique<TemporaryModel>(options.shape);
    directory = temporary->path();
  }
  RankSetting two_ranks({{cores[0]}, {cores[1]}}, directory);
  RankSetting one_core({{cores[0]}}, directory);
  RankSetting two_cores({{cores[0], cores[1]}}, directory);
  const std::string prefill = "prefill " + std::to_string(options.prompt_tokens);
  const std::string decode = "decode " + std::to_string(decode_steps);
  for (int run = 0; run < options.runs + 1; ++run) {
    for (RankSetting* setting : {&two_ranks, &one_core, &two_cores}) {
      const double prefilled = tokens_per_second(*setting->ranks, prefill, static_cast<double>(options.prompt_tokens));
      const double decoded = tokens_per_second(*setting->ranks, decode, decode_steps);
      if (!run) continue;  // the first is for the caches
      setting->prefill.push_back(prefilled);
      setting->decode.push_back(decoded);
    }
  }
  for (RankSetting* setting : {&two_ranks, &one_core, &two_cores}) {
    for (const std::string& bytes : setting->ranks->ask("memory")) {
      setting->own_bytes = std::max(setting->own_bytes, std::stod(bytes));
    }
  }
  add_scaling("decode", two_ranks.decode, one_core.decode, two_cores.decode, results);
  add_scaling("prefill", two_ranks.prefill, one_core.prefill, two_cores.prefill, results);
  // The weights are pages of the mapped file, of which the host has one copy for all ranks.
  Result memory{.name = "tp.own_memory", .unit = "GB", .ceiling_name = "one process's"};
  memory.ceiling = 1e-9 * one_core.own_bytes;
  summarize(memory, {1e-9 * two_ranks.own_bytes}, true);
  results.push_back(memory);
}

}  // namespace anyaccel::cli::bench
