// See op_checker.h: the texts of what is wrong with a call.
#include "ops/dispatch/op_checker.h"

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

void Checker::fail_shape(uint32_t i, int wrong) const {
  const aa_tensor& t = call_.tensors[i];
  const char* pattern = patterns_[i].shape;
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
      // With the wrong rank, what this tensor itself has bound means nothing.
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
