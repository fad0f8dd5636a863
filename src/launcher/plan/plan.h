// Plans a job from a command line.
#pragma once

#include <string>
#include <vector>

#include "launcher/launch.h"
#include "launcher/plan/job_plan.h"

namespace anyaccel::launcher {

// The information about the machine that planning needs; queried only when needed.
class Surroundings {
 public:
  virtual ~Surroundings() = default;
  // Reads a hostfile. Returns false if there is no such file. Throws InvalidArgument for one that cannot be read.
  virtual bool read_file(const std::string& path, std::string& text) const = 0;
  virtual int device_count() const = 0;
  virtual std::vector<std::string> visible_devices_variables() const = 0;
  virtual std::vector<std::string> export_prefixes() const = 0;
  virtual std::string variable(const std::string& name) const = 0;  // empty: not set
  virtual int free_port() const = 0;
  virtual bool is_this_host(const std::string& name) const = 0;
  // Returns an address of the first of several hosts at which the others can reach it.
  virtual std::string address_of(const std::vector<Host>& hosts) const = 0;
  virtual std::string random_text() const = 0;  // 128 bits
  virtual std::string time_stamp() const = 0;   // YYYYmmddHHMMSS
};

struct Plan {
  JobPlan job;
  Runner runner = Runner::Local;  // Local: this host's ranks are started here
  int node = 0;                   // with Local: index of this host in the job
  // With Slurm, if the hosts are unknown: the number of nodes to request in the allocation.
  int nodes = 0;
  int per_node = 0;
};

// Decides everything except environment and program paths. InvalidArgument for contradictions, and for unknown hosts or
// devices.
Plan make_plan(const LaunchOptions& options, const Surroundings& surroundings);

}  // namespace anyaccel::launcher
