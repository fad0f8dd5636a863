// The conformance suite notices broken drivers: the CPU driver passes, and the same driver with one function that does
// the wrong thing fails the case that is there for it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "accelerators/cpu/cpu_driver.h"
#include "anyaccel/abi/collectives.h"
#include "anyaccel/abi/graph.h"
#include "anyaccel/abi/host_memory.h"
#include "anyaccel/abi/ops.h"
#include "conformance/suite.h"
#include "runtime/driver/driver_table.h"
#include "runtime/driver/host_services.h"

namespace anyaccel {
namespace {

// The right functions, which the wrong ones call.
const abi::DriverCalls* good = nullptr;
abi::Calls<aa_ops_table> good_ops;
abi::Calls<aa_graph_table> good_graph;
abi::Calls<aa_host_memory_table> good_host_memory;
aa_host_memory_table bad_host_memory;
aa_ops_table bad_ops;
aa_graph_table bad_graph;
aa_instance* the_instance = nullptr;
pid_t first_process = 0;
void* first_block = nullptr;

aa_status* status_of(aa_code code, const char* message = "broken on purpose") {
  return host_services()->status_create(host_services(), code, 0, message, std::strlen(message));
}

aa_status* query_extension(void*, aa_instance* instance, const char* name, uint32_t version, const void** table) {
  the_instance = instance;
  aa_status* status = good->query_extension(instance, name, version, table);
  if (status) return status;
  if (std::strcmp(name, AA_OPS_EXTENSION) == 0) {
    good_ops = abi::calls(*static_cast<const aa_ops_table*>(*table));
    const auto enqueue = bad_ops.enqueue;
    bad_ops = good_ops;
    if (enqueue) bad_ops.enqueue = enqueue;
    *table = &bad_ops;
  } else if (std::strcmp(name, AA_GRAPH_EXTENSION) == 0) {
    good_graph = abi::calls(*static_cast<const aa_graph_table*>(*table));
    const aa_graph_table wrong = bad_graph;
    bad_graph = good_graph;
    if (wrong.launch) bad_graph.launch = wrong.launch;
    if (wrong.capture_end) bad_graph.capture_end = wrong.capture_end;
    *table = &bad_graph;
  } else if (std::strcmp(name, AA_HOST_MEMORY_EXTENSION) == 0) {
    good_host_memory = abi::calls(*static_cast<const aa_host_memory_table*>(*table));
    const aa_host_memory_table wrong = bad_host_memory;
    bad_host_memory = good_host_memory;
    if (wrong.register_range) bad_host_memory.register_range = wrong.register_range;
    if (wrong.unregister_range) bad_host_memory.unregister_range = wrong.unregister_range;
    *table = &bad_host_memory;
  }
  return nullptr;
}

bool is(const aa_op_call& call, const char* name) {
  int32_t op = -1;
  release_status(good_ops.find(the_instance, name, &op));
  return call.op == op;
}

// The call with one of its tensors made absent.
aa_status* without_tensor(aa_stream* stream, const aa_op_call* call, int32_t* taken, size_t tensor) {
  std::vector<aa_tensor> tensors(call->tensors, call->tensors + call->tensor_count);
  tensors[tensor] = aa_tensor{};
  aa_op_call other = *call;
  other.tensors = tensors.data();
  return good_ops.enqueue(stream, &other, taken);
}

// The call with other parameters.
template <class Params>
aa_status* with_params(aa_stream* stream, const aa_op_call* call, int32_t* taken, void (*change)(Params&)) {
  Params params = *static_cast<const Params*>(call->params);
  change(params);
  aa_op_call other = *call;
  other.params = &params;
  return good_ops.enqueue(stream, &other, taken);
}

struct Mutation {
  const char* name;
  const char* noticed_by;
  void (*apply)(aa_driver& driver);
};

// Forwards a call without the flags of its struct, as a driver does that never looks at them.
template <class Struct>
Struct without_flags(const Struct* what) {
  Struct known = *what;
  known.flags = 0;
  return known;
}

constexpr Mutation mutations[] = {
    {"CopyLooksAtNoFlags", "structs.unknown_flags_are_refused",
     [](aa_driver& d) {
       d.copy_async = [](void*, aa_stream* s, const aa_copy* what) {
         const aa_copy known = without_flags(what);
         return good->copy_async(s, &known);
       };
     }},
    {"FillLooksAtNoFlags", "structs.unknown_flags_are_refused",
     [](aa_driver& d) {
       d.fill_async = [](void*, aa_stream* s, const aa_fill* what) {
         const aa_fill known = without_flags(what);
         return good->fill_async(s, &known);
       };
     }},
    {"AllocLooksAtNoFlags", "structs.unknown_flags_are_refused",
     [](aa_driver& d) {
       d.mem_alloc = [](void*, aa_device* device, const aa_alloc* what, aa_allocation* out) {
         const aa_alloc known = without_flags(what);
         return good->mem_alloc(device, &known, out);
       };
     }},
    {"StreamsLookAtNoFlags", "structs.unknown_flags_are_refused",
     [](aa_driver& d) {
       d.stream_create = [](void*, aa_device* device, const aa_stream_params* params, aa_stream** out) {
         const aa_stream_params known = without_flags(params);
         return good->stream_create(device, &known, out);
       };
     }},
    {"EventsLookAtNoFlags", "structs.unknown_flags_are_refused",
     [](aa_driver& d) {
       d.event_create = [](void*, aa_device* device, const aa_event_params* params, aa_event** out) {
         const aa_event_params known = without_flags(params);
         return good->event_create(device, &known, out);
       };
     }},
    {"OpeningLooksAtNoFlags", "structs.opening_follows_the_same_rules",
     [](aa_driver& d) {
       d.device_open = [](void*, aa_instance* instance, const aa_device_open_params* params, aa_device** out) {
         const aa_device_open_params known = without_flags(params);
         return good->device_open(instance, &known, out);
       };
     }},
    {"RefusedCopiesWrite", "structs.unknown_flags_are_refused",
     [](aa_driver& d) {
       d.copy_async = [](void*, aa_stream* s, const aa_copy* what) {
         const aa_copy known = without_flags(what);
         aa_status* const copied = good->copy_async(s, &known);
         return copied || !what->flags ? copied : status_of(AA_UNIMPLEMENTED);
       };
     }},
    {"RangesAreRegisteredWithAnyFlags", "structs.unknown_flags_of_ranges_are_refused",
     [](aa_driver&) {
       bad_host_memory.register_range = [](void*, aa_device* device, const aa_register* what, aa_registration* out) {
         const aa_register known = without_flags(what);
         return good_host_memory.register_range(device, &known, out);
       };
     }},
    {"HintsAreRefused", "structs.unknown_hints_are_ignored",
     [](aa_driver& d) {
       d.fill_async = [](void*, aa_stream* s, const aa_fill* what) {
         return what->hints ? status_of(AA_UNIMPLEMENTED) : good->fill_async(s, what);
       };
     }},
    {"StructsHaveOneSize", "structs.longer_ones_are_accepted",
     [](aa_driver& d) {
       d.copy_async = [](void*, aa_stream* s, const aa_copy* what) {
         return what->struct_size != sizeof(*what) ? status_of(AA_INVALID_ARGUMENT) : good->copy_async(s, what);
       };
     }},
    {"AllocWritesTheWholeStruct", "structs.shorter_answers_fit",
     [](aa_driver& d) {
       d.mem_alloc = [](void*, aa_device* device, const aa_alloc* what, aa_allocation* out) {
         aa_status* const status = good->mem_alloc(device, what, out);
         if (!status) out->memory = nullptr;
         return status;
       };
     }},
    {"QueryWritesTheWholeStruct", "structs.shorter_answers_fit",
     [](aa_driver& d) {
       d.mem_query = [](void*, aa_instance* instance, const void* pointer, aa_memory_info* out) {
         aa_memory_info whole{};
         whole.struct_size = sizeof(whole);
         aa_status* const status = good->mem_query(instance, pointer, &whole);
         whole.struct_size = out->struct_size;
         if (!status) *out = whole;
         return status;
       };
     }},
    {"NothingCannotBeCopiedFromNull", "copies.nothing_to_copy_is_fine",
     [](aa_driver& d) {
       d.copy_async = [](void*, aa_stream* s, const aa_copy* what) {
         return what->source ? good->copy_async(s, what) : status_of(AA_INVALID_ARGUMENT);
       };
     }},
    {"PartsOfARangeAreRegistered", "host_memory.registering_twice_is_refused",
     [](aa_driver&) {
       bad_host_memory.register_range = [](void*, aa_device* device, const aa_register* what, aa_registration* out) {
         return what->size == 4096 ? static_cast<aa_status*>(nullptr)
                                   : good_host_memory.register_range(device, what, out);
       };
     }},
    {"UnregisteringForgetsNothing", "host_memory.registering_again_after_unregistering",
     [](aa_driver&) {
       bad_host_memory.unregister_range = [](void*, aa_device*, void*) { return static_cast<aa_status*>(nullptr); };
     }},
    {"SettingsHaveNoHelp", "settings.are_described",
     [](aa_driver& d) {
       static constexpr aa_option_info options[] = {{"depth", "", "3"}};
       d.options = options;
       d.option_count = 1;
     }},
    {"SettingsHaveCapitalLetters", "settings.are_described",
     [](aa_driver& d) {
       static constexpr aa_option_info options[] = {{"Depth", "how deep it goes", "3"}};
       d.options = options;
       d.option_count = 1;
     }},
    {"ASettingIsListedTwice", "settings.are_described",
     [](aa_driver& d) {
       static constexpr aa_option_info options[] = {{"depth", "how deep it goes", "3"}, {"depth", "how deep", "3"}};
       d.options = options;
       d.option_count = 2;
     }},
    {"CopyLosesTheLastByte", "copies.there_and_back",
     [](aa_driver& d) {
       d.copy_async = [](void*, aa_stream* s, const aa_copy* what) {
         const auto [to, from, size, direction] =
             std::tuple(what->destination, what->source, what->size, what->direction);
         return good->copy_async(s, to, from, size > 100000 ? size - 1 : size, direction);
       };
     }},
    {"CopyWritesWholeWords", "copies.at_any_offset",
     [](aa_driver& d) {
       d.copy_async = [](void*, aa_stream* s, const aa_copy* what) {
         const auto [to, from, size, direction] =
             std::tuple(what->destination, what->source, what->size, what->direction);
         if (size != 31 || direction != AA_COPY_HOST_TO_DEVICE) return good->copy_async(s, to, from, size, direction);
         char word[32] = {};
         std::memcpy(word, from, size);
         return good->copy_async(s, to, word, sizeof(word), direction);
       };
     }},
    {"CopyWithinTheDeviceIsLost", "copies.within_the_device_of_any_size",
     [](aa_driver& d) {
       d.copy_async = [](void*, aa_stream* s, const aa_copy* what) {
         const auto [to, from, size, direction] =
             std::tuple(what->destination, what->source, what->size, what->direction);
         return good->copy_async(s, to, from, direction == AA_COPY_DEVICE_TO_DEVICE && size == 3 ? 0 : size, direction);
       };
     }},
    {"FillRepeatsItsFirstByte", "fills.every_pattern",
     [](aa_driver& d) {
       d.fill_async = [](void*, aa_stream* s, const aa_fill* what) {
         return good->fill_async(s, what->destination, what->pattern, 1, what->size);
       };
     }},
    {"UnimplementedFillWrites", "fills.every_pattern",
     [](aa_driver& d) {
       d.fill_async = [](void*, aa_stream* s, const aa_fill* what) {
         aa_status* status = good->fill_async(s, what);
         return status ? status : status_of(AA_UNIMPLEMENTED);
       };
     }},
    {"UnimplementedEventsSpoilMemory", "events.never_recorded_is_complete",
     [](aa_driver& d) {
       d.mem_alloc = [](void*, aa_device* device, const aa_alloc* what, aa_allocation* out) {
         aa_status* status = good->mem_alloc(device, what, out);
         if (!status && !first_block) first_block = out->pointer;
         return status;
       };
       d.event_create = [](void*, aa_device*, const aa_event_params*, aa_event**) {
         if (first_block) static_cast<char*>(first_block)[7] ^= 1;
         return status_of(AA_UNIMPLEMENTED);
       };
     }},
    {"NoMemoryIsAnInternalError", "exhaustion.more_than_one_allocation_may_have",
     [](aa_driver& d) {
       d.mem_alloc = [](void*, aa_device* device, const aa_alloc* what, aa_allocation* out) {
         return what->size >> 50 ? status_of(AA_INTERNAL) : good->mem_alloc(device, what, out);
       };
     }},
    {"NoMemoryWritesAPointer", "memory.too_much_is_resource_exhausted",
     [](aa_driver& d) {
       d.mem_alloc = [](void*, aa_device* device, const aa_alloc* what, aa_allocation* out) {
         if (what->size >> 50) out->pointer = &the_instance;
         return good->mem_alloc(device, what, out);
       };
     }},
    {"ErrorWithoutMessage", "devices.refuses_bad_index",
     [](aa_driver& d) {
       d.device_open = [](void*, aa_instance* instance, const aa_device_open_params* params, aa_device** out) {
         return params->index < 0 ? status_of(AA_OUT_OF_RANGE, "") : good->device_open(instance, params, out);
       };
     }},
    {"KernelsFindMemoryElsewhere", "memory.query_finds_allocations",
     [](aa_driver& d) {
       d.mem_query = [](void*, aa_instance* instance, const void* pointer, aa_memory_info* out) {
         aa_status* status = good->mem_query(instance, pointer, out);
         out->device_address = out->base;
         return status;
       };
     }},
    {"KernelsFindRegisteredMemoryElsewhere", "host_memory.registered_ranges_have_an_address",
     [](aa_driver& d) {
       d.mem_query = [](void*, aa_instance* instance, const void* pointer, aa_memory_info* out) {
         aa_status* status = good->mem_query(instance, pointer, out);
         out->device_address = nullptr;
         return status;
       };
     }},
    {"QueryAnswersTwo", "streams.query_tells_completion",
     [](aa_driver& d) {
       d.stream_query = [](void*, aa_stream*, int32_t* out) {
         *out = 2;
         return static_cast<aa_status*>(nullptr);
       };
     }},
    {"HostCallRunsTwice", "streams.host_calls",
     [](aa_driver& d) {
       d.stream_host_call = [](void*, aa_stream* s, void (*function)(void*), void* user) {
         release_status(good->stream_host_call(s, function, user));
         return good->stream_host_call(s, function, user);
       };
     }},
    {"TimeRunsBackwards", "events.elapsed_time",
     [](aa_driver& d) {
       d.event_elapsed = [](void*, aa_event* start, aa_event* end, double* out) {
         aa_status* status = good->event_elapsed(start, end, out);
         if (!status) *out = -1 - *out;
         return status;
       };
     }},
    {"FlagClearButFunctionWorks", "streams.host_calls",
     [](aa_driver& d) {
       d.device_props = [](void*, aa_instance* instance, int32_t index, aa_device_props* out) {
         aa_status* status = good->device_props(instance, index, out);
         if (!status && out->struct_size >= sizeof(*out)) out->caps &= ~AA_CAP_HOST_CALL;
         return status;
       };
     }},
    {"ChildCrashes", "fork.child_of_an_open_driver",
     [](aa_driver& d) {
       d.initialize = [](void*, const aa_initialize_params* params, aa_instance** out) {
         if (getpid() != first_process) raise(SIGKILL);
         return good->initialize(params, out);
       };
     }},
    {"GraphRunsOnce", "graphs.records_and_replays",
     [](aa_driver&) {
       bad_graph.launch = [](void*, aa_graph* graph, aa_stream* stream) {
         static aa_graph* last = nullptr;
         if (graph == last) return static_cast<aa_status*>(nullptr);
         last = graph;
         return good_graph.launch(graph, stream);
       };
     }},
    {"AbandonedCaptureRuns", "graphs.abandoned_captures_leave_nothing",
     [](aa_driver&) {
       bad_graph.capture_end = [](void*, aa_stream* stream, aa_graph** out) {
         if (out) return good_graph.capture_end(stream, out);
         aa_graph* graph = nullptr;
         aa_status* status = good_graph.capture_end(stream, &graph);
         if (!status) status = good_graph.launch(graph, stream);
         release_status(good_graph.destroy(graph));
         return status;
       };
     }},
    {"RandomIgnoresItsOffset", "op.random.bits",
     [](aa_driver&) {
       bad_ops.enqueue = [](void*, aa_stream* stream, const aa_op_call* call, int32_t* taken) {
         if (!is(*call, "random")) return good_ops.enqueue(stream, call, taken);
         return with_params<aa_random_params>(stream, call, taken,
                                              [](aa_random_params& p) { p.offset &= 0xffffffffu; });
       };
     }},
    {"AddWritesBeyondItsOutput", "op.add.every_dtype",
     [](aa_driver&) {
       bad_ops.enqueue = [](void*, aa_stream* stream, const aa_op_call* call, int32_t* taken) {
         aa_status* status = good_ops.enqueue(stream, call, taken);
         const aa_tensor& out = call->tensors[0];
         if (out.dtype == AA_DTYPE_F32 && out.ndim == 1) static_cast<float*>(out.data)[out.shape[0]] = 0;
         return status;
       };
     }},
    {"LinearForgetsItsBias", "op.linear.products",
     [](aa_driver&) {
       bad_ops.enqueue = [](void*, aa_stream* stream, const aa_op_call* call, int32_t* taken) {
         return without_tensor(stream, call, taken, 3);
       };
     }},
    {"NormForgetsItsWeight", "op.rms_norm.norms_rows",
     [](aa_driver&) {
       bad_ops.enqueue = [](void*, aa_stream* stream, const aa_op_call* call, int32_t* taken) {
         return without_tensor(stream, call, taken, 2);
       };
     }},
    {"AttentionSeesOneSlotMore", "op.attention.sees_what_it_may",
     [](aa_driver&) {
       bad_ops.enqueue = [](void*, aa_stream* stream, const aa_op_call* call, int32_t* taken) {
         return with_params<aa_attention_params>(stream, call, taken,
                                                 [](aa_attention_params& p) { p.window += p.window > 0; });
       };
     }},
    {"AttentionForgetsItsSlopes", "op.attention.sees_what_it_may",
     [](aa_driver&) {
       bad_ops.enqueue = [](void*, aa_stream* stream, const aa_op_call* call, int32_t* taken) {
         return without_tensor(stream, call, taken, 6);
       };
     }},
    {"AttentionForgetsItsSinks", "op.attention.sees_what_it_may",
     [](aa_driver&) {
       bad_ops.enqueue = [](void*, aa_stream* stream, const aa_op_call* call, int32_t* taken) {
         return without_tensor(stream, call, taken, 7);
       };
     }},
    {"SoftmaxForgetsItsScale", "op.softmax.of_rows",
     [](aa_driver&) {
       bad_ops.enqueue = [](void*, aa_stream* stream, const aa_op_call* call, int32_t* taken) {
         return with_params<aa_softmax_params>(stream, call, taken, [](aa_softmax_params& p) { p.scale = 1; });
       };
     }},
    {"LinearMultiForgetsItsSecondBias", "op.linear_multi.one_to_four_weights",
     [](aa_driver&) {
       bad_ops.enqueue = [](void*, aa_stream* stream, const aa_op_call* call, int32_t* taken) {
         if (call->tensor_count < 7) return good_ops.enqueue(stream, call, taken);
         return without_tensor(stream, call, taken, 6);
       };
     }},
    {"AttentionSeesNoSlotFrom65536", "op.attention.of_many_slots_and_tokens",
     [](aa_driver&) {
       bad_ops.enqueue = [](void*, aa_stream* stream, const aa_op_call* call, int32_t* taken) {
         std::vector<aa_tensor> tensors(call->tensors, call->tensors + call->tensor_count);
         std::vector<int32_t> positions;
         for (int64_t t = 0; t < tensors[5].shape[0]; ++t) {
           positions.push_back(static_cast<int32_t*>(tensors[5].data)[t * tensors[5].strides[0]] & 0xffff);
         }
         tensors[5].data = positions.data();
         tensors[5].strides[0] = 1;
         aa_op_call other = *call;
         other.tensors = tensors.data();
         return good_ops.enqueue(stream, &other, taken);
       };
     }},
    {"AttentionOfBf16ForgetsItsLastElement", "op.attention.of_bf16",
     [](aa_driver&) {
       bad_ops.enqueue = [](void*, aa_stream* stream, const aa_op_call* call, int32_t* taken) {
         aa_status* status = good_ops.enqueue(stream, call, taken);
         const aa_tensor& out = call->tensors[0];
         int64_t last = 0;
         for (int i = 0; i < 3; ++i) last += (out.shape[i] - 1) * out.strides[i];
         if (out.dtype == AA_DTYPE_BF16) static_cast<uint16_t*>(out.data)[last] = 0;
         return status;
       };
     }},
    {"SampleTakes32BitsOfItsCounter", "op.sample.by_definition",
     [](aa_driver&) {
       bad_ops.enqueue = [](void*, aa_stream* stream, const aa_op_call* call, int32_t* taken) {
         std::vector<aa_tensor> tensors(call->tensors, call->tensors + call->tensor_count);
         const auto* const rng = static_cast<const int64_t*>(tensors[2].data);
         int64_t cut[] = {rng[0], rng[tensors[2].strides[0]] & 0xffffffff};
         tensors[2].data = cut;
         tensors[2].strides[0] = 1;
         aa_op_call other = *call;
         other.tensors = tensors.data();
         return good_ops.enqueue(stream, &other, taken);
       };
     }},
    {"SampleForgetsTopP", "op.sample.by_definition",
     [](aa_driver&) {
       bad_ops.enqueue = [](void*, aa_stream* stream, const aa_op_call* call, int32_t* taken) {
         return with_params<aa_sample_params>(stream, call, taken, [](aa_sample_params& p) { p.top_p = 1; });
       };
     }},
    {"SampleGivesATokenOfARowWithoutOne", "op.sample.no_token_without_a_finite_maximum",
     [](aa_driver&) {
       bad_ops.enqueue = [](void*, aa_stream* stream, const aa_op_call* call, int32_t* taken) {
         aa_status* status = good_ops.enqueue(stream, call, taken);
         if (!is(*call, "sample")) return status;
         const aa_tensor& out = call->tensors[0];
         for (int64_t r = 0; r < out.shape[0]; ++r) {
           int32_t& token = static_cast<int32_t*>(out.data)[r * out.strides[0]];
           if (token < 0) token = 0;
         }
         return status;
       };
     }},
    {"GeluIsItsApproximation", "op.activation.every_kind",
     [](aa_driver&) {
       bad_ops.enqueue = [](void*, aa_stream* stream, const aa_op_call* call, int32_t* taken) {
         return with_params<aa_activation_params>(stream, call, taken, [](aa_activation_params& p) {
           if (p.kind == AA_ACTIVATION_GELU) p.kind = AA_ACTIVATION_GELU_TANH;
         });
       };
     }},
};

class Mutations : public testing::TestWithParam<Mutation> {
 protected:
  static conformance::CaseResult run(const aa_driver& driver, const char* name) {
    const auto cases = conformance::run_conformance(&driver, host_services(), name, {}, {.in_process = true}).cases;
    for (const auto& result : cases) {
      if (result.group + "." + result.name == name) return result;
    }
    ADD_FAILURE() << "there is no case " << name;
    return {};
  }
};

TEST_P(Mutations, AreNoticed) {
  const Mutation& mutation = GetParam();
  good = complete_table(anyaccel_cpu_driver_query(AA_ABI_VERSION(2, 0), AA_ABI_CURRENT, host_services()), "built in");
  first_process = getpid();
  first_block = nullptr;
  bad_ops = {};
  bad_graph = {};
  bad_host_memory = {};
  const auto before = run(*good, mutation.noticed_by);
  EXPECT_EQ(before.outcome, conformance::Outcome::pass) << before.message;
  aa_driver driver = *good;
  driver.query_extension = query_extension;
  mutation.apply(driver);
  const auto after = run(driver, mutation.noticed_by);
  EXPECT_EQ(after.outcome, conformance::Outcome::fail) << after.message;
  EXPECT_FALSE(after.message.empty());
  RecordProperty("message", after.message);
}

INSTANTIATE_TEST_SUITE_P(All, Mutations, testing::ValuesIn(mutations),
                         [](const auto& info) { return std::string(info.param.name); });

// A library may allow one member of a communicator in a process, but not none. The CPU is two devices here.
TEST(Collectives, ACommunicatorThatNoMemberCanJoin) {
  good = complete_table(anyaccel_cpu_driver_query(AA_ABI_VERSION(2, 0), AA_ABI_CURRENT, host_services()), "built in");
  aa_driver driver = *good;
  driver.device_count = [](void*, aa_instance*, int32_t* out) -> aa_status* {
    *out = 2;
    return nullptr;
  };
  driver.device_props = [](void*, aa_instance* instance, int32_t index, aa_device_props* out) {
    aa_status* const status = good->device_props(instance, 0, out);
    out->uuid[0] = static_cast<uint8_t>(index + 1);
    return status;
  };
  driver.device_open = [](void*, aa_instance* instance, const aa_device_open_params* params, aa_device** out) {
    aa_device_open_params first = *params;
    first.index = 0;
    return good->device_open(instance, &first, out);
  };
  driver.query_extension = [](void*, aa_instance* instance, const char* name, uint32_t version, const void** out) {
    if (std::strcmp(name, AA_COLLECTIVES_EXTENSION) != 0) return good->query_extension(instance, name, version, out);
    static aa_collectives_table table{};
    table.struct_size = sizeof(table);
    table.version = AA_COLLECTIVES_VERSION;
    table.library = [](void*, aa_instance*, const char** library, const char** of) -> aa_status* {
      *library = "none";
      *of = "1";
      return nullptr;
    };
    table.id_size = [](void*, aa_instance*, size_t* size) -> aa_status* {
      *size = 8;
      return nullptr;
    };
    table.id_create = [](void*, aa_instance*, void* id) -> aa_status* {
      std::memset(id, 1, 8);
      return nullptr;
    };
    table.comm_create = [](void*, aa_device*, const void*, int32_t, int32_t, aa_comm**) {
      return status_of(AA_UNIMPLEMENTED);
    };
    *out = &table;
    return static_cast<aa_status*>(nullptr);
  };
  const conformance::Report report = conformance::run_conformance(
      &driver, host_services(), "collectives.two_devices_in_one_process", {}, {.in_process = true});
  ASSERT_EQ(report.cases.size(), 1u);
  EXPECT_EQ(report.cases[0].outcome, conformance::Outcome::fail) << report.cases[0].message;
  EXPECT_NE(report.cases[0].message.find("AA_UNIMPLEMENTED for both members"), std::string::npos)
      << report.cases[0].message;
}

TEST(Junit, EscapesAndCounts) {
  conformance::Report report;
  report.cases.push_back({"a", "one", conformance::Outcome::pass, "", 1});
  report.cases.push_back({"a", "two", conformance::Outcome::fail, "<\"&\x01\xff>", 2});
  report.cases.push_back({"b", "three", conformance::Outcome::unsupported, "absent", 3});
  const std::string xml = conformance::junit_xml(report, "x & y");
  EXPECT_NE(xml.find("<testsuite name=\"x &amp; y\" tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\""),
            std::string::npos)
      << xml;
  EXPECT_NE(xml.find("<failure message=\"&lt;&quot;&amp;??&gt;\"/>"), std::string::npos) << xml;
  EXPECT_NE(xml.find("<skipped message=\"unsupported: absent\"/>"), std::string::npos) << xml;
}

}  // namespace
}  // namespace anyaccel
