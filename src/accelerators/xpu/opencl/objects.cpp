// Errors of OpenCL: their names, and the corresponding codes of the driver table.
#include "accelerators/xpu/opencl/objects.h"

#include <array>

namespace anyaccel::xpu::opencl {
namespace {

struct ErrorEntry {
  cl_int error;
  const char* name;
  aa_code code;
};

constexpr std::array errors{
    ErrorEntry{CL_DEVICE_NOT_FOUND, "CL_DEVICE_NOT_FOUND", AA_UNAVAILABLE},
    ErrorEntry{CL_DEVICE_NOT_AVAILABLE, "CL_DEVICE_NOT_AVAILABLE", AA_DEVICE_LOST},
    ErrorEntry{CL_COMPILER_NOT_AVAILABLE, "CL_COMPILER_NOT_AVAILABLE", AA_UNAVAILABLE},
    ErrorEntry{CL_MEM_OBJECT_ALLOCATION_FAILURE, "CL_MEM_OBJECT_ALLOCATION_FAILURE", AA_RESOURCE_EXHAUSTED},
    ErrorEntry{CL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES", AA_RESOURCE_EXHAUSTED},
    ErrorEntry{CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY", AA_RESOURCE_EXHAUSTED},
    ErrorEntry{CL_BUILD_PROGRAM_FAILURE, "CL_BUILD_PROGRAM_FAILURE", AA_INVALID_ARGUMENT},
    ErrorEntry{CL_INVALID_VALUE, "CL_INVALID_VALUE", AA_INVALID_ARGUMENT},
    ErrorEntry{CL_INVALID_BINARY, "CL_INVALID_BINARY", AA_INCOMPATIBLE},
    ErrorEntry{CL_INVALID_KERNEL_NAME, "CL_INVALID_KERNEL_NAME", AA_NOT_FOUND},
    ErrorEntry{-9, "CL_IMAGE_FORMAT_MISMATCH", AA_INTERNAL},
    ErrorEntry{-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST", AA_INTERNAL},
    ErrorEntry{-33, "CL_INVALID_DEVICE", AA_INVALID_ARGUMENT},
    ErrorEntry{-34, "CL_INVALID_CONTEXT", AA_INVALID_ARGUMENT},
    ErrorEntry{-36, "CL_INVALID_COMMAND_QUEUE", AA_INVALID_ARGUMENT},
    ErrorEntry{-38, "CL_INVALID_MEM_OBJECT", AA_INVALID_ARGUMENT},
    ErrorEntry{-43, "CL_INVALID_BUILD_OPTIONS", AA_INVALID_ARGUMENT},
    ErrorEntry{-44, "CL_INVALID_PROGRAM", AA_INVALID_ARGUMENT},
    ErrorEntry{-45, "CL_INVALID_PROGRAM_EXECUTABLE", AA_INVALID_ARGUMENT},
    ErrorEntry{-48, "CL_INVALID_KERNEL", AA_INVALID_ARGUMENT},
    ErrorEntry{-49, "CL_INVALID_ARG_INDEX", AA_INVALID_ARGUMENT},
    ErrorEntry{-50, "CL_INVALID_ARG_VALUE", AA_INVALID_ARGUMENT},
    ErrorEntry{-51, "CL_INVALID_ARG_SIZE", AA_INVALID_ARGUMENT},
    ErrorEntry{-52, "CL_INVALID_KERNEL_ARGS", AA_INVALID_ARGUMENT},
    ErrorEntry{-54, "CL_INVALID_WORK_GROUP_SIZE", AA_INVALID_ARGUMENT},
    ErrorEntry{-55, "CL_INVALID_WORK_ITEM_SIZE", AA_INVALID_ARGUMENT},
    ErrorEntry{-63, "CL_INVALID_GLOBAL_WORK_SIZE", AA_INVALID_ARGUMENT},
};

const ErrorEntry* find(cl_int error) {
  for (const ErrorEntry& entry : errors) {
    if (entry.error == error) return &entry;
  }
  return nullptr;
}

}  // namespace

std::string error_name(cl_int error) {
  const ErrorEntry* entry = find(error);
  return std::string(entry ? entry->name : "an error") + " (" + std::to_string(error) + ")";
}

void check(cl_int error, const char* what) {
  if (error == CL_SUCCESS) return;
  const ErrorEntry* entry = find(error);
  throw abi::Failure(entry ? entry->code : AA_UNKNOWN, std::string(what) + ": OpenCL answered " + error_name(error),
                     error);
}

void check(cl_int error, const std::string& what) { check(error, what.c_str()); }

}  // namespace anyaccel::xpu::opencl
