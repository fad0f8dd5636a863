// Checks a runner's requirements before anything is started.
#include "launcher/hosts/probe.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "anyaccel/error.h"
#include "base/process/shell.h"
#include "launcher/hosts/runners.h"
#include "launcher/plan/addresses.h"
#include "launcher/processes/node.h"
#include "launcher/processes/spawn.h"

namespace anyaccel::launcher {
namespace {

constexpr size_t ssh_at_once = 64;

// A running program, with its standard output and error.
class Said {
 public:
  explicit Said(const std::vector<std::string>& argv)
      : stream_(popen((quote_words(argv) + " 2>&1 </dev/null").c_str(), "re")) {}
  ~Said() { wait(); }
  Said(const Said&) = delete;
  Said& operator=(const Said&) = delete;

  // Runs it to its end. Returns false if it failed.
  bool wait() {
    if (!stream_) return ok_;
    char buffer[4096];
    for (size_t got = 0; (got = fread(buffer, 1, sizeof buffer, stream_)) > 0;) text_.append(buffer, got);
    ok_ = pclose(stream_) == 0;
    stream_ = nullptr;
    return ok_;
  }
  const std::string& text() const { return text_; }

 private:
  std::FILE* stream_;
  std::string text_;
  bool ok_ = false;
};

struct Kind {
  std::vector<const char*> names;  // possible names of the program
  const char* asked;               // the program whose --version output identifies it; null: itself
  const char* says;                // text in that output; null: any
  const char* says_not;            // null: nothing
  const char* package;
};

Kind kind_of(Runner runner) {
  switch (runner) {
    case Runner::Local: return {};
    case Runner::Pdsh: return {{"pdsh"}, nullptr, nullptr, nullptr, "pdsh"};
    case Runner::OpenMpi: return {{"mpirun.openmpi", "mpirun"}, nullptr, "Open MPI", nullptr, "openmpi-bin"};
    case Runner::Mpich: return {{"mpirun.mpich", "mpiexec.hydra", "mpirun"}, nullptr, "HYDRA", "Intel(R) MPI", "mpich"};
    case Runner::Impi: return {{"mpirun", "mpiexec.hydra"}, nullptr, "Intel(R) MPI", nullptr, nullptr};
    case Runner::Slurm: return {{"srun"}, nullptr, nullptr, nullptr, "slurm-client"};
    case Runner::Mvapich: return {{"mpirun", "mpiexec.hydra"}, "mpiname", "MVAPICH", nullptr, nullptr};
  }
  return {};
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::string find_runner(Runner runner) {
  const Kind kind = kind_of(runner);
  const std::string asked = "--launcher " + runner_name(runner) + ": ";
  std::string others;
  for (const char* name : kind.names) {
    if (find_program(name).empty()) continue;
    if (!kind.says) return name;
    Said version({kind.asked ? kind.asked : name, "--version"});
    const bool answered = version.wait();
    const std::string& text = version.text();
    if (text.find(kind.says) != std::string::npos &&
        (!kind.says_not || text.find(kind.says_not) == std::string::npos)) {
      return name;
    }
    others += (others.empty() ? "" : ", ") + std::string(name);
    others += answered ? " is another MPI's: " + first_line(text)
                       : " --version fails" + (text.empty() ? std::string() : ": " + first_line(text));
  }
  throw UnavailableError(asked + "there is no " + (others.empty() ? kind.names.front() : "mpirun of that MPI") +
                         " in PATH" + (others.empty() ? "" : " (" + others + ")") +
                         (kind.package ? std::string("; on Debian it is in the package ") + kind.package : ""));
}

bool is_this_host(const std::string& name) {
  if (name == "localhost" || name == own_host_name()) return true;
  const std::string address = resolve(name);
  if (address.empty()) return false;
  const std::vector<std::string> own = own_addresses();
  return is_loopback(address) || std::count(own.begin(), own.end(), address) > 0;
}

void check_ssh(const std::vector<Host>& hosts, int ssh_port) {
  if (find_program("ssh").empty()) {
    throw UnavailableError(
        "there is no ssh in PATH, which starts ranks on other hosts; on Debian it is in the package "
        "openssh-client");
  }
  const Variables own = own_environment();
  for (size_t begin = 0; begin < hosts.size(); begin += ssh_at_once) {
    std::vector<std::unique_ptr<Said>> answers;
    const size_t end = std::min(hosts.size(), begin + ssh_at_once);
    for (size_t i = begin; i < end; ++i) {
      answers.push_back(std::make_unique<Said>(ssh_command(hosts[i].login(), ssh_port, "true", own)));
    }
    for (size_t i = begin; i < end; ++i) {
      if (answers[i - begin]->wait()) continue;
      throw UnavailableError("the host \"" + hosts[i].name + "\" cannot be reached by ssh: " +
                             first_line(answers[i - begin]->text()) + " (--no_ssh_check leaves this test out)");
    }
  }
}

}  // namespace anyaccel::launcher
