// Implements the portable ops of one accelerator: the groups of op_group.h behind the runtime's interface.
#include "ops/portable/portable_ops.h"

#include <string>

#include "anyaccel/abi/compiler.h"
#include "anyaccel/error.h"
#include "ops/portable/op_group.h"

namespace anyaccel::ops::portable {
namespace {

class KernelOps final : public PortableOps {
 public:
  explicit KernelOps(DriverAccelerator& accelerator) : tunings_(accelerator) {
    for (auto* make : {make_linear_ops, make_quantized_ops, make_attention_ops, make_row_ops, make_position_ops,
                       make_elementwise_ops, make_sampling_ops, make_random_ops, make_matmul_ops, make_training_ops}) {
      groups_.add(make(accelerator));
    }
  }

  bool has(Op op) const override { return groups_.has(op); }
  bool supports(Op op, const aa_op_call& call, int device) override {
    return groups_.choose(op, call, tunings_.of(device)) != nullptr;
  }
  void enqueue(Op op, const aa_op_call& call, int device) override {
    // An op has only one portable group, which was queried when the call was resolved.
    OpGroup* const group = groups_.first(op);
    if (!group) throw NotImplementedError(std::string("there is no portable op \"") + op_name(op) + '"');
    group->enqueue(op, call, device);
  }

 private:
  Tunings tunings_;
  OpGroups groups_;
};

}  // namespace

bool available(DriverAccelerator& accelerator) {
  const auto* compiler = static_cast<const abi::Calls<aa_compiler_table>*>(
      accelerator.extension(AA_COMPILER_EXTENSION, AA_COMPILER_VERSION));
  return compiler && accelerator.device_count() > 0 && (accelerator.device_properties(0).caps & AA_CAP_KERNELS) != 0 &&
         !portable_dialect(accelerator).language.empty();
}

std::unique_ptr<PortableOps> make_portable_ops(DriverAccelerator& accelerator) {
  return available(accelerator) ? std::make_unique<KernelOps>(accelerator) : nullptr;
}

}  // namespace anyaccel::ops::portable
