// Settings of drivers: from ANYACCEL_<NAME>_OPTIONS and from the program (set_driver_options).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/abi/driver.h"

namespace anyaccel {

// The settings for one driver, checked against what it understands.
class DriverOptions {
 public:
  DriverOptions() = default;
  // Returns the settings of `driver` at this moment. Throws InvalidArgument for text that is not "key=value,...", and
  // for a key that the driver does not list.
  explicit DriverOptions(const aa_driver& driver);

  // Returns the options for initialize. The texts live as long as this object.
  std::vector<aa_option> for_driver() const;
  // Returns the options for device_open: those for every device, unless one for this device has the same key.
  std::vector<aa_option> for_device(int index) const;

 private:
  struct Setting {
    int device;  // -1: every one
    std::string key, value;
  };
  std::vector<Setting> settings_;  // one for each pair of device and key
};

// The variable that holds the settings of a driver: "ANYACCEL_XPU_EXTERNAL_OPTIONS".
std::string options_variable(std::string_view driver_name);

}  // namespace anyaccel
