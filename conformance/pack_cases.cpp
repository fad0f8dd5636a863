// Cases of weights in the driver's own layout: packed_size, pack, unpack, packed_destroy of the extension "ops".
#include <array>
#include <memory>
#include <vector>

#include "anyaccel/abi/ops.h"
#include "anyaccel/abi/sized.hpp"
#include "conformance/context.h"
#include "conformance/number_formats.h"

namespace anyaccel::conformance {
namespace pack_group {
namespace {

struct Sizes {
  int64_t outputs, inputs;
};
// Around the borders of tiles.
constexpr Sizes all_sizes[] = {{1, 1}, {17, 33}, {32, 64}, {64, 100}, {129, 128}, {256, 257}};

aa_tensor matrix(void* data, int32_t dtype, int64_t rows, int64_t columns) {
  aa_tensor t{};
  t.data = data;
  t.dtype = dtype;
  t.ndim = 2;
  t.shape[0] = rows;
  t.shape[1] = t.strides[0] = columns;
  t.strides[1] = 1;
  for (int d = 2; d < AA_MAX_DIMS; ++d) t.shape[d] = 1;
  return t;
}

// Small whole numbers, whose products are exact in every dtype.
Bytes whole_numbers(int32_t dtype, int64_t count, int seed) {
  const int64_t width = dtype_size(dtype);
  Bytes bytes(static_cast<size_t>(count * width));
  for (int64_t i = 0; i < count; ++i) {
    store(bytes.data() + i * width, dtype, static_cast<double>((i * 7 + seed * 3 + i / 5) % 5 - 2));
  }
  return bytes;
}

// One weight of "linear", packed if the driver wants that for products with inputs of this dtype.
class PackedWeight {
 public:
  PackedWeight(const Context& c, int32_t dtype, int32_t input, Sizes sizes)
      : c_(c),
        table_(c.extension<aa_ops_table>(AA_OPS_EXTENSION, AA_OPS_VERSION)),
        dtype_(dtype),
        input_(input),
        sizes_(sizes),
        bytes_(whole_numbers(dtype, sizes.outputs * sizes.inputs, 1)) {
    aa_status* status = table_.find(c.instance, "linear", &op_);
    if (status) {
      c.drop(status);
      c.unsupported("the driver has no op \"linear\"");
    }
    example_ = {matrix(nullptr, AA_DTYPE_F32, 1, sizes.outputs), matrix(nullptr, input, 1, sizes.inputs),
                matrix(nullptr, dtype, sizes.outputs, sizes.inputs)};
    call_ = abi::sized<aa_op_call>();
    call_.op = op_;
    call_.tensors = example_.data();
    call_.tensor_count = static_cast<uint32_t>(example_.size());
    what_ = abi::sized<aa_pack>();
    what_.tensor = 2;
    what_.example = &call_;
    c.ok_or_unsupported(table_.packed_size(c.device, &what_, &packed_bytes_), "packed_size");
  }
  ~PackedWeight() {
    if (packed_) {
      c_.drop(c_.driver.stream_synchronize(c_.stream));
      c_.drop(table_.packed_destroy(packed_));
    }
  }
  PackedWeight(const PackedWeight&) = delete;
  PackedWeight& operator=(const PackedWeight&) = delete;

  bool wanted() const noexcept { return packed_bytes_ > 0; }
  const Bytes& bytes() const noexcept { return bytes_; }

