// Implements `anyaccel launch`: runs one program on many cores, devices and hosts.
#include <algorithm>
#include <string>
#include <vector>

#include "anyaccel/error.h"
#include "base/process/shell.h"
#include "cli/commands/command_support.h"
#include "cli/commands/commands.h"
#include "generated/commit.h"
#include "launcher/launch.h"

namespace anyaccel::cli {
namespace {

// Expands "--num_nodes" to "--num_nodes,--num-nodes".
std::string both_spellings(const std::string& names) {
  std::string all = names;
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    std::string name = names.substr(begin, end - begin);
    begin = end + 1;
    if (name.find('_') == std::string::npos) continue;
    for (char& c : name) {
      if (c == '_') c = '-';
    }
    all += "," + name;
  }
  return all;
}

int parse_optional(const std::string& option, const std::string& text, int low, int high, int missing) {
  return text.empty() ? missing : static_cast<int>(parse_integer(option, text, low, high));
}

// The options of the command line, before numbers are parsed.
struct Texts {
  std::string num_nodes;
  std::string num_accelerators;
  std::string master_port;
  std::string node_rank;
  std::string ssh_port;
  std::string join_timeout;
  std::string launcher = "pdsh";
  std::string launcher_args;
  bool quiet = false;
  bool no_local_rank = false;
  bool no_env_file = false;
  // These are options of DeepSpeed, of which one is the default here and two are not supported.
  bool no_python = false;
  bool module = false;
  std::string venv_script;
  // Internal options of the commands that the launcher starts on hosts; not shown in the help.
  std::string start_node;
  std::string ssh_host;
  bool start_rank = false;
};

void refuse_what_is_not_done(const Texts& texts, bool core_list_given, const launcher::LaunchOptions& options) {
  if (core_list_given && options.core_list.empty()) {
    throw UsageError(
        "--bind_core_list is empty: name processors, such as 0,2-4, or leave it out; --bind_cores_to_rank alone "
        "shares out all");
  }
  if (texts.module) {
    throw UsageError(
        "--module: programs are started as they are, and Python is one of them; write its command out: "
        "anyaccel launch [options] python3 -m MODULE [ARGUMENTS...]");
  }
  if (!texts.venv_script.empty()) {
    throw UsageError(
        "--venv_script: no shell stands between the launcher and the program; start one that reads the file: "
        "anyaccel launch [options] sh -c '. " +
        texts.venv_script + " && exec \"$@\"' sh PROGRAM [ARGUMENTS...]");
  }
}

void read_texts(const Texts& texts, bool launcher_given, launcher::LaunchOptions& options) {
  options.num_nodes = parse_optional("--num_nodes", texts.num_nodes, 1, 65535, 0);
  options.num_accelerators = parse_optional("--num_accelerators", texts.num_accelerators, 1, 65535, 0);
  options.master_port = parse_optional("--master_port", texts.master_port, 1, 65535, 0);
  options.node_rank = parse_optional("--node_rank", texts.node_rank, 0, 65534, -1);
  options.ssh_port = parse_optional("--ssh_port", texts.ssh_port, 1, 65535, 0);
  options.join_timeout = parse_optional("--join_timeout", texts.join_timeout, 1, 10000000, 0);
  options.runner = launcher::parse_runner(texts.launcher);
  options.runner_given = launcher_given;
  options.launcher_args = split_words(texts.launcher_args, "--launcher_args");
  if (texts.quiet) options.log_level = "error";
  options.env_files = !texts.no_env_file;
  if (texts.no_local_rank && options.pass_local_rank) {
    throw UsageError("--no_local_rank and --pass_local_rank contradict each other");
  }
  if (!options.program.empty() && options.program.front() == "--") options.program.erase(options.program.begin());
  if (options.program.empty()) {
    throw UsageError("there is no program to launch: anyaccel launch [options] PROGRAM [ARGUMENTS...]");
  }
}

}  // namespace

