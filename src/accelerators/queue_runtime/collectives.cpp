// Implements collectives.h: a vendor's library of collectives.
#include "accelerators/queue_runtime/collectives.h"

#include "accelerators/queue_runtime/stream.h"

namespace anyaccel::queue_runtime {
namespace {

class Binding final : public collectives::DeviceBinding {
 public:
  explicit Binding(std::shared_ptr<DeviceState> state) : state_(std::move(state)) {}
  void make_current() override { state_->bind_surely(); }
  int number() const override { return state_->facts().ordinal; }

 private:
  std::shared_ptr<DeviceState> state_;
};

}  // namespace

const collectives::Library& CollectiveLibrary::get() {
  const std::lock_guard lock(mutex_);
  if (!library_ && problem_.empty()) {
    const OpenedLibrary opened = open_library(search_, {file_});
    if (!opened.handle) {
      problem_ = std::string("no ") + table_.name + ": " + opened.tried;
    } else {
      std::string missing;
      library_ = collectives::Library::bind(table_, opened.handle, missing);
      if (!library_) problem_ = opened.path + " cannot be used: " + missing;
    }
  }
  if (!library_) throw abi::Failure(AA_UNAVAILABLE, problem_);
  return *library_;
}

Communicator::Communicator(const collectives::Library& library, std::shared_ptr<DeviceState> device, const void* id,
                           int32_t rank, int32_t size)
    : joined_(std::make_shared<collectives::LibraryCommunicator>(library, std::make_unique<Binding>(std::move(device)),
                                                                 id, rank, size)) {}

// `call` takes the stream and the count. A count of 0 only checks the arguments, which during a capture must not wait
// until the launch.
template <class Call>
void Communicator::enqueue(abi::Stream& stream, Call&& call) {
  auto& target = static_cast<Stream&>(stream);
  if (target.capturing()) call(target, true);
  target.enqueue([call](Stream& running) { call(running, false); });
}

void Communicator::all_reduce(abi::Stream& stream, const void* send, void* recv, size_t count, int32_t dtype,
                              int32_t op) {
  enqueue(stream, [=, joined = joined_](Stream& running, bool check) {
    joined->all_reduce(running, send, recv, check ? 0 : count, dtype, op);
  });
}

void Communicator::reduce(abi::Stream& stream, const void* send, void* recv, size_t count, int32_t dtype, int32_t op,
                          int32_t root) {
  enqueue(stream, [=, joined = joined_](Stream& running, bool check) {
    joined->reduce(running, send, recv, check ? 0 : count, dtype, op, root);
  });
}

void Communicator::broadcast(abi::Stream& stream, const void* send, void* recv, size_t count, int32_t dtype,
                             int32_t root) {
  enqueue(stream, [=, joined = joined_](Stream& running, bool check) {
    joined->broadcast(running, send, recv, check ? 0 : count, dtype, root);
  });
}

void Communicator::all_gather(abi::Stream& stream, const void* send, void* recv, size_t count, int32_t dtype) {
  enqueue(stream, [=, joined = joined_](Stream& running, bool check) {
    joined->all_gather(running, send, recv, check ? 0 : count, dtype);
  });
}

void Communicator::reduce_scatter(abi::Stream& stream, const void* send, void* recv, size_t count, int32_t dtype,
                                  int32_t op) {
  enqueue(stream, [=, joined = joined_](Stream& running, bool check) {
    joined->reduce_scatter(running, send, recv, check ? 0 : count, dtype, op);
  });
}

void Communicator::send(abi::Stream& stream, const void* data, size_t count, int32_t dtype, int32_t peer) {
  enqueue(stream, [=, joined = joined_](Stream& running, bool check) {
    joined->send(running, data, check ? 0 : count, dtype, peer);
  });
}

void Communicator::recv(abi::Stream& stream, void* data, size_t count, int32_t dtype, int32_t peer) {
  enqueue(stream, [=, joined = joined_](Stream& running, bool check) {
    joined->recv(running, data, check ? 0 : count, dtype, peer);
  });
}

}  // namespace anyaccel::queue_runtime
