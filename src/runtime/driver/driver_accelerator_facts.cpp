// DriverAccelerator: what DeepSpeed's interface asks beside devices, streams and memory: number formats, profiler ranges, names for
// communication, op builders, environment variables, the compile backend.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/install_paths.h"
#include "base/text.h"
#include "runtime/driver/driver_accelerator_impl.h"
#include "runtime/op_builder_registry.h"
#include "runtime/range_trace.h"

namespace anyaccel {
// ---- number formats, mixed precision --------------------------------------------------------------------------------

bool DriverAccelerator::is_bf16_supported() const {
  return device_properties(0).dtypes_computable >> AA_DTYPE_BF16 & 1;
}
bool DriverAccelerator::is_fp16_supported() const { return device_properties(0).dtypes_computable >> AA_DTYPE_F16 & 1; }
bool DriverAccelerator::is_fp64_supported() const { return device_properties(0).dtypes_computable >> AA_DTYPE_F64 & 1; }
bool DriverAccelerator::is_triton_supported() const { return caps() & AA_CAP_TRITON; }

bool DriverAccelerator::prefer_triton_grouped_mm() const {
  // From architecture 9.0 on the vendor's own product of grouped matrices is faster; before that it is a loop.
  const int major = is_triton_supported() ? compute_capability().first : 0;
  return major >= 7 && major < 9;
}

std::vector<DType> DriverAccelerator::supported_dtypes() const {
  std::vector<DType> dtypes{DType::F32};
  if (is_bf16_supported()) dtypes.push_back(DType::BF16);
  if (is_fp16_supported()) dtypes.push_back(DType::F16);
  return dtypes;
}

ScopeGuard DriverAccelerator::amp(DType dtype) {
  if (dtype != DType::None && dtype != DType::BF16 && dtype != DType::F16) {
    throw InvalidArgument("amp takes bfloat16 or float16 (or none, to switch it off), not " +
                          std::string(dtype_name(dtype)));
  }
  ThreadState& state = thread_state();
  const DType previous = state.amp;
  state.amp = dtype;
  return ScopeGuard([this, previous](bool) { thread_state().amp = previous; });
}

DType DriverAccelerator::amp_dtype() const noexcept { return thread_state().amp; }

// ---- profiler, communication, builders, processes, compiling ---------------------------------------------------------

void DriverAccelerator::range_push(std::string_view message, std::string_view domain, std::string_view category) {
  trace_range_push(message, domain, category);
  // A range must not be what opens the device.
  if (!shared_->ready.load(std::memory_order_acquire) || !shared_->instance->profiler) return;
  release_status(shared_->instance->profiler->range_push(shared_->instance->instance, std::string(message).c_str(),
                                                         std::string(domain).c_str(), std::string(category).c_str()));
}

void DriverAccelerator::range_pop(std::string_view domain) {
  trace_range_pop(domain);
  if (!shared_->ready.load(std::memory_order_acquire) || !shared_->instance->profiler) return;
  release_status(shared_->instance->profiler->range_pop(shared_->instance->instance, std::string(domain).c_str()));
}

std::string DriverAccelerator::communication_backend_name() const { return driver_->communication_backend; }

std::string DriverAccelerator::communication_backend_version() const {
  if (!is_available()) return {};
  const InstanceHolder& holder = *shared_->instance;
  if (!holder.collectives) return {};
  const char* library = nullptr;
  const char* version = nullptr;
  const StatusRef status(holder.collectives->library(holder.instance, &library, &version));
  return status.ok() ? version : "";
}

CollectivesAccess DriverAccelerator::collectives(int index) {
  instance();
  const abi::Calls<aa_collectives_table>* table = shared_->instance->collectives;
  if (!table) return {};
  DeviceContext& c = context(index);
  const anyaccel::Stream& current = current_stream(c.index);
  auto use = std::make_shared<StreamUse>(current);
  const auto& stream = static_cast<const StreamImpl&>(*current.state());  // stream() takes no other kind
  return {table, c.instance->instance, c.device, stream.stream(), stream.capturing(), std::move(use)};
}

std::string DriverAccelerator::op_builder_dir() const {
  return shared_->builds.ops_dir.empty() ? install_kernels_dir() : shared_->builds.ops_dir;
}

std::vector<std::string> DriverAccelerator::op_builder_names() const {
  std::vector<std::string> names = known_op_builders();
  for (const DriverOpBuilder& builder : shared_->builds.builders) {
    if (std::find(names.begin(), names.end(), builder.name) == names.end()) names.push_back(builder.name);
  }
  return names;
}

std::unique_ptr<OpBuilder> DriverAccelerator::create_op_builder(std::string_view builder_name) {
  if (const DriverOpBuilder* own = shared_->builds.find(builder_name)) {
    if (auto builder = make_driver_op_builder(*own, *this)) return builder;
  }
  return make_op_builder(builder_name, *this);
}

OpBuilderFactory DriverAccelerator::get_op_builder(std::string_view builder_name) {
  if (!shared_->builds.find(builder_name) && !is_known_op_builder(builder_name)) return {};
  return [this, name = std::string(builder_name)] { return create_op_builder(name); };
}

BuildExtension DriverAccelerator::build_extension() const {
  return shared_->builds.toolchain ? *shared_->builds.toolchain : host_build_extension();
}

void DriverAccelerator::lazy_call(std::function<void()> callback) {
  {
    std::lock_guard lock(shared_->mutex);
    bool opened = false;
    for (auto& c : shared_->contexts) opened = opened || c;
    if (!opened) {
      shared_->lazy_calls.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

std::vector<std::string> DriverAccelerator::export_envs() const { return split_list(driver_->export_env_prefixes); }
std::vector<std::string> DriverAccelerator::visible_devices_envs() const {
  return split_list(driver_->visible_devices_env);
}

void DriverAccelerator::set_visible_devices_envs(std::map<std::string, std::string>& env,
                                                 const std::vector<std::string>& ids) const {
  std::string joined;
  for (const std::string& id : ids) joined += (joined.empty() ? "" : ",") + id;
  for (const std::string& variable : visible_devices_envs()) env[variable] = joined;
}

std::string DriverAccelerator::get_compile_backend() const {
  std::lock_guard lock(shared_->mutex);
  return shared_->compile_backend;
}

void DriverAccelerator::set_compile_backend(const std::string& backend) {
  if (backend != "graph" && backend != "eager") {
    throw InvalidArgument("\"" + backend + "\" not supported by " + device_name() +
                          ". Supported Backends are graph, eager");
  }
  std::lock_guard lock(shared_->mutex);
  shared_->compile_backend = backend;
}

}  // namespace anyaccel
