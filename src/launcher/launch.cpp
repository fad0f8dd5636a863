// Implements `anyaccel launch`: runs one program on many cores, devices and hosts.
#include "launcher/launch.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/files/install_paths.h"
#include "launcher/dry_run.h"
#include "launcher/hosts/remote.h"
#include "launcher/hosts/runners.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/surroundings.h"
#include "launcher/processes/node.h"
#include "launcher/processes/pid_file.h"

namespace anyaccel::launcher {
namespace {

// Variables of an enclosing job must not affect the ranks of this one, nor the count of devices: those of a launcher,
// and those by which an MPI or a process manager (such as an interactive srun) gives a process its rank.
void forget_outer_job() {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "MASTER_ADDR",
                           "MASTER_PORT", "ANYACCEL_JOB_HOSTS"}) {
    unsetenv(name);
  }
  for (const auto& variable : own_environment()) {
    for (const char* prefix : {"OMPI_COMM_WORLD_", "MV2_COMM_WORLD_", "PMI_", "PMIX_RANK", "PMIX_NAMESPACE",
                               "PMIX_SERVER_URI", "MPI_LOCAL", "PALS_"}) {
      if (variable.first.starts_with(prefix)) unsetenv(variable.first.c_str());
    }
  }
}

}  // namespace

Runner parse_runner(const std::string& name) {
  std::string lower = name;
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  if (lower == "local") return Runner::Local;
  if (lower == "pdsh") return Runner::Pdsh;
  if (lower == "openmpi") return Runner::OpenMpi;
  if (lower == "mpich") return Runner::Mpich;
  if (lower == "impi") return Runner::Impi;
  if (lower == "slurm") return Runner::Slurm;
  if (lower == "mvapich") return Runner::Mvapich;
  throw InvalidArgument("--launcher is '" + name + "'; expected local, pdsh, openmpi, mpich, impi, slurm or mvapich");
}

void use_log_level(const std::string& level) {
  if (level == "debug") return set_log_level(LogLevel::debug);
  if (level == "info") return set_log_level(LogLevel::info);
  if (level == "warning") return set_log_level(LogLevel::warning);
  if (level == "error") return set_log_level(LogLevel::error);
  if (level == "critical") return set_log_level(LogLevel::off);
  throw InvalidArgument("--log_level is '" + level + "'; expected debug, info, warning, error or critical");
}

int launch(const LaunchOptions& options) {
  use_log_level(options.log_level);
  forget_outer_job();
  const OwnMachine machine;
  Plan plan = make_plan(options, machine);
  if (plan.runner != Runner::Local) {
    plan.job.environment = forwarded(own_environment(), machine.export_prefixes());
    if (plan.runner != Runner::Pdsh) plan.job.runner = runner_name(plan.runner);
    plan.job.directory = std::filesystem::current_path().string();
    plan.job.version = options.version;
  }
  if (options.env_files) {
    for (const auto& [name, value] : read_env_files()) plan.job.environment[name] = value;
  }
  if (options.dry_run) {
    std::fputs(dry_run_text(options, plan, own_program()).c_str(), stdout);
    return 0;
  }
  const PidFile pid_file(options.save_pid);
  if (plan.runner == Runner::Local) return run_ranks(plan.job, plan.node, {}, own_program());
  return run_remote(options, std::move(plan), own_program());
}

}  // namespace anyaccel::launcher
