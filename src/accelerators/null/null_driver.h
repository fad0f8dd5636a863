// Declares the driver table of the `null` accelerator; see README.md in this folder.
#pragma once

#include "anyaccel/abi/driver.h"

extern "C" const aa_driver* anyaccel_null_driver_query(uint32_t host_abi_min, uint32_t host_abi_max,
                                                       const aa_host* host);
