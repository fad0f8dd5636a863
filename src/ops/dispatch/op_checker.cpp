// Implements op_checker.h: the rules that take more than one line, and the error messages.
#include "ops/dispatch/op_checker.h"

#include "base/block_format.h"
#include "runtime/tensor/common_bytes.h"

namespace anyaccel::ops {
namespace {

std::string letter_name(char letter) {
  switch (letter) {
    case 'q': return "Hq";
    case 'k': return "Hk";
    case 'x': return "Hq*D";
    case 'y': return "Hk*D";
    case 'a':
    case 'b':
    case 'c':
    case 'd': return std::string("N") + static_cast<char>('0' + (letter - 'a'));
    case '.': return "..";
    default: return std::string(1, letter);
  }
}

}  // namespace

void check_memory(const OpSchema& schema, const aa_op_call& call) {
  const auto fail = [&](uint32_t i, const std::string& what) {
    throw InvalidArgument(std::string(schema.name) + ": tensor \"" + schema.tensors[i].name + "\" " + what);
  };
  std::array<AddressRange, AA_OP_MAX_TENSORS> ranges;
  for (uint32_t i = 0; i < call.tensor_count; ++i) ranges[i] = address_range(call.tensors[i]);
  for (uint32_t i = 0; i < call.tensor_count; ++i) {
    if (!((schema.written >> i) & 1u)) continue;
    if (repeats_bytes(call.tensors[i])) {
      fail(i, "is written, but some of its elements share memory; expected a tensor with memory for each");
    }
    for (uint32_t j = 0; j < call.tensor_count; ++j) {
      if (j == i || (j < i && ((schema.written >> j) & 1u)) || !ranges[i].meets(ranges[j])) continue;
      const bool may_be = (schema.tensors[i].in_place >> j) & 1u;
      if (may_be && are_same_elements(call.tensors[i], call.tensors[j])) continue;
      if (!have_common_bytes(call.tensors[i], call.tensors[j])) continue;
      fail(i,
           "shares memory with \"" + std::string(schema.tensors[j].name) + "\", so that values " +
               (((schema.written >> j) & 1u) ? "of one would be lost" : "could be overwritten before they are read") +
               "; expected a tensor of its own" +
               (may_be ? ", or exactly that one, with its address, strides and dtype" : ""));
    }
  }
}

std::string shape_text(const aa_tensor& t) {
  std::string text = "[";
  for (int d = 0; d < t.ndim; ++d) {
    if (d) text += ", ";
    text += std::to_string(t.shape[d]);
  }
  return text + "]";
}

std::string dtypes_text(uint32_t mask) {
  std::string text;
  for (int t = AA_DTYPE_BOOL; t <= AA_DTYPE_F8_E5M2; ++t) {
    if (!(mask & (1u << t))) continue;
    if (!text.empty()) text += (mask >> (t + 1)) ? ", " : " or ";
    text += dtype_name(static_cast<DType>(t));
  }
  return text;
}

const char* position_text(int dimension, int ndim) {
  static constexpr const char* kNames[] = {"first", "second", "third", "fourth", "fifth", "sixth"};
  return dimension == ndim - 1 && ndim > 1 ? "last" : ndim == 1 ? "only" : kNames[dimension];
}

void Checker::random_kind(const aa_random_params& params) const {
  require(params.kind >= AA_RANDOM_BITS && params.kind <= AA_RANDOM_NORMAL, "kind", params.kind,
          "an aa_random_kind, 0 to 2");
  if (params.kind == AA_RANDOM_BITS) {
    constexpr uint32_t integers =
        1u << AA_DTYPE_U8 | 1u << AA_DTYPE_I8 | 1u << AA_DTYPE_I16 | 1u << AA_DTYPE_I32 | 1u << AA_DTYPE_I64;
    if (!((integers >> tensor(0).dtype) & 1u)) [[unlikely]]
      fail(quoted(0) + " has dtype " + std::string(dtype_name(static_cast<DType>(tensor(0).dtype))) + ", expected " +
           dtypes_text(integers) + " for random bits");
    return;
  }
  finite("low", params.low);
  finite("high", params.high);
}

void Checker::rotation(int interleaved, uint32_t cos) const {
  require(interleaved == 0 || interleaved == 1, "interleaved", interleaved, "0 or 1");
  if (2 * size('R') > size('D')) [[unlikely]] {
    fail("tensor \"cos\" has shape " + shape_text(tensor(cos)) + ", but 2 * " + std::to_string(size('R')) +
         " rotated elements do not fit in heads of size D = " + std::to_string(size('D')) + " of \"q\"");
  }
}

void Checker::rounding(int32_t rounding) const {
  require(rounding == AA_QUANTIZED_EXACT || rounding == AA_QUANTIZED_ROUNDED, "rounding", rounding,
          "an aa_quantized_rounding, 0 or 1");
}

void Checker::blocks(int32_t format_number, uint32_t w) const {
  const BlockFormat* format = find_block_format(static_cast<uint32_t>(format_number));
  if (format == nullptr) [[unlikely]] {
    std::string known;
    for (const BlockFormat& entry : block_formats()) {
      known += (known.empty() ? "" : ", ") + std::to_string(entry.number) + " (" + std::string(entry.name) + ")";
    }
    fail("parameter format is " + std::to_string(format_number) + ", expected an aa_block_format: " + known);
  }
  const int64_t k = size('K');
  const std::string name(format->name);
  if (k % format->values != 0) [[unlikely]] {
    fail("rows have " + std::to_string(k) + " values, expected a multiple of " + std::to_string(format->values) +
         ", the block of " + name);
  }
  if (size('C') != k / format->values * format->bytes) [[unlikely]] {
    fail(quoted(w) + " has shape " + shape_text(tensor(w)) + ", expected rows of " +
         std::to_string(k / format->values * format->bytes) + " bytes, which hold " + std::to_string(k) +
         " values of " + name);
  }
  if (tensor(w).strides[1] != 1 && size('C') > 1) [[unlikely]] {
    fail(quoted(w) + " has the stride " + std::to_string(tensor(w).strides[1]) +
         " between the bytes of a row, expected 1");
  }
}

void Checker::cache_blocks(int32_t number, uint32_t k_cache) const {
  require(number == AA_CACHE_Q8_0 || number == AA_CACHE_F8_E4M3, "format", number,
          "8, AA_CACHE_Q8_0, or 256, AA_CACHE_F8_E4M3");
  const BlockFormat& blocks = *find_block_format(AA_BLOCK_Q8_0);
  const int64_t d = size('D');
  if (d % blocks.values != 0) [[unlikely]] {
    fail("heads have " + std::to_string(d) + " values, expected a multiple of " + std::to_string(blocks.values));
  }
  const bool of_blocks = number == AA_CACHE_Q8_0;
  const int64_t bytes = of_blocks ? d / blocks.values * blocks.bytes : d;
  for (uint32_t i = k_cache; i < k_cache + 2; ++i) {
    if (size('C') != bytes) [[unlikely]] {
      fail(quoted(i) + " has shape " + shape_text(tensor(i)) + ", expected rows of " + std::to_string(bytes) +
           " bytes, which hold " + std::to_string(d) + " values of " +
           (of_blocks ? std::string(blocks.name) : "F8_E4M3"));
    }
    if (tensor(i).strides[3] != 1 && bytes > 1) [[unlikely]] {
      fail(quoted(i) + " has the stride " + std::to_string(tensor(i).strides[3]) +
           " between the bytes of a row, expected 1");
    }
  }
}

void Checker::heads() const {
  const int64_t hq = size('q');
  const int64_t hk = size('k');
  if (hk == 0 ? hq != 0 : hq % hk != 0) [[unlikely]] {
    fail("tensor \"q\" has Hq = " + std::to_string(hq) + " heads, expected a multiple of Hk = " + std::to_string(hk) +
         ", the second dimension of \"k_cache\"");
  }
}

void Checker::norm_gradients() const {
  // Any other overlap is refused by check_memory().
  if (!(present(1) || present(2)) || !are_same_elements(tensor(0), tensor(3)) ||
      !have_common_bytes(tensor(0), tensor(3))) {
    return;
  }
  fail(
      "tensor \"dx\" is \"dy\", which is possible only where \"dweight\" and \"dbias\" are absent; expected a "
      "tensor of its own");
}

void Checker::vocabulary() const {
  if (size('V') == 0 && size('R') != 0) [[unlikely]] {
    const uint32_t i = tensor(1).dtype == AA_DTYPE_NONE ? 2 : 1;
    fail(quoted(i) + " has shape " + shape_text(tensor(i)) + ", expected at least one column to choose from");
  }
}

void Checker::fail_shape(uint32_t i, int wrong) const {
  const aa_tensor& t = call_.tensors[i];
  const char* pattern = schema_.tensors[i].shape;
  std::string letters = "[";
  std::string sizes = "[";
  bool all_known = true;
  for (const char* p = pattern; *p; ++p) {
    const std::string separator = p == pattern ? "" : ", ";
    letters += separator + letter_name(*p);
    if (*p == '.') {
      if (bindings_.lead_tensor < 0 || bindings_.lead_tensor == static_cast<int>(i)) {
        all_known = false;
        continue;
      }
      const aa_tensor& lead = call_.tensors[bindings_.lead_tensor];
      for (int l = 0; l < bindings_.lead_ndim; ++l) sizes += (l ? ", " : "") + std::to_string(lead.shape[l]);
    } else {
      const bool digit = *p >= '0' && *p <= '9';
      // If the rank is wrong, the letters that this tensor itself has bound have no meaning.
      const bool known = digit || (bindings_.has(*p) &&
                                   (wrong >= 0 || bindings_.tensor[static_cast<size_t>(*p)] != static_cast<int>(i)));
      sizes += (sizes.size() > 1 ? ", " : "") + (digit   ? std::string(1, *p)
                                                 : known ? std::to_string(bindings_[*p])
                                                         : letter_name(*p));
      all_known = all_known && known;
    }
  }
  letters += "]";
  sizes += "]";
  std::string text = quoted(i) + " has shape " + shape_text(t) + ", expected " + letters;
  if (all_known && letters != sizes) text += " = " + sizes;
  if (wrong >= 0) {
    int of = bindings_.lead_tensor;
    int dimension = wrong;
    const int lead = *pattern == '.' ? bindings_.lead_ndim : 0;
    if (*pattern != '.' || wrong >= lead) {
      const char letter = pattern[wrong - lead + (*pattern == '.' ? 1 : 0)];
      of = bindings_.tensor[static_cast<size_t>(letter)];
      dimension = bindings_.dimension[static_cast<size_t>(letter)];
    }
    text += std::string(" to match the ") + position_text(dimension, call_.tensors[of].ndim) + " dimension of \"" +
            schema_.tensors[static_cast<size_t>(of)].name + "\"";
  }
  fail(text);
}

}  // namespace anyaccel::ops
