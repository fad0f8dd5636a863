// Provides the information about the real machine that planning needs.
#include "launcher/plan/surroundings.h"

#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/files/file_descriptor.h"
#include "base/files/trusted_path.h"
#include "base/process/child_count.h"
#include "launcher/hosts/probe.h"
#include "launcher/plan/addresses.h"

namespace anyaccel::launcher {
namespace {

// Every rank logs the accelerator it found, so the launcher does not.
Accelerator& accelerator() {
  const LogLevel level = log_level();
  set_log_level(std::max(level, LogLevel::error));
  Accelerator* found = nullptr;
  try {
    found = get_accelerator();
  } catch (...) {
    set_log_level(level);
    throw;
  }
  set_log_level(level);
  return *found;
}

}  // namespace

bool OwnMachine::read_file(const std::string& path, std::string& text) const {
  constexpr size_t most_bytes = size_t{64} << 20;
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && (errno == ENOENT || errno == ENOTDIR)) return false;
  std::string reason = file ? "" : std::strerror(errno);
  std::optional<std::string> found;
  if (file) found = read_descriptor(file.get(), most_bytes, reason);
  if (!found) throw InvalidArgument("the hostfile \"" + path + "\" cannot be read: " + reason);
  text = std::move(*found);
  return true;
}

// A child process counts, because counting opens the vendor's runtime: with some vendors a device belongs to the
// process that opened it, and the ranks could not use it.
int OwnMachine::device_count() const {
  accelerator();  // reports an error in the choice of the accelerator
  constexpr std::chrono::minutes limit{2};
  const ChildAnswer answer = ask_child(
      []() -> std::string {
        try {
          return std::to_string(accelerator().device_count());
        } catch (const InvalidArgument& error) {
          return std::string("usage ") + error.what();
        } catch (const std::exception& error) {
          return std::string("error ") + error.what();
        }
      },
      limit);
  if (!answer.problem.empty()) {
    throw UnavailableError("the devices cannot be counted: " + answer.problem +
                           "; name a number with --num_accelerators");
  }
  constexpr size_t word = sizeof("usage ") - 1;
  if (answer.text.starts_with("usage ")) throw InvalidArgument(answer.text.substr(word));
  if (answer.text.starts_with("error ")) throw UnavailableError(answer.text.substr(word));
  const int count = std::atoi(answer.text.c_str());
  if (count < 1) throw UnavailableError("the accelerator has no device here; name a number with --num_accelerators");
  return count;
}

std::vector<std::string> OwnMachine::visible_devices_variables() const { return accelerator().visible_devices_envs(); }

std::vector<std::string> OwnMachine::export_prefixes() const { return accelerator().export_envs(); }

std::string OwnMachine::variable(const std::string& name) const {
  const char* value = std::getenv(name.c_str());
  return value ? value : "";
}

int OwnMachine::free_port() const { return launcher::free_port(); }

bool OwnMachine::is_this_host(const std::string& name) const { return launcher::is_this_host(name); }

std::string OwnMachine::address_of(const std::vector<Host>& hosts) const {
  const std::string address = resolve(hosts.front().name);
  if (address.empty()) {
    throw InvalidArgument("the first host \"" + hosts.front().name +
                          "\" has no address here; give one that all hosts can reach with --master_addr");
  }
  if (!is_loopback(address) || hosts.size() == 1) return address;
  // The first host is this one, under a name that only it can resolve: use its address on the route to the second.
  const std::string second = resolve(hosts[1].name);
  const std::string own = second.empty() ? std::string() : source_address(second);
  if (own.empty() || is_loopback(own)) {
    throw InvalidArgument("the first host \"" + hosts.front().name + "\" is " + address +
                          " here, which other hosts cannot reach; give an address with --master_addr");
  }
  return own;
}

std::string OwnMachine::random_text() const {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    throw Error(std::string("the kernel gives no random numbers: ") + std::strerror(errno));
  }
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::string OwnMachine::time_stamp() const {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d%H%M%S", &parts);
  return text;
}

}  // namespace anyaccel::launcher
