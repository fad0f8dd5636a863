// The CPU driver's ops and graphs: run now, or record and replay.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "accelerators/cpu/ceilings.h"
#include "accelerators/cpu/driver_objects.h"
#include "accelerators/cpu/kernels/past_caches.h"
#include "accelerators/cpu/ops.h"
#include "accelerators/cpu/worker_pool.h"
#include "anyaccel/error.h"
#include "base/copy_bytes.h"
#include "base/simd/cpu_features.h"
#include "runtime/driver/host_services.h"

namespace anyaccel::cpu {
namespace {

void run_fill(const Node& node) {
  auto* out = static_cast<uint8_t*>(node.destination);
  if (node.pattern_size == 1) {
    std::memset(out, node.pattern[0], node.size);
    return;
  }
  // Doubles the filled part with each copy, so that long fills run at the speed of a copy.
  size_t filled = std::min(node.size, node.pattern_size);
  std::memcpy(out, node.pattern, filled);
  while (filled < node.size) {
    const size_t step = std::min(filled, node.size - filled);
    std::memcpy(out + filled, out, step);
    filled += step;
  }
}

}  // namespace

void copy_with_workers(void* destination, const void* source, size_t size) {
  constexpr size_t worth_sharing = size_t{1} << 20;
  if (size < worth_sharing) {
    copy_bytes(destination, source, size);
    return;
  }
  // Each thread's memcpy() writes past the caches from the size on that glibc derives from the third-level cache, 181 MiB on a
  // Granite Rapids that shares this cache with other virtual machines. Other processors were not measured.
  constexpr size_t worth_bypassing = size_t{64} << 20;
  const bool past_caches = size >= worth_bypassing && cpu_features().granite_rapids && isa() >= Isa::Avx2;
  WorkerPool::instance().run([&](int index, int count) {
    // Whole pages for each thread, so that no two write to one line.
    const size_t pages = (size + 4095) / 4096;
    const size_t begin = std::min(size, pages * static_cast<size_t>(index) / static_cast<size_t>(count) * 4096);
    const size_t end = std::min(size, pages * static_cast<size_t>(index + 1) / static_cast<size_t>(count) * 4096);
    char* const to = static_cast<char*>(destination) + begin;
    const char* const from = static_cast<const char*>(source) + begin;
    past_caches ? copy_past_caches(to, from, end - begin) : copy_bytes(to, from, end - begin);
  });
}

void run_node(const Node& node) {
  switch (node.kind) {
    case Node::Kind::Op: {
      aa_op_call call{};
      call.struct_size = sizeof(call);
      call.op = node.op;
      call.tensors = node.tensors.data();
      call.tensor_count = static_cast<uint32_t>(node.tensors.size());
      call.params = node.params.data();
      call.params_size = node.params_size;
      op_entries()[static_cast<size_t>(node.op)].fast(call);
      break;
    }
    case Node::Kind::Copy: copy_with_workers(node.destination, node.source, node.size); break;
    case Node::Kind::Fill: run_fill(node); break;
    case Node::Kind::HostCall: node.function(node.user); break;
    case Node::Kind::EventRecord:
      node.event->nanoseconds = std::chrono::steady_clock::now().time_since_epoch().count();
      break;
  }
}

void submit(StreamObject& stream, Node&& node) {
  if (GraphObject* graph = stream.recorded()) {
    graph->nodes.push_back(std::move(node));
  } else {
    run_node(node);
  }
}

const aa_ops_table* ops_table() {
  static const aa_ops_table table = {
      sizeof(aa_ops_table),
      AA_OPS_VERSION,
      nullptr,
      [](void*, aa_instance*, const char* name, int32_t* out_op) -> aa_status* {
        const auto entries = op_entries();
        for (size_t i = 0; i < entries.size(); ++i) {
          if (entries[i].name == name) {
            *out_op = static_cast<int32_t>(i);
            return nullptr;
          }
        }
        return make_status(AA_NOT_FOUND, std::string("there is no op \"") + name + "\"");
      },
      [](void*, aa_device*, const aa_op_call* call, int32_t* out_supported) -> aa_status* {
        *out_supported = call->op >= 0 && static_cast<size_t>(call->op) < op_entries().size();
        return nullptr;
      },
      [](void*, aa_stream* stream, const aa_op_call* call, int32_t* out_taken) -> aa_status* {
        return guarded([&] {
          *out_taken = call->op >= 0 && static_cast<size_t>(call->op) < op_entries().size();
          if (!*out_taken) return;
          StreamObject& s = object(stream);
          if (!s.recorded()) [[likely]] {
            op_entries()[static_cast<size_t>(call->op)].fast(*call);
            return;
          }
          Node node{};
          node.kind = Node::Kind::Op;
          node.op = call->op;
          node.tensors.assign(call->tensors, call->tensors + call->tensor_count);
          node.params.resize((call->params_size + 7) / 8);
          if (call->params_size) std::memcpy(node.params.data(), call->params, call->params_size);
          node.params_size = call->params_size;
          submit(s, std::move(node));
        });
      },
      nullptr,  // weights are used in place, in a mapped file too
      nullptr,
      nullptr,
      nullptr,
  };
  return &table;
}

const aa_graph_table* graph_table() {
  static const aa_graph_table table = {
      sizeof(aa_graph_table),
      AA_GRAPH_VERSION,
      nullptr,
      [](void*, aa_stream* stream) -> aa_status* {
        return guarded([&] {
          StreamObject& s = object(stream);
          if (s.recorded()) throw InvalidArgument("the stream is capturing already", AA_FAILED_PRECONDITION);
          s.capture = std::make_shared<CaptureObject>();
          s.capture->origin = &s;
        });
      },
      [](void*, aa_stream* stream, aa_graph** out_graph) -> aa_status* {
        return guarded([&] {
          StreamObject& s = object(stream);
          if (!s.recorded()) throw InvalidArgument("the stream is not capturing", AA_FAILED_PRECONDITION);
          if (s.capture->origin != &s) {
            throw InvalidArgument("the stream joined a capture that began on another stream; it ends on that one",
                                  AA_FAILED_PRECONDITION);
          }
          const std::shared_ptr<CaptureObject> ending = std::move(s.capture);
          ending->open = false;
          if (out_graph) *out_graph = reinterpret_cast<aa_graph*>(ending->graph.release());
        });
      },
      [](void*, aa_stream* stream, int32_t* out_capturing) -> aa_status* {
        *out_capturing = object(stream).recorded() != nullptr;
        return nullptr;
      },
      [](void*, aa_graph* graph, aa_stream* stream) -> aa_status* {
        return guarded([&] {
          StreamObject& s = object(stream);
          for (const Node& node : object(graph).nodes) {
            if (GraphObject* recorded = s.recorded()) {
              recorded->nodes.push_back(node);
            } else {
              run_node(node);
            }
          }
        });
      },
      [](void*, aa_graph* graph, int64_t* out_count) -> aa_status* {
        *out_count = static_cast<int64_t>(object(graph).nodes.size());
        return nullptr;
      },
      [](void*, aa_graph* graph) -> aa_status* {
        delete &object(graph);
        return nullptr;
      },
  };
  return &table;
}

const aa_ceilings_table* ceilings_table() {
  static const aa_ceilings_table table = {
      sizeof(aa_ceilings_table),
      AA_CEILINGS_VERSION,
      nullptr,
      [](void*, aa_device*, int32_t kind, size_t bytes, double seconds, double* out_value) -> aa_status* {
        return guarded([&] {
          switch (kind) {
            case AA_CEILING_READ: *out_value = best_read_bandwidth(bytes, seconds); break;
            case AA_CEILING_COPY: *out_value = best_copy_bandwidth(bytes, seconds); break;
            case AA_CEILING_FMA_F32: *out_value = fma_rate(seconds); break;
            default: throw NotImplementedError("the CPU measures no ceiling number " + std::to_string(kind));
          }
        });
      },
  };
  return &table;
}

const aa_host_code_table* host_code_table() {
  static const aa_host_code_table table = {
      sizeof(aa_host_code_table),
      AA_HOST_CODE_VERSION,
      nullptr,
      [](void*, aa_instance*, const char** out_target) -> aa_status* {
        return guarded([&] {
          // Compilers have no vectors for tiles: host ops gain nothing from them.
          *out_target = isa_name(std::min(isa(), Isa::Avx512)).data();
        });
      },
      [](void*, aa_instance*, int32_t* out_threads) -> aa_status* {
        return guarded([&] { *out_threads = WorkerPool::instance().size(); });
      },
      [](void*, aa_instance*, aa_parallel_body body, void* context) -> aa_status* {
        return guarded([&] { WorkerPool::instance().run([&](int index, int count) { body(context, index, count); }); });
      },
  };
  return &table;
}

}  // namespace anyaccel::cpu
