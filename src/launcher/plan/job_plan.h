// A job as it was decided: which ranks run where, and everything that a host needs to start its own. Made once from the
// command line; every host gets the same text of it, so no option is lost on the way.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace anyaccel::launcher {

// A host and the devices of it that are used; one rank for each.
struct Host {
  std::string name;
  std::vector<int> slots;
};

// Where the process that a person started listens for its hosts' reports (control.h); port 0: nowhere.
struct ControlPoint {
  std::vector<std::string> addresses;
  int port = 0;
  std::string secret;
};

struct JobPlan {
  // Ranks are numbered host by host. Empty: Slurm decides, and tells each rank.
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
  int join_timeout = 0;  // seconds; 0: as the environment says
  // Variables that are set to a host's slots, joined by commas.
  std::vector<std::string> visible_devices;
  std::map<std::string, std::string> environment;  // set for every rank
  std::string directory;                           // where ranks start; empty: where they are
  std::vector<std::string> program;                // and its arguments
  std::string runner;                              // how ranks learn their place: "openmpi", ...; empty: they are told
  ControlPoint control;

  int world_size() const;
  int first_rank(int node) const;  // of that host
  bool same_slots() const;         // whether every host has as many
};

// JSON. InvalidArgument for text that is not UTF-8.
std::string job_text(const JobPlan& job);
// InvalidArgument for what job_text() did not write.
JobPlan parse_job(std::string_view text);

}  // namespace anyaccel::launcher
