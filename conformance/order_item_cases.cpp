// Cases of order of what a stream runs besides copies and fills of device memory: host calls, copies of host memory, graphs and
// ops. As in order_cases.cpp, gates hold the streams.
#include <atomic>
#include <cstring>

#include "anyaccel/abi/ops.h"
#include "conformance/gate.h"
#include "conformance/graph_objects.h"
#include "conformance/order_calls.h"

namespace anyaccel::conformance {
namespace order_item_group {
namespace {

using namespace order_calls;

void host_calls_run_once_and_in_order(const Context& c) {
  if (!c.has(AA_CAP_HOST_CALL)) c.unsupported("AA_CAP_HOST_CALL is clear");
  struct Log {
    std::vector<int> order;
  } log;
  struct Call {
    Log* log;
    int number;
  };
  constexpr int total = 1000;
  std::vector<Call> calls(total);
  Memory memory(c, 1000);
  {
    Stream stream(c);
    for (int i = 0; i < total; ++i) {
      calls[static_cast<size_t>(i)] = {&log, i};
      c.ok(c.driver.stream_host_call(
               stream,
               [](void* user) {
                 const auto* call = static_cast<Call*>(user);
                 call->log->order.push_back(call->number);
               },
               &calls[static_cast<size_t>(i)]),
           "stream_host_call");
      if (i % 3 == 0) fill(c, stream, memory.data(), 1, 1000);
    }
    synchronize(c, stream);
  }
  c.expect(log.order.size() == total, std::to_string(log.order.size()) + " host calls ran, not 1000");
  for (int i = 0; i < total; ++i) {
    c.expect(log.order[static_cast<size_t>(i)] == i, "host call " + std::to_string(i) + " did not run in its order");
  }
}

void host_memory_changes_in_order(const Context& c) {
  needs_gates_and_free_streams(c);
  if (!c.has(AA_CAP_PINNED_HOST)) c.unsupported("AA_CAP_PINNED_HOST is clear");
  // A driver may take another way for a few bytes.
  for (const size_t bytes : {size_t{1}, size_t{8}, size_t{64}, size_t{1000}, size}) {
    const std::string text = std::to_string(bytes) + " bytes of ";
    Memory device(c, bytes);
    Memory written(c, bytes);
    Memory looked_at(c, bytes);
    Memory to(c, bytes, AA_MEMORY_PINNED);
    Memory from(c, bytes, AA_MEMORY_PINNED);
    const Bytes data = pattern(bytes, 1);
    const Bytes old = pattern(bytes, 2);
    c.upload(device.data(), data.data(), bytes);
    c.upload(written.data(), data.data(), bytes);
    std::memcpy(to.data(), old.data(), bytes);
    std::memcpy(from.data(), old.data(), bytes);
    Stream held(c);
    Stream free(c);
    Gate gate(c, held);
    c.ok(c.driver.copy_async(held, to.data(), device.data(), bytes, AA_COPY_DEVICE_TO_HOST), "copy_async");
    c.ok(c.driver.copy_async(held, written.data(), from.data(), bytes, AA_COPY_HOST_TO_DEVICE), "copy_async");
    copy(c, free, looked_at.data(), written.data(), bytes);
    synchronize(c, free);
    const Bytes seen(to.data(), to.data() + bytes);
    gate.open();
    synchronize(c, held);
    expect_equal(seen, old, text + "host memory that are to be written behind a host call, before that returned");
    expect_equal(c.download(looked_at.data(), bytes), data,
                 text + "device memory that are to be written behind a host call, before that returned");
    expect_equal({to.data(), bytes}, data, text + "host memory that were written behind a host call");
    expect_equal(c.download(written.data(), bytes), old, text + "a copy from host memory behind a host call");
  }
}

void graphs_run_in_order(const Context& c) {
  needs_gates_and_free_streams(c);
  const abi::Calls<aa_graph_table> table = graphs(c);
  Memory first(c, size);
  Memory second(c, size);
  Memory seen(c, size);
  fill(c, c.stream, first.data(), 1);
  fill(c, c.stream, second.data(), 2);
  c.synchronize();
  Stream held(c);
  Stream free(c);
  Capture capture(c, table, held);
  copy(c, held, second.data(), first.data());
  const Graph graph(c, table, capture.end());
  graph.launch(held);  // a driver may load code at the first launch
  fill(c, held, second.data(), 2);
  synchronize(c, held);
  Watch watch(c);
  Gate gate(c, held);
  fill(c, held, first.data(), 3);
  graph.launch(held);
  fill(c, held, first.data(), 4);
  copy(c, free, seen.data(), second.data());
  synchronize(c, free);
  const bool early = watch.gets_done(held);
  gate.open();
  synchronize(c, held);
  c.expect(!early, "a stream is done though a host call holds it before a graph");
  expect_all(c, seen.data(), 2, "memory that a graph behind a host call is to write, before that returned");
  expect_all(c, second.data(), 3, "memory that a graph wrote between two fills");
}

// Host calls are recorded as other work is: they run at each launch, in their place.
void graphs_run_host_calls(const Context& c) {
  needs_gates(c);
  const abi::Calls<aa_graph_table> table = graphs(c);
  struct Log {
    unsigned char* memory;
    size_t calls = 0;
    unsigned char found = 0;
  };
  Memory pinned(c, size, c.has(AA_CAP_PINNED_HOST) ? AA_MEMORY_PINNED : AA_MEMORY_DEVICE);
  Bytes own(size);
  Log log{c.has(AA_CAP_PINNED_HOST) ? pinned.data() : own.data()};
  Memory memory(c, size);
  Stream stream(c);
  Capture capture(c, table, stream);
  c.ok(c.driver.copy_async(stream, log.memory, memory.data(), size, AA_COPY_DEVICE_TO_HOST), "copy_async");
  c.ok(c.driver.stream_host_call(
           stream,
           [](void* user) {
             auto* const written = static_cast<Log*>(user);
             ++written->calls;
             written->found = written->memory[size - 1];
           },
           &log),
       "stream_host_call on a stream that captures");
  const Graph graph(c, table, capture.end());
  c.synchronize();
  c.expect(log.calls == 0, "a host call ran while it was recorded");
  for (unsigned char round = 1; round <= 3; ++round) {
    fill(c, stream, memory.data(), round);
    graph.launch(stream);
    synchronize(c, stream);
    c.expect(log.calls == round, "a recorded host call ran " + std::to_string(log.calls) + " times in " +
                                     std::to_string(round) + " launches");
    c.expect(log.found == round, "a recorded host call ran before the copy that was recorded before it");
  }
}

// "If an earlier launch has not completed, the two run one after another", whatever their streams.
void launches_do_not_overlap(const Context& c) {
  needs_gates_and_free_streams(c);
  const abi::Calls<aa_graph_table> table = graphs(c);
  Stream first(c);
  Stream second(c);
  Memory counter(c, size);
  Memory seen(c, size);
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int entered = 0;
    bool open = false;
  };
  // Never deleted: a broken driver may call the function at any later time.
  static auto& states = *new std::vector<State*>;
  states.push_back(new State);
  State& state = *states.back();
  Capture capture(c, table, first);
  c.ok(c.driver.stream_host_call(
           first,
           [](void* user) {
             auto* const all = static_cast<State*>(user);
             std::unique_lock lock(all->mutex);
             ++all->entered;
             all->changed.wait(lock, [&] { return all->open; });
           },
           &state),
       "stream_host_call on a stream that captures");
  copy(c, first, seen.data(), counter.data());
  const Graph graph(c, table, capture.end());
  Watch watch(c);
  struct Opens {
    ~Opens() { open(); }
    void open() const {
      const std::lock_guard lock(state.mutex);
      state.open = true;
      state.changed.notify_all();
    }
    State& state;
  } const gate{state};
  graph.launch(first);
  graph.launch(second);
  const bool early = watch.gets_done(second);
  int entered = 0;
  {
    const std::lock_guard lock(state.mutex);
    entered = state.entered;
  }
  gate.open();
  synchronize(c, first);
  synchronize(c, second);
  c.expect(!early, "the second launch of a graph is done while the first is held");
  c.expect(entered <= 1, "the second launch of a graph, on another stream, began while the first was held");
  c.expect(state.entered == 2, "two launches ran a recorded host call " + std::to_string(state.entered) + " times");
}

// Calls behind a gate run later, and must use the arguments that were passed, not what their memory holds by then.
void ops_run_in_order(const Context& c) {
  needs_gates_and_free_streams(c);
  const auto table = c.extension<aa_ops_table>(AA_OPS_EXTENSION, AA_OPS_VERSION);
  int32_t op = -1;
  aa_status* found = table.find(c.instance, "increment", &op);
  if (found && c.host.status_code(&c.host, found) == AA_NOT_FOUND) {
    c.drop(found);
    c.unsupported("the driver has no \"increment\"");
  }
  c.ok(found, "find of \"increment\"");
  constexpr int64_t count = 100;
  Memory numbers(c, count * sizeof(int32_t));
  Memory seen(c, count * sizeof(int32_t));
  fill(c, c.stream, numbers.data(), 0, numbers.size());
  c.synchronize();
  Stream held(c);
  Stream free(c);
  aa_tensor tensor{};
  aa_increment_params params{};
  aa_op_call call{};
  const auto set = [&](int64_t amount) {
    tensor = aa_tensor{};
    tensor.data = numbers.data();
    tensor.dtype = AA_DTYPE_I32;
    tensor.ndim = 1;
    for (int64_t& length : tensor.shape) length = 1;
    tensor.shape[0] = count;
    tensor.strides[0] = 1;
    params = {sizeof(params), 0, amount};
    call = aa_op_call{};
    call.struct_size = sizeof(call);
    call.op = op;
    call.tensors = &tensor;
    call.tensor_count = 1;
    call.params = &params;
    call.params_size = sizeof(params);
  };
  Watch watch(c);
  Gate gate(c, held);
  for (int64_t i = 1; i <= 3; ++i) {
    set(i);
    c.ok(table.enqueue(held, &call), "enqueue of \"increment\"");
    params.amount = 1000;
    tensor.shape[0] = 1;
  }
  copy(c, free, seen.data(), numbers.data(), numbers.size());
  synchronize(c, free);
  const bool early = watch.gets_done(held);
  gate.open();
  synchronize(c, held);
  c.expect(!early, "a stream is done though a host call holds it before ops");
  expect_all(c, seen.data(), 0, "numbers that ops behind a host call are to change, before that returned",
             numbers.size());
  std::vector<int32_t> values(count);
  c.download(values.data(), numbers.data(), numbers.size());
  for (const int32_t value : values) {
    c.expect(value == 6, "numbers that three calls of \"increment\" change by 1, 2 and 3 are " + std::to_string(value) +
                             ", though the structs of the calls were changed after them");
  }
}

constexpr Case cases[] = {
    {"order", "host_calls_run_once_and_in_order", host_calls_run_once_and_in_order},
    {"order", "host_memory_changes_in_order", host_memory_changes_in_order},
    {"order", "graphs_run_in_order", graphs_run_in_order},
    {"order", "graphs_run_host_calls", graphs_run_host_calls},
    {"order", "launches_do_not_overlap", launches_do_not_overlap},
    {"order", "ops_run_in_order", ops_run_in_order},
};

}  // namespace
}  // namespace order_item_group

std::span<const Case> order_item_cases() { return order_item_group::cases; }

}  // namespace anyaccel::conformance
