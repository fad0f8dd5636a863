// Implements host_accelerator.h, the accelerator that represents the host's own processor, whichever accelerator is
// active.
#include "ops/host/host_accelerator.h"

#include <memory>

#include "anyaccel/abi/host_code.h"
#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"

namespace anyaccel::ops {
namespace {

struct HostCode {
  const abi::Calls<aa_host_code_table>* table = nullptr;
  aa_instance* instance = nullptr;

  // Queries the driver directly: doing so through the accelerator would make it examine its devices, which takes
  // milliseconds (it reads the machine's topology) and is not needed for loading an op.
  HostCode() {
    const abi::DriverCalls& driver = dynamic_cast<DriverAccelerator&>(host_accelerator()).driver();
    aa_initialize_params params{};
    params.struct_size = sizeof(params);
    anyaccel::check(driver.initialize(&params, &instance), "initialize", driver.name);
    const void* found = nullptr;
    anyaccel::check(driver.query_extension(instance, AA_HOST_CODE_EXTENSION, AA_HOST_CODE_VERSION, &found),
                    "query_extension", driver.name);
    table = complete_extension(static_cast<const aa_host_code_table*>(found), driver.name);
    if (!table) throw NotImplementedError(std::string(driver.name) + ": its extension \"host_code\" cannot be used");
  }
};

const HostCode& host_code() {
  static const HostCode code;
  return code;
}

void run(aa_parallel_body body, void* context) {
  const HostCode& code = host_code();
  StatusRef status(code.table->run(code.instance, body, context));
  // A region cannot fail half-way: if its threads could not be started, nothing has run yet.
  if (!status.ok()) {
    log_warning("a parallel region runs on one thread: " + status.text());
    body(context, 0, 1);
  }
}

int32_t threads() {
  const HostCode& code = host_code();
  int32_t count = 1;
  const StatusRef status(code.table->threads(code.instance, &count));
  return status.ok() && count > 0 ? count : 1;
}

}  // namespace

Accelerator& host_accelerator() {
  // Never destroyed: ops may run while the process's static objects are.
  static Accelerator& host = *make_accelerator("cpu").release();
  return host;
}

std::string host_target() {
  const HostCode& code = host_code();
  const char* target = nullptr;
  anyaccel::check(code.table->target(code.instance, &target), "host_code.target", "cpu");
  return target;
}

const aa_op_services* op_services() {
  host_code();
  static const aa_op_services services = {
      .struct_size = sizeof(aa_op_services),
      .version = AA_OP_LIBRARY_VERSION,
      .host = host_services(),
      .threads = threads,
      .run = run,
  };
  return &services;
}

}  // namespace anyaccel::ops