int run_launch(int argc, char** argv) {
  CommandLine line("Runs a program on many cores, devices and hosts: one process for each, each with its RANK",
                   "anyaccel launch");
  line.footer(
      "PROGRAM and its arguments follow the options: anyaccel launch --num_accelerators 2 anyaccel generate ...");
  launcher::LaunchOptions options;
  Texts texts;
  const auto text = [&](const std::string& names, std::string& value, const std::string& help,
                        const std::string& type) {
    return line.add_option(both_spellings(names), value, help).type(type);
  };
  const auto flag = [&](const std::string& names, bool& value, const std::string& help) {
    return line.add_flag(both_spellings(names), value, help);
  };
  text("-H,--hostfile", options.hostfile, "Lines \"host slots=N\" (default /job/hostfile where that is there)", "FILE");
  text("-i,--include", options.include, "Use these alone: NODE[:SLOT[,SLOT...]][@NODE...]", "NODES");
  text("-e,--exclude", options.exclude, "Use all but these; same form", "NODES");
  text("--num_nodes", texts.num_nodes, "Hosts: the first N of the hostfile", "N");
  text("--num_accelerators,--num_gpus", texts.num_accelerators,
       "Ranks of each host (default: its slots; here, one per device or NUMA node)", "N");
  text("--master_addr", options.master_addr, "Where the ranks meet (default: the first host)", "ADDRESS");
  text("--master_port", texts.master_port, "Its TCP port (default 29500)", "PORT");
  text("--node_rank", texts.node_rank, "With --no_ssh: which host this is, from 0", "N");
  flag("--no_ssh", options.no_ssh, "Start this host's ranks alone; a person starts the other hosts'");
  flag("--no_ssh_check", options.no_ssh_check, "Do not try whether every host can be reached by ssh first");
  text("--ssh_port", texts.ssh_port, "Port of ssh on the hosts", "PORT");
  const CommandOption launcher =
      text("--launcher", texts.launcher, "local, pdsh (default), openmpi, mpich, impi, slurm or mvapich", "NAME");
  text("--launcher_args", texts.launcher_args, "Arguments for pdsh, mpirun or srun, as one word in quotes", "ARGS");
  flag("--force_multi", options.force_multi, "Go by the launcher although there is one host");
  text("--join_timeout", texts.join_timeout, "Until all ranks must have started and joined (default 300)", "SECONDS");
  flag("--bind_cores_to_rank", options.bind_cores, "Give each rank cores and memory of its own");
  const CommandOption core_list =
      text("--bind_core_list", options.core_list, "The cores to share out, such as 0,2-4 (default: all)", "CORES");
  text("--enable_each_rank_log", options.log_dir, "Output of each rank to a file of its own there", "DIR");
  flag("--prefix_output", options.prefix_output, "Begin each line of output with its rank");
  flag("--save_pid", options.save_pid, "Keep the launcher's process number in /tmp/NUMBER.anyaccel while it runs");
  flag("--no_local_rank", texts.no_local_rank, "Do not pass --local_rank=N to the program (the default)");
  flag("--pass_local_rank", options.pass_local_rank, "Pass --local_rank=N to the program as its first argument");
  flag("--no_env_file", texts.no_env_file, "Do not read ~/.deepspeed_env and ./.deepspeed_env");
  text("--log_level", options.log_level, "Of the launcher: debug, info (default), warning, error or critical", "LEVEL");
  flag("-q,--quiet", texts.quiet, "As --log_level error");
  flag("--dry_run", options.dry_run, "Print what would be started");
  flag("--no_python", texts.no_python, "").hidden();
  flag("--module", texts.module, "").hidden();
  text("--venv_script", texts.venv_script, "", "FILE").hidden();
  text("--start_node", texts.start_node, "", "N").hidden();
  flag("--start_rank", texts.start_rank, "").hidden();
  text("--ssh_host", texts.ssh_host, "", "HOST").hidden();
  line.end_at_first_word();

  const std::string version = std::string(ANYACCEL_VERSION) + " (commit " + ANYACCEL_COMMIT + ")";
  const auto body = [&] {
    options.version = version;
    options.program = line.rest();
    try {
      const int ssh_port = parse_optional("--ssh_port", texts.ssh_port, 1, 65535, 0);
      if (texts.start_rank) return launcher::start_rank(version);
      if (!texts.ssh_host.empty()) return launcher::start_ssh(texts.ssh_host, ssh_port, version);
      if (!texts.start_node.empty()) {
        return launcher::start_node(static_cast<int>(parse_integer("--start_node", texts.start_node, 0, 65534)),
                                    version);
      }
      refuse_what_is_not_done(texts, core_list.given(), options);
      read_texts(texts, launcher.given(), options);
      return launcher::launch(options);
    } catch (const InvalidArgument& error) {
      throw UsageError(error.what());
    }
  };
  // The ranks check the variables, each on its own host.
  return run_command(line, argc, argv, body, false);
}

}  // namespace anyaccel::cli
