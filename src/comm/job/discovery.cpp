// Determines a process's rank and job from options and environment variables.
#include "comm/job/discovery.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "anyaccel/error.h"

namespace anyaccel::comm {

namespace {

// A number and its source: "OMPI_COMM_WORLD_RANK=1".
struct Said {
  int value = 0;
  std::string by;
};

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  // Empty counts as unset.
  std::optional<std::string> text(std::string_view name) const {
    const auto found = environment_.find(name);
    if (found == environment_.end() || found->second.empty()) return {};
    return found->second;
  }

  std::optional<Said> number(std::string_view name, int lowest, int highest = INT32_MAX) const {
    const std::optional<std::string> value = text(name);
    if (!value) return {};
    int result = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), result);
    if (error != std::errc{} || end != value->data() + value->size() || result < lowest || result > highest) {
      throw InvalidArgument(std::string(name) + "=" + *value + ": a whole number from " + std::to_string(lowest) +
                            (highest == INT32_MAX ? " on" : " to " + std::to_string(highest)) + " was expected");
    }
    return Said{result, std::string(name) + "=" + *value};
  }

 private:
  const Environment& environment_;
};

// The variables of one launcher; null if it has no such variable.
struct Source {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};
constexpr Source sources[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {nullptr, nullptr, "PALS_LOCAL_RANKID", nullptr},
    {"PMIX_RANK", nullptr, nullptr, nullptr},
};

// The values of one quantity from all sources, which must agree.
class Opinion {
 public:
  Opinion(std::string quantity, std::string advice) : quantity_(std::move(quantity)), advice_(std::move(advice)) {}

  void hear(std::optional<Said> said) {
    if (!said) return;
    if (!first_) {
      first_ = std::move(said);
    } else if (first_->value != said->value) {
      throw InvalidArgument("the environment contradicts itself about " + quantity_ + ": " + first_->by + ", but " +
                            said->by + ". " + advice_);
    }
  }
  const std::optional<Said>& heard() const { return first_; }
  int value_or(int absent) const { return first_ ? first_->value : absent; }

 private:
  std::string quantity_;
  std::string advice_;
  std::optional<Said> first_;
};

std::optional<Said> option(int value, const char* name) {
  if (value < 0) return {};
  return Said{value, std::string("the option ") + name + " = " + std::to_string(value)};
}

// Expands "node1:2,node2:1" to node1, node1, node2; empty unless the result has `size` entries.
std::vector<std::string> hosts_of_ranks(std::string_view text, int size) {
  std::vector<std::string> hosts;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    const size_t colon = entry.rfind(':');
    int count = 0;
    if (colon == std::string_view::npos) return {};
    const auto [end, error] = std::from_chars(entry.data() + colon + 1, entry.data() + entry.size(), count);
    if (error != std::errc{} || end != entry.data() + entry.size() || count < 1) return {};
    if (count > size - static_cast<int>(hosts.size())) return {};
    hosts.insert(hosts.end(), static_cast<size_t>(count), std::string(entry.substr(0, colon)));
  }
  if (static_cast<int>(hosts.size()) != size) hosts.clear();
  return hosts;
}

std::string slurm_master(const Reader& environment) {
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    if (const auto hosts = environment.text(name)) {
      const std::string first = first_slurm_host(*hosts);
      return first == *hosts ? "127.0.0.1" : first;  // the only host of the job
    }
  }
  return {};
}

}  // namespace

std::string first_slurm_host(const std::string& hosts) {
  std::string name;
  for (size_t i = 0; i < hosts.size() && hosts[i] != ','; ++i) {
    if (hosts[i] != '[') {
      name += hosts[i];
      continue;
    }
    const size_t end = hosts.find(']', i);
    const size_t first_end = hosts.find_first_of(",-]", i);
    if (end == std::string::npos || first_end == i + 1) {
      throw InvalidArgument("\"" + hosts + "\" is not a list of Slurm hosts, such as node[01-03,7],other");
    }
    name += hosts.substr(i + 1, first_end - i - 1);
    i = end;
  }
  if (name.empty() || name.find(']') != std::string::npos) {
    throw InvalidArgument("\"" + hosts + "\" is not a list of Slurm hosts, such as node[01-03,7],other");
  }
  return name;
}

