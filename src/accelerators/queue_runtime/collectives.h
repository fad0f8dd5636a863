// A vendor's library of collectives: opened at first use, and recorded in graphs like other work.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "accelerators/collective_library/communicator.h"
#include "accelerators/queue_runtime/device_state.h"
#include "accelerators/queue_runtime/library.h"

namespace anyaccel::queue_runtime {

// One per vendor and process; never destroyed. Thread-safe.
class CollectiveLibrary {
 public:
  // All three must outlive the object. `file`: "libhccl.so".
  CollectiveLibrary(const collectives::LibraryTable& table, const LibrarySearch& search, const char* file)
      : table_(table), search_(search), file_(file) {}
  // Throws AA_UNAVAILABLE with what was looked for and where.
  const collectives::Library& get();

 private:
  const collectives::LibraryTable& table_;
  const LibrarySearch& search_;
  const char* const file_;
  std::mutex mutex_;  // guards the next two
  std::unique_ptr<collectives::Library> library_;
  std::string problem_;
};

// One member's handle of a communicator on streams of this folder.
class Communicator final : public abi::Communicator {
 public:
  Communicator(const collectives::Library& library, std::shared_ptr<DeviceState> device, const void* id, int32_t rank,
               int32_t size);

  void close() override { joined_->close(); }
  void abort() override { joined_->abort(); }
  void async_error() override { joined_->async_error(); }
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
  template <class Call>
  void enqueue(abi::Stream& stream, Call&& call);

  std::shared_ptr<collectives::LibraryCommunicator> joined_;  // graphs share it
};

}  // namespace anyaccel::queue_runtime
