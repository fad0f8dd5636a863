// Implements core.h: work on the current stream: copies, fills, collectives, and ops by the driver's own version, else by the
// portable kernels.
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "runtime/core/core.h"
#include "runtime/core/storages.h"
#include "runtime/core/streams.h"

namespace anyaccel {

void DriverCore::copy(void* destination, const void* source, size_t bytes, aa_copy_direction direction, int index) {
  if (bytes == 0) return;
  DeviceContext& c = context(index);
  const StreamUse use(current(c));
  c.call("copy_async", [&] { return driver_->copy_async(use.handle(), destination, source, bytes, direction); });
}

bool DriverCore::copy_between(void* destination, int to, const void* source, int from, size_t bytes) {
  const auto* peer = instance().peer;
  if (!peer) return false;
  DeviceContext& there = context(to);
  DeviceContext& here = context(from);
  int32_t possible = 0;
  there.check(peer->can_copy(there.device, here.device, &possible), "can_copy");
  if (!possible) return false;
  if (bytes == 0) return true;
  const Stream& source_stream = current_stream(here);
  const Stream& stream = current_stream(there);
  stream.wait_event(source_stream.record_event());
  auto what = abi::sized<aa_peer_copy>();
  what.destination_device = there.device;
  what.source_device = here.device;
  what.destination = destination;
  what.source = source;
  what.size = bytes;
  {
    const StreamUse use(driver_stream(stream));
    there.call("peer copy_async", [&] { return peer->copy_async(use.handle(), &what); });
  }
  source_stream.wait_event(stream.record_event());
  return true;
}

void DriverCore::fill(void* destination, const void* pattern, size_t pattern_size, size_t bytes, int index) {
  if (bytes == 0) return;
  DeviceContext& c = context(index);
  const StreamUse use(current(c));
  if (!c.lacks_fill.load(std::memory_order_relaxed)) {
    aa_status* status = driver_->fill_async(use.handle(), destination, pattern, pattern_size, bytes);
    if (!status || status_code(status) != AA_UNIMPLEMENTED) [[likely]] {
      if (status) {
        status = c.after_failure(
            status, [&] { return driver_->fill_async(use.handle(), destination, pattern, pattern_size, bytes); });
      }
      c.check(status, "fill_async");
      return;
    }
    release_status(status);
    c.lacks_fill.store(true, std::memory_order_relaxed);
  }
  fill_by_copies(c, destination, pattern, pattern_size, bytes);
}

// The source of the copies is complete when they are, so the host waits.
void DriverCore::fill_by_copies(DeviceContext& c, void* destination, const void* pattern, size_t pattern_size,
                                size_t bytes) {
  DriverStream& stream = current(c);
  if (stream.capturing()) {
    throw NotImplementedError(c.name() +
                              ": a fill cannot be captured in a graph: the driver has none, and memory is filled by "
                              "copies that the host waits for");
  }
  if (pattern_size == 0 || bytes % pattern_size != 0) {
    throw InvalidArgument("fill: " + std::to_string(bytes) + " bytes are not a multiple of a pattern of " +
                          std::to_string(pattern_size));
  }
  const size_t piece = std::min(bytes, (size_t{1} << 20) / pattern_size * pattern_size);
  std::vector<unsigned char> repeated(piece);
  for (size_t i = 0; i < piece; ++i) repeated[i] = static_cast<const unsigned char*>(pattern)[i % pattern_size];
  for (size_t done = 0; done < bytes; done += piece) {
    c.call("copy_async", [&] {
      return driver_->copy_async(stream.stream(), static_cast<unsigned char*>(destination) + done, repeated.data(),
                                 std::min(piece, bytes - done), AA_COPY_HOST_TO_DEVICE);
    });
  }
  c.check(driver_->stream_synchronize(stream.stream()), "stream_synchronize");
}

CollectivesAccess DriverCore::collectives(int index) {
  const abi::Calls<aa_collectives_table>* table = instance().collectives;
  if (!table) return {};
  DeviceContext& c = context(index);
  DriverStream& stream = current(c);
  auto use = std::make_shared<StreamUse>(stream);  // before the stream is asked whether it captures
  return {table, instance_->instance, c.device, stream.stream(), stream.capturing(), std::move(use)};
}

int32_t DriverCore::find_op(const char* op_name) {
  const DriverInstance& runtime = instance();
  std::call_once(portable_once_, [&] { portable_ = make_portable_ops(accelerator_); });
  const std::lock_guard lock(routes_mutex_);
  for (size_t i = 0; i < route_names_.size(); ++i) {
    if (route_names_[i] == op_name) return static_cast<int32_t>(i);
  }
  OpHandle found;
  if (runtime.ops) {
    aa_status* status = runtime.ops->find(runtime.instance, op_name, &found.own);
    if (status) found.own = -1;
    release_status(status);
  }
  const std::optional<Op> op = find_op_by_name(op_name);
  if (portable_ && op && portable_->has(*op)) found.portable = static_cast<int32_t>(*op);
  const size_t number = route_names_.size();
  if (!found || number == routes_.size()) return -1;
  route_names_.emplace_back(op_name);
  routes_[number] = found;
  route_count_.store(number + 1, std::memory_order_release);
  return static_cast<int32_t>(number);
}

OpHandle DriverCore::route(const aa_op_call& call) const {
  const auto number = static_cast<size_t>(call.op);
  if (call.op < 0 || number >= route_count_.load(std::memory_order_acquire)) {
    throw InvalidArgument(name_ + ": an op was called by the number " + std::to_string(call.op) +
                          ", which find_op() never gave");
  }
  return routes_[number];
}

OpHandle DriverCore::resolve_op(const aa_op_call& call, int index) {
  DeviceContext& c = context(index);
  const OpHandle all = route(call);
  if (all.own >= 0) {
    aa_op_call own = call;
    own.op = all.own;
    int32_t supported = 0;
    c.check(c.instance->ops->supports(c.device, &own, &supported), "ops.supports");
    if (supported) return {.own = all.own};
  }
  if (call.packed) return {};  // only the driver knows its own layout
  if (all.portable >= 0 && portable_->supports(static_cast<Op>(all.portable), call, c.index)) {
    return {.portable = all.portable};
  }
  return {};
}

Tensor DriverCore::pack_weight(const aa_op_call& example, uint32_t tensor, const Tensor& weight) {
  if (!weight || weight.is_packed() || weight.device().accelerator != &accelerator_) return weight;
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
  const Stream& current = current_stream(c);
  plain.storage()->record_stream(current);
  {
    const StreamUse use(driver_stream(current));
    c.call("ops.pack", [&] { return c.instance->ops->pack(use.handle(), &what, &view, &into, &packed); });
  }
  try {
    auto storage = std::make_shared<PackedStorage>(shared(c), packed, memory, plain);
    return Tensor(std::move(storage), plain.dtype(), plain.shape(), plain.strides());
  } catch (...) {
    release_status(c.instance->ops->packed_destroy(packed));
    throw;
  }
}

void DriverCore::enqueue_op(OpHandle op, const aa_op_call& call, int index) {
  DeviceContext& c = context(index);
  if (op.own >= 0) [[likely]] {
    aa_op_call own = call;
    own.op = op.own;
    const StreamUse use(current(c));
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
  const StreamUse use(current(c));
  portable_->enqueue(static_cast<Op>(op.portable), call, c.index);
}

}  // namespace anyaccel
