// Declares the sdaa accelerator's driver table: Tecorigin with its SDAA runtime.
#pragma once

#include "anyaccel/abi/driver.h"

extern "C" const aa_driver* anyaccel_sdaa_driver_query(uint32_t host_abi_min, uint32_t host_abi_max,
                                                       const aa_host* host);
