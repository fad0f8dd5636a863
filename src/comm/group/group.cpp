// Implements ProcessGroup over a HostCommunicator: checks the tensors, and passes each operation to the path that can
// access them.
#include "comm/group/group.h"

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <utility>
#include <vector>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "comm/device/device_path.h"
#include "comm/group/tensor_path.h"
#include "comm/job/job_watch.h"
#include "comm/shared_memory/reduction.h"

namespace anyaccel::comm {

namespace {

std::string list(std::span<const int> numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

// Here, because an error that a transport finds inside an operation ends the group.
void check_reduction(ReduceOp op, DType dtype, const char* operation) {
  if (reduction_exists(dtype, op)) return;
  throw InvalidArgument(std::string(operation) + ": " + reduce_op_name(op) + " takes " +
                        (op == ReduceOp::Avg || dtype_size(dtype) == 0 ? "numbers" : "integers") + ", not " +
                        std::string(dtype_name(dtype)));
}

class CommunicatorGroup final : public ProcessGroup {
 public:
  CommunicatorGroup(std::unique_ptr<HostCommunicator> communicator, GroupSetup setup)
      : setup_(std::move(setup)),
        backend_(communicator->name()),
        runner_(std::make_shared<OperationRunner>(std::move(communicator), setup_.log, setup_.on_failure)),
        path_(*setup_.accelerator, runner_) {}

  // Joins the members' devices if a library supports them; then subscribes to failures of the job.
  void start();

  int rank() const noexcept override { return setup_.membership.rank; }
  int size() const noexcept override { return setup_.membership.size; }
  const std::vector<int>& ranks() const noexcept override { return setup_.world_ranks; }
  const std::string& backend() const noexcept override { return backend_; }

  std::shared_ptr<ProcessGroup> new_group(std::span<const int> members) override;

  Work all_reduce(const Tensor& tensor, ReduceOp op, bool async_op) override {
    return reduce_in_place({CommOp::AllReduce, tensor.nbytes()}, tensor, op, async_op, "all_reduce");
  }

  Work reduce(const Tensor& tensor, int root, ReduceOp op, bool async_op) override {
    check_tensor(tensor, "reduce", "tensor");
    check_member(root, "reduce", "root");
    check_reduction(op, tensor.dtype(), "reduce");
    return run({CommOp::Reduce, tensor.nbytes()},
               {.output = &tensor, .reads_output = true, .writes_output = root == rank()}, async_op,
               device_reduces(tensor.dtype(), op),
               [count = tensor.numel(), dtype = tensor.dtype(), op, root](auto& c, void* data, const void*) {
                 c.reduce(data, count, dtype, op, root);
               });
  }

  Work broadcast(const Tensor& tensor, int root, bool async_op) override {
    check_tensor(tensor, "broadcast", "tensor");
    check_member(root, "broadcast", "root");
    const bool sends = root == rank();
    return run(
        {CommOp::Broadcast, tensor.nbytes()}, {.output = &tensor, .reads_output = sends, .writes_output = !sends},
        async_op, true,
        [amount = amount_of(tensor), root](auto& c, void* data, const void*) { c.broadcast(data, amount, root); });
  }

  Work all_gather(const Tensor& output, const Tensor& input, bool async_op) override {
    check_pair(output, input, "all_gather");
    check_places(output, "output", input, "input", "all_gather");
    return run({CommOp::AllGather, output.nbytes()}, {.output = &output, .input = &input}, async_op, true,
               [amount = amount_of(input)](auto& c, void* out, const void* in) { c.all_gather(out, in, amount); });
  }

  Work reduce_scatter(const Tensor& output, const Tensor& input, ReduceOp op, bool async_op) override {
    check_pair(output, input, "reduce_scatter");
    check_places(input, "input", output, "output", "reduce_scatter");
    check_reduction(op, input.dtype(), "reduce_scatter");
    return run({CommOp::ReduceScatter, input.nbytes()}, {.output = &output, .input = &input}, async_op,
               device_reduces(input.dtype(), op),
               [count = output.numel(), dtype = input.dtype(), op](auto& c, void* out, const void* in) {
                 c.reduce_scatter(out, in, count, dtype, op);
               });
  }

  Work gather(const Tensor& output, const Tensor& input, int root, bool async_op) override {
    check_tensor(input, "gather", "input");
    check_member(root, "gather", "root");
    const bool receives = root == rank();
    if (receives) {
      check_pair(output, input, "gather");
      check_places(output, "output", input, "input", "gather");
    }
    const Amount amount = amount_of(input);
    return run({CommOp::Gather, amount.bytes * static_cast<size_t>(size())},
               {.output = receives ? &output : nullptr, .input = &input}, async_op, device_exchanges(),
               [amount, root](auto& c, void* out, const void* in) { c.gather(out, in, amount, root); });
  }

  Work scatter(const Tensor& output, const Tensor& input, int root, bool async_op) override {
    check_tensor(output, "scatter", "output");
    check_member(root, "scatter", "root");
    const bool sends = root == rank();
    if (sends) {
      check_pair(output, input, "scatter");
      check_places(input, "input", output, "output", "scatter");
    }
    const Amount amount = amount_of(output);
    return run({CommOp::Scatter, amount.bytes * static_cast<size_t>(size())},
               {.output = &output, .input = sends ? &input : nullptr}, async_op, device_exchanges(),
               [amount, root](auto& c, void* out, const void* in) { c.scatter(out, in, amount, root); });
  }

  Work all_to_all(const Tensor& output, const Tensor& input, bool async_op) override {
    check_pair(output, input, "all_to_all");
    if (output.numel() != input.numel() || input.numel() % size() != 0) {
      throw InvalidArgument("all_to_all: input " + input.shape().to_string() + " and output " +
                            output.shape().to_string() + " must have equally many elements, a multiple of the " +
                            std::to_string(size()) + " ranks");
    }
    return run({CommOp::AllToAll, input.nbytes()}, {.output = &output, .input = &input}, async_op, device_exchanges(),
               [amount = Amount{input.nbytes() / static_cast<size_t>(size()), input.dtype()}](
                   auto& c, void* out, const void* in) { c.all_to_all(out, in, amount); });
  }

  Work send(const Tensor& tensor, int peer, int tag, bool async_op) override {
    check_tensor(tensor, "send", "tensor");
    check_message(peer, tag, "send");
    // The devices' messages have no tags.
    return run({CommOp::Send, tensor.nbytes()}, {.input = &tensor}, async_op, device_exchanges() && tag == 0,
               [amount = amount_of(tensor), peer, tag]<class C>(C& c, void*, const void* in) {
                 if constexpr (std::is_same_v<C, DeviceCommunicator>) {
                   c.send(in, amount, peer);
                 } else {
                   c.send(in, amount, peer, tag);
                 }
               });
  }

  Work recv(const Tensor& tensor, int peer, int tag, bool async_op) override {
    check_tensor(tensor, "recv", "tensor");
    check_message(peer, tag, "recv");
    return run({CommOp::Recv, tensor.nbytes()}, {.output = &tensor}, async_op, device_exchanges() && tag == 0,
               [amount = amount_of(tensor), peer, tag]<class C>(C& c, void* out, const void*) {
                 if constexpr (std::is_same_v<C, DeviceCommunicator>) {
                   c.recv(out, amount, peer);
                 } else {
                   c.recv(out, amount, peer, tag);
                 }
               });
  }

  void barrier() override {
    setup_.accelerator->flush();
    if (devices_) devices_->communicator().synchronize();
    runner_->run(runner_->order().issue(), {CommOp::Barrier, 0}, [this] {
      path_.finish();
      runner_->communicator().barrier();
    });
  }

  void inference_all_reduce(const Tensor& tensor) override {
    reduce_in_place({CommOp::InferenceAllReduce, tensor.nbytes()}, tensor, ReduceOp::Sum, false,
                    "inference_all_reduce");
  }

  void inference_gather_columns(const Tensor& tensor, std::span<const int64_t> begins) override {
    check_tensor(tensor, "inference_gather_columns", "tensor");
    const int64_t width = tensor.ndim() > 0 ? tensor.size(tensor.ndim() - 1) : 0;
    if (begins.size() != static_cast<size_t>(size()) + 1 || begins.front() != 0 || begins.back() != width ||
        !std::ranges::is_sorted(begins)) {
      throw InvalidArgument("inference_gather_columns: expected " + std::to_string(size() + 1) +
                            " numbers that rise from 0 to " + std::to_string(width) +
                            ", the last dimension of the tensor " + tensor.shape().to_string());
    }
    std::vector<size_t> bytes(begins.begin(), begins.end());
    for (size_t& begin : bytes) begin *= dtype_size(tensor.dtype());
    const int64_t rows = width > 0 ? tensor.numel() / width : 0;
    run({CommOp::InferenceGatherColumns, tensor.nbytes()}, {.output = &tensor, .reads_output = true}, false, false,
        [rows, bytes = std::move(bytes)]<class C>(C& c, void* data, const void*) {
          // Not of devices' libraries, which the argument before excludes.
          if constexpr (!std::is_same_v<C, DeviceCommunicator>) c.gather_columns(data, rows, bytes.data());
        });
  }

  Tensor shared_tensor(const Shape& shape, DType dtype, Device device) override;

  void check() override {
    if (setup_.membership.watch && setup_.membership.watch->failed()) setup_.membership.watch->check();
    if (devices_) devices_->communicator().check();
    runner_->check();
  }

 private:
  Work reduce_in_place(OperationLabel label, const Tensor& tensor, ReduceOp op, bool async_op, const char* operation) {
    check_tensor(tensor, operation, "tensor");
    check_reduction(op, tensor.dtype(), operation);
    return run(label, {.output = &tensor, .reads_output = true}, async_op, device_reduces(tensor.dtype(), op),
               [count = tensor.numel(), dtype = tensor.dtype(), op](auto& c, void* data, const void*) {
                 c.all_reduce(data, count, dtype, op);
               });
  }

  // `by_device`: the devices' library, if there is one, supports this operation. body(c, output, input) calls the
  // communicator c, of the host or of the devices.
  template <class Body>
  Work run(OperationLabel label, const Operands& operands, bool async_op, bool by_device, Body&& body) {
    runner_->check();
    const TensorPath::Place place = path_.place(operands);
    if (!async_op && !place.in_stream) [[likely]] {
      runner_->run(runner_->order().issue(), label,
                   [&] { body(runner_->communicator(), address(operands.output), address(operands.input)); });
      return {};
    }
    if (devices_ && by_device && place.on_device && place.device == devices_->communicator().device_index()) {
      const auto on_host = [](const Tensor* tensor) { return tensor && tensor->device().is_host(); };
      if (!on_host(operands.output) && !on_host(operands.input)) {
        return flushed(place, run_on_device(label, place, operands, async_op, body));
      }
    }
    if (async_op) return flushed(place, path_.start(place, label, operands, std::forward<Body>(body)));
    path_.enqueue(place, label, operands, std::forward<Body>(body));
    return flushed(place, {});
  }

  // The other members wait for what has been enqueued here.
  Work flushed(const TensorPath::Place& place, Work work) {
    if (!place.capturing) setup_.accelerator->flush(place.device);
    return work;
  }

  template <class Body>
  Work run_on_device(OperationLabel label, const TensorPath::Place& place, const Operands& operands, bool async_op,
                     Body& body) {
    try {
      return devices_->run(label, place.capturing, operands.output, operands.input, async_op,
                           [&](DeviceCommunicator& c) { body(c, address(operands.output), address(operands.input)); });
    } catch (const CommunicationError& error) {
      runner_->fail(error.what(), error.code());
      throw;
    }
  }

  static Amount amount_of(const Tensor& tensor) { return {tensor.nbytes(), tensor.dtype()}; }
  static void* address(const Tensor* tensor) { return tensor ? tensor->data() : nullptr; }
  bool device_reduces(DType dtype, ReduceOp op) const {
    return devices_ && devices_->communicator().reduces(dtype, op);
  }
  bool device_exchanges() const { return devices_ && devices_->communicator().exchanges(); }

  void check_tensor(const Tensor& tensor, const char* operation, const char* name) const {
    if (!tensor) throw InvalidArgument(std::string(operation) + ": " + name + " is an empty handle");
    if (!tensor.is_contiguous()) {
      throw InvalidArgument(std::string(operation) + ": " + name + " " + tensor.shape().to_string() +
                            " is not contiguous; pass contiguous() and copy the result back");
    }
  }

  void check_pair(const Tensor& output, const Tensor& input, const char* operation) const {
    check_tensor(output, operation, "output");
    check_tensor(input, operation, "input");
    if (output.dtype() != input.dtype()) {
      throw InvalidArgument(std::string(operation) + ": input is " + std::string(dtype_name(input.dtype())) +
                            ", output " + std::string(dtype_name(output.dtype())));
    }
  }

  // `large` has a slice for each member's `small`.
  void check_places(const Tensor& large, const char* large_name, const Tensor& small, const char* small_name,
                    const char* operation) const {
    if (large.numel() == small.numel() * size()) return;
    throw InvalidArgument(std::string(operation) + ": " + large_name + " " + large.shape().to_string() + " must have " +
                          std::to_string(size()) + " times the elements of " + small_name + " " +
                          small.shape().to_string() + ", one place for each rank");
  }

  void check_member(int member, const char* operation, const char* name) const {
    if (member >= 0 && member < size()) return;
    throw InvalidArgument(std::string(operation) + ": " + name + " " + std::to_string(member) +
                          " is not a rank of the group (0 to " + std::to_string(size() - 1) + ")");
  }

  void check_message(int peer, int tag, const char* operation) const {
    check_member(peer, operation, "peer");
    if (peer == rank()) {
      throw InvalidArgument(std::string(operation) + ": peer " + std::to_string(peer) + " is this rank itself");
    }
    // Whatever the transport would do with it: a program must not work on one host only.
    if (tag < 0)
      throw InvalidArgument(std::string(operation) + ": tag " + std::to_string(tag) + "; tags are 0 or more");
  }

  GroupSetup setup_;
  std::string backend_;
  std::shared_ptr<OperationRunner> runner_;
  TensorPath path_;
  std::unique_ptr<DevicePath> devices_;  // null: device tensors are copied through the host
  int subgroups_ = 0;
};

void CommunicatorGroup::start() {
  // A group of one sends nothing: the library, which takes time and memory to start, is used only if requested.
  if (setup_.device_library && (size() > 1 || !setup_.backend.empty())) {
    Accelerator& accelerator = *setup_.accelerator;
    std::string why;
    std::shared_ptr<DeviceCommunicator> devices =
        DeviceCommunicator::create(accelerator, accelerator.current_device(), setup_.membership, why,
                                   [weak = std::weak_ptr<OperationRunner>(runner_)](const std::string& message) {
                                     if (const auto runner = weak.lock()) runner->fail(message, AA_UNAVAILABLE);
                                   });
    if (devices) {
      backend_ = devices->name();
      runner_->set_abort([weak = std::weak_ptr<DeviceCommunicator>(devices)](const std::string& message) {
        if (const auto alive = weak.lock()) alive->abort(message);
      });
      devices_ = std::make_unique<DevicePath>(accelerator, std::move(devices), setup_.log);
    } else if (!setup_.backend.empty()) {
      throw UnavailableError("the backend \"" + setup_.backend + "\" was requested and cannot serve the group: " + why);
    } else {
      // Further groups of the process usually have the same result.
      static std::atomic<bool> said{false};
      const std::string text = "tensors of " + accelerator.name() + " go through the host in process groups: " + why;
      if (rank() == 0 && !said.exchange(true)) {
        log_warning(text);
      } else {
        log_info(text);
      }
    }
  }
  if (const auto watch = std::dynamic_pointer_cast<JobWatch>(setup_.membership.watch)) {
    watch->add_listener([weak = std::weak_ptr<OperationRunner>(runner_)](const std::string& message) {
      if (const auto runner = weak.lock()) runner->fail_silently(message, AA_UNAVAILABLE);
    });
  }
}

std::shared_ptr<ProcessGroup> CommunicatorGroup::new_group(std::span<const int> members) {
  for (size_t i = 0; i < members.size(); ++i) {
    check_member(members[i], "new_group", "member");
    if (std::find(members.begin(), members.begin() + static_cast<ptrdiff_t>(i), members[i]) !=
        members.begin() + static_cast<ptrdiff_t>(i)) {
      throw InvalidArgument("new_group: member " + std::to_string(members[i]) + " is in the list twice");
    }
  }
  if (members.empty()) throw InvalidArgument("new_group: the list of members is empty");
  runner_->order().wait_all();
  check();

  const std::string name = "group" + std::to_string(subgroups_++) + "/";
  const Membership& parent = setup_.membership;
  // Without this check, different lists would show as a hang of groups that wait for different members.
  const std::string mine = list(members);
  try {
    if (rank() == 0) {
      parent.store->set(name + "members", mine);
    } else if (const std::string first = parent.store->get(name + "members", parent.timeout); first != mine) {
      throw CommunicationError("new_group: rank " + std::to_string(rank()) + " was called with the members " + mine +
                               ", rank 0 with " + first);
    }
  } catch (const CommunicationError& error) {
    runner_->fail(error.what(), error.code());
    throw;
  }
  const auto own = std::find(members.begin(), members.end(), rank());
  if (own == members.end()) return nullptr;

  GroupSetup setup;
  setup.backend = setup_.backend;
  setup.accelerator = setup_.accelerator;
  setup.device_library = setup_.device_library;
  setup.log = setup_.log;
  setup.on_failure = setup_.on_failure;
  setup.membership = parent;
  setup.membership.rank = static_cast<int>(own - members.begin());
  setup.membership.size = static_cast<int>(members.size());
  setup.membership.store = make_prefixed_store(parent.store, name);
  setup.membership.names.clear();
  for (const int member : members) {
    const auto i = static_cast<size_t>(member);
    setup.membership.names.push_back(parent.names[i]);
    setup.world_ranks.push_back(setup_.world_ranks[i]);
    setup.hosts.push_back(setup_.hosts[i]);
  }
  try {
    std::unique_ptr<HostCommunicator> communicator = make_communicator(setup);
    return make_process_group(std::move(communicator), std::move(setup));
  } catch (const CommunicationError& error) {
    runner_->fail(error.what(), error.code());
    throw;
  }
}

Tensor CommunicatorGroup::shared_tensor(const Shape& shape, DType dtype, Device device) {
  if (!device.is_host() && device.accelerator != setup_.accelerator) {
    throw InvalidArgument("shared_tensor: " + device.name() + " is not a device of " + setup_.accelerator->name() +
                          ", the accelerator of the group");
  }
  runner_->order().wait_all();
  check();
  // Host memory can be used by the CPU; other accelerators can access only their own.
  const bool reachable =
      device.is_host() || (setup_.accelerator->device_properties(device.index).caps & AA_CAP_IS_HOST) != 0;
  if (reachable) {
    const size_t bytes = static_cast<size_t>(shape.numel()) * dtype_size(dtype);
    const SharedBlock block = runner_->communicator().share(std::max<size_t>(bytes, 1));
    if (block.data) return Tensor::from_blob(block.data, shape, dtype, block.owner, device);
  }
  return Tensor::zeros(shape, dtype, device);
}

}  // namespace

std::shared_ptr<ProcessGroup> make_process_group(std::unique_ptr<HostCommunicator> communicator, GroupSetup setup) {
  const Membership& membership = setup.membership;
  const auto count = static_cast<size_t>(membership.size);
  if (communicator->rank() != membership.rank || communicator->size() != membership.size) {
    throw InvalidArgument("the communicator has rank " + std::to_string(communicator->rank()) + " of " +
                          std::to_string(communicator->size()) + ", the group rank " + std::to_string(membership.rank) +
                          " of " + std::to_string(membership.size));
  }
  if (setup.world_ranks.empty()) {
    for (int i = 0; i < membership.size; ++i) setup.world_ranks.push_back(i);
  }
  setup.hosts.resize(count);
  for (size_t i = membership.names.size(); i < count; ++i) {
    setup.membership.names.push_back("rank " + std::to_string(i));
  }
  if (!setup.accelerator) setup.accelerator = get_accelerator();
  auto group = std::make_shared<CommunicatorGroup>(std::move(communicator), std::move(setup));
  group->start();
  return group;
}

const char* reduce_op_name(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::Sum: return "sum";
    case ReduceOp::Product: return "product";
    case ReduceOp::Min: return "min";
    case ReduceOp::Max: return "max";
    case ReduceOp::Avg: return "avg";
    case ReduceOp::BitAnd: return "bit_and";
    case ReduceOp::BitOr: return "bit_or";
    case ReduceOp::BitXor: return "bit_xor";
  }
  return "invalid";
}

}  // namespace anyaccel::comm
