// Implements init_process_group, world and destroy_process_group: the job of this process.
#include <algorithm>
#include <cstdio>
#include <mutex>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "comm/backend_choice.h"
#include "comm/group/group.h"
#include "comm/job/discovery.h"
#include "comm/job/host_identity.h"
#include "comm/job/job.h"

namespace anyaccel::comm {

namespace {

struct World {
  std::mutex mutex;
  std::shared_ptr<Job> job;
  std::shared_ptr<ProcessGroup> group;
  std::shared_ptr<CommsLog> log;
};

// Never destroyed: a process that ends without leaving must not wait, and its accelerator may be shut down.
World& the_world() {
  static World* const world = new World;
  return *world;
}

void print_log(const Job& job, const CommsLog& log, const std::vector<std::vector<CommsLog::Line>>& others) {
  const std::string text = "anyaccel: collectives of rank " + std::to_string(job.rank()) + " of " +
                           std::to_string(job.size()) + "\n" + CommsLog::table(log.lines(), others);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

// Rank 0 prints this if the program ends without destroy_process_group().
void print_log_at_exit() {
  World& w = the_world();
  const std::lock_guard lock(w.mutex);
  if (w.job && w.log && w.job->rank() == 0) print_log(*w.job, *w.log, {});
}

// Every rank sends its lines to rank 0, which prints them.
void finish_log(Job& job, const CommsLog& log) {
  const auto key = [](int rank) { return "comms_log/" + std::to_string(rank); };
  std::vector<std::vector<CommsLog::Line>> others;
  try {
    if (job.rank() != 0) {
      std::string text = CommsLog::to_text(log.lines());
      job.store()->set(key(job.rank()), text.size() <= wire::max_value ? text : "");
      return;
    }
    for (int rank = 1; rank < job.size(); ++rank) {
      others.push_back(CommsLog::from_text(job.store()->get(key(rank), job.timeout())));
    }
  } catch (const Error&) {  // the job failed: rank 0 prints only its own lines
    others.clear();
  }
  if (job.rank() == 0) print_log(job, log, others);
}

// Members that wait for this rank in shared memory read why it has left, so that the text says who.
const std::string& own_name(const Job& job) { return job.names()[static_cast<size_t>(job.rank())]; }

}  // namespace

std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options) {
  World& w = the_world();
  const std::lock_guard lock(w.mutex);
  if (w.group) {
    throw InvalidArgument("init_process_group was called twice; destroy_process_group() comes first",
                          AA_FAILED_PRECONDITION);
  }
  std::shared_ptr<CommsLog> log = comms_log_from_environment();
  JobOptions job_options;
  job_options.place = discover(process_environment(), options);
  job_options.host_id = host_identity();
  job_options.host_name = host_name();
  Accelerator* const accelerator = get_accelerator();
  const std::string backend = backend_or_default(options.backend);
  const BackendChoice choice = choose_backend(backend, *accelerator);
  if (!choice.notice.empty() && job_options.place.rank == 0 && job_options.place.size > 1) log_warning(choice.notice);
  job_options.device_library = choice.device_library;
  job_options.backend = backend;
  auto job = std::make_shared<Job>(job_options);

  GroupSetup setup;
  setup.membership.rank = job->rank();
  setup.membership.size = job->size();
  setup.membership.names = job->names();
  setup.membership.master_addr = job->master_addr();
  setup.membership.store = make_prefixed_store(job->store(), "world/");
  setup.membership.watch = job->watch();
  setup.membership.timeout = job->timeout();
  setup.hosts = job->hosts();
  setup.backend = backend;
  setup.device_library = job->device_library();
  setup.accelerator = accelerator;
  setup.log = log;
  setup.on_failure = [weak = std::weak_ptr<Job>(job)](const std::string& message) {
    if (const std::shared_ptr<Job> alive = weak.lock()) alive->report_failure(message);
  };
  try {
    std::unique_ptr<HostCommunicator> communicator = make_communicator(setup);
    w.group = make_process_group(std::move(communicator), std::move(setup));
  } catch (const std::exception& error) {
    job->report_failure(error.what());
    job->leave();
    throw;
  }
  w.job = std::move(job);
  if (log && !w.log && w.job->rank() == 0) std::atexit(print_log_at_exit);
  w.log = std::move(log);
  return w.group;
}

int local_rank() { return std::max(discover(process_environment(), {}).local_rank, 0); }

int job_size() {
  InitOptions options;
  options.master_addr = "127.0.0.1";  // where the ranks meet does not matter here
  return discover(process_environment(), options).size;
}

std::shared_ptr<ProcessGroup> world() noexcept {
  World& w = the_world();
  const std::lock_guard lock(w.mutex);
  return w.group;
}

std::shared_ptr<FailureWatch> job_failure_watch() noexcept {
  World& w = the_world();
  const std::lock_guard lock(w.mutex);
  return w.job ? w.job->watch() : nullptr;
}

void abort_process_group(const std::string& why) noexcept {
  World& w = the_world();
  const std::lock_guard lock(w.mutex);
  if (!w.job) return;
  w.job->report_failure(why);
  w.job->leave();
  w.job->watch()->fail(own_name(*w.job) + " left the job because of an error: " + why);
  w.group = nullptr;
  w.job = nullptr;
}

void destroy_process_group() {
  World& w = the_world();
  const std::lock_guard lock(w.mutex);
  if (!w.group) return;
  const std::shared_ptr<ProcessGroup> group = std::move(w.group);
  const std::shared_ptr<Job> job = std::move(w.job);
  const std::shared_ptr<CommsLog> log = std::move(w.log);
  if (log) finish_log(*job, *log);
  job->leave();
  // Groups that are still held end here.
  job->watch()->fail(own_name(*job) + " left the job: destroy_process_group() was called");
}

}  // namespace anyaccel::comm
