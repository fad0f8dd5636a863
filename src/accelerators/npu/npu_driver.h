// Declares the npu accelerator's driver table: Huawei Ascend with CANN.
#pragma once

#include "anyaccel/abi/driver.h"

extern "C" const aa_driver* anyaccel_npu_driver_query(uint32_t host_abi_min, uint32_t host_abi_max,
                                                      const aa_host* host);
