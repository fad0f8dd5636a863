// Placeholder: no ops yet.
#include "ops/portable/op_group.h"

namespace anyaccel::ops::portable {
namespace {
class Empty final : public OpGroup {
 public:
  std::span<const char* const> ops() const override { return {}; }
  bool supports(size_t, const aa_op_call&, const aa_kernel_tuning&) const override { return false; }
  void enqueue(size_t, const aa_op_call&, int) override {}
};
}  // namespace
std::unique_ptr<OpGroup> make_random_ops(DriverAccelerator&) { return std::make_unique<Empty>(); }
}  // namespace anyaccel::ops::portable
