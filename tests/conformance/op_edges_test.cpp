// The cases of the edges of ops notice what they are there for: the CPU driver passes, and the same driver whose op handles an
// edge wrongly fails the case of that op. Special values and sizes are those of the ops of training, tensors without elements of all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "accelerators/cpu/cpu_driver.h"
#include "anyaccel/abi/ops.h"
#include "conformance/number_formats.h"
#include "conformance/op_roles.h"
#include "conformance/suite.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"
#include "runtime/ops/op_list.h"

namespace anyaccel {
namespace {

using conformance::Outcome;
using Tensors = std::vector<aa_tensor>;

struct Call {
  std::string op;
  Tensors tensors;
  std::vector<unsigned char> params;
};
// Runs a call of the right driver, and waits for it.
using Run = std::function<aa_status*(const Call&)>;
// What a wrong driver does instead.
using Breakage = aa_status* (*)(Call call, const Run& run);

const abi::DriverCalls* good = nullptr;
abi::Calls<aa_ops_table> good_ops;
aa_ops_table ops;
aa_instance* the_instance = nullptr;
std::string broken_op;
Breakage breakage = nullptr;
// True for a call that a wrong driver says that it does not support.
using Refusal = bool (*)(const Tensors& tensors);
Refusal refusal = nullptr;

aa_status* supports(void*, aa_device* device, const aa_op_call* given, int32_t* out_supported) {
  int32_t number = -1;
  release_status(good_ops.find(the_instance, broken_op.c_str(), &number));
  if (given->op == number && refusal({given->tensors, given->tensors + given->tensor_count})) {
    *out_supported = 0;
    return nullptr;
  }
  return good_ops.supports(device, given, out_supported);
}

aa_status* enqueue(void*, aa_stream* stream, const aa_op_call* given, int32_t* out_taken) {
  int32_t number = -1;
  release_status(good_ops.find(the_instance, broken_op.c_str(), &number));
  if (given->op != number) return good_ops.enqueue(stream, given, out_taken);
  *out_taken = 1;
  const auto* params = static_cast<const unsigned char*>(given->params);
  const Call call{
      broken_op, {given->tensors, given->tensors + given->tensor_count}, {params, params + given->params_size}};
  return breakage(call, [&](const Call& changed) {
    aa_op_call again = *given;
    again.tensors = changed.tensors.data();
    again.params = changed.params.data();
    aa_status* status = good_ops.enqueue(stream, &again, out_taken);
    return status ? status : good->stream_synchronize(stream);
  });
}

aa_status* query_extension(void*, aa_instance* instance, const char* name, uint32_t version, const void** table) {
  aa_status* status = good->query_extension(instance, name, version, table);
  if (status || std::strcmp(name, AA_OPS_EXTENSION) != 0) return status;
  the_instance = instance;
  ops = *static_cast<const aa_ops_table*>(*table);
  good_ops = abi::calls(ops);
  if (breakage) ops.enqueue = enqueue;
  if (refusal) ops.supports = supports;
  *table = &ops;
  return nullptr;
}

std::vector<conformance::CaseResult> run(const std::string& filter) {
  good = complete_table(anyaccel_cpu_driver_query(AA_ABI_VERSION(AA_ABI_MAJOR, 0), AA_ABI_CURRENT, host_services()),
                        "built in");
  abi::DriverCalls driver = *good;
  driver.aa_driver::query_extension = query_extension;
  return conformance::run_conformance(&driver, host_services(), filter, {}, {.in_process = true}).cases;
}

// ---- what is wrong ----

bool is_float(const aa_tensor& tensor) {
  return tensor.dtype == AA_DTYPE_F32 || tensor.dtype == AA_DTYPE_BF16 || tensor.dtype == AA_DTYPE_F16;
}

bool is_empty(const aa_tensor& tensor) {
  return tensor.dtype != AA_DTYPE_NONE &&
         std::any_of(tensor.shape, tensor.shape + tensor.ndim, [](int64_t size) { return size == 0; });
}

// The elements of a tensor, one after the other.
std::vector<unsigned char*> elements_of(const aa_tensor& tensor) {
  std::vector<unsigned char*> found;
  int64_t count = 1;
  for (int32_t d = 0; d < tensor.ndim; ++d) count *= tensor.shape[d];
  const int64_t size = conformance::dtype_size(tensor.dtype);
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0;
    int64_t rest = i;
    for (int32_t d = tensor.ndim; d-- > 0; rest /= tensor.shape[d]) {
      offset += rest % tensor.shape[d] * tensor.strides[d];
    }
    found.push_back(static_cast<unsigned char*>(tensor.data) + offset * size);
  }
  return found;
}

// Runs the call with other values in place of some of its inputs' numbers.
aa_status* with_inputs(const Call& call, const Run& run, const std::function<double(double, int32_t dtype)>& instead) {
  std::vector<std::pair<unsigned char*, std::vector<unsigned char>>> before;
  const auto roles = conformance::roles_of(call.op);
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    const aa_tensor& tensor = call.tensors[i];
    if (roles[i].written || !is_float(tensor)) continue;
    const auto size = static_cast<size_t>(conformance::dtype_size(tensor.dtype));
    for (unsigned char* element : elements_of(tensor)) {
      const double value = conformance::load(element, tensor.dtype);
      if (std::isfinite(value)) continue;
      before.emplace_back(element, std::vector<unsigned char>(element, element + size));
      conformance::store(element, tensor.dtype, instead(value, tensor.dtype));
    }
  }
  aa_status* status = run(call);
  for (const auto& [element, bytes] : before) std::memcpy(element, bytes.data(), bytes.size());
  return status;
}

