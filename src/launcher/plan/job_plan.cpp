// Converts the plan of a job to text and back.
#include "launcher/plan/job_plan.h"

#include <algorithm>
#include <limits>

#include "anyaccel/error.h"
#include "base/text/json.h"

namespace anyaccel::launcher {
namespace {

int whole_number(const JsonRef& value) {
  return static_cast<int>(value.integer(std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
}

std::vector<std::string> texts(const JsonRef& list) {
  std::vector<std::string> out;
  for (size_t i = 0; i < list.size(); ++i) out.push_back(list[i].string());
  return out;
}

}  // namespace

int JobPlan::world_size() const { return first_rank(static_cast<int>(hosts.size())); }

int JobPlan::first_rank(int node) const {
  int rank = 0;
  for (int i = 0; i < node; ++i) rank += static_cast<int>(hosts[static_cast<size_t>(i)].slots.size());
  return rank;
}

bool JobPlan::same_slots() const {
  return std::all_of(hosts.begin(), hosts.end(),
                     [&](const Host& host) { return host.slots.size() == hosts.front().slots.size(); });
}

std::string job_text(const JobPlan& job) {
  JsonArray hosts;
  for (const Host& host : job.hosts) hosts.push_back({{"name", host.name}, {"slots", host.slots}, {"user", host.user}});
  JsonMembers environment;
  for (const auto& [name, value] : job.environment) environment.push_back({name, value});
  const JsonValue json = {
      {"version", job.version},
      {"hosts", hosts},
      {"master_addr", job.master_addr},
      {"master_port", job.master_port},
      {"token", job.token},
      {"bind_cores", job.bind_cores},
      {"core_list", job.core_list},
      {"log_dir", job.log_dir},
      {"log_stamp", job.log_stamp},
      {"prefix_output", job.prefix_output},
      {"pass_local_rank", job.pass_local_rank},
      {"log_level", job.log_level},
      {"join_timeout", job.join_timeout},
      {"visible_devices", job.visible_devices},
      {"environment", environment},
      {"directory", job.directory},
      {"program", job.program},
      {"runner", job.runner},
      {"control", {{"addresses", job.control.addresses}, {"port", job.control.port}, {"secret", job.control.secret}}},
  };
  try {
    return json_text(json);
  } catch (const InvalidArgument&) {
    throw InvalidArgument(
        "the program's arguments, the variables that go along, the folder and the log's folder must be "
        "UTF-8 to be sent to other hosts; one of them is not");
  }
}

void check_version(const JobPlan& job, std::string_view version) {
  if (job.version == version) return;
  throw InvalidArgument("anyaccel here is " + std::string(version) + ", and " + job.version +
                        " started the job; install the same version at the same path on every host");
}

JobPlan parse_job(std::string_view text, std::string_view version) {
  JobPlan job;
  try {
    const JsonDocument document = JsonDocument::parse(text, "the job");
    const JsonRef json = document.root();
    job.version = json.at("version").string();
    const JsonRef hosts = json.at("hosts");
    for (size_t i = 0; i < hosts.size(); ++i) {
      Host& host = job.hosts.emplace_back();
      host.name = hosts[i].at("name").string();
      host.user = hosts[i].at("user").string();
      const JsonRef slots = hosts[i].at("slots");
      for (size_t slot = 0; slot < slots.size(); ++slot) host.slots.push_back(whole_number(slots[slot]));
    }
    job.master_addr = json.at("master_addr").string();
    job.master_port = whole_number(json.at("master_port"));
    job.token = json.at("token").string();
    job.bind_cores = json.at("bind_cores").boolean();
    job.core_list = json.at("core_list").string();
    job.log_dir = json.at("log_dir").string();
    job.log_stamp = json.at("log_stamp").string();
    job.prefix_output = json.at("prefix_output").boolean();
    job.pass_local_rank = json.at("pass_local_rank").boolean();
    job.log_level = json.at("log_level").string();
    job.join_timeout = whole_number(json.at("join_timeout"));
    job.visible_devices = texts(json.at("visible_devices"));
    const JsonRef environment = json.at("environment");
    for (size_t i = 0; i < environment.size(); ++i) {
      job.environment[environment.key(i)] = environment.member(i).string();
    }
    job.directory = json.at("directory").string();
    job.program = texts(json.at("program"));
    job.runner = json.at("runner").string();
    const JsonRef control = json.at("control");
    job.control.addresses = texts(control.at("addresses"));
    job.control.port = whole_number(control.at("port"));
    job.control.secret = control.at("secret").string();
  } catch (const CheckpointError& error) {
    if (!job.version.empty()) check_version(job, version);  // which may write other members
    throw InvalidArgument(std::string("the launcher's description of the job cannot be read: ") + error.what());
  }
  if (job.program.empty()) throw InvalidArgument("the launcher's description of the job names no program");
  return job;
}

}  // namespace anyaccel::launcher
