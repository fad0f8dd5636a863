// From command lines to jobs, and from jobs to the command lines of every runner.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "anyaccel/error.h"
#include "base/process/shell.h"
#include "launcher/hosts/runners.h"
#include "launcher/plan/place.h"
#include "launcher/plan/plan.h"

namespace anyaccel::launcher {
namespace {

class FakeMachine : public Surroundings {
 public:
  std::map<std::string, std::string> files;
  Variables variables;
  int devices = 2;

  bool read_file(const std::string& path, std::string& text) const override {
    const auto found = files.find(path);
    if (found != files.end()) text = found->second;
    return found != files.end();
  }
  int device_count() const override { return devices; }
  std::vector<std::string> visible_devices_variables() const override { return {"VISIBLE"}; }
  std::vector<std::string> export_prefixes() const override { return {}; }
  std::string variable(const std::string& name) const override {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
  }
  int free_port() const override { return 4711; }
  bool is_this_host(const std::string& name) const override { return name == "here"; }
  std::string address_of(const std::vector<Host>& hosts) const override { return "address-of-" + hosts.front().name; }
  std::string random_text() const override { return "random"; }
  std::string time_stamp() const override { return "20260102030405"; }
};

LaunchOptions options_of() {
  LaunchOptions options;
  options.program = {"prog", "a b"};
  return options;
}

FakeMachine cluster() {
  FakeMachine machine;
  machine.files["hosts"] = "n1 slots=2\nn2 slots=3\n";
  return machine;
}

LaunchOptions on_cluster(Runner runner = Runner::Pdsh) {
  LaunchOptions options = options_of();
  options.hostfile = "hosts";
  options.runner = runner;
  options.runner_given = runner != Runner::Pdsh;
  return options;
}

std::string error_of(const LaunchOptions& options, const FakeMachine& machine) {
  try {
    make_plan(options, machine);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

#define EXPECT_SAYS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

TEST(Plan, ThisHostAlone) {
  FakeMachine machine;
  Plan plan = make_plan(options_of(), machine);
  EXPECT_EQ(plan.runner, Runner::Local);
  EXPECT_EQ(plan.job.world_size(), 2);
  EXPECT_EQ(plan.job.master_addr, "127.0.0.1");
  EXPECT_EQ(plan.job.master_port, 4711);  // one that is free, so that jobs do not meet each other
  EXPECT_EQ(plan.job.token, "random");
  EXPECT_TRUE(plan.job.visible_devices.empty());  // what a person set holds
  LaunchOptions options = options_of();
  options.num_accelerators = 5;
  options.num_nodes = 1;
  plan = make_plan(options, machine);
  EXPECT_EQ(plan.job.world_size(), 5);
  options.master_port = 29500;  // a person's own choice is kept
  EXPECT_EQ(make_plan(options, machine).job.master_port, 29500);
}

TEST(Plan, TheDefaultHostfileMayBeMissing) {
  FakeMachine machine;
  machine.files["/job/hostfile"] = "x slots=1\ny slots=1\n";
  EXPECT_EQ(make_plan(options_of(), machine).job.hosts.size(), 2U);
  EXPECT_EQ(make_plan(options_of(), machine).job.master_port, 29500);  // which port is free elsewhere is not known
  EXPECT_SAYS(error_of(on_cluster(), FakeMachine()), "the hostfile \"hosts\" cannot be read");
  LaunchOptions options = options_of();
  options.num_nodes = 2;
  EXPECT_SAYS(error_of(options, FakeMachine()), "no extra nodes are available");
}

TEST(Plan, HostsAndCounts) {
  const FakeMachine machine = cluster();
  LaunchOptions options = on_cluster();
  Plan plan = make_plan(options, machine);
  EXPECT_EQ(plan.runner, Runner::Pdsh);
  EXPECT_EQ(plan.job.world_size(), 5);
  EXPECT_EQ(plan.job.first_rank(1), 2);
  EXPECT_EQ(plan.job.master_addr, "address-of-n1");
  EXPECT_EQ(plan.job.visible_devices, (std::vector<std::string>{"VISIBLE"}));
  options.num_accelerators = 4;  // more than the slots: cores may be shared
  EXPECT_EQ(make_plan(options, machine).job.world_size(), 8);
  options.num_nodes = 1;
  EXPECT_EQ(make_plan(options, machine).runner, Runner::Pdsh);  // n1 is another host than this
  options.force_multi = true;
  EXPECT_EQ(make_plan(options, machine).runner, Runner::Pdsh);
  options.num_nodes = 3;
  EXPECT_SAYS(error_of(options, machine), "--num_nodes is 3, and there are 2 hosts");
  options = on_cluster();
  options.include = "n2:0,2";
  plan = make_plan(options, machine);
  EXPECT_EQ(plan.job.hosts.at(0).slots, (std::vector<int>{0, 2}));
  options.num_accelerators = 1;
  EXPECT_SAYS(error_of(options, machine), "cannot be combined");
  options = on_cluster();
  options.include = "n3";
  EXPECT_SAYS(error_of(options, machine), "Hostname 'n3' not found");
}

TEST(Plan, NamedRunnersRunOnOneHostToo) {
  LaunchOptions options = options_of();
  options.runner = Runner::OpenMpi;
  options.runner_given = true;
  EXPECT_EQ(make_plan(options, FakeMachine()).runner, Runner::OpenMpi);
  EXPECT_EQ(make_plan(options, FakeMachine()).job.master_addr, "127.0.0.1");
  options = on_cluster(Runner::Local);
  EXPECT_SAYS(error_of(options, cluster()), "--launcher local starts ranks on this host alone, and 2 hosts are chosen");
}

TEST(Plan, HostsStartedByAPerson) {
  LaunchOptions options = on_cluster();
  options.no_ssh = true;
  EXPECT_SAYS(error_of(options, cluster()), "--no_ssh needs --node_rank, the number of this host from 0 to 1");
  options.node_rank = 2;
  EXPECT_SAYS(error_of(options, cluster()), "it is 2");
  options.node_rank = 1;
  FakeMachine machine = cluster();
  machine.variables["ANYACCEL_JOB_TOKEN"] = "shared";
  const Plan plan = make_plan(options, machine);
  EXPECT_EQ(plan.runner, Runner::Local);
  EXPECT_EQ(plan.node, 1);
  EXPECT_EQ(plan.job.token, "shared");
  options = options_of();
  options.node_rank = 0;
  EXPECT_SAYS(error_of(options, FakeMachine()), "--node_rank goes with --no_ssh only");
  options.no_ssh = true;
  options.num_nodes = 2;
  options.num_accelerators = 4;
  EXPECT_SAYS(error_of(options, FakeMachine()), "needs --master_addr");
  options.master_addr = "10.0.0.1";
  const JobPlan job = make_plan(options, FakeMachine()).job;
  EXPECT_EQ(job.world_size(), 8);
  EXPECT_EQ(job.hosts[1].name, "node_rank=1");
}

TEST(Plan, SlurmsAllocation) {
  FakeMachine machine;
  machine.variables["SLURM_JOB_NODELIST"] = "c[1-2]";
  LaunchOptions options = options_of();
  options.runner = Runner::Slurm;
  options.runner_given = true;
  Plan plan = make_plan(options, machine);
  ASSERT_EQ(plan.job.hosts.size(), 2U);
  EXPECT_EQ(plan.job.hosts[1].name, "c2");
  machine.variables.clear();  // srun makes an allocation
  options.num_nodes = 3;
  plan = make_plan(options, machine);
  EXPECT_TRUE(plan.job.hosts.empty());
  EXPECT_EQ(plan.nodes, 3);
  EXPECT_EQ(plan.per_node, 2);
}

TEST(Job, TextIsReadBackUnchanged) {
  LaunchOptions options = on_cluster(Runner::OpenMpi);
  options.bind_cores = true;
  options.core_list = "0-3";
  options.log_dir = "/l o g";
  options.prefix_output = true;
  options.pass_local_rank = true;
  options.log_level = "debug";
  JobPlan job = make_plan(options, cluster()).job;
  job.environment = {{"A", "x y\n\"'$"}};
  job.directory = "/d";
  job.runner = "openmpi";
  job.control = {{"1.2.3.4"}, 5, "s"};
  job.version = "1.2 (commit abc)";
  const JobPlan back = parse_job(job_text(job), job.version);
  EXPECT_EQ(job_text(back), job_text(job));
  EXPECT_EQ(back.environment, job.environment);
  EXPECT_EQ(back.program, job.program);
  EXPECT_TRUE(back.bind_cores && back.prefix_output && back.pass_local_rank);
  for (const char* bad : {"", "{", "[]", "{\"hosts\": 1}"}) EXPECT_THROW(parse_job(bad, ""), InvalidArgument) << bad;
  EXPECT_THROW(check_version(job, "1.2 (commit abd)"), InvalidArgument);
  // Another version may write other members.
  try {
    parse_job(R"({"version": "0.9", "hosts": 1})", job.version);
    ADD_FAILURE() << "the job of another version was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_SAYS(error.what(), "anyaccel here is 1.2 (commit abc), and 0.9 started the job");
  }
}

std::string command_of(const LaunchOptions& options, const FakeMachine& machine, const char* program,
                       const Variables& own = {}) {
  const Command command = runner_command(options, make_plan(options, machine), program, "/bin/aa", own);
  std::string text;
  for (const auto& [name, value] : command.environment) {
    if (name != job_variable) text += name + "=" + quote_word(value) + " ";
  }
  // Whatever the runner, the whole job is passed on.
  EXPECT_EQ(parse_job(command.environment.at(job_variable), "").program, options.program);
  return text + quote_words(command.argv);
}

FakeMachine even() {
  FakeMachine machine;
  machine.files["hosts"] = "n1 slots=2\nn2 slots=2\n";
  return machine;
}

TEST(Plan, OneHostOfAHostfileIsWhereItRuns) {
  FakeMachine machine;
  machine.files["hosts"] = "n1 slots=2\n";
  machine.files["mine"] = "here slots=2\n";
  LaunchOptions options = options_of();
  options.hostfile = "hosts";
  Plan plan = make_plan(options, machine);
  EXPECT_EQ(plan.runner, Runner::Pdsh);
  EXPECT_EQ(plan.job.master_addr, "address-of-n1");
  EXPECT_EQ(plan.job.master_port, 29500);
  options.runner = Runner::Local;
  options.runner_given = true;
  try {
    make_plan(options, machine);
    FAIL() << "the ranks of n1 were to be started here";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("the host \"n1\" is another one"), std::string::npos) << error.what();
  }
  options = options_of();
  options.hostfile = "mine";
  EXPECT_EQ(make_plan(options, machine).runner, Runner::Local);
  // One that is left of several.
  machine.files["two"] = "here slots=2\nn2 slots=2\n";
  options.hostfile = "two";
  options.include = "n2";
  EXPECT_EQ(make_plan(options, machine).runner, Runner::Pdsh);
  options.include = "here";
  EXPECT_EQ(make_plan(options, machine).runner, Runner::Local);
  // A person is there already.
  options.include = "n2";
  options.no_ssh = true;
  options.node_rank = 0;
  EXPECT_EQ(make_plan(options, machine).runner, Runner::Local);
}

TEST(Runners, CommandLines) {
  LaunchOptions options = on_cluster();
  options.ssh_port = 2222;
  options.launcher_args = {"-t", "a b"};
  EXPECT_EQ(command_of(options, cluster(), "pdsh"),
            "pdsh -S -N -f 1024 -R exec -w n1,n2 -t 'a b' /bin/aa launch --ssh_host %h --ssh_port 2222");
  options = on_cluster(Runner::OpenMpi);
  options.ssh_port = 2222;
  options.launcher_args = {"--mca", "btl", "tcp,self"};
  EXPECT_EQ(command_of(options, cluster(), "mpirun"),
            "mpirun -n 5 -H n1:2,n2:3 --map-by slot --bind-to none --mca plm_rsh_args '-p 2222' --mca btl tcp,self -x "
            "ANYACCEL_LAUNCH_JOB /bin/aa launch --start_rank");
  options = on_cluster(Runner::Mpich);
  options.ssh_port = 2222;
  EXPECT_EQ(command_of(options, cluster(), "mpirun.mpich", {{"HYDRA_LAUNCHER_EXTRA_ARGS", "-v"}}),
            "HYDRA_LAUNCHER_EXTRA_ARGS='-v -p 2222' mpirun.mpich -n 5 -hosts n1:2,n2:3 -bind-to none /bin/aa launch "
            "--start_rank");
  options = on_cluster(Runner::Impi);
  options.ssh_port = 2222;
  options.launcher_args = {"-f", "x"};
  EXPECT_EQ(
      command_of(options, cluster(), "mpirun"),
      "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS='-p 2222' mpirun -f x -genvlist ANYACCEL_LAUNCH_JOB -genv I_MPI_PIN 0 "
      "-host n1 -n 2 /bin/aa launch --start_rank : -host n2 -n 3 /bin/aa launch --start_rank");
  options = on_cluster(Runner::Mvapich);
  options.launcher_args = {"-v"};
  EXPECT_EQ(command_of(options, cluster(), "mpirun"),
            "MV2_DEBUG_SHOW_BACKTRACE=1 MV2_ENABLE_AFFINITY=0 MV2_INTER_ALLGATHER_TUNING=5 MV2_SMP_USE_CMA=0 "
            "MV2_SUPPORT_DL=1 mpirun -np 5 -hosts n1:2,n2:3 -v -genvlist ANYACCEL_LAUNCH_JOB /bin/aa launch "
            "--start_rank");
  options = on_cluster(Runner::Slurm);
  options.launcher_args = {"--mpi=pmi2"};
  EXPECT_EQ(command_of(options, even(), "srun"),
            "srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --distribution=block --kill-on-bad-exit=1 --export=ALL "
            "--nodelist=n1,n2 --cpu-bind=none --mpi=pmi2 /bin/aa launch --start_rank");
}

TEST(Runners, NoOptionIsLostOnAny) {
  for (const Runner runner :
       {Runner::Pdsh, Runner::OpenMpi, Runner::Mpich, Runner::Impi, Runner::Slurm, Runner::Mvapich}) {
    LaunchOptions options = on_cluster(runner);
    options.bind_cores = true;
    options.core_list = "2-9";
    options.log_dir = "/logs";
    options.prefix_output = true;
    options.pass_local_rank = true;
    options.log_level = "error";
    options.master_addr = "m";
    options.master_port = 77;
    options.include = "n2:1@n1:0";
    options.launcher_args = {"--argument-of-the-runner"};
    const Plan plan = make_plan(options, even());
    const Command command = runner_command(options, plan, "run", "/bin/aa", {});
    EXPECT_EQ(std::count(command.argv.begin(), command.argv.end(), "--argument-of-the-runner"), 1);
    const JobPlan job = parse_job(command.environment.at(job_variable), "");
    EXPECT_EQ(job_text(job), job_text(plan.job));
    EXPECT_TRUE(job.bind_cores && job.prefix_output && job.pass_local_rank);
    EXPECT_EQ(job.core_list + job.log_dir + job.log_level + job.master_addr, "2-9/logserrorm");
    EXPECT_EQ(job.master_port, 77);
    EXPECT_EQ(job.hosts.at(1).slots, (std::vector<int>{1}));
  }
}

TEST(Runners, ContradictionsAreRefused) {
  const auto error = [](const LaunchOptions& options, const FakeMachine& machine) {
    try {
      runner_command(options, make_plan(options, machine), "run", "/bin/aa", {});
    } catch (const InvalidArgument& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  LaunchOptions options = on_cluster(Runner::Slurm);
  EXPECT_SAYS(error(options, cluster()), "needs the same number of ranks on every host");
  options.ssh_port = 22;
  EXPECT_SAYS(error(options, even()), "there is no ssh with --launcher slurm");
  options = on_cluster(Runner::OpenMpi);
  options.launcher_args = {"--bind-to", "core"};
  EXPECT_EQ(error(options, cluster()), "no error");
  options.bind_cores = true;
  EXPECT_SAYS(error(options, cluster()), "--launcher_args binds ranks to cores");
}

TEST(Runners, SshKeepsSecretsOutOfItsArguments) {
  const auto words = ssh_command("user@n1", 7, node_command("/a b/aa", 3), {{"PDSH_SSH_ARGS_APPEND", "-i 'k 1'"}});
  EXPECT_EQ(quote_words(words),
            "ssh -i 'k 1' -T -x -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=3 -o "
            "ServerAliveCountMax=3 -p 7 -- user@n1 'exec '\\''/a b/aa'\\'' launch --start_node 3'");
}

JobPlan job_for(const std::string& runner) {
  JobPlan job;
  job.hosts = {{"n1", {0, 1}}, {"n2", {0, 1, 2}}};
  job.runner = runner;
  job.program = {"p"};
  return job;
}

TEST(Place, EveryRunnerTells) {
  JobPlan job = job_for("openmpi");
  Place place = read_place(
      job, {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "5"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  EXPECT_EQ(place.node, 1);
  EXPECT_EQ(place.local_rank, 1);
  for (const char* runner : {"mpich", "impi", "mvapich"}) {
    job = job_for(runner);
    place = read_place(job, {{"PMI_RANK", "1"}, {"PMI_SIZE", "5"}, {"MPI_LOCALRANKID", "1"}});
    EXPECT_EQ(place.node, 0);
    EXPECT_EQ(place.local_rank, 1);
  }
  job = job_for("slurm");
  job.hosts = {{"n2", {4, 5}}, {"n1", {6, 7}}};
  place = read_place(job, {{"SLURM_PROCID", "2"},
                           {"SLURM_NTASKS", "4"},
                           {"SLURM_LOCALID", "0"},
                           {"SLURM_STEP_NODELIST", "n[1-2]"},
                           {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}});
  EXPECT_EQ(place.node, 1);
  EXPECT_EQ(job.hosts.at(1).name, "n2");  // in Slurm's order, with the requested slots
  EXPECT_EQ(job.hosts.at(1).slots, (std::vector<int>{4, 5}));
  EXPECT_EQ(job.master_addr, "n1");
}

TEST(Place, WhoStartedItInstead) {
  const auto error = [](const std::string& runner, const Variables& variables) {
    JobPlan job = job_for(runner);
    try {
      read_place(job, variables);
    } catch (const CommunicationError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_SAYS(
      error("openmpi", {{"PMI_RANK", "0"}, {"PMI_SIZE", "5"}}),
      "OMPI_COMM_WORLD_RANK or OMPI_COMM_WORLD_SIZE is not set: it was started by MPICH or Intel MPI (PMI_RANK=0)");
  EXPECT_SAYS(error("mpich", {{"OMPI_COMM_WORLD_RANK", "2"}}), "it was started by Open MPI (OMPI_COMM_WORLD_RANK=2)");
  EXPECT_SAYS(error("mpich", {{"HOME", "/"}}),
              "PMI_RANK or PMI_SIZE is not set: no variable of any MPI or of Slurm is there");
}

TEST(Place, AnotherMpisLauncherIsAnError) {
  const auto error = [](const std::string& runner, const Variables& variables) {
    JobPlan job = job_for(runner);
    try {
      read_place(job, variables);
    } catch (const CommunicationError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_SAYS(error("openmpi", {{"PMI_RANK", "0"}, {"PMI_SIZE", "5"}}), "it was started by MPICH or Intel MPI");
  EXPECT_SAYS(error("mpich", {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}), "started rank 0 of 1, and the job was to have 5");
  EXPECT_SAYS(error("mpich", {{"PMI_RANK", "5"}, {"PMI_SIZE", "5"}}), "started rank 5 of 5");
  EXPECT_SAYS(
      error("openmpi",
            {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "5"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}),
      "ranks fill one host after the other");
  EXPECT_SAYS(error("slurm", {{"SLURM_PROCID", "0"},
                              {"SLURM_NTASKS", "5"},
                              {"SLURM_STEP_NODELIST", "n[1-2]"},
                              {"SLURM_STEP_TASKS_PER_NODE", "5"}}),
              "for its hosts");
}

}  // namespace
}  // namespace anyaccel::launcher