aa_status* takes_nan_for_zero(Call call, const Run& run) {
  return with_inputs(call, run, [](double value, int32_t) { return std::isnan(value) ? 0 : value; });
}

aa_status* takes_infinity_for_a_number(Call call, const Run& run) {
  return with_inputs(call, run, [](double value, int32_t dtype) {
    return std::isnan(value) ? value : std::copysign(dtype == AA_DTYPE_F16 ? 10000 : 1e37, value);
  });
}

aa_status* gives_zero_for_nan(Call call, const Run& run) {
  aa_status* status = run(call);
  const auto roles = conformance::roles_of(call.op);
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    const aa_tensor& tensor = call.tensors[i];
    if (!roles[i].written || !is_float(tensor)) continue;
    for (unsigned char* element : elements_of(tensor)) {
      if (std::isnan(conformance::load(element, tensor.dtype))) conformance::store(element, tensor.dtype, 0);
    }
  }
  return status;
}

// Rows are counted with 16 bits. Also those of sums over rows.
aa_status* forgets_rows_from_65535(Call call, const Run& run) {
  for (aa_tensor& tensor : call.tensors) {
    if (tensor.dtype != AA_DTYPE_NONE && tensor.shape[0] == 65537) tensor.shape[0] = 65535;
  }
  return run(call);
}

// The tensors of a call with as many columns as its widest one have only as many as `kept` says.
aa_status* with_columns(Call call, const Run& run, int64_t (*kept)(int64_t columns)) {
  int64_t columns = 0;
  for (const aa_tensor& tensor : call.tensors) {
    if (tensor.dtype != AA_DTYPE_NONE && tensor.ndim > 1) columns = std::max(columns, tensor.shape[tensor.ndim - 1]);
  }
  for (aa_tensor& tensor : call.tensors) {
    if (tensor.dtype == AA_DTYPE_NONE || tensor.shape[tensor.ndim - 1] != columns) continue;
    tensor.shape[tensor.ndim - 1] = kept(columns);
  }
  return run(call);
}

aa_status* forgets_columns_from_65535(Call call, const Run& run) {
  return with_columns(std::move(call), run, [](int64_t columns) { return std::min<int64_t>(columns, 65535); });
}

aa_status* forgets_the_rest_of_eights(Call call, const Run& run) {
  return with_columns(std::move(call), run, [](int64_t columns) { return columns > 8 ? columns / 8 * 8 : columns; });
}

aa_status* ignores_gaps(Call call, const Run& run) {
  for (aa_tensor& tensor : call.tensors) {
    int64_t step = 1;
    for (int32_t d = tensor.ndim; d-- > 0; step *= tensor.shape[d]) tensor.strides[d] = step;
  }
  return run(call);
}

aa_status* refuses_nothing_to_do(Call call, const Run& run) {
  if (std::ranges::any_of(call.tensors, is_empty)) return make_status(AA_INVALID_ARGUMENT, "there is nothing to do");
  return run(call);
}

