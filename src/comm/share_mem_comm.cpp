// Implements the all-reduce of decoding between the ranks of a job.
#include "anyaccel/ops/share_mem_comm.h"

#include <string>

#include "anyaccel/error.h"
#include "comm/builders.h"
#include "runtime/ops/included_op_builder.h"

namespace anyaccel::ops {

void ShareMemComm::initialize(int size, int rank) {
  auto world = comm::world();
  if (!world) {
    comm::InitOptions options;
    options.rank = rank;
    options.world_size = size;
    world = comm::init_process_group(options);
  }
  if (world->size() != size || world->rank() != rank) {
    throw InvalidArgument("ShareMemComm::initialize was called for rank " + std::to_string(rank) + " of " +
                          std::to_string(size) + ", but this process is rank " + std::to_string(world->rank()) +
                          " of a world of " + std::to_string(world->size()));
  }
  world_ = std::move(world);
}

void ShareMemComm::inference_all_reduce(const Tensor& tensor) const {
  if (!world_) {
    throw InvalidArgument("ShareMemComm::inference_all_reduce comes after initialize(size, rank)",
                          AA_FAILED_PRECONDITION);
  }
  world_->inference_all_reduce(tensor);
}

std::unique_ptr<OpBuilder> make_share_mem_comm_builder(Accelerator& accelerator) {
  return std::make_unique<IncludedOpBuilder<ShareMemComm>>("ShareMemCommBuilder", accelerator);
}

}  // namespace anyaccel::ops
