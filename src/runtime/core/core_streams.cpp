// Implements core.h: streams and events, and the graphs that they record.
#include <functional>
#include <string>

#include "anyaccel/error.h"
#include "runtime/core/core.h"
#include "runtime/core/graphs.h"

namespace anyaccel {

namespace {

// A lazy driver must now run the stream's work that it has held back, because other streams may wait for it.
void flush_stream(const DriverStream& stream) {
  const auto* lazy = stream.context().instance->lazy;
  if (lazy && !stream.capturing()) stream.context().check(lazy->flush(stream.stream()), "flush");
}

}  // namespace

Stream DriverCore::make_stream(int priority) {
  DeviceContext& c = context(current_device_index);
  return Stream(std::make_shared<DriverStream>(c, shared(c), priority, AA_STREAM_NON_BLOCKING));
}

const Stream& DriverCore::current_stream(const DeviceContext& context) const {
  const ThreadState& state = thread();
  const auto i = static_cast<size_t>(context.index);
  return i < state.streams.size() && state.streams[i] ? state.streams[i] : context.default_stream;
}

const Stream& DriverCore::current_stream(int index) { return current_stream(context(index)); }

ScopeGuard DriverCore::use_stream(const Stream& s) {
  check_own(driver_stream(s).context(), "the stream");
  const int index = s.device_index();
  ThreadState& state = thread();
  if (state.streams.size() <= static_cast<size_t>(index)) state.streams.resize(static_cast<size_t>(index) + 1);
  flush(index);  // other streams may wait for work of the stream that is no longer current
  const Stream previous = state.streams[static_cast<size_t>(index)];
  const int previous_device = state.device;
  ScopeGuard guard([this, s, previous, previous_device, index](bool) {
    ThreadState& inner = thread();
    inner.streams[static_cast<size_t>(index)] = previous;
    inner.device = previous_device;
    flush_stream(driver_stream(s));
  });
  // After the guard, for which there may be no memory.
  state.streams[static_cast<size_t>(index)] = s;
  state.device = index;
  return guard;
}

Event DriverCore::make_event(bool timing) { return Event(context(current_device_index).make_event(timing)); }

bool DriverCore::capturing(int index) { return current(context(index)).capturing(); }

void DriverCore::flush(int index) {
  // A device that was never opened holds no work.
  const DriverInstance* runtime = opened();
  if (!runtime || !runtime->lazy) return;
  const DeviceContext* c = open_[static_cast<size_t>(resolve(index))].load(std::memory_order_acquire);
  if (c) flush_stream(current(*c));
}

ScopeGuard DriverCore::step(uint64_t key) {
  const auto* lazy = instance().lazy;
  if (!lazy) return {};
  const Stream& current = current_stream(current_device_index);
  const DriverStream& stream = driver_stream(current);
  if (stream.capturing()) return {};
  auto params = abi::sized<aa_step>();
  params.key = key;
  stream.context().check(lazy->step_begin(stream.stream(), &params), "step_begin");
  return ScopeGuard([current](bool) {
    const DriverStream& began = driver_stream(current);
    began.context().check(began.context().instance->lazy->step_end(began.stream()), "step_end");
  });
}

Graph DriverCore::create_graph() {
  if (!instance().graph) {
    throw NotImplementedError(name_ +
                              " has no graphs: its driver does not offer the \"graph\" extension. "
                              "Run the work eagerly (set_compile_backend(\"eager\")).");
  }
  DeviceContext& c = context(current_device_index);
  return Graph(std::make_shared<DriverGraph>(shared(c)));
}

ScopeGuard DriverCore::capture(Graph& graph, std::optional<uint64_t> pool, const Stream& stream) {
  auto* impl = dynamic_cast<DriverGraph*>(graph.state());
  if (!impl) throw InvalidArgument("capture_to_graph: the graph is empty or was made by another kind of accelerator");
  DeviceContext& c = *impl->context();
  check_own(c, "capture_to_graph: the graph");
  const Stream target = stream ? stream : current_stream(c);
  DriverStream& first = driver_stream(target);
  check_own(first.context(), "capture_to_graph: the stream");
  if (&first.context() != &c) {
    throw InvalidArgument("capture_to_graph: the graph belongs to " + c.name() + ", the stream to " +
                          first.context().name());
  }
  ThreadState& state = thread();
  if (state.pool != 0) {
    throw InvalidArgument("capture_to_graph: this thread is capturing a graph already; captures do not nest",
                          AA_FAILED_PRECONDITION);
  }
  auto scope = std::make_shared<CaptureScope>();
  const uint64_t used_pool = pool.value_or(0) != 0 ? *pool : c.allocator->begin_pool();
  if (pool.value_or(0) != 0) c.allocator->retain_pool(used_pool);
  const auto* table = c.instance->graph;
  scope->pool = used_pool;
  try {
    first.begin_capture(scope);
    if (aa_status* status = table->capture_begin(first.stream())) {
      scope->end();
      c.check(status, "graph.capture_begin");
    }
  } catch (...) {
    c.allocator->release_pool(used_pool);
    throw;
  }
  try {
    auto current = std::make_shared<ScopeGuard>(use_stream(target));
    std::function<void(bool)> finish = [this, graph, target, used_pool, table, scope, current](bool unwinding) mutable {
      if (!scope->is_mine()) {
        throw InvalidArgument("a capture has to be ended by the thread that began it", AA_FAILED_PRECONDITION);
      }
      auto* inner = static_cast<DriverGraph*>(graph.state());
      DeviceContext& device_context = *inner->context();
      thread().pool = 0;
      current.reset();
      aa_graph* captured = nullptr;
      aa_status* status = table->capture_end(driver_stream(target).stream(), unwinding ? nullptr : &captured);
      std::unique_ptr<HostCalls> calls = scope->end();
      if (status || unwinding || !captured) {
        device_context.allocator->release_pool(used_pool);
        if (unwinding) {
          release_status(status);
          return;
        }
        device_context.check(status, "graph.capture_end");
        device_context.check_made(captured, "graph.capture_end");
      }
      inner->set(captured, used_pool, std::move(calls));
    };
    state.pool = used_pool;
    return ScopeGuard(std::move(finish));
  } catch (...) {
    // There is no memory for the guard.
    release_status(table->capture_end(first.stream(), nullptr));
    scope->end();
    c.allocator->release_pool(used_pool);
    throw;
  }
}

void DriverCore::replay(const Graph& graph) {
  auto* impl = dynamic_cast<DriverGraph*>(graph.state());
  if (!impl || !impl->ready()) {
    throw InvalidArgument("replay_graph: nothing has been captured into the graph yet", AA_FAILED_PRECONDITION);
  }
  DeviceContext& c = *impl->context();
  check_own(c, "replay_graph: the graph");
  const StreamUse use(current(c));
  c.call("graph.launch", [&] { return c.instance->graph->launch(impl->graph(), use.handle()); });
}

}  // namespace anyaccel