aa_status* refuses_tensors_without_memory(Call call, const Run& run) {
  if (std::ranges::any_of(call.tensors, [](const aa_tensor& tensor) { return is_empty(tensor) && !tensor.data; })) {
    return make_status(AA_INVALID_ARGUMENT, "a tensor has no memory");
  }
  return run(call);
}

// As if nothing to read meant nothing to write.
aa_status* skips_sums_of_nothing(Call call, const Run& run) {
  return std::ranges::any_of(call.tensors, is_empty) ? nullptr : run(call);
}

// A kernel without a test of its index: an element after the end of each output is written.
aa_status* writes_one_element_of_nothing(Call call, const Run& run) {
  aa_status* status = run(call);
  const auto roles = conformance::roles_of(call.op);
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    const aa_tensor& tensor = call.tensors[i];
    if (roles[i].written && is_empty(tensor) && tensor.data)
      std::memset(tensor.data, 0, static_cast<size_t>(conformance::dtype_size(tensor.dtype)));
  }
  return status;
}

aa_status* always_adds(Call call, const Run& run) {
  aa_accumulate_params params{};
  std::memcpy(&params, call.params.data(), sizeof(params));
  params.accumulate = 1;
  std::memcpy(call.params.data(), &params, sizeof(params));
  return run(call);
}

// As if tiles of rows summed in another order: the last bit of the first element of each output, where there are several rows.
aa_status* depends_on_the_number_of_rows(Call call, const Run& run) {
  aa_status* status = run(call);
  const auto roles = conformance::roles_of(call.op);
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    const aa_tensor& tensor = call.tensors[i];
    if (roles[i].written && tensor.shape[0] > 1) *static_cast<unsigned char*>(tensor.data) ^= 1;
  }
  return status;
}

// As if the last rows that do not fill a tile went another way.
aa_status* depends_on_the_place_of_a_row(Call call, const Run& run) {
  aa_status* status = run(call);
  const auto roles = conformance::roles_of(call.op);
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    const aa_tensor& tensor = call.tensors[i];
    if (!roles[i].written || tensor.shape[0] % 8 == 0) continue;
    *(static_cast<unsigned char*>(tensor.data) +
      (tensor.shape[0] - 1) * tensor.strides[0] * conformance::dtype_size(tensor.dtype)) ^= 1;
  }
  return status;
}

// Flips a bit of the first element of each output.
aa_status* spoil(Call call, const Run& run) {
  aa_status* status = run(call);
  const auto roles = conformance::roles_of(call.op);
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    if (roles[i].written) *static_cast<unsigned char*>(call.tensors[i].data) ^= 1;
  }
  return status;
}

// Flips a bit of what token `token` of a call of "cache_write" or "quantized_cache_write" has written in its first head.
void spoil_slot(const Call& call, int64_t token) {
  const auto number = [&](const aa_tensor& of) {
    int32_t found = 0;
    std::memcpy(&found, elements_of(of)[static_cast<size_t>(token)], sizeof(found));
    return int64_t{found};
  };
  for (size_t i = 0; i < 2; ++i) {
    const aa_tensor& cache = call.tensors[i];
    *(static_cast<unsigned char*>(cache.data) +
      (number(call.tensors[4]) * cache.strides[0] + number(call.tensors[5]) * cache.strides[2]) *
          conformance::dtype_size(cache.dtype)) ^= 1;
  }
}

// As if several tokens were rounded another way than one.
aa_status* depends_on_the_number_of_tokens(Call call, const Run& run) {
  aa_status* status = run(call);
  if (call.tensors[2].shape[0] > 1) spoil_slot(call, 0);
  return status;
}

// As if the last tokens that do not fill a tile went another way.
aa_status* depends_on_the_place_of_a_token(Call call, const Run& run) {
  aa_status* status = run(call);
  const int64_t tokens = call.tensors[2].shape[0];
  if (tokens % 8 != 0) spoil_slot(call, tokens - 1);
  return status;
}

// As if a block of 64 rows summed in another order than the rest.
aa_status* depends_on_a_block_of_rows(Call call, const Run& run) {
  return call.tensors[0].shape[0] > 64 ? spoil(std::move(call), run) : run(call);
}