  // The ordinary memory of the weight is overwritten as soon as the interface allows it.
  void pack() {
    into_.emplace_back(std::make_unique<Memory>(c_, packed_bytes_));
    Memory ordinary(c_, bytes_.size());
    c_.upload(ordinary.data(), bytes_.data(), bytes_.size());
    auto into = abi::sized<aa_allocation>();
    into.pointer = into_.back()->data();
    into.size = packed_bytes_;
    const aa_tensor weight = matrix(ordinary.data(), dtype_, sizes_.outputs, sizes_.inputs);
    c_.ok(table_.pack(c_.stream, &what_, &weight, &into, &packed_), "pack");
    c_.expect(packed_ != nullptr, "pack gave no packed weight");
    const Bytes other(bytes_.size(), 0xee);
    c_.upload(ordinary.data(), other.data(), other.size());
  }
  Bytes unpack() {
    Memory out(c_, bytes_.size());
    const aa_tensor weight = matrix(out.data(), dtype_, sizes_.outputs, sizes_.inputs);
    c_.ok(table_.unpack(c_.stream, packed_, &weight), "unpack");
    return c_.download(out.data(), bytes_.size());
  }
  // The product of `rows` rows, from the packed or from the ordinary weight; empty if the driver does not run that
  // call.
  Bytes product(int64_t rows, bool from_packed) {
    const Bytes numbers = whole_numbers(input_, rows * sizes_.inputs, 2);
    Memory x(c_, numbers.size());
    Memory out(c_, static_cast<size_t>(rows * sizes_.outputs) * 4);
    Memory ordinary(c_, bytes_.size());
    c_.upload(x.data(), numbers.data(), numbers.size());
    c_.upload(ordinary.data(), bytes_.data(), bytes_.size());
    std::array<aa_tensor, 5> tensors = {
        matrix(out.data(), AA_DTYPE_F32, rows, sizes_.outputs), matrix(x.data(), input_, rows, sizes_.inputs),
        matrix(from_packed ? nullptr : ordinary.data(), dtype_, sizes_.outputs, sizes_.inputs)};
    std::array<aa_packed*, 5> packed = {nullptr, nullptr, packed_};
    aa_op_call call = call_;
    call.tensors = tensors.data();
    if (from_packed) call.packed = packed.data();
    int32_t supported = 0;
    c_.ok(table_.supports(c_.device, &call, &supported), "supports");
    if (!supported) {
      c_.expect(!from_packed || rows != 1, "the driver packed a weight for a call that it does not run with it");
      return {};
    }
    int32_t taken = 0;
    c_.ok(table_.enqueue(c_.stream, &call, &taken), "enqueue");
    c_.expect(taken == 1, "enqueue does not take a call for which supports said yes");
    return c_.download(out.data(), out.size());
  }

  const abi::Calls<aa_ops_table>& table() const noexcept { return table_; }
  aa_pack& what() noexcept { return what_; }

 private:
  const Context& c_;
  abi::Calls<aa_ops_table> table_;
  int32_t dtype_;
  int32_t input_;
  Sizes sizes_;
  Bytes bytes_;
  int32_t op_ = -1;
  std::array<aa_tensor, 5> example_{};
  aa_op_call call_{};
  aa_pack what_{};
  size_t packed_bytes_ = 0;
  std::vector<std::unique_ptr<Memory>> into_;
  aa_packed* packed_ = nullptr;
};

template <class Body>
void for_each_weight(const Context& c, Body&& body) {
  int packed = 0;
  for (const int32_t dtype : {AA_DTYPE_F32, AA_DTYPE_BF16, AA_DTYPE_F16}) {
    if (!(c.props.dtypes_storable & (1ull << dtype))) continue;
    for (const Sizes sizes : all_sizes) {
      for (const int32_t input : {static_cast<int32_t>(AA_DTYPE_F32), dtype}) {
        PackedWeight weight(c, dtype, input, sizes);
        if (!weight.wanted()) continue;
        weight.pack();
        body(weight, std::string(dtype_text(dtype)) + " [" + std::to_string(sizes.outputs) + ", " +
                         std::to_string(sizes.inputs) + "], inputs of " + dtype_text(input));
        ++packed;
        if (input == dtype) break;  // fp32 only once
      }
    }
  }
  if (packed == 0) c.unsupported("the driver leaves every weight as it is");
  c.note = std::to_string(packed) + " weights";
}

void a_packed_weight_gives_its_bytes_back(const Context& c) {
  for_each_weight(c, [&](PackedWeight& weight, const std::string& what) {
    expect_equal(weight.unpack(), weight.bytes(), "unpack, " + what);
    expect_equal(weight.unpack(), weight.bytes(), "a second unpack, " + what);
  });
}

void products_are_the_same(const Context& c) {
  for_each_weight(c, [&](PackedWeight& weight, const std::string& what) {
    for (const int64_t rows : {1, 3, 17}) {
      const Bytes expected = weight.product(rows, false);
      const Bytes found = weight.product(rows, true);
      if (!expected.empty() && !found.empty()) {
        expect_equal(found, expected, "linear of " + std::to_string(rows) + " rows, " + what);
      }
    }
  });
}

void unknown_flags_are_refused(const Context& c) {
  PackedWeight weight(c, AA_DTYPE_F32, AA_DTYPE_F32, {32, 64});
  weight.what().flags = 1u << 31;
  size_t bytes = 0;
  c.error(weight.table().packed_size(c.device, &weight.what(), &bytes), {AA_UNIMPLEMENTED},
          "packed_size with a flag that does not exist");
}

constexpr Case cases[] = {
    {"ops.pack", "a_packed_weight_gives_its_bytes_back", a_packed_weight_gives_its_bytes_back},
    {"ops.pack", "products_are_the_same", products_are_the_same},
    {"ops.pack", "unknown_flags_are_refused", unknown_flags_are_refused},
};

}  // namespace
}  // namespace pack_group

std::span<const Case> pack_cases() { return pack_group::cases; }

}  // namespace anyaccel::conformance
