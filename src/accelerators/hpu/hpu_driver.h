// Declares the hpu accelerator's driver table: Habana Gaudi with Synapse.
#pragma once

#include "anyaccel/abi/driver.h"

extern "C" const aa_driver* anyaccel_hpu_driver_query(uint32_t host_abi_min, uint32_t host_abi_max,
                                                      const aa_host* host);