// As if sums began at a boundary of 64 bytes.
aa_status* depends_on_where_the_logits_lie(Call call, const Run& run) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(call.tensors[1].data) % 64 == 0;
  return is_aligned ? run(call) : spoil(std::move(call), run);
}

// As if what an earlier call left behind were used.
aa_status* depends_on_the_call_before(Call call, const Run& run) {
  static bool odd = false;
  odd = !odd;
  return odd ? run(call) : spoil(std::move(call), run);
}

// As if long sums were cut where there are several rows.
aa_status* cuts_long_sums_of_several_rows(Call call, const Run& run) {
  const bool is_long = std::ranges::any_of(call.tensors, [](const aa_tensor& tensor) {
    return tensor.dtype != AA_DTYPE_NONE && tensor.shape[tensor.ndim - 1] >= 2048;
  });
  return is_long && call.tensors[0].shape[0] > 1 ? spoil(std::move(call), run) : run(call);
}

aa_status* gives_zeros(Call call, const Run& run) {
  aa_status* status = run(call);
  const auto roles = conformance::roles_of(call.op);
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    if (!roles[i].written || !is_float(call.tensors[i])) continue;
    for (unsigned char* element : elements_of(call.tensors[i])) conformance::store(element, call.tensors[i].dtype, 0);
  }
  return status;
}

bool has_no_data(const aa_tensor& tensor) { return tensor.dtype != AA_DTYPE_NONE && !tensor.data; }

bool lacks_any_data(const Tensors& tensors) { return std::ranges::any_of(tensors, has_no_data); }

// Not where all tensors lack it.
bool lacks_data_of_an_empty_tensor(const Tensors& tensors) {
  return std::ranges::any_of(tensors, [](const aa_tensor& tensor) { return tensor.data != nullptr; }) &&
         std::ranges::any_of(tensors, [](const aa_tensor& tensor) { return is_empty(tensor) && has_no_data(tensor); });
}

struct Break {
  const char* name;
  Breakage breakage;
  const char* noticed_by;
  std::vector<const char*> ops;
  Refusal refusal = nullptr;
};

const std::vector<const char*> all = {"softmax_masked",     "softmax_backward",          "norm_backward",
                                      "layer_norm_inverse", "activation_backward",       "dropout",
                                      "apply_mask",         "gated_activation_backward", "column_sums",
                                      "cross_entropy",      "embedding_backward"};
std::vector<const char*> all_and(std::vector<const char*> others) {
  others.insert(others.end(), all.begin(), all.end());
  return others;
}
std::vector<const char*> every_op() { return {op_names.begin(), op_names.begin() + plain_op_count}; }
const std::vector<const char*> by_row = {"linear_by_row",       "linear_multi_by_row",
                                         "gated_linear_by_row", "quantized_linear_by_row",
                                         "attention_by_row",    "quantized_attention_by_row"};
// Those and the ops of which a driver that has them promises the same.
std::vector<const char*> by_row_and_promised() {
  std::vector<const char*> ops = {
      "rms_norm",         "layer_norm",       "rope_table", "rope",       "embedding", "quantized_embedding",
      "activation",       "gated_activation", "add",        "scaled_add", "argmax",    "repetition_penalty",
      "frequency_penalty"};
  ops.insert(ops.end(), by_row.begin(), by_row.end());
  return ops;
}
// norm_backward has no infinities but in variances, whose inverse is 0 also for a large number.
std::vector<const char*> all_without_norms() {
  std::vector<const char*> rest = all;
  std::erase_if(rest, [](const char* op) { return std::strcmp(op, "norm_backward") == 0; });
  return rest;
}

