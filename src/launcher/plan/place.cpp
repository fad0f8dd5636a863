// Determines this process's rank from the variables of MPI or Slurm.
#include "launcher/plan/place.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <vector>

#include "anyaccel/error.h"
#include "launcher/plan/hosts.h"

namespace anyaccel::launcher {
namespace {

// Names of the variables for rank, number of ranks, and rank on the host; the first one that is set is used.
struct Names {
  std::vector<const char*> rank;
  std::vector<const char*> size;
  std::vector<const char*> local_rank;
};

Names names_of(const std::string& runner) {
  if (runner == "openmpi") return {{"OMPI_COMM_WORLD_RANK"}, {"OMPI_COMM_WORLD_SIZE"}, {"OMPI_COMM_WORLD_LOCAL_RANK"}};
  if (runner == "slurm") return {{"SLURM_PROCID"}, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, {"SLURM_LOCALID"}};
  if (runner == "mvapich") {
    return {{"MV2_COMM_WORLD_RANK", "PMI_RANK"},
            {"MV2_COMM_WORLD_SIZE", "PMI_SIZE"},
            {"MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"}};
  }
  return {{"PMI_RANK"}, {"PMI_SIZE"}, {"MPI_LOCALRANKID"}};
}

// Returns -1 if none of them is set to a number.
int read_number(const Variables& environment, const std::vector<const char*>& names) {
  for (const char* name : names) {
    const auto found = environment.find(name);
    if (found == environment.end()) continue;
    int value = -1;
    const std::string& text = found->second;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec == std::errc() && result.ptr == text.data() + text.size() && value >= 0) return value;
  }
  return -1;
}

std::string text_of(const Variables& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

// Names the runner whose variables are set, if the expected ones are missing.
std::string who_started(const Variables& environment) {
  constexpr struct {
    const char *variable, *starter;
  } signs[] = {{"OMPI_COMM_WORLD_RANK", "Open MPI"},
               {"MV2_COMM_WORLD_RANK", "MVAPICH"},
               {"PMI_RANK", "MPICH or Intel MPI"},
               {"PMIX_RANK", "a starter that speaks PMIx"},
               {"SLURM_PROCID", "Slurm"}};
  for (const auto& [variable, starter] : signs) {
    if (const std::string value = text_of(environment, variable); !value.empty()) {
      return std::string("it was started by ") + starter + " (" + variable + "=" + value +
             "); have the right mpirun in PATH, or name the right --launcher";
    }
  }
  return "no variable of any MPI or of Slurm is there, so nothing of theirs started it, or the variables were dropped "
         "on the "
         "way";
}

// Expands "2(x3),1" to 2, 2, 2, 1.
std::vector<int> expand_counts(const std::string& text) {
  std::vector<int> counts;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    int count = 0;
    int times = 1;
    auto result = std::from_chars(at, end, count);
    if (result.ec != std::errc() || count < 1) return {};
    at = result.ptr;
    if (end - at > 2 && at[0] == '(' && at[1] == 'x') {
      result = std::from_chars(at + 2, end, times);
      if (result.ec != std::errc() || times < 1 || times > 65535 || result.ptr == end) return {};
      at = result.ptr + 1;
    }
    counts.insert(counts.end(), static_cast<size_t>(times), count);
    if (at < end && *at++ != ',') return {};
  }
  return counts;
}

void take_hosts_of_slurm(JobPlan& job, const Variables& environment) {
  const std::string list = text_of(environment, "SLURM_STEP_NODELIST");
  const std::vector<std::string> names = expand_host_list(list);
  const std::vector<int> counts = expand_counts(text_of(environment, "SLURM_STEP_TASKS_PER_NODE"));
  if (names.size() != counts.size()) {
    throw CommunicationError("Slurm says \"" + list + "\" for its hosts and \"" +
                             text_of(environment, "SLURM_STEP_TASKS_PER_NODE") +
                             "\" for their tasks; expected as many");
  }
  std::vector<Host> hosts;
  for (size_t i = 0; i < names.size(); ++i) {
    Host host{names[i], std::vector<int>(static_cast<size_t>(counts[i]))};
    std::iota(host.slots.begin(), host.slots.end(), 0);
    for (const Host& asked : job.hosts) {
      if (asked.name == host.name && asked.slots.size() == host.slots.size()) host.slots = asked.slots;
    }
    hosts.push_back(std::move(host));
  }
  job.hosts = std::move(hosts);
  if (job.master_addr.empty()) job.master_addr = job.hosts.front().name;
}

}  // namespace

Place read_place(JobPlan& job, const Variables& environment) {
  const Names names = names_of(job.runner);
  const int rank = read_number(environment, names.rank);
  const int size = read_number(environment, names.size);
  const int local_rank = read_number(environment, names.local_rank);
  if (rank < 0 || size < 0) {
    throw CommunicationError("this process was to be a rank started by " + job.runner + ", and " + names.rank.front() +
                             " or " + names.size.front() + " is not set: " + who_started(environment));
  }
  const int asked = job.world_size();
  if (job.runner == "slurm") take_hosts_of_slurm(job, environment);
  if ((asked > 0 && size != asked) || size != job.world_size() || rank >= size) {
    throw CommunicationError(job.runner + " started rank " + std::to_string(rank) + " of " + std::to_string(size) +
                             ", and the job was to have " + std::to_string(asked) + " ranks");
  }
  Place place;
  while (rank >= job.first_rank(place.node + 1)) ++place.node;
  place.local_rank = rank - job.first_rank(place.node);
  if (local_rank >= 0 && local_rank != place.local_rank) {
    throw CommunicationError(job.runner + " made rank " + std::to_string(rank) + " number " +
                             std::to_string(local_rank) + " of its host; by the hostfile it is number " +
                             std::to_string(place.local_rank) + " of " +
                             job.hosts[static_cast<size_t>(place.node)].name +
                             ": ranks fill one host after the other; leave placing out of --launcher_args");
  }
  return place;
}

}  // namespace anyaccel::launcher
