// Provides the information about the real machine that planning needs.
#pragma once

#include <string>

#include "launcher/plan/plan.h"

namespace anyaccel::launcher {

class OwnMachine final : public Surroundings {
 public:
  bool read_file(const std::string& path, std::string& text) const override;
  int device_count() const override;
  std::vector<std::string> visible_devices_variables() const override;
  std::vector<std::string> export_prefixes() const override;
  std::string variable(const std::string& name) const override;
  int free_port() const override;
  bool is_this_host(const std::string& name) const override;
  std::string address_of(const std::vector<Host>& hosts) const override;
  std::string random_text() const override;
  std::string time_stamp() const override;
};

}  // namespace anyaccel::launcher
