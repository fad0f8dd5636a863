// DriverAccelerator: finding what runs an op, and running it: the driver's own version, else the portable kernels.
#include <mutex>
#include <optional>
#include <string>
#include <vector>

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
  if (call.packed) return {};  // nobody else knows the driver's layout
  if (all.portable >= 0 && shared_->portable->supports(static_cast<Op>(all.portable), call, c.index)) {
    return {.portable = all.portable};
  }
  return {};
}

class DriverAccelerator::PackedStorage final : public Storage {
 public:
  // `memory` holds the packed form.
  PackedStorage(std::shared_ptr<DeviceContext> context, aa_packed* packed, Tensor memory, const Tensor& weight)
      : Storage(nullptr, weight.nbytes(), weight.device()),
        context_(std::move(context)),
        memory_(std::move(memory)),
        dtype_(weight.dtype()),
        shape_(weight.shape()) {
    set_packed(packed);
  }
  ~PackedStorage() override {
    // Ops that use it may still be under way.
    if (!(context_->props.caps & AA_CAP_SYNCHRONOUS)) {
      release_status(context_->driver().device_synchronize(context_->device));
    }
    release_status(context_->instance->ops->packed_destroy(packed()));
  }
  void record_stream(const anyaccel::Stream& stream) override { memory_.storage()->record_stream(stream); }
  bool is_all_of(const Tensor& tensor) const noexcept override {
    return tensor.storage_offset() == 0 && tensor.dtype() == dtype_ && tensor.shape() == shape_ &&
           tensor.is_contiguous();
  }
  Tensor unpacked(bool keep) const override {
    std::unique_lock lock(mutex_, std::defer_lock);
    if (keep) {
      lock.lock();
      if (kept_) return kept_;
    }
    Accelerator& accelerator = *device().accelerator;
    Tensor plain = Tensor::empty(shape_, dtype_, device());
    const aa_tensor view = plain.view_for_driver();
    const anyaccel::Stream& current = accelerator.current_stream(device().index);
    memory_.storage()->record_stream(current);
    {
      const StreamUse use(current);
      context_->call("ops.unpack", [&] { return context_->instance->ops->unpack(use.handle(), packed(), &view); });
    }
    if (keep && !accelerator.is_current_stream_capturing(device().index)) {
      current.synchronize();  // other streams will use it
      kept_ = plain;
    }
    return plain;
  }

 private:
  std::shared_ptr<DeviceContext> context_;
  Tensor memory_;
  DType dtype_;
  Shape shape_;
  mutable std::mutex mutex_;
  mutable Tensor kept_;  // mutex_
};

Tensor DriverAccelerator::pack_weight(const aa_op_call& example, uint32_t tensor, const Tensor& weight) {
  if (!weight || weight.is_packed() || weight.device().accelerator != this) return weight;
  DeviceContext& c = context(weight.device().index);
  const OpHandle all = route(example);
  if (all.own < 0) return weight;

  std::vector<aa_tensor> tensors(example.tensors, example.tensors + example.tensor_count);
  for (aa_tensor& t : tensors) t.data = nullptr;
  aa_op_call call = example;
  call.op = all.own;
  call.tensors = tensors.data();
  auto what = abi::sized<aa_pack>();
  what.tensor = tensor;
  what.example = &call;
  size_t bytes = 0;
  aa_status* status = c.instance->ops->packed_size(c.device, &what, &bytes);
  if (status && status_code(status) == AA_UNIMPLEMENTED) {
    release_status(status);
    return weight;
  }
  c.check(status, "ops.packed_size");
  if (bytes == 0) return weight;

  const Tensor plain = weight.contiguous();
  const Tensor memory = Tensor::empty({static_cast<int64_t>(bytes)}, DType::U8, weight.device());
  const aa_tensor view = plain.view_for_driver();
  auto into = abi::sized<aa_allocation>();
  into.pointer = memory.data();
  into.size = bytes;
  aa_packed* packed = nullptr;
  const anyaccel::Stream& current = current_stream(c.index);
  plain.storage()->record_stream(current);
  {
    const StreamUse use(current);
    c.call("ops.pack", [&] { return c.instance->ops->pack(use.handle(), &what, &view, &into, &packed); });
  }
  try {
    auto storage =
        std::make_shared<PackedStorage>(shared_->contexts[static_cast<size_t>(c.index)], packed, memory, plain);
    return Tensor(std::move(storage), plain.dtype(), plain.shape(), plain.strides());
  } catch (...) {
    release_status(c.instance->ops->packed_destroy(packed));
    throw;
  }
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
    if (call.packed) {
      throw NotImplementedError(name_ + " does not take a call with a packed weight for which its `supports` said yes");
    }
    op.portable = route(call).portable;
  }
  if (op.portable < 0) throw NotImplementedError(name_ + " does not run this call of an op");
  const StreamUse use(current_stream(index));
  shared_->portable->enqueue(static_cast<Op>(op.portable), call, c.index);
}

}  // namespace anyaccel
