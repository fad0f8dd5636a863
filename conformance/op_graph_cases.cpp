// Cases of ops in graphs: recorded once, replayed on the tensors' contents at that time.
#include "conformance/graph_objects.h"
#include "conformance/op_run.h"

namespace anyaccel::conformance {
namespace op_graph_group {
namespace {

aa_increment_params increment_by(int64_t amount) {
  aa_increment_params params{};
  params.amount = amount;
  return params;
}

void replayed_on_new_inputs(const Context& c) {
  OpRun add(c, "add");
  OpRun increment(c, "increment");
  const abi::Calls<aa_graph_table> table = graphs(c);
  OpTensor a(c, AA_DTYPE_F32, {1003}, numbers(1003, 1));
  OpTensor b(c, AA_DTYPE_F32, {1003}, numbers(1003, 2));
  OpTensor middle(c, AA_DTYPE_F32, {1003});
  OpTensor out(c, AA_DTYPE_F32, {1003});
  OpTensor steps(c, AA_DTYPE_I64, {1});
  // Run once without a graph, so that kernels compiled at their first use are not compiled during the capture.
  const bool ran = add.run({middle.view(), a.view(), b.view()}) && increment.run({steps.view()}, increment_by(0));
  c.synchronize();
  if (!ran) c.unsupported("the calls are refused");
  Capture capture(c, table, c.stream);
  add.run({middle.view(), a.view(), b.view()});
  add.run({out.view(), middle.view(), middle.view()});
  increment.run({steps.view()}, increment_by(3));
  const Graph graph(c, table, capture.end());
  add.compare(out, Values(1003), "while recording");
  for (unsigned round = 0; round < 4; ++round) {
    a.set(numbers(1003, 10 + round));
    b.set(numbers(1003, 20 + round));
    graph.launch(c.stream);
    Values expected;
    for (size_t i = 0; i < 1003; ++i) {
      expected.push_back(2 * rounded(a.given()[i] + b.given()[i], AA_DTYPE_F32));
    }
    add.compare(out, expected, "launch " + std::to_string(round + 1));
    increment.compare(steps, {3.0 * (round + 1)}, "launch " + std::to_string(round + 1));
  }
  add.finish();
}

void parameters_are_copied_while_recording(const Context& c) {
  // The caller may reuse the call, its tensors and its parameters when enqueue returns.
  OpRun increment(c, "increment");
  const abi::Calls<aa_graph_table> table = graphs(c);
  OpTensor x(c, AA_DTYPE_I32, {5}, {1, 2, 3, 4, 5});
  if (!increment.run({x.view()}, increment_by(0))) c.unsupported("the call is refused");
  c.synchronize();
  std::vector<aa_tensor> tensors{x.view()};
  aa_increment_params params = increment_by(7);
  params.struct_size = sizeof(params);
  Capture capture(c, table, c.stream);
  increment.run(tensors, &params, sizeof(params), "", true);
  tensors[0] = aa_tensor{};
  params.amount = 1000;
  const Graph graph(c, table, capture.end());
  graph.launch(c.stream);
  graph.launch(c.stream);
  increment.compare(x, {15, 16, 17, 18, 19}, "two launches");
  increment.finish();
}

void abandoned_ops_do_not_run(const Context& c) {
  OpRun increment(c, "increment");
  const abi::Calls<aa_graph_table> table = graphs(c);
  OpTensor x(c, AA_DTYPE_I32, {3}, {1, 2, 3});
  if (!increment.run({x.view()}, increment_by(1))) c.unsupported("the call is refused");
  c.synchronize();
  Capture capture(c, table, c.stream);
  increment.run({x.view()}, increment_by(10));
  c.expect(capture.abandon(), "capture_end with a null graph failed");
  increment.compare(x, {2, 3, 4}, "after an abandoned capture");
  increment.run({x.view()}, increment_by(10));
  increment.compare(x, {12, 13, 14}, "eagerly, after an abandoned capture");
  increment.finish();
}

constexpr Case cases[] = {
    {"op_graphs", "replayed_on_new_inputs", replayed_on_new_inputs},
    {"op_graphs", "parameters_are_copied_while_recording", parameters_are_copied_while_recording},
    {"op_graphs", "abandoned_ops_do_not_run", abandoned_ops_do_not_run},
};

}  // namespace
}  // namespace op_graph_group

std::span<const Case> op_graph_cases() { return op_graph_group::cases; }

}  // namespace anyaccel::conformance