const Break breaks[] = {
    {"NanIsZero", takes_nan_for_zero, "special_values", all},
    {"InfinityIsANumber", takes_infinity_for_a_number, "special_values", all_without_norms()},
    {"ResultsAreNumbers", gives_zero_for_nan, "special_values", all},
    {"RowsAreCountedIn16Bits", forgets_rows_from_65535, "every_size", all_and({"moments"})},
    {"ColumnsAreCountedIn16Bits", forgets_columns_from_65535, "every_size", all_and({"moments"})},
    {"TheRestOfAVectorIsForgotten", forgets_the_rest_of_eights, "every_size", all_and({"moments"})},
    {"GapsAreIgnored", ignores_gaps, "special_values.padded", all},
    {"NothingToDoIsRefused", refuses_nothing_to_do, "no_rows", every_op()},
    {"TensorsNeedMemory", refuses_tensors_without_memory, "no_rows.null", every_op()},
    {"ShapesWithoutDataAreNotSupported", nullptr, "no_rows", {"add", "linear", "softmax"}, lacks_any_data},
    {"EmptyTensorsWithoutDataAreNotSupported",
     nullptr,
     "no_rows.null",
     {"rms_norm", "linear", "column_sums"},
     lacks_data_of_an_empty_tensor},
    {"AnElementOfNothingIsWritten", writes_one_element_of_nothing, "no_rows", every_op()},
    {"SumsOfNothingAreSkipped",
     skips_sums_of_nothing,
     "no_rows",
     {"norm_backward", "column_sums", "linear", "linear_multi", "gated_linear", "quantized_linear", "matmul",
      "embedding_shard", "quantized_embedding_shard"}},
    {"AProductOfNothingIsSkipped", skips_sums_of_nothing, "adds_only_if_told_to", {"matmul"}},
    {"RowsDependOnTheirNumber", depends_on_the_number_of_rows, "does_not_depend_on_other_rows", by_row_and_promised()},
    {"RowsDependOnTheirPlace", depends_on_the_place_of_a_row, "does_not_depend_on_other_rows", by_row_and_promised()},
    {"TokensDependOnTheirNumber",
     depends_on_the_number_of_tokens,
     "does_not_depend_on_other_rows",
     {"cache_write", "quantized_cache_write"}},
    {"TokensDependOnTheirPlace",
     depends_on_the_place_of_a_token,
     "does_not_depend_on_other_rows",
     {"cache_write", "quantized_cache_write"}},
    {"TokensDependOnWhereLogitsLie",
     depends_on_where_the_logits_lie,
     "does_not_depend_on_the_place_of_a_row",
     {"sample"}},
    {"TokensDependOnEarlierCalls", depends_on_the_call_before, "does_not_depend_on_the_place_of_a_row", {"sample"}},
    {"RowsDependOnBlocks",
     depends_on_a_block_of_rows,
     "does_not_depend_on_other_rows",
     {"linear_by_row", "linear_multi_by_row", "gated_linear_by_row", "quantized_linear_by_row"}},
    {"LongSumsAreCut",
     cuts_long_sums_of_several_rows,
     "does_not_depend_on_other_rows",
     {"linear_by_row", "linear_multi_by_row", "gated_linear_by_row", "quantized_linear_by_row"}},
    {"RowsAreZeros", gives_zeros, "does_not_depend_on_other_rows", by_row},
    {"SumsAreAlwaysAdded", always_adds, "special_values", {"norm_backward", "column_sums"}},
    {"ProductsAreAlwaysAdded", always_adds, "adds_only_if_told_to", {"matmul"}},
};

struct Row {
  const Break* what;
  const char* op;
};
std::vector<Row> rows() {
  std::vector<Row> rows;
  for (const Break& one : breaks) {
    for (const char* op : one.ops) rows.push_back({&one, op});
  }
  return rows;
}

class OpEdges : public ::testing::TestWithParam<Row> {
 protected:
  void TearDown() override {
    breakage = nullptr;
    refusal = nullptr;
  }
};

TEST_P(OpEdges, AreNoticed) {
  const auto& [what, op] = GetParam();
  const std::string name = std::string("op.") + op + "." + what->noticed_by;
  const auto outcome = [&] {
    for (const auto& result : run(name)) {
      if (result.group + "." + result.name == name) return std::pair(result.outcome, result.message);
    }
    return std::pair(Outcome::unavailable, "there is no case " + name);
  };
  const auto [right, why] = outcome();
  EXPECT_EQ(right, Outcome::pass) << why;
  broken_op = op;
  breakage = what->breakage;
  refusal = what->refusal;
  const auto [wrong, message] = outcome();
  EXPECT_EQ(wrong, Outcome::fail) << message;
}

INSTANTIATE_TEST_SUITE_P(All, OpEdges, ::testing::ValuesIn(rows()),
                         [](const auto& info) { return std::string(info.param.what->name) + "_" + info.param.op; });

}  // namespace
}  // namespace anyaccel
