// Implements job_plan.h: a job as it was decided.
#include "launcher/plan/job_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "anyaccel/error.h"

namespace anyaccel::launcher {

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
  nlohmann::ordered_json hosts = nlohmann::ordered_json::array();
  for (const Host& host : job.hosts) hosts.push_back({{"name", host.name}, {"slots", host.slots}});
  const nlohmann::ordered_json json = {
      {"hosts", std::move(hosts)},
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
      {"environment", job.environment},
      {"directory", job.directory},
      {"program", job.program},
      {"runner", job.runner},
      {"control", {{"addresses", job.control.addresses}, {"port", job.control.port}, {"secret", job.control.secret}}},
  };
  try {
    return json.dump();
  } catch (const nlohmann::json::exception&) {
    throw InvalidArgument(
        "the program's arguments, the variables that go along, the folder and the log's folder must be "
        "UTF-8 to be sent to other hosts; one of them is not");
  }
}

JobPlan parse_job(std::string_view text) {
  JobPlan job;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    for (const nlohmann::json& host : json.at("hosts")) {
      job.hosts.push_back({host.at("name").get<std::string>(), host.at("slots").get<std::vector<int>>()});
    }
    json.at("master_addr").get_to(job.master_addr);
    json.at("master_port").get_to(job.master_port);
    json.at("token").get_to(job.token);
    json.at("bind_cores").get_to(job.bind_cores);
    json.at("core_list").get_to(job.core_list);
    json.at("log_dir").get_to(job.log_dir);
    json.at("log_stamp").get_to(job.log_stamp);
    json.at("prefix_output").get_to(job.prefix_output);
    json.at("pass_local_rank").get_to(job.pass_local_rank);
    json.at("log_level").get_to(job.log_level);
    json.at("join_timeout").get_to(job.join_timeout);
    json.at("visible_devices").get_to(job.visible_devices);
    json.at("environment").get_to(job.environment);
    json.at("directory").get_to(job.directory);
    json.at("program").get_to(job.program);
    json.at("runner").get_to(job.runner);
    const nlohmann::json& control = json.at("control");
    control.at("addresses").get_to(job.control.addresses);
    control.at("port").get_to(job.control.port);
    control.at("secret").get_to(job.control.secret);
  } catch (const nlohmann::json::exception& error) {
    throw InvalidArgument(std::string("the launcher's description of the job cannot be read: ") + error.what());
  }
  if (job.program.empty()) throw InvalidArgument("the launcher's description of the job names no program");
  return job;
}

}  // namespace anyaccel::launcher
