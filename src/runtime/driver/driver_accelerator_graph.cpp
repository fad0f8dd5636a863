// DriverAccelerator: graphs. The driver records; the host keeps the memory that captured work uses in a pool of the
// graph, so that nothing else is given that memory while the graph can be replayed.
#include "anyaccel/error.h"
#include "runtime/driver/driver_accelerator_impl.h"

namespace anyaccel {

DriverAccelerator::GraphImpl::~GraphImpl() { clear(); }

void DriverAccelerator::GraphImpl::clear() {
  // A replay may still run; neither the graph nor its memory may go before that.
  if (graph_ && !(context_->props.caps & AA_CAP_SYNCHRONOUS)) {
    release_status(context_->driver().device_synchronize(context_->device));
  }
  if (graph_) release_status(context_->instance->graph->destroy(graph_));
  if (pool_) context_->allocator->release_pool(pool_);
  graph_ = nullptr;
  pool_ = 0;
  calls_.reset();
}

void DriverAccelerator::GraphImpl::set(aa_graph* graph, uint64_t pool, std::unique_ptr<HostCalls> calls) {
  clear();
  calls_ = std::move(calls);
  graph_ = graph;
  pool_ = pool;
}

std::unique_ptr<HostCalls> DriverAccelerator::CaptureScope::end() {
  auto calls = std::make_unique<HostCalls>();
  const std::vector<std::shared_ptr<StreamImpl>> ending = std::move(streams);
  for (const std::shared_ptr<StreamImpl>& stream : ending) stream->end_capture(*calls);
  return calls;
}

bool DriverAccelerator::supports_graphs() const {
  instance();
  return shared_->instance->graph != nullptr;
}

Graph DriverAccelerator::create_graph() {
  if (!supports_graphs()) {
    throw NotImplementedError(name_ +
                              " has no graphs: its driver does not offer the \"graph\" extension. "
                              "Run the work eagerly (set_compile_backend(\"eager\")).");
  }
  DeviceContext& c = context(current_device_index);
  return Graph(std::make_shared<GraphImpl>(shared_->contexts[static_cast<size_t>(c.index)]));
}

ScopeGuard DriverAccelerator::capture_to_graph(Graph& graph, std::optional<uint64_t> pool,
                                               const anyaccel::Stream& stream) {
  auto* impl = dynamic_cast<GraphImpl*>(graph.state());
  if (!impl) throw InvalidArgument("capture_to_graph: the graph is empty or was made by another kind of accelerator");
  DeviceContext& c = *impl->context();
  check_own(c, "capture_to_graph: the graph");
  const anyaccel::Stream target = stream ? stream : current_stream(c.index);
  handle(target);  // refuses what is no stream
  check_own(static_cast<const StreamImpl&>(*target.state()).context(), "capture_to_graph: the stream");
  if (target.device_index() != c.index) {
    throw InvalidArgument("capture_to_graph: the graph belongs to " + device_name(c.index) + ", the stream to " +
                          device_name(target.device_index()));
  }
  ThreadState& state = thread_state();
  if (state.pool != 0) {
    throw InvalidArgument("capture_to_graph: this thread is capturing a graph already; captures do not nest",
                          AA_FAILED_PRECONDITION);
  }
  const uint64_t used_pool = pool.value_or(0) != 0 ? *pool : c.allocator->begin_pool();
  if (pool.value_or(0) != 0) c.allocator->retain_pool(used_pool);
  const auto* table = c.instance->graph;
  auto scope = std::make_shared<CaptureScope>();
  scope->pool = used_pool;
  try {
    static_cast<StreamImpl*>(target.state())->begin_capture(scope);
    if (aa_status* status = table->capture_begin(handle(target))) {
      scope->end();
      c.check(status, "graph.capture_begin");
    }
  } catch (...) {
    c.allocator->release_pool(used_pool);
    throw;
  }
  state.pool = used_pool;
  auto current = std::make_shared<ScopeGuard>(this->stream(target));
  return ScopeGuard([this, graph, target, used_pool, table, scope, current](bool unwinding) mutable {
    if (!scope->is_mine()) {
      throw InvalidArgument("a capture has to be ended by the thread that began it", AA_FAILED_PRECONDITION);
    }
    auto* inner = static_cast<GraphImpl*>(graph.state());
    DeviceContext& device_context = *inner->context();
    thread_state().pool = 0;
    current.reset();
    aa_graph* captured = nullptr;
    aa_status* status = table->capture_end(handle(target), unwinding ? nullptr : &captured);
    std::unique_ptr<HostCalls> calls = scope->end();
    if (status || unwinding) {
      device_context.allocator->release_pool(used_pool);
      if (unwinding) {
        release_status(status);
        return;
      }
      device_context.check(status, "graph.capture_end");
    }
    inner->set(captured, used_pool, std::move(calls));
  });
}

void DriverAccelerator::replay_graph(const Graph& graph) {
  auto* impl = dynamic_cast<GraphImpl*>(graph.state());
  if (!impl || !impl->ready()) {
    throw InvalidArgument("replay_graph: nothing has been captured into the graph yet", AA_FAILED_PRECONDITION);
  }
  DeviceContext& c = *impl->context();
  check_own(c, "replay_graph: the graph");
  const StreamUse use(current_stream(c.index));
  c.call("graph.launch", [&] { return c.instance->graph->launch(impl->graph(), use.handle()); });
}

}  // namespace anyaccel
