// Wraps one member's handle of a communicator of a Library.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "accelerators/collective_library/library.h"

namespace anyaccel::collectives {

// The parts of a device that the adaptor needs.
class DeviceBinding {
 public:
  virtual ~DeviceBinding() = default;
  // Makes the device current on the calling thread, if the vendor's runtime has a current device. Throws if the device
  // was lost.
  virtual void make_current() = 0;
  // Returns the vendor's number of the device, for JoinCall::lists.
  virtual int number() const = 0;
};

class LibraryCommunicator final : public abi::Communicator {
 public:
  // Joins; blocks until every member has, or until group_end. `id`: library.id_size() bytes.
  LibraryCommunicator(const Library& library, std::unique_ptr<DeviceBinding> device, const void* id, int32_t rank,
                      int32_t size);
  ~LibraryCommunicator() override;

  void close() override;
  void abort() override;
  void async_error() override;
  void all_reduce(abi::Stream& stream, const void* send, void* recv, size_t count, int32_t dtype, int32_t op) override;
  void reduce(abi::Stream& stream, const void* send, void* recv, size_t count, int32_t dtype, int32_t op,
              int32_t root) override;
  void broadcast(abi::Stream& stream, const void* send, void* recv, size_t count, int32_t dtype, int32_t root) override;
  void all_gather(abi::Stream& stream, const void* send, void* recv, size_t count, int32_t dtype) override;
  void reduce_scatter(abi::Stream& stream, const void* send, void* recv, size_t count, int32_t dtype,
                      int32_t op) override;
  void send(abi::Stream& stream, const void* data, size_t count, int32_t dtype, int32_t peer) override;
  void recv(abi::Stream& stream, void* data, size_t count, int32_t dtype, int32_t peer) override;

 private:
  class Use;
  struct Carried {
    int type;
    size_t count;
  };
  Carried carried(size_t count, int32_t dtype) const;
  void join(const void* id, int32_t size);
  template <class Call>
  void call(const char* function, Call&& call);

  const Library& library_;
  const std::unique_ptr<DeviceBinding> device_;
  const int32_t rank_;
  void* comm_ = nullptr;  // null until the end of the group in which it joins
  // After an abort the library has freed the communicator: calls check `ended_` and are counted, and abort() first lets
  // calls that are inside the library return, if they do so soon.
  std::atomic<bool> ended_{false};
  std::atomic<int> inside_{0};
};

}  // namespace anyaccel::collectives
