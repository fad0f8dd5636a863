// Identifies the host of this process.
#include "comm/job/host_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <fstream>

#include "base/hmac.h"

namespace anyaccel::comm {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 && *name ? name : "localhost";
}

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network {};
  std::string text = boot + '\n' + host_name() + '\n';
  if (::stat("/proc/self/ns/net", &network) == 0) {
    text += std::to_string(network.st_dev) + ':' + std::to_string(network.st_ino);
  }
  const Digest digest = sha256(text);
  std::string id;
  for (size_t i = 0; i < 16; ++i) {
    id += "0123456789abcdef"[digest[i] >> 4];
    id += "0123456789abcdef"[digest[i] & 15];
  }
  return id;
}

}  // namespace anyaccel::comm
