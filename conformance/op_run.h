// Shared by the cases of ops: tensors of any layout that detect stray reads and writes, and a comparison that reports
// its limit and the measured error.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "anyaccel/abi/ops.h"
#include "conformance/context.h"
#include "conformance/number_formats.h"

namespace anyaccel::conformance {

inline constexpr int32_t float_dtypes[] = {AA_DTYPE_F32, AA_DTYPE_BF16, AA_DTYPE_F16};

using Shape = std::vector<int64_t>;
using Values = std::vector<double>;

// The layout of elements in memory. Strides of the outer dimensions follow.
struct Layout {
  int64_t inner = 1;   // stride of the last dimension
  int64_t gap = 0;     // elements between two rows
  int64_t offset = 0;  // elements before the first; odd ones break alignments
  const char* name = "dense";
};
inline constexpr Layout dense{};  // or, by Context::form, one of the next two
inline constexpr Layout padded{1, 5, 3, "padded"};
inline constexpr Layout spread{3, 2, 1, "spread"};
// For tensors of which a case makes other views.
inline constexpr Layout always_dense{1, 0, 0, "always dense"};
// Dense, or padded by Context::form: for rows of blocks, whose bytes are adjacent.
inline constexpr Layout of_blocks{1, 0, 0, "dense"};

// A tensor in memory of the device. All bits around its elements are set to one, a NaN in every float dtype, so that
// stray reads show in the result and stray writes show when the values are read back.
class OpTensor {
 public:
  // `given` in row-major order, rounded to the dtype; empty: zeros.
  OpTensor(const Context& c, int32_t dtype, Shape shape, const Values& given = {}, const Layout& layout = dense);

  const aa_tensor& view() const noexcept { return view_; }
  int32_t dtype() const noexcept { return view_.dtype; }
  const Shape& shape() const noexcept { return shape_; }
  // Returns the uploaded values as the dtype holds them.
  const Values& given() const noexcept { return given_; }
  // Returns the current values. Fails if anything around the elements has changed.
  Values found() const;
  // The current bytes of the elements, in row-major order.
  Bytes found_bytes() const;
  void set(const Values& values);

 private:
  size_t place(size_t element) const noexcept;  // byte in the storage
  template <class Visit>
  void for_each_element(Visit&& visit) const;
  Bytes checked_storage() const;

  const Context& c_;
  Shape shape_;
  aa_tensor view_{};
  size_t count_ = 1;
  size_t item_;
  size_t origin_;  // byte of the first element
  Values given_;
  Bytes storage_;
  std::unique_ptr<Memory> memory_;
};

inline constexpr aa_tensor absent{};

// `count` numbers between -range and range, the same in every run.
Values numbers(size_t count, unsigned seed, double range = 2);
size_t count_of(const Shape& shape);

// The permitted error of a result: |a - b| <= absolute + (relative + u) |b| + factor * scale, u being the
// error of rounding once to the output's dtype.
struct Limit {
  double absolute = 0;
  double relative = 0;
  double factor = 0;
  const char* scale_text = "";  // what `scale` is, for the report

  std::string text() const;
};
// The result is the reference rounded once, bit for bit. (Any NaN equals any other.)
inline constexpr Limit exact{};

// One op in one case: finds it, runs calls of it, compares, and finally reports the measured errors.
class OpRun {
 public:
  // Ends the case as unsupported if the op is not available.
  OpRun(const Context& c, const char* name, const Limit& limit = exact);

  // Runs a call. Returns false if the driver rejects it, which is allowed.
  bool run(std::initializer_list<aa_tensor> tensors) {
    return run(std::vector<aa_tensor>(tensors), nullptr, 0, "", true);
  }
  template <class Params>
  bool run(std::initializer_list<aa_tensor> tensors, Params params) {
    params.struct_size = sizeof(params);
    return run(std::vector<aa_tensor>(tensors), &params, sizeof(params), "", true);
  }
  bool run(const std::vector<aa_tensor>& tensors, const void* params, size_t params_size, const std::string& what,
           bool must_succeed, aa_status** out_status = nullptr);

  // `scale` has one number an element, or none.
  void compare(const OpTensor& output, const Values& reference, const std::string& what, const Values& scale = {});
  // The same for values that an output of another dtype decodes to.
  void compare_values(int32_t dtype, const Values& found, const Values& reference, const std::string& what,
                      const Values& scale = {});
  // Values that an op must not have changed.
  void unchanged(const OpTensor& input, const std::string& what) const;

  // Ends the case: unsupported if every call was rejected, else notes the errors.
  void finish();

 private:
  struct Worst {
    double difference = 0;
    double share = 0;  // of the limit
    int64_t count = 0;
  };

  // Makes an output of the call one of the inputs that it may be, where the case has made both alike. Returns false if
  // there is none.
  bool put_in_place(std::vector<aa_tensor>& tensors, aa_tensor& output, aa_tensor& input) const;
  aa_status* enqueue(const aa_op_call& call);
  aa_status* enqueue_short_of_memory(const aa_op_call& call);

  const Context& c_;
  std::string name_;
  Limit limit_;
  int32_t op_;
  int64_t ran_ = 0;
  int64_t refused_ = 0;
  int64_t scratch_refused_ = 0;
  std::map<std::string, Worst> worst_;  // by dtype of the output
  std::map<std::string, int64_t> who_;
};

}  // namespace anyaccel::conformance
