// DriverAccelerator: finding what runs an op, and running it: the driver's own version, else the portable kernels.
#include <optional>
#include <string>

#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "runtime/driver/driver_accelerator_impl.h"
#include "runtime/op_list.h"

namespace anyaccel {
int32_t DriverAccelerator::find_op(const char* op_name) {
  instance();
  Shared& shared = *shared_;
  std::call_once(shared.portable_once, [&] { shared.portable = make_portable_ops(*this); });
  std::lock_guard lock(shared.routes_mutex);
  for (size_t i = 0; i < shared.route_names.size(); ++i) {
    if (shared.route_names[i] == op_name) return static_cast<int32_t>(i);
  }
  OpHandle found;
  const InstanceHolder& holder = *shared.instance;
  if (holder.ops) {
    aa_status* status = holder.ops->find(holder.instance, op_name, &found.own);
    if (status) found.own = -1;
    release_status(status);
  }
  const std::optional<Op> op = find_op_by_name(op_name);
  if (shared.portable && op && shared.portable->has(*op)) found.portable = static_cast<int32_t>(*op);
  const size_t number = shared.route_names.size();
  if (!found || number == shared.routes.size()) return -1;
  shared.route_names.emplace_back(op_name);
  shared.routes[number] = found;
  shared.route_count.store(number + 1, std::memory_order_release);
  return static_cast<int32_t>(number);
}

OpHandle DriverAccelerator::route(const aa_op_call& call) const {
  const auto number = static_cast<size_t>(call.op);
  if (call.op < 0 || number >= shared_->route_count.load(std::memory_order_acquire)) {
    throw InvalidArgument(name_ + ": an op was called by the number " + std::to_string(call.op) +
                          ", which find_op() never gave");
  }
  return shared_->routes[number];
}

OpHandle DriverAccelerator::resolve_op(const aa_op_call& call, int index) {
  DeviceContext& c = context(index);
  const OpHandle all = route(call);
  if (all.own >= 0) {
    aa_op_call own = call;
    own.op = all.own;
    int32_t supported = 0;
    c.check(c.instance->ops->supports(c.device, &own, &supported), "ops.supports");
    if (supported) return {.own = all.own};
  }
  if (all.portable >= 0 && shared_->portable->supports(static_cast<Op>(all.portable), call, c.index)) {
    return {.portable = all.portable};
  }
  return {};
}

void DriverAccelerator::enqueue_op(OpHandle op, const aa_op_call& call, int index) {
  DeviceContext& c = context(index);
  if (op.own >= 0) [[likely]] {
    aa_op_call own = call;
    own.op = op.own;
    const StreamUse use(current_stream(index));
    int32_t taken = 0;
    c.call("op", [&] { return c.instance->ops->enqueue(use.handle(), &own, &taken); });
    if (taken) [[likely]]
      return;
    op.portable = route(call).portable;
  }
  if (op.portable < 0) throw NotImplementedError(name_ + " does not run this call of an op");
  const StreamUse use(current_stream(index));
  shared_->portable->enqueue(static_cast<Op>(op.portable), call, c.index);
}

}  // namespace anyaccel
