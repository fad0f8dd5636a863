// Declares the driver table of the mps accelerator: Apple's GPUs through Metal.
#pragma once

#include "anyaccel/abi/driver.h"

extern "C" const aa_driver* anyaccel_mps_driver_query(uint32_t host_abi_min, uint32_t host_abi_max,
                                                      const aa_host* host);
