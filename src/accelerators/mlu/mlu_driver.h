// Declares the mlu accelerator's driver table: Cambricon MLU with the Neuware runtime.
#pragma once

#include "anyaccel/abi/driver.h"

extern "C" const aa_driver* anyaccel_mlu_driver_query(uint32_t host_abi_min, uint32_t host_abi_max,
                                                      const aa_host* host);
