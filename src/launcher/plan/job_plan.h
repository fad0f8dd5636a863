// Defines the plan of a job: which ranks run where, and everything that a host needs to start its own ranks. It is
// created once from the command line; every host gets the same serialized text, so no option is lost.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace anyaccel::launcher {

// A host and the devices that are used there; each device gets one rank.
struct Host {
  std::string name;
  std::vector<int> slots;
  std::string user = {};  // who logs in there; empty: whom ssh chooses

  std::string login() const { return user.empty() ? name : user + "@" + name; }  // for ssh
};

// The address at which the process that the user started listens for its hosts' reports (control.h); port 0: none.
struct ControlPoint {
  std::vector<std::string> addresses;
  int port = 0;
  std::string secret;
};

struct JobPlan {
  std::string version;  // of the program that made the plan, as `anyaccel --version` says it
  // Ranks are numbered host by host. Empty: Slurm decides, and sets variables for each rank.
  std::vector<Host> hosts;
  std::string master_addr;
  int master_port = 29500;
  std::string token;  // ANYACCEL_JOB_TOKEN; empty: none is set
  bool bind_cores = false;
  std::string core_list;  // empty: all cores
  std::string log_dir;    // empty: output is not kept
  std::string log_stamp;  // YYYYmmddHHMMSS
  bool prefix_output = false;
  bool pass_local_rank = false;
  std::string log_level = "info";
  int join_timeout = 0;  // seconds; 0: from the environment
  // Variables that are set to a host's slots, joined by commas.
  std::vector<std::string> visible_devices;
  std::map<std::string, std::string> environment;  // set for every rank
  std::string directory;                           // working directory of ranks; empty: unchanged
  std::vector<std::string> program;                // and its arguments
  std::string runner;                              // runner that gives ranks their place: "openmpi", ...; empty: none
  ControlPoint control;

  int world_size() const;
  int first_rank(int node) const;  // the first rank of that host
  bool same_slots() const;         // every host has the same number of ranks
};

// JSON. InvalidArgument for text that is not UTF-8.
std::string job_text(const JobPlan& job);
// InvalidArgument if another version than this program's made the plan: ranks of two versions may divide a model
// differently.
void check_version(const JobPlan& job, std::string_view version);
// InvalidArgument for a text that is not from job_text(), which says if it is from another version than this program's.
JobPlan parse_job(std::string_view text, std::string_view version);

}  // namespace anyaccel::launcher