JobPlace discover(const Environment& environment, const InitOptions& options) {
  const Reader reader(environment);
  JobPlace place;

  Opinion rank("this process's rank",
               "Start the program by one launcher only, or unset what an earlier one left behind.");
  Opinion size("the number of ranks",
               "When an MPI says 1 where more were asked for, the program was started by the mpirun of another MPI "
               "than the one that set the other variable: use one launcher only.");
  Opinion local_rank("this process's rank on its host", "Unset what an earlier launcher left behind.");
  Opinion local_size("the number of ranks on this host", "Unset what an earlier launcher left behind.");

  if (options.rank >= 0) {
    rank.hear(option(options.rank, "rank"));
  } else {
    rank.hear(reader.number("RANK", 0));
  }
  if (options.world_size >= 0) {
    size.hear(option(options.world_size, "world_size"));
  } else {
    size.hear(reader.number("WORLD_SIZE", 1));
  }
  const bool asked = rank.heard().has_value() || size.heard().has_value();
  local_rank.hear(reader.number("LOCAL_RANK", 0));
  local_size.hear(reader.number("LOCAL_SIZE", 1));
  for (const Source& source : sources) {
    if (source.rank) rank.hear(reader.number(source.rank, 0));
    if (source.size) size.hear(reader.number(source.size, 1));
    if (source.local_rank) local_rank.hear(reader.number(source.local_rank, 0));
    if (source.local_size) local_size.hear(reader.number(source.local_size, 1));
  }
  const bool mpi = !asked && rank.heard().has_value();
  // PMIX_RANK alone has its size from Slurm.
  const bool slurm = !asked && !size.heard() && reader.text("SLURM_PROCID").has_value();
  if (slurm) {
    rank.hear(reader.number("SLURM_PROCID", 0));
    std::optional<Said> tasks = reader.number("SLURM_STEP_NUM_TASKS", 1);
    size.hear(tasks ? std::move(tasks) : reader.number("SLURM_NTASKS", 1));
  }

  if (const auto minutes = reader.number("DEEPSPEED_TIMEOUT", 1, 1000000)) {
    place.timeout = std::chrono::minutes(minutes->value);
  } else {
    place.timeout = std::chrono::minutes(30);
  }
  if (options.timeout.count() < 0) throw InvalidArgument("a negative timeout was given to init_process_group");
  if (options.timeout.count() > 0) place.timeout = options.timeout;
  if (options.join_timeout.count() < 0)
    throw InvalidArgument("a negative join_timeout was given to init_process_group");
  if (options.join_timeout.count() > 0) {
    place.join_timeout = options.join_timeout;
  } else if (const auto seconds = reader.number("ANYACCEL_JOIN_TIMEOUT", 1, 10000000)) {
    place.join_timeout = std::chrono::seconds(seconds->value);
  } else {
    place.join_timeout = std::min<std::chrono::milliseconds>(std::chrono::minutes(5), place.timeout);
  }

  if (rank.heard() && !size.heard()) {
    throw InvalidArgument(rank.heard()->by + ", but nothing says how many ranks there are: set WORLD_SIZE");
  }
  if (size.value_or(1) > 1 && !rank.heard()) {
    throw InvalidArgument(size.heard()->by +
                          ", but nothing says which rank this process is: set RANK, or start the "
                          "program with `anyaccel launch`, mpirun or srun");
  }
  place.rank = rank.value_or(0);
  place.size = size.value_or(1);
  if (place.size < 1) throw InvalidArgument(size.heard()->by + ": there must be at least one rank");
  if (place.rank >= place.size) {
    throw InvalidArgument(rank.heard()->by + ", but " + size.heard()->by + ": ranks go from 0 to " +
                          std::to_string(place.size - 1));
  }
  if (!rank.heard() && !size.heard()) return place;  // not part of a job; LOCAL_SIZE has other uses, too
  // For a process that srun started, also with PMI, Slurm's variables have more information.
  std::optional<Said> tasks = reader.number("SLURM_STEP_NUM_TASKS", 1);
  if (!tasks) tasks = reader.number("SLURM_NTASKS", 1);
  const std::optional<Said> task = reader.number("SLURM_PROCID", 0);
  const bool by_srun = task && tasks && task->value == place.rank && tasks->value == place.size;
  if (by_srun && !local_rank.heard()) local_rank.hear(reader.number("SLURM_LOCALID", 0));
  place.local_rank = local_rank.value_or(-1);
  place.local_size = local_size.value_or(-1);
  if (place.local_size > place.size) {
    throw InvalidArgument(local_size.heard()->by + ", but " + size.heard()->by +
                          ": a host cannot have more ranks than the job");
  }
  if (place.local_rank >= 0 && place.local_size >= 0 && place.local_rank >= place.local_size) {
    throw InvalidArgument(local_rank.heard()->by + ", but " + local_size.heard()->by +
                          ": ranks of a host go from 0 to " + std::to_string(place.local_size - 1));
  }

  if (options.master_port >= 0) {
    if (options.master_port < 1 || options.master_port > 65535) {
      throw InvalidArgument("the option master_port = " + std::to_string(options.master_port) +
                            ": a port is a number from 1 to 65535");
    }
    place.master_port = options.master_port;
  } else if (const auto port = reader.number("MASTER_PORT", 1, 65535)) {
    place.master_port = port->value;
  }
  place.token = reader.text("ANYACCEL_JOB_TOKEN").value_or("");
  place.hosts = hosts_of_ranks(reader.text("ANYACCEL_JOB_HOSTS").value_or(""), place.size);
  if (place.size == 1) return place;

  if (!options.master_addr.empty()) {
    place.master_addr = options.master_addr;
  } else if (const auto address = reader.text("MASTER_ADDR")) {
    place.master_addr = *address;
  } else if (place.local_size == place.size) {
    place.master_addr = "127.0.0.1";
  } else if (by_srun) {
    place.master_addr = slurm_master(reader);
  }
  if (place.master_addr.empty()) {
    const std::string hosts =
        place.local_size > 0
            ? "the " + std::to_string(place.size) + " ranks are on several hosts (" + local_size.heard()->by + ")"
            : "nothing says whether all " + std::to_string(place.size) + " ranks are on this host";
    throw InvalidArgument("MASTER_ADDR is not set, and " + hosts +
                          ": set it to the address of rank 0's host on every rank (127.0.0.1 when there is only one "
                          "host)" +
                          (mpi ? ", for example with mpirun's option to pass variables on (-x or -genv)" : "") +
                          ", or use `anyaccel launch`, which does that");
  }
  return place;
}

Environment process_environment() {
  Environment result;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string text = *entry;
    if (const size_t equals = text.find('='); equals != std::string::npos) {
      result[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  return result;
}

}  // namespace anyaccel::comm
