// Builds the environment variables of ranks.
#include "launcher/plan/environment.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/files/trusted_path.h"
#include "base/text/text.h"

namespace anyaccel::launcher {
namespace {

// The variables that DeepSpeed forwards on every accelerator, and our own.
const std::vector<std::string> always_forwarded = {"MLFLOW", "PYTHON",     "MV2",   "UCX",     "ANYACCEL_",
                                                   "DS_",    "DEEPSPEED_", "AISC_", "NEBULA_", "AZUREML_"};
// Returns whether the variable is one of those that, if AISC_JOB_NAME is set, name network cards of this machine only.
bool names_a_network_card(std::string_view name) {
  constexpr std::string_view end = "_IB_HCA";
  return name == "UCX_NET_DEVICES" || (name.size() > end.size() && name.substr(name.size() - end.size()) == end);
}

// Far more than the variables need: the kernel limits those of a process to 2 MiB.
constexpr size_t most_file_bytes = 4 << 20;

bool is_name(std::string_view text) {
  if (text.empty() || (text.front() >= '0' && text.front() <= '9')) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

bool begins_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

// Returns the first number of "8" or "8,2"; 0 if there is none.
int first_number(const std::string& text) {
  int value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool ends = result.ptr == text.data() + text.size() || *result.ptr == ',';
  return result.ec == std::errc() && ends && value > 0 ? value : 0;
}

}  // namespace

Variables own_environment() {
  Variables variables;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos && equals > 0) {
      variables.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return variables;
}

Variables parse_env_file(std::string_view text, const std::string& file) {
  Variables variables;
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    line = trimmed(line);
    if (line.empty() || line.front() == '#') continue;
    const size_t equals = std::min(line.find('='), line.size());
    const std::string_view name = trimmed(line.substr(0, equals));
    if (equals == line.size() || !is_name(name)) {
      throw InvalidArgument(file + ", line " + std::to_string(number) + ": \"" + std::string(line) +
                            "\" is not NAME=value");
    }
    variables[std::string(name)] = trimmed(line.substr(equals + 1));
  }
  return variables;
}

Variables read_env_files() {
  const char* given = std::getenv("DS_ENV_FILE");
  const std::string name = given && *given ? given : ".deepspeed_env";
  std::vector<std::string> files;
  if (name.front() == '/') {
    files = {name};
  } else {
    if (const char* home = std::getenv("HOME")) files.push_back(std::string(home) + "/" + name);
    files.push_back("./" + name);
  }
  Variables variables;
  std::vector<std::filesystem::path> seen;
  for (const std::string& file : files) {
    // No warning is logged for a folder that others can write if it has no such file.
    std::error_code error;
    if (std::filesystem::symlink_status(file, error).type() == std::filesystem::file_type::not_found) continue;
    const TrustedPath found = open_trusted_file(file, Trust::user);
    if (found.state == TrustedPath::State::missing) continue;
    if (found.ok()) {
      if (std::find(seen.begin(), seen.end(), found.path) != seen.end()) continue;
      seen.push_back(found.path);
    }
    if (found.state == TrustedPath::State::refused) {
      log_warning(file + " is not read, because " + found.reason +
                  ", so that another user could set variables of the ranks. Cure: " + found.cure +
                  "; or --no_env_file if it is not yours");
      continue;
    }
    std::string reason = found.reason;
    const auto text =
        found.ok() ? read_descriptor(found.descriptor.get(), most_file_bytes, reason) : std::optional<std::string>();
    if (!text) {
      log_warning(file + " is not read: " + reason);
      continue;
    }
    std::string names;
    for (const auto& [key, value] : parse_env_file(*text, found.path.string())) {
      variables[key] = value;
      names += (names.empty() ? "" : ", ") + key;
    }
    log_info(found.path.string() + " sets " + (names.empty() ? "nothing" : names + " for the ranks") +
             " (--no_env_file leaves it out)");
  }
  return variables;
}

Variables forwarded(const Variables& environment, const std::vector<std::string>& prefixes) {
  const bool aisc = environment.count("AISC_JOB_NAME") > 0;
  Variables result;
  for (const auto& [name, value] : environment) {
    // Skips the variables that this launcher sets itself.
    if (name == "ANYACCEL_JOB_TOKEN" || name == "ANYACCEL_LAUNCH_JOB") continue;
    if (aisc && names_a_network_card(name)) continue;
    const auto matches = [&name = name](const std::string& prefix) {
      return !prefix.empty() && begins_with(name, prefix);
    };
    if (std::any_of(prefixes.begin(), prefixes.end(), matches) ||
        std::any_of(always_forwarded.begin(), always_forwarded.end(), matches)) {
      result[name] = value;
    }
  }
  return result;
}

int join_limit_s(const JobPlan& job) {
  if (job.join_timeout) return job.join_timeout;
  const auto found = job.environment.find("ANYACCEL_JOIN_TIMEOUT");
  const int seconds = found == job.environment.end() ? 0 : first_number(found->second);
  return seconds ? seconds : 300;
}

Variables rank_environment(const JobPlan& job, int node, int local_rank, int threads, const std::string& omp_threads) {
  const Host& host = job.hosts[static_cast<size_t>(node)];
  Variables variables = job.environment;
  std::string slots;
  for (const int slot : host.slots) slots += (slots.empty() ? "" : ",") + std::to_string(slot);
  for (const std::string& name : job.visible_devices) variables[name] = slots;
  variables["MASTER_ADDR"] = job.master_addr;
  variables["MASTER_PORT"] = std::to_string(job.master_port);
  variables["WORLD_SIZE"] = std::to_string(job.world_size());
  variables["RANK"] = std::to_string(job.first_rank(node) + local_rank);
  variables["LOCAL_RANK"] = std::to_string(local_rank);
  variables["LOCAL_SIZE"] = std::to_string(host.slots.size());
  variables["CROSS_RANK"] = std::to_string(node);
  variables["CROSS_SIZE"] = std::to_string(job.hosts.size());
  if (!job.token.empty()) variables["ANYACCEL_JOB_TOKEN"] = job.token;
  if (job.join_timeout) variables["ANYACCEL_JOIN_TIMEOUT"] = std::to_string(job.join_timeout);
  // Rank 0 uses the hosts in messages; the kernel does not accept a variable of 128 KiB.
  std::string hosts;
  for (const Host& other : job.hosts) {
    hosts += (hosts.empty() ? "" : ",") + other.name + ":" + std::to_string(other.slots.size());
  }
  if (job.hosts.size() > 1 && hosts.size() < 100000) variables["ANYACCEL_JOB_HOSTS"] = hosts;
  const int asked = first_number(omp_threads);
  variables["OMP_NUM_THREADS"] = asked > 0 && asked <= threads ? omp_threads : std::to_string(threads);
  return variables;
}

std::vector<std::string> merged(const Variables& base, const Variables& over) {
  Variables all = over;
  all.insert(base.begin(), base.end());
  std::vector<std::string> entries;
  for (const auto& [name, value] : all) {
    entries.push_back(name);
    entries.back() += '=';
    entries.back() += value;
  }
  return entries;
}

}  // namespace anyaccel::launcher
