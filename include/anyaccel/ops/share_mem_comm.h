// The all-reduce for decoding between the ranks of a job: the library that "ShareMemCommBuilder" loads.
//
//   auto comm = get_accelerator()->create_op_builder("ShareMemCommBuilder")->load_as<ops::ShareMemComm>();
//   comm->initialize(world_size, rank);
//   comm->inference_all_reduce(tensor);
#pragma once

#include <memory>

#include "anyaccel/comm/process_group.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/tensor.h"

namespace anyaccel {
class Accelerator;
}

namespace anyaccel::ops {

class ShareMemComm : public OpLibrary {
 public:
  explicit ShareMemComm(Accelerator&) {}

  // Uses comm::world(); if there is none, joins the job with comm::init_process_group(), which every rank must do.
  // Between ranks of one host the world uses shared memory. Throws InvalidArgument if the world has another size or
  // this process another rank in it; CommunicationError as init_process_group() does.
  void initialize(int size, int rank);

  // Sums `tensor` over all ranks, in place: ProcessGroup::inference_all_reduce() of the world. It may have any dtype
  // and must be contiguous. The sum is in order with the current stream. Throws InvalidArgument before initialize().
  void inference_all_reduce(const Tensor& tensor) const;

 private:
  std::shared_ptr<comm::ProcessGroup> world_;
};

}  // namespace anyaccel::ops
