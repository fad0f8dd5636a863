// The portable ops of one accelerator: the groups of op_group.h behind the runtime's interface.
#include "ops/portable/portable_ops.h"

#include <array>
#include <cstring>
#include <vector>

#include "anyaccel/abi/compiler.h"
#include "ops/portable/op_group.h"

namespace anyaccel::ops::portable {
namespace {

class PortableOps final : public HostedOps {
 public:
  explicit PortableOps(DriverAccelerator& accelerator) : tunings_(accelerator) {
    for (auto* make : {make_linear_ops, make_attention_ops, make_row_ops, make_position_ops, make_elementwise_ops,
                       make_sampling_ops, make_random_ops}) {
      groups_.push_back(make(accelerator));
      const auto names = groups_.back()->ops();
      for (size_t i = 0; i < names.size(); ++i) ops_.push_back({names[i], groups_.back().get(), i});
    }
  }

  int32_t find(const char* name) override {
    for (size_t i = 0; i < ops_.size(); ++i) {
      if (std::strcmp(ops_[i].name, name) == 0) return static_cast<int32_t>(i);
    }
    return -1;
  }

  bool supports(int32_t op, const aa_op_call& call, int device) override {
    const Entry& entry = ops_[static_cast<size_t>(op)];
    return entry.group->supports(entry.number, call, tunings_.of(device));
  }

  void enqueue(int32_t op, const aa_op_call& call, int device) override {
    const Entry& entry = ops_[static_cast<size_t>(op)];
    entry.group->enqueue(entry.number, call, device);
  }

 private:
  struct Entry {
    const char* name;
    OpGroup* group;
    size_t number;
  };
  Tunings tunings_;
  std::vector<std::unique_ptr<OpGroup>> groups_;
  std::vector<Entry> ops_;
};

}  // namespace

bool available(DriverAccelerator& accelerator) {
  const auto* compiler =
      static_cast<const aa_compiler_table*>(accelerator.extension(AA_COMPILER_EXTENSION, AA_COMPILER_VERSION));
  return compiler && accelerator.device_count() > 0 && (accelerator.device_properties(0).caps & AA_CAP_KERNELS) != 0;
}

std::unique_ptr<HostedOps> make_portable_ops(DriverAccelerator& accelerator) {
  return available(accelerator) ? std::make_unique<PortableOps>(accelerator) : nullptr;
}

}  // namespace anyaccel::ops::portable
