// Decodes the weights of quantized safetensors directories: GPTQ, AWQ, compressed-tensors, float8 and MXFP4.
// n is a row (an output), k a column (an input), g a group of columns.
#include "llm/checkpoint/packed_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "anyaccel/error.h"
#include "base/block_encode.h"
#include "base/scalar_convert.h"
#include "base/text/json.h"

namespace anyaccel::llm {
namespace {

using Kind = WeightQuantization::Kind;

// AWQ: column 8 c + t of the outputs is in this nibble of word c.
constexpr std::array<unsigned, 8> awq_nibble = {0, 4, 1, 5, 2, 6, 3, 7};
constexpr std::array<float, 16> float4_values = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};

std::vector<std::byte> read_all(const Checkpoint& checkpoint, const TensorView& view) {
  std::vector<std::byte> bytes(view.bytes);
  checkpoint.read(view, bytes);
  return bytes;
}

template <class T>
T number_at(std::span<const std::byte> bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

std::vector<float> read_floats(const Checkpoint& checkpoint, const TensorView& view) {
  const std::vector<std::byte> bytes = read_all(checkpoint, view);
  std::vector<float> values(bytes.size() / dtype_size(view.dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    switch (view.dtype) {
      case DType::F16: values[i] = fp16_to_float(number_at<uint16_t>(bytes, i)); break;
      case DType::BF16: values[i] = bf16_to_float(number_at<uint16_t>(bytes, i)); break;
      // These scales are powers of two; 255 is NaN.
      case DType::U8: {
        const auto exponent = static_cast<int>(bytes[i]);
        values[i] = exponent == 255 ? NAN : std::ldexp(1.0F, exponent - 127);
        break;
      }
      default: values[i] = number_at<float>(bytes, i);
    }
  }
  return values;
}

// Returns bits `first` to `first + bits - 1` of a stream of words, lowest first.
unsigned bits_at(std::span<const std::byte> words, size_t first_word, uint64_t first, unsigned bits) {
  const size_t word = first_word + first / 32;
  const unsigned shift = first % 32;
  uint64_t both = number_at<uint32_t>(words, word);
  if (shift + bits > 32) both |= static_cast<uint64_t>(number_at<uint32_t>(words, word + 1)) << 32;
  return static_cast<unsigned>(both >> shift) & ((1u << bits) - 1);
}

float rounded(DType dtype, float value) {
  if (dtype == DType::F16) return fp16_to_float(float_to_fp16(value));
  if (dtype == DType::BF16) return bf16_to_float(float_to_bf16(value));
  return value;
}

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

void PackedMatrix::fail(const std::string& tensor, const std::string& what) const {
  throw CheckpointError("tensor " + quote_text(tensor) + " (" + how_.method + "): " + what);
}

PackedMatrix::Part PackedMatrix::part(const Checkpoint& checkpoint, const char* suffix) {
  Part found{module_ + "." + suffix, nullptr};
  found.view = checkpoint.find(found.name);
  if (found.view != nullptr) bytes_ += found.view->bytes;
  return found;
}

const TensorView& PackedMatrix::expect(const Part& part, std::initializer_list<DType> dtypes,
                                       std::vector<int64_t> shape) const {
  const auto text = [](std::span<const int64_t> sizes) {
    std::string out;
    for (const int64_t size : sizes) out += (out.empty() ? "" : ", ") + std::to_string(size);
    return "[" + out + "]";
  };
  if (part.view == nullptr) fail(part.name, "is missing; expected the shape " + text(shape));
  if (!std::ranges::equal(part.view->shape, shape)) {
    fail(part.name, "has the shape " + text(part.view->shape) + "; expected " + text(shape));
  }
  if (std::ranges::find(dtypes, part.view->dtype) == dtypes.end()) {
    fail(part.name,
         "is " + std::string(dtype_name(part.view->dtype)) + "; expected " + std::string(dtype_name(*dtypes.begin())));
  }
  return *part.view;
}

void PackedMatrix::set_scales(const Part& scales, int64_t row_stride, int64_t group_stride) {
  scales_ = scales;
  row_stride_ = row_stride;
  group_stride_ = group_stride;
  dtype_ = scales.view->dtype == DType::U8 ? DType::F32 : scales.view->dtype;
}

std::unique_ptr<PackedMatrix> PackedMatrix::find(const Checkpoint& checkpoint, const std::string& module,
                                                 const WeightQuantization& how, int64_t rows, int64_t columns,
                                                 const PackedRows& place) {
  std::unique_ptr<PackedMatrix> matrix(new PackedMatrix(how, module, rows, columns));
  if (place.matrices > 0) {
    if (how.kind != Kind::MxFloat4 || checkpoint.find(module + "_blocks") == nullptr) return nullptr;
    matrix->place_ = place;
    matrix->find_stacked_mxfloat4(checkpoint);
    matrix->choose_block_format(checkpoint);
    return matrix;
  }
  const char* const suffixes[] = {"qweight", "qweight", "weight_packed", "weight_scale", "weight", "weight_blocks"};
  const TensorView* first = checkpoint.find(module + "." + suffixes[static_cast<size_t>(how.kind)]);
  // compressed-tensors has another name for the same tensor.
  if (first == nullptr && how.kind == Kind::MxFloat4) first = checkpoint.find(module + ".weight_packed");
  if (first == nullptr || (how.kind == Kind::Float8 && first->dtype != DType::F8E4M3)) return nullptr;
  const bool is_weight = how.kind == Kind::Int8 || how.kind == Kind::Float8;
  if (!is_weight && checkpoint.find(module + ".weight") != nullptr) {
    matrix->fail(module + ".weight", "is there beside the quantized tensors of the same matrix; expected one of them");
  }
  matrix->group_ = how.group > 0 ? how.group : columns;
  matrix->groups_ = divided_up(columns, matrix->group_);
  switch (how.kind) {
    case Kind::Gptq: matrix->find_gptq(checkpoint); break;
    case Kind::Awq: matrix->find_awq(checkpoint); break;
    case Kind::Packed:
    case Kind::Int8: matrix->find_compressed(checkpoint); break;
    case Kind::Float8: matrix->find_float8(checkpoint); break;
    case Kind::MxFloat4: matrix->find_mxfloat4(checkpoint); break;
  }
  matrix->choose_block_format(checkpoint);
  return matrix;
}

void PackedMatrix::find_gptq(const Checkpoint& checkpoint) {
  const int64_t fields = 32 / how_.bits;
  values_ = part(checkpoint, "qweight");
  if (rows_ % fields != 0 || columns_ % fields != 0) {
    fail(values_.name, "belongs to a layer of " + std::to_string(rows_) + " outputs and " + std::to_string(columns_) +
                           " inputs; expected multiples of " + std::to_string(fields));
  }
  expect(values_, {DType::I32}, {columns_ / fields, rows_});
  zeros_ = part(checkpoint, "qzeros");
  expect(zeros_, {DType::I32}, {groups_, rows_ / fields});
  const Part scales = part(checkpoint, "scales");
  expect(scales, {DType::F16, DType::BF16, DType::F32}, {groups_, rows_});
  set_scales(scales, 1, rows_);
  order_ = part(checkpoint, "g_idx");
  if (order_.view != nullptr) expect(order_, {DType::I32}, {columns_});
}

void PackedMatrix::find_awq(const Checkpoint& checkpoint) {
  values_ = part(checkpoint, "qweight");
  if (rows_ % 8 != 0 || columns_ % group_ != 0) {
    fail(values_.name, "belongs to a layer of " + std::to_string(rows_) + " outputs and " + std::to_string(columns_) +
                           " inputs; expected multiples of 8 and of " + std::to_string(group_) + ", the group");
  }
  expect(values_, {DType::I32}, {columns_, rows_ / 8});
  zeros_ = part(checkpoint, "qzeros");
  expect(zeros_, {DType::I32}, {groups_, rows_ / 8});
  const Part scales = part(checkpoint, "scales");
  expect(scales, {DType::F16, DType::BF16, DType::F32}, {groups_, rows_});
  set_scales(scales, 1, rows_);
}

void PackedMatrix::find_compressed(const Checkpoint& checkpoint) {
  const bool packed = how_.kind == Kind::Packed;
  values_ = part(checkpoint, packed ? "weight_packed" : "weight");
  if (columns_ % group_ != 0) {
    fail(values_.name, "has rows of " + std::to_string(columns_) + " values; expected a multiple of " +
                           std::to_string(group_) + ", the group");
  }
  if (packed) {
    expect(values_, {DType::I32}, {rows_, divided_up(columns_ * how_.bits, 32)});
    if (const Part shape = part(checkpoint, "weight_shape"); shape.view != nullptr) {
      expect(shape, {DType::I64, DType::I32}, {2});
      const std::vector<std::byte> bytes = read_all(checkpoint, *shape.view);
      const bool wide = shape.view->dtype == DType::I64;
      for (size_t i = 0; i < 2; ++i) {
        const int64_t found = wide ? number_at<int64_t>(bytes, i) : number_at<int32_t>(bytes, i);
        const int64_t expected = i == 0 ? rows_ : columns_;
        if (found != expected) {
          fail(shape.name, "says " + std::to_string(found) + "; expected " + std::to_string(expected));
        }
      }
    }
  } else {
    expect(values_, {DType::I8}, {rows_, columns_});
  }
  const Part scales = part(checkpoint, "weight_scale");
  const bool whole = scales.view != nullptr && scales.view->shape.size() <= 1;  // one for all
  if (whole) {
    expect(scales, {DType::F16, DType::BF16, DType::F32}, std::vector<int64_t>(scales.view->shape.size(), 1));
    set_scales(scales, 0, 0);
  } else {
    expect(scales, {DType::F16, DType::BF16, DType::F32}, {rows_, groups_});
    set_scales(scales, groups_, 1);
  }
  zeros_ = part(checkpoint, "weight_zero_point");
  if (how_.symmetric && zeros_.view == nullptr) {
    // The middle of the range is zero.
  } else if (packed) {
    expect(zeros_, {DType::I32}, {divided_up(rows_ * how_.bits, 32), groups_});
  } else if (whole) {
    fail(zeros_.name, "zero points with one scale for all weights are not supported");
  } else {
    expect(zeros_, {DType::I8}, {rows_, groups_});
  }
  order_ = part(checkpoint, "weight_g_idx");
  if (order_.view != nullptr) expect(order_, {DType::I32}, {columns_});
}

void PackedMatrix::find_float8(const Checkpoint& checkpoint) {
  values_ = part(checkpoint, "weight");
  expect(values_, {DType::F8E4M3}, {rows_, columns_});
  Part scales = part(checkpoint, "weight_scale_inv");
  const Part others = part(checkpoint, "weight_scale");
  if (scales.view != nullptr && others.view != nullptr) {
    fail(others.name, "is there beside weight_scale_inv, another name of the same scales; expected one of them");
  }
  if (scales.view == nullptr) scales = others;
  if (how_.block_rows > 0) {
    group_ = how_.block_columns;
    groups_ = divided_up(columns_, group_);
    expect(scales, {DType::F32, DType::BF16, DType::F16, DType::U8}, {divided_up(rows_, how_.block_rows), groups_});
    set_scales(scales, groups_, 1);
    return;
  }
  if (scales.view != nullptr && scales.view->shape.size() == 2 && scales.view->shape[0] == rows_) {
    expect(scales, {DType::F32, DType::BF16, DType::F16}, {rows_, 1});
    set_scales(scales, 1, 0);
    return;
  }
  expect(scales, {DType::F32, DType::BF16, DType::F16},
         scales.view != nullptr && scales.view->shape.empty() ? std::vector<int64_t>{} : std::vector<int64_t>{1});
  set_scales(scales, 0, 0);
}

void PackedMatrix::find_mxfloat4(const Checkpoint& checkpoint) {
  group_ = 32;
  groups_ = columns_ / 32;
  values_ = part(checkpoint, "weight_blocks");
  const bool blocks = values_.view != nullptr;
  if (!blocks) values_ = part(checkpoint, "weight_packed");
  if (columns_ % 32 != 0) {
    fail(values_.name, "has rows of " + std::to_string(columns_) + " values; expected a multiple of 32");
  }
  if (blocks) {
    expect(values_, {DType::U8}, {rows_, groups_, 16});
  } else {
    expect(values_, {DType::U8}, {rows_, columns_ / 2});
  }
  const Part scales = part(checkpoint, blocks ? "weight_scales" : "weight_scale");
  expect(scales, {DType::U8}, {rows_, groups_});
  set_scales(scales, groups_, 1);
}

void PackedMatrix::find_stacked_mxfloat4(const Checkpoint& checkpoint) {
  group_ = 32;
  groups_ = columns_ / 32;
  const auto part_of = [&](const char* suffix, std::vector<int64_t> shape, TensorView& own) {
    Part found{module_ + suffix, checkpoint.find(module_ + suffix)};
    own = expect(found, {DType::U8}, std::move(shape));
    own.bytes /= static_cast<uint64_t>(place_.matrices);
    const uint64_t skipped = own.bytes * static_cast<uint64_t>(place_.matrix);
    if (own.data != nullptr) own.data += skipped;
    own.offset += skipped;
    bytes_ += own.bytes / static_cast<uint64_t>(place_.step);
    found.view = &own;
    return found;
  };
  if (columns_ % 32 != 0) {
    fail(module_ + "_blocks", "has rows of " + std::to_string(columns_) + " values; expected a multiple of 32");
  }
  values_ = part_of("_blocks", {place_.matrices, place_.rows, groups_, 16}, own_values_);
  set_scales(part_of("_scales", {place_.matrices, place_.rows, groups_}, own_scales_), groups_, 1);
}

// Integers of 4 and 8 bits can be stored as blocks of Q4_0 and Q8_0 if their zero points are the middle of the range,
// groups are whole blocks in the order of the columns, and fp16 represents the scales exactly; float4 is MXFP4.
void PackedMatrix::choose_block_format(const Checkpoint& checkpoint) {
  if (how_.kind == Kind::Float8 || columns_ % 32 != 0 || group_ % 32 != 0) return;
  if (how_.kind == Kind::MxFloat4) {
    block_format_ = find_block_format(39);
    return;
  }
  const bool bytes = how_.kind == Kind::Int8;  // whatever the number of bits that they use
  if (!bytes && how_.bits != 4 && how_.bits != 8) return;
  const std::unique_ptr<PackedValues> values = read_scales(checkpoint);
  for (const float scale : values->scales_) {
    if (fp16_to_float(float_to_fp16(scale)) != scale) return;
  }
  const int middle = bytes ? 0 : 1 << (how_.bits - 1);
  for (const int16_t zero : values->zeros_) {
    if (zero != middle) return;
  }
  for (int64_t k = 0; k < columns_; ++k) {
    if (values->group_of_[static_cast<size_t>(k)] != k / group_) return;
  }
  block_format_ = find_block_format(how_.bits == 4 && !bytes ? 2 : 8);
}

std::vector<std::string> PackedMatrix::tensors() const {
  std::vector<std::string> names;
  if (place_.matrices > 0) return {module_ + "_blocks", module_ + "_scales"};
  for (const char* suffix :
       {"qweight", "qzeros", "scales", "g_idx", "weight_packed", "weight_scale", "weight_zero_point", "weight_g_idx",
        "weight_shape", "weight", "weight_scale_inv", "weight_blocks", "weight_scales",
        // These describe how inputs are rounded, which is not done.
        "input_scale", "input_zero_point"}) {
    names.push_back(module_ + "." + suffix);
  }
  return names;
}

std::unique_ptr<PackedValues> PackedMatrix::read(const Checkpoint& checkpoint) const {
  std::unique_ptr<PackedValues> out = read_scales(checkpoint);
  out->values_ = read_all(checkpoint, *values_.view);
  return out;
}

std::unique_ptr<PackedValues> PackedMatrix::read_scales(const Checkpoint& checkpoint) const {
  std::unique_ptr<PackedValues> out(new PackedValues(*this));
  out->scales_ = read_floats(checkpoint, *scales_.view);
  for (size_t i = 0; i < out->scales_.size(); ++i) {
    if (!std::isfinite(out->scales_[i])) fail(scales_.name, "scale " + std::to_string(i) + " is NaN or infinite");
  }
  out->middle_ =
      how_.kind == Kind::Int8 || how_.kind == Kind::Float8 || how_.kind == Kind::MxFloat4 ? 0 : 1 << (how_.bits - 1);
  out->group_of_.resize(static_cast<size_t>(columns_));
  for (int64_t k = 0; k < columns_; ++k) out->group_of_[static_cast<size_t>(k)] = static_cast<int32_t>(k / group_);
  bool any = false;
  if (order_.view != nullptr) {
    const std::vector<std::byte> order = read_all(checkpoint, *order_.view);
    std::vector<int32_t> groups(out->group_of_.size());
    for (size_t k = 0; k < groups.size(); ++k) {
      groups[k] = number_at<int32_t>(order, k);
      any |= groups[k] != (how_.kind == Kind::Gptq ? 0 : -1);
    }
    // If all are 0 (GPTQ) or -1 (compressed-tensors), the tensor was never set and the columns are in their order.
    for (size_t k = 0; any && k < groups.size(); ++k) {
      if (groups[k] < 0 || groups[k] >= groups_) {
        fail(order_.name, "column " + std::to_string(k) + " is in group " + std::to_string(groups[k]) +
                              "; expected 0 to " + std::to_string(groups_ - 1));
      }
    }
    if (any) out->group_of_ = std::move(groups);
  }
  if (!any && how_.has_order && groups_ > 1) {
    fail(order_.name, std::string(order_.view == nullptr ? "is missing" : "was never set") +
                          "; expected the group of each of the " + std::to_string(columns_) +
                          " inputs, since quantization_config says that they were reordered (desc_act or actorder)");
  }
  if (!any && how_.kind == Kind::Gptq && columns_ % group_ != 0) {
    fail(values_.name, "has rows of " + std::to_string(columns_) + " values; expected a multiple of " +
                           std::to_string(group_) + ", the group, or the group of each of them (g_idx)");
  }
  if (zeros_.view == nullptr) return out;
  const std::vector<std::byte> zeros = read_all(checkpoint, *zeros_.view);
  const auto bits = static_cast<unsigned>(how_.bits);
  const int mask = (1 << how_.bits) - 1;
  const auto stored = [&](int64_t n, int64_t g) {
    const auto row = static_cast<uint64_t>(n);
    switch (how_.kind) {
      case Kind::Gptq:
        return static_cast<int>(bits_at(zeros, static_cast<size_t>(g * (rows_ * how_.bits / 32)), row * bits, bits));
      case Kind::Awq:
        return static_cast<int>(
            bits_at(zeros, static_cast<size_t>(g * (rows_ / 8) + n / 8), awq_nibble[row % 8] * 4, 4));
      case Kind::Packed: {  // words are [word of the rows][group]
        const uint64_t first = row * bits;
        const auto word = [&](uint64_t index) {
          return uint64_t{number_at<uint32_t>(
              zeros, static_cast<size_t>(index) * static_cast<size_t>(groups_) + static_cast<size_t>(g))};
        };
        uint64_t both = word(first / 32);
        if (first % 32 + bits > 32) both |= word(first / 32 + 1) << 32;
        return static_cast<int>(both >> first % 32) & mask;
      }
      default: return static_cast<int>(number_at<int8_t>(zeros, static_cast<size_t>(n * groups_ + g)));
    }
  };
  // Some files claim to be of the first version, but store the middle of the range as it is.
  bool as_stored = how_.kind == Kind::Gptq && how_.zeros_less_one && how_.symmetric;
  out->zeros_.resize(static_cast<size_t>(rows_ * groups_));
  for (int64_t n = 0; n < rows_; ++n) {
    for (int64_t g = 0; g < groups_; ++g) {
      const int zero = stored(n, g);
      as_stored &= zero == out->middle_;
      out->zeros_[static_cast<size_t>(n * groups_ + g)] = static_cast<int16_t>(zero);
    }
  }
  if (how_.kind == Kind::Gptq && how_.zeros_less_one && !as_stored) {
    for (int16_t& zero : out->zeros_) zero = static_cast<int16_t>((zero + 1) & mask);
  }
  if (how_.symmetric && (how_.kind == Kind::Packed || how_.kind == Kind::Int8)) {
    const bool unset = std::ranges::all_of(zeros, [](std::byte byte) { return byte == std::byte{0}; });
    for (size_t i = 0; !unset && i < out->zeros_.size(); ++i) {
      if (out->zeros_[i] == out->middle_) continue;
      fail(zeros_.name, "zero point " + std::to_string(i) + " is " + std::to_string(out->zeros_[i]) +
                            ", and quantization_config says that the weights are symmetric; expected " +
                            std::to_string(out->middle_) + ", or no such tensor");
    }
    out->zeros_.clear();
  }
  return out;
}

int PackedValues::zero(int64_t row, int64_t group) const {
  return zeros_.empty() ? middle_ : zeros_[static_cast<size_t>(row * matrix_.groups_ + group)];
}

float PackedValues::scale(int64_t row, int64_t column) const {
  const int64_t group = group_of_[static_cast<size_t>(column)];
  const int64_t of_row = matrix_.how_.block_rows > 0 ? row / matrix_.how_.block_rows : stored_row(row);
  return scales_[static_cast<size_t>(of_row * matrix_.row_stride_ + group * matrix_.group_stride_)];
}

int PackedValues::quantity(int64_t row, int64_t column) const {
  const auto bits = static_cast<unsigned>(matrix_.how_.bits);
  const int64_t rows = matrix_.rows_;
  const auto k = static_cast<uint64_t>(column);
  int stored = 0;
  switch (matrix_.how_.kind) {
    case Kind::Gptq: {
      const unsigned fields = 32 / bits;
      const auto word = number_at<uint32_t>(values_, static_cast<size_t>(column / fields * rows + row));
      stored = static_cast<int>(word >> (k % fields * bits) & ((1u << bits) - 1));
      break;
    }
    case Kind::Awq: {
      const auto word = number_at<uint32_t>(values_, static_cast<size_t>(column * (rows / 8) + row / 8));
      stored = static_cast<int>(word >> (awq_nibble[static_cast<size_t>(row % 8)] * 4) & 15u);
      break;
    }
    case Kind::Packed:
      stored = static_cast<int>(bits_at(
          values_, static_cast<size_t>(row * divided_up(matrix_.columns_ * matrix_.how_.bits, 32)), k * bits, bits));
      break;
    default: stored = number_at<int8_t>(values_, static_cast<size_t>(row * matrix_.columns_ + column)); break;
  }
  return stored - zero(row, group_of_[static_cast<size_t>(column)]);
}

void PackedValues::decode(int64_t first_row, int64_t count, float* out) const {
  const Kind kind = matrix_.how_.kind;
  const int64_t columns = matrix_.columns_;
  // The outer loop is over columns, because in GPTQ and AWQ consecutive values in memory belong to different rows.
  for (int64_t k = 0; k < columns; ++k) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t n = first_row + i;
      float value = 0;
      if (kind == Kind::Float8) {
        value = fp8_to_float(static_cast<uint8_t>(values_[static_cast<size_t>(n * columns + k)]), kE4M3);
      } else if (kind == Kind::MxFloat4) {
        const auto byte = static_cast<unsigned>(values_[static_cast<size_t>((stored_row(n) * columns + k) / 2)]);
        value = float4_values[byte >> (k % 2 * 4) & 15u];
      } else {
        value = static_cast<float>(quantity(n, k));
      }
      out[i * columns + k] = rounded(matrix_.dtype_, value * scale(n, k));
    }
  }
}

void PackedValues::encode(int64_t first_row, int64_t count, std::byte* out) const {
  const BlockFormat& format = *matrix_.block_format_;
  const bool float4 = matrix_.how_.kind == Kind::MxFloat4;
  const int64_t columns = matrix_.columns_;
  std::array<int, 32> q{};
  for (int64_t n = first_row; n < first_row + count; ++n) {
    for (int64_t k = 0; k < columns; k += 32) {
      for (int64_t i = 0; i < 32; ++i) {
        if (float4) {
          const auto byte = static_cast<unsigned>(values_[static_cast<size_t>((stored_row(n) * columns + k + i) / 2)]);
          q[static_cast<size_t>(i)] = static_cast<int>(byte >> (i % 2 * 4) & 15u);
        } else {
          q[static_cast<size_t>(i)] = quantity(n, k + i);
        }
      }
      if (float4) {
        auto* block = reinterpret_cast<uint8_t*>(out);
        block[0] = static_cast<uint8_t>(std::ilogb(scale(n, k)) + 127);
        for (size_t i = 0; i < 16; ++i) block[1 + i] = static_cast<uint8_t>(q[i] | q[i + 16] << 4);
      } else {
        encode_numbers(format, float_to_fp16(scale(n, k)), q, out);
      }
      out += format.bytes;
    }
  }
}

}  // namespace anyaccel::llm
