// Implements the ops of elementwise.cl: activation, gated_activation, add, copy and increment.
#include <algorithm>

#include "anyaccel/dtype.h"
#include "ops/portable/op_group.h"
#include "runtime/ops/kernel_arguments.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::ops::portable {
namespace {

#include "kernels/portable/elementwise_arguments.h"

bool is_dense(const aa_view& view) { return view.ndim == 1 && (view.stride[0] == 1 || view.shape[0] == 1); }

bool is_integer(int32_t dtype) { return dtype >= AA_DTYPE_BOOL && dtype <= AA_DTYPE_I64; }

class ElementwiseOps final : public OpGroup {
 public:
  explicit ElementwiseOps(DriverAccelerator& accelerator)
      : kernels_(accelerator, "elementwise.cl",
                 {"activation", "gated_activation", "add", "increment", "copy_bits", "copy_floats", "copy_integers",
                  "copy_f64"}) {}

  std::span<const Op> ops() const override {
    static constexpr Op list[] = {Op::Activation, Op::GatedActivation, Op::Add, Op::Increment, Op::Copy};
    return list;
  }

  // If the device does not compute with 64-bit floats, they can be copied but not converted.
  bool supports(Op op, const aa_op_call& call, const aa_kernel_tuning& tuning) override {
    if (op != Op::Copy || tuning.native_f64) return true;
    const int32_t to = call.tensors[0].dtype, from = call.tensors[1].dtype;
    return to == from || (to != AA_DTYPE_F64 && from != AA_DTYPE_F64);
  }

  void enqueue(Op op, const aa_op_call& call, const int& device) override {
    const aa_tensor* t = call.tensors;
    const int64_t count = element_count_of(t[0]);
    if (count == 0) return;
    switch (op) {
      case Op::Activation:
        return launch(ActivationKernel, device, count, t[0].data, view_of(t[0]), t[1].data, view_of(t[1]), count,
                      kind_of(call));
      case Op::GatedActivation:
        return launch(GatedActivationKernel, device, count, t[0].data, view_of(t[0]), t[1].data, view_of(t[1]),
                      t[2].data, view_of(t[2]), count, kind_of(call));
      case Op::Add:
        return launch(AddKernel, device, count, t[0].data, view_of(t[0]), t[1].data, view_of(t[1]), t[2].data,
                      view_of(t[2]), count);
      case Op::Increment:
        return launch(IncrementKernel, device, count, t[0].data, view_of(t[0]), count,
                      params_of<aa_increment_params>(call).amount);
      default:
        return t[0].dtype == t[1].dtype ? copy_bits(t[0], t[1], count, device) : convert(t[0], t[1], count, device);
    }
  }

 private:
  enum Kernel : size_t {
    ActivationKernel,
    GatedActivationKernel,
    AddKernel,
    IncrementKernel,
    CopyBits,
    CopyFloats,
    CopyIntegers,
    CopyF64
  };

  static int32_t kind_of(const aa_op_call& call) { return params_of<aa_activation_params>(call).kind; }

  template <class... Arguments>
  void launch(size_t kernel, int device, int64_t count, const Arguments&... arguments) {
    const auto items = static_cast<uint32_t>(kernels_.tuning(device).items);
    kernels_.launch(kernel, device,
                    {.grid = {groups_for(count, int64_t{items} * AA_ELEMENTS), 1, 1}, .block = {items, 1, 1}},
                    arguments...);
  }

  void copy_bits(const aa_tensor& out, const aa_tensor& x, int64_t count, int device) {
    aa_view to = view_of(out), from = view_of(x);
    auto width = static_cast<int64_t>(dtype_size(static_cast<DType>(out.dtype)));
    if (is_dense(to) && is_dense(from)) {
      // Bytes are copied with the widest type that the addresses and the length allow.
      const int64_t bytes = count * width;
      const uint64_t low_bits =
          reinterpret_cast<uintptr_t>(out.data) | reinterpret_cast<uintptr_t>(x.data) | static_cast<uint64_t>(bytes);
      width = std::max<int64_t>(width, low_bits % 8 == 0 ? 8 : low_bits % 4 == 0 ? 4 : low_bits % 2 == 0 ? 2 : 1);
      count = to.shape[0] = from.shape[0] = bytes / width;
      to.stride[0] = from.stride[0] = 1;
    }
    launch(CopyBits, device, count, out.data, to, x.data, from, count, static_cast<int32_t>(width));
  }

  void convert(const aa_tensor& out, const aa_tensor& x, int64_t count, int device) {
    const size_t kernel = is_integer(x.dtype) ? CopyIntegers : x.dtype == AA_DTYPE_F64 ? CopyF64 : CopyFloats;
    launch(kernel, device, count, out.data, view_of(out), x.data, view_of(x), count);
  }

  KernelSet kernels_;
};

}  // namespace

std::unique_ptr<OpGroup> make_elementwise_ops(DriverAccelerator& accelerator) {
  return std::make_unique<ElementwiseOps>(accelerator);
}

}  // namespace anyaccel::ops::portable
