// Implements --dry_run: formats the commands that would be started.
#include "launcher/dry_run.h"

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/process/shell.h"
#include "launcher/hosts/probe.h"
#include "launcher/hosts/runners.h"
#include "launcher/processes/node.h"

namespace anyaccel::launcher {
namespace {

std::string assignments(const Variables& variables) {
  std::string text;
  for (const auto& [name, value] : variables) text += name + "=" + quote_word(value) + " ";
  return text;
}

}  // namespace

std::string dry_run_text(const LaunchOptions& options, const Plan& plan, const std::string& self) {
  const JobPlan& job = plan.job;
  // Cores of other hosts are assigned on those hosts, unless a machine is described.
  const Machine machine = read_machine();
  const bool known = plan.runner == Runner::Local || !machine.this_machine;
  const Variables base = own_environment();
  std::string text;
  if (plan.runner != Runner::Local) {
    std::string program;
    try {
      program = find_runner(plan.runner);
    } catch (const UnavailableError& error) {
      log_warning(std::string(error.what()) + "; the command line is shown all the same");
      program = plan.runner == Runner::Pdsh ? "pdsh" : plan.runner == Runner::Slurm ? "srun" : "mpirun";
    }
    const Command command = runner_command(options, plan, program, self, base);
    text += assignments(command.environment) + quote_words(command.argv) + "\n";
  }
  if (plan.runner == Runner::Pdsh) {
    for (int node = 0; node < static_cast<int>(job.hosts.size()); ++node) {
      text += quote_words(ssh_command(job.hosts[static_cast<size_t>(node)].login(), options.ssh_port,
                                      node_command(self, node), base)) +
              "\n";
    }
  }
  for (int node = 0; node < static_cast<int>(job.hosts.size()); ++node) {
    for (RankPlan& rank : plan_ranks(job, node, known ? &machine : nullptr, base)) {
      if (rank.argv.front() == "anyaccel") rank.argv.front() = self;
      text +=
          "rank " + std::to_string(rank.rank) + " on " + job.hosts[static_cast<size_t>(node)].name + ": " +
          (known ? describe(rank.binding) : std::string(job.bind_cores ? "cores of its own there" : "any core there")) +
          (rank.log_file.empty() ? "" : ", output in " + quote_word(rank.log_file)) + "\n";
      text += "  " + assignments(rank.environment) + quote_words(rank.argv) + "\n";
    }
  }
  return text;
}

}  // namespace anyaccel::launcher
