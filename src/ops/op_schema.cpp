// The schema and the checks of every op of include/anyaccel/abi/ops.h, as one table: for each tensor its role, the
// dtypes it may have and its shape in letters, as in the comment at the head of that file.
#include "ops/op_schema.h"

#include <array>
#include <cmath>
#include <string>

#include "anyaccel/dtype.h"
#include "anyaccel/error.h"

namespace anyaccel::ops {
namespace {

constexpr uint32_t bit(aa_dtype t) { return 1u << t; }
constexpr uint32_t kFloat = bit(AA_DTYPE_F32) | bit(AA_DTYPE_BF16) | bit(AA_DTYPE_F16);
constexpr uint32_t kIndex = bit(AA_DTYPE_I32) | bit(AA_DTYPE_I64);
constexpr uint32_t kF32 = bit(AA_DTYPE_F32);
constexpr uint32_t kI32 = bit(AA_DTYPE_I32);
constexpr uint32_t kI64 = bit(AA_DTYPE_I64);
constexpr uint32_t kU8 = bit(AA_DTYPE_U8);
constexpr uint32_t kAny = (2u << AA_DTYPE_F8_E5M2) - 2u;
constexpr uint32_t kInteger =
    bit(AA_DTYPE_U8) | bit(AA_DTYPE_I8) | bit(AA_DTYPE_I16) | bit(AA_DTYPE_I32) | bit(AA_DTYPE_I64);

// A shape is written one character a dimension; a leading '.' stands for any number of leading dimensions, the same in
// all tensors of the call. Letters are those of abi/ops.h but for 'q' (Hq), 'k' (Hk) and 'a'..'d' (N of linear_multi).
// A digit is itself.
struct Pattern {
  uint32_t dtypes;
  const char* shape;
};

std::string letter_name(char letter) {
  switch (letter) {
    case 'q': return "Hq";
    case 'k': return "Hk";
    case 'a':
    case 'b':
    case 'c':
    case 'd': return std::string("N") + static_cast<char>('0' + (letter - 'a'));
    case '.': return "..";
    default: return std::string(1, letter);
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

// Sizes that the letters of a call have been found to stand for, and where each was found first.
struct Bindings {
  std::array<int64_t, 128> size;
  std::array<int8_t, 128> tensor;
  std::array<int8_t, 128> dimension;
  uint64_t bound[2] = {0, 0};
  int8_t lead_tensor = -1;
  int32_t lead_ndim = 0;

  bool has(char letter) const { return (bound[letter >> 6] >> (letter & 63)) & 1u; }
  void bind(char letter, int64_t value, int of_tensor, int of_dimension) {
    bound[letter >> 6] |= uint64_t{1} << (letter & 63);
    const size_t i = static_cast<size_t>(letter);
    size[i] = value;
    tensor[i] = static_cast<int8_t>(of_tensor);
    dimension[i] = static_cast<int8_t>(of_dimension);
  }
  int64_t operator[](char letter) const { return size[static_cast<size_t>(letter)]; }
};

// One call under check.
class Checker {
 public:
  Checker(const OpSchema& schema, const Pattern* patterns, const aa_op_call& call)
      : schema_(schema), patterns_(patterns), call_(call) {}

  // Everything the table tells: number of tensors, params, dtypes, shapes. `order` lists the tensors in the order in
  // which they give the letters their sizes (inputs first make the better messages); null for the order of the table.
  void run(const char* order) {
    check_count();
    check_params();
    for (uint32_t i = 0; i < call_.tensor_count; ++i) check_tensor(order ? static_cast<uint32_t>(order[i] - '0') : i);
  }

  int64_t size(char letter) const { return bindings_[letter]; }
  const aa_tensor& tensor(uint32_t i) const { return call_.tensors[i]; }
  bool present(uint32_t i) const { return call_.tensors[i].dtype != AA_DTYPE_NONE; }

  template <class Params>
  const Params& params() const {
    return *static_cast<const Params*>(call_.params);
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw InvalidArgument(std::string(schema_.name) + ": " + what);
  }

  void require(bool good, const char* parameter, double found, const char* expected) const {
    if (!good) [[unlikely]]
      fail("parameter " + std::string(parameter) + " is " + std::to_string(found) + ", expected " + expected);
  }

  std::string quoted(uint32_t i) const { return std::string("tensor \"") + schema_.tensors[i].name + "\""; }

 private:
  void check_count() const {
    const uint32_t count = call_.tensor_count;
    const uint32_t most = static_cast<uint32_t>(schema_.tensors.size());
    bool good = count >= schema_.min_tensors && count <= most;
    if (schema_.min_tensors != most) good = good && (count - 1) % 3 == 0;
    if (good && (call_.tensors != nullptr)) [[likely]]
      return;
    std::string names;
    for (uint32_t i = 0; i < most; ++i) names += (i ? ", " : "") + std::string(schema_.tensors[i].name);
    fail(std::to_string(call_.tensors ? count : 0) + " tensors were passed, expected " +
         (schema_.min_tensors == most ? std::to_string(most) : "4, 7, 10 or 13") + " (" + names +
         "), absent optional ones included");
  }

  void check_params() const {
    if (schema_.params_size == 0) return;
    if (call_.params == nullptr || call_.params_size < schema_.params_size ||
        *static_cast<const uint32_t*>(call_.params) < schema_.params_size) [[unlikely]] {
      fail("params of " + std::to_string(call_.params ? call_.params_size : 0) + " bytes were passed, expected " +
           std::to_string(schema_.params_size) + " with struct_size set");
    }
  }

  void check_tensor(uint32_t i) {
    const aa_tensor& t = call_.tensors[i];
    if (t.dtype == AA_DTYPE_NONE) {
      if (schema_.tensors[i].optional) return;
      fail(quoted(i) + " is absent, but it is not optional");
    }
    if (t.dtype < 0 || t.dtype > AA_DTYPE_F8_E5M2 || !((patterns_[i].dtypes >> t.dtype) & 1u)) [[unlikely]] {
      fail(quoted(i) + " has dtype " + std::string(dtype_name(static_cast<DType>(t.dtype))) + ", expected " +
           (patterns_[i].dtypes == kAny ? "a dtype of abi/base.h" : dtypes_text(patterns_[i].dtypes)));
    }
    if (t.ndim < 0 || t.ndim > AA_MAX_DIMS) [[unlikely]]
      fail(quoted(i) + " has " + std::to_string(t.ndim) + " dimensions, expected 0 to " + std::to_string(AA_MAX_DIMS));
    const bool written = schema_.tensors[i].role != Role::In;
    for (int d = 0; d < t.ndim; ++d) {
      if (t.shape[d] < 0) [[unlikely]]
        fail(quoted(i) + " has the negative size " + std::to_string(t.shape[d]));
      if (written && t.shape[d] > 1 && t.strides[d] <= 0) [[unlikely]]
        fail(quoted(i) + " is written, but its stride in the " + position_text(d, t.ndim) + " dimension is " +
             std::to_string(t.strides[d]) + "; expected a positive one");
    }
    check_shape(i);
  }

  void check_shape(uint32_t i) {
    const aa_tensor& t = call_.tensors[i];
    const char* pattern = patterns_[i].shape;
    int d = 0;
    if (*pattern == '.') {
      ++pattern;
      int trailing = 0;
      while (pattern[trailing]) ++trailing;
      const int lead = t.ndim - trailing;
      if (lead < 0) [[unlikely]]
        fail_shape(i, -1);
      if (bindings_.lead_tensor < 0) {
        bindings_.lead_tensor = static_cast<int8_t>(i);
        bindings_.lead_ndim = lead;
      } else {
        if (lead != bindings_.lead_ndim) [[unlikely]]
          fail_shape(i, -1);
        for (int l = 0; l < lead; ++l) {
          if (t.shape[l] != call_.tensors[bindings_.lead_tensor].shape[l]) [[unlikely]]
            fail_shape(i, l);
        }
      }
      d = lead;
    }
    for (; *pattern; ++pattern, ++d) {
      if (d >= t.ndim) [[unlikely]]
        fail_shape(i, -1);
      const char letter = *pattern;
      if (letter >= '0' && letter <= '9') {
        if (t.shape[d] != letter - '0') [[unlikely]]
          fail_shape(i, -1);
      } else if (!bindings_.has(letter)) {
        bindings_.bind(letter, t.shape[d], static_cast<int>(i), d);
      } else if (t.shape[d] != bindings_[letter]) [[unlikely]] {
        fail_shape(i, d);
      }
    }
    if (d != t.ndim) [[unlikely]]
      fail_shape(i, -1);
  }

  // `wrong` is the first dimension that does not match an earlier tensor; -1 when the rank or a fixed size is wrong.
  [[noreturn]] void fail_shape(uint32_t i, int wrong) const {
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

  const OpSchema& schema_;
  const Pattern* patterns_;
  const aa_op_call& call_;
  Bindings bindings_;
};

void check_activation(const Checker& c) {
  const int kind = c.params<aa_activation_params>().kind;
  c.require(kind >= AA_ACTIVATION_SILU && kind <= AA_ACTIVATION_TANH, "kind", kind, "an aa_activation, 0 to 5");
}

void check_norm(const Checker& c) {
  const float eps = c.params<aa_norm_params>().eps;
  c.require(eps >= 0 && std::isfinite(eps), "eps", eps, "a finite number, at least 0");
}

void check_rope(const Checker& c) {
  const int interleaved = c.params<aa_rope_params>().interleaved;
  c.require(interleaved == 0 || interleaved == 1, "interleaved", interleaved, "0 or 1");
  if (2 * c.size('R') > c.size('D')) [[unlikely]] {
    c.fail("tensor \"cos\" has shape " + shape_text(c.tensor(2)) + ", but 2 * " + std::to_string(c.size('R')) +
           " rotated elements do not fit in heads of size D = " + std::to_string(c.size('D')) + " of \"q\"");
  }
}

void check_attention(const Checker& c) {
  const auto& p = c.params<aa_attention_params>();
  c.require(std::isfinite(p.scale), "scale", p.scale, "a finite number");
  c.require(p.window >= 0, "window", p.window, "at least 0");
  c.require(p.softcap >= 0 && std::isfinite(p.softcap), "softcap", p.softcap, "a finite number, at least 0");
  const int64_t hq = c.size('q');
  const int64_t hk = c.size('k');
  if (hk == 0 ? hq != 0 : hq % hk != 0) [[unlikely]] {
    c.fail("tensor \"q\" has Hq = " + std::to_string(hq) + " heads, expected a multiple of Hk = " + std::to_string(hk) +
           ", the second dimension of \"k_cache\"");
  }
}

void check_softmax(const Checker& c) {
  const float scale = c.params<aa_softmax_params>().scale;
  c.require(std::isfinite(scale), "scale", scale, "a finite number");
}

void check_vocabulary(const Checker& c) {
  if (c.size('V') == 0 && c.size('R') != 0) [[unlikely]]
    c.fail(c.quoted(1) + " has shape " + shape_text(c.tensor(1)) + ", expected at least one column to choose from");
}

void check_repetition(const Checker& c) {
  const float penalty = c.params<aa_repetition_params>().penalty;
  c.require(penalty > 0 && std::isfinite(penalty), "penalty", penalty, "a finite number above 0");
}

void check_sample(const Checker& c) {
  check_vocabulary(c);
  const auto& p = c.params<aa_sample_params>();
  c.require(p.temperature >= 0 && std::isfinite(p.temperature), "temperature", p.temperature,
            "a finite number, at least 0");
  c.require(p.top_k >= 0, "top_k", p.top_k, "at least 0");
  c.require(p.top_p > 0 && p.top_p <= 1, "top_p", p.top_p, "a number above 0, at most 1");
}

void check_random(const Checker& c) {
  const auto& p = c.params<aa_random_params>();
  c.require(p.kind >= AA_RANDOM_BITS && p.kind <= AA_RANDOM_NORMAL, "kind", p.kind, "an aa_random_kind, 0 to 2");
  if (p.kind == AA_RANDOM_BITS) {
    if (!((kInteger >> c.tensor(0).dtype) & 1u)) [[unlikely]]
      c.fail(c.quoted(0) + " has dtype " + std::string(dtype_name(static_cast<DType>(c.tensor(0).dtype))) +
             ", expected " + dtypes_text(kInteger) + " for random bits");
    return;
  }
  c.require(std::isfinite(p.low), "low", p.low, "a finite number");
  c.require(std::isfinite(p.high), "high", p.high, "a finite number");
}

using Extra = void (*)(const Checker&);

struct Row {
  TensorSchema schema;
  Pattern pattern;
};

constexpr Role Out = Role::Out;
constexpr Role In = Role::In;
constexpr Role InOut = Role::InOut;
constexpr bool kOptional = true;

constexpr Row kEmbedding[] = {
    {{"out", Out, false}, {kFloat, "TH"}}, {{"table", In, false}, {kFloat, "VH"}}, {{"ids", In, false}, {kIndex, "T"}}};
constexpr Row kRmsNorm[] = {{{"out", Out, false}, {kFloat, ".H"}},
                            {{"x", In, false}, {kFloat, ".H"}},
                            {{"weight", In, kOptional}, {kFloat, "H"}},
                            {{"residual", InOut, kOptional}, {kFloat, ".H"}}};
constexpr Row kLayerNorm[] = {{{"out", Out, false}, {kFloat, ".H"}},
                              {{"x", In, false}, {kFloat, ".H"}},
                              {{"weight", In, kOptional}, {kFloat, "H"}},
                              {{"bias", In, kOptional}, {kFloat, "H"}},
                              {{"residual", InOut, kOptional}, {kFloat, ".H"}}};
constexpr Row kLinear[] = {{{"out", Out, false}, {kFloat, "MN"}},
                           {{"x", In, false}, {kFloat, "MK"}},
                           {{"w", In, false}, {kFloat, "NK"}},
                           {{"bias", In, kOptional}, {kFloat, "N"}},
                           {{"residual", In, kOptional}, {kFloat, "MN"}}};
constexpr Row kLinearMulti[] = {
    {{"x", In, false}, {kFloat, "MK"}},        {{"out0", Out, false}, {kFloat, "Ma"}},
    {{"w0", In, false}, {kFloat, "aK"}},       {{"bias0", In, kOptional}, {kFloat, "a"}},
    {{"out1", Out, false}, {kFloat, "Mb"}},    {{"w1", In, false}, {kFloat, "bK"}},
    {{"bias1", In, kOptional}, {kFloat, "b"}}, {{"out2", Out, false}, {kFloat, "Mc"}},
    {{"w2", In, false}, {kFloat, "cK"}},       {{"bias2", In, kOptional}, {kFloat, "c"}},
    {{"out3", Out, false}, {kFloat, "Md"}},    {{"w3", In, false}, {kFloat, "dK"}},
    {{"bias3", In, kOptional}, {kFloat, "d"}},
};
constexpr Row kGatedLinear[] = {
    {{"out", Out, false}, {kFloat, "MN"}},         {{"x", In, false}, {kFloat, "MK"}},
    {{"w_gate", In, false}, {kFloat, "NK"}},       {{"w_up", In, false}, {kFloat, "NK"}},
    {{"bias_gate", In, kOptional}, {kFloat, "N"}}, {{"bias_up", In, kOptional}, {kFloat, "N"}}};
constexpr Row kRopeTable[] = {{{"cos", Out, false}, {kF32, "TR"}},
                              {{"sin", Out, false}, {kF32, "TR"}},
                              {{"inv_freq", In, false}, {kF32, "R"}},
                              {{"positions", In, false}, {kI32, "T"}}};
constexpr Row kRope[] = {{{"q", InOut, false}, {kFloat, "TqD"}},
                         {{"k", InOut, kOptional}, {kFloat, "TkD"}},
                         {{"cos", In, false}, {kF32, "TR"}},
                         {{"sin", In, false}, {kF32, "TR"}}};
constexpr Row kCacheWrite[] = {
    {{"k_cache", InOut, false}, {kFloat, "BkSD"}}, {{"v_cache", InOut, false}, {kFloat, "BkSD"}},
    {{"k", In, false}, {kFloat, "TkD"}},           {{"v", In, false}, {kFloat, "TkD"}},
    {{"sequence", In, false}, {kI32, "T"}},        {{"positions", In, false}, {kI32, "T"}}};
constexpr Row kAttention[] = {{{"out", Out, false}, {kFloat, "TqD"}},     {{"q", In, false}, {kFloat, "TqD"}},
                              {{"k_cache", In, false}, {kFloat, "BkSD"}}, {{"v_cache", In, false}, {kFloat, "BkSD"}},
                              {{"sequence", In, false}, {kI32, "T"}},     {{"positions", In, false}, {kI32, "T"}}};
constexpr Row kActivation[] = {{{"out", Out, false}, {kFloat, "."}}, {{"x", In, false}, {kFloat, "."}}};
constexpr Row kGatedActivation[] = {
    {{"out", Out, false}, {kFloat, "."}}, {{"gate", In, false}, {kFloat, "."}}, {{"up", In, false}, {kFloat, "."}}};
constexpr Row kSoftmax[] = {{{"out", Out, false}, {kFloat, ".V"}}, {{"x", In, false}, {kFloat, ".V"}}};
constexpr Row kAdd[] = {
    {{"out", Out, false}, {kFloat, "."}}, {{"a", In, false}, {kFloat, "."}}, {{"b", In, false}, {kFloat, "."}}};
constexpr Row kCopy[] = {{{"out", Out, false}, {kAny, "."}}, {{"x", In, false}, {kAny, "."}}};
constexpr Row kIncrement[] = {{{"x", InOut, false}, {kIndex, "."}}};
constexpr Row kArgmax[] = {{{"out", Out, false}, {kIndex, "R"}}, {{"x", In, false}, {kFloat, "RV"}}};
constexpr Row kRepetitionPenalty[] = {{{"logits", InOut, false}, {kFloat, "RV"}}, {{"seen", In, false}, {kU8, "RV"}}};
constexpr Row kSample[] = {{{"out", Out, false}, {kIndex, "R"}},
                           {{"logits", In, false}, {kFloat, "RV"}},
                           {{"rng", In, false}, {kI64, "2"}},
                           {{"seen", InOut, kOptional}, {kU8, "RV"}}};
constexpr Row kRandom[] = {{{"out", Out, false}, {kAny, "."}}};

// The columns of a table of rows as the arrays that OpSchema and Checker want.
template <const auto& rows>
struct Columns {
  static constexpr size_t kCount = std::size(rows);
  static constexpr auto kTensors = [] {
    std::array<TensorSchema, kCount> tensors{};
    for (size_t i = 0; i < kCount; ++i) tensors[i] = rows[i].schema;
    return tensors;
  }();
  static constexpr auto kPatterns = [] {
    std::array<Pattern, kCount> patterns{};
    for (size_t i = 0; i < kCount; ++i) patterns[i] = rows[i].pattern;
    return patterns;
  }();
};

extern const std::array<OpSchema, 20> kSchemas;

template <size_t index, const auto& rows, Extra extra>
void check(const aa_op_call& call) {
  // Inputs before outputs, so that messages speak of what the caller passed in: "to match the last dimension of "x"".
  static constexpr auto kOrder = [] {
    std::array<char, std::size(rows) + 1> order{};
    size_t n = 0;
    for (Role role : {In, InOut, Out}) {
      for (size_t i = 0; i < std::size(rows); ++i) {
        if (rows[i].schema.role == role) order[n++] = static_cast<char>('0' + i);
      }
    }
    return order;
  }();
  Checker checker(kSchemas[index], Columns<rows>::kPatterns.data(), call);
  // A call of "linear_multi" may be shorter than its table, and rope's heads are better told by "q" than by "cos".
  constexpr bool in_table_order = &rows[0] == &kLinearMulti[0] || &rows[0] == &kRope[0];
  checker.run(in_table_order ? nullptr : kOrder.data());
  if constexpr (extra != nullptr) extra(checker);
}

template <size_t index, const auto& rows, class Params, Extra extra>
constexpr OpSchema schema(std::string_view name, uint32_t min_tensors = static_cast<uint32_t>(std::size(rows))) {
  uint32_t params_size = 0;
  if constexpr (!std::is_void_v<Params>) params_size = sizeof(Params);
  return {name, Columns<rows>::kTensors, min_tensors, params_size, &check<index, rows, extra>};
}

constexpr const std::array<OpSchema, 20> kSchemas = {
    schema<0, kEmbedding, void, nullptr>("embedding"),
    schema<1, kRmsNorm, aa_norm_params, check_norm>("rms_norm"),
    schema<2, kLayerNorm, aa_norm_params, check_norm>("layer_norm"),
    schema<3, kLinear, void, nullptr>("linear"),
    schema<4, kLinearMulti, void, nullptr>("linear_multi", 4),
    schema<5, kGatedLinear, aa_activation_params, check_activation>("gated_linear"),
    schema<6, kRopeTable, aa_rope_table_params, nullptr>("rope_table"),
    schema<7, kRope, aa_rope_params, check_rope>("rope"),
    schema<8, kCacheWrite, void, nullptr>("cache_write"),
    schema<9, kAttention, aa_attention_params, check_attention>("attention"),
    schema<10, kActivation, aa_activation_params, check_activation>("activation"),
    schema<11, kGatedActivation, aa_activation_params, check_activation>("gated_activation"),
    schema<12, kSoftmax, aa_softmax_params, check_softmax>("softmax"),
    schema<13, kAdd, void, nullptr>("add"),
    schema<14, kCopy, void, nullptr>("copy"),
    schema<15, kIncrement, aa_increment_params, nullptr>("increment"),
    schema<16, kArgmax, void, check_vocabulary>("argmax"),
    schema<17, kRepetitionPenalty, aa_repetition_params, check_repetition>("repetition_penalty"),
    schema<18, kSample, aa_sample_params, check_sample>("sample"),
    schema<19, kRandom, aa_random_params, check_random>("random"),
};

}  // namespace

std::span<const OpSchema> op_schemas() { return kSchemas; }

const OpSchema* find_op_schema(std::string_view name) {
  for (const OpSchema& schema : kSchemas) {
    if (schema.name == name) return &schema;
  }
  return nullptr;
}

}  // namespace anyaccel::ops
