// Implements ops.h: makes op calls with Synapse's graphs. Calls that the host marks as a step are joined into one graph (step.h),
// as far as their memory allows; others are a step of their own. For a step with new calls, shapes or types a graph is built and
// compiled into a recipe; recipes are kept in files (recipe_files.h) and in memory, where all are discarded when there are too
// many.
#include "accelerators/hpu/ops.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "accelerators/hpu/recipe.h"
#include "accelerators/hpu/recipe_files.h"
#include "accelerators/hpu/step.h"

namespace anyaccel::hpu {
namespace {

constexpr size_t most_recipes = 512;

class SynapseOps final : public queue_runtime::OpSet {
 public:
  SynapseOps(const Api& api, SynDevice device, int type) : api_(api), device_(device), type_(type), files_(api, type) {}

  int find(const char* name) const override {
    const std::optional<Op> op = find_op_by_name(name);
    return op && has_graph(*op) ? static_cast<int>(*op) : -1;
  }
  bool supports(const aa_op_call& call) const override { return supports_call(call); }
  void run(const aa_op_call& call, void* stream, queue_runtime::Workspace& workspace) const override {
    const aa_op_call* const only = &call;
    run_all({&only, 1}, stream, workspace);
  }
  bool merges() const override { return true; }
  void run_all(std::span<const aa_op_call* const> calls, void* stream,
               queue_runtime::Workspace& workspace) const override;

 private:
  std::shared_ptr<Recipe> recipe_of(const Step& step) const;

  const Api& api_;
  const SynDevice device_;
  const int type_;
  const RecipeFiles files_;
  mutable std::mutex mutex_;  // also held during launches: a recipe is used by one thread at a time
  mutable std::map<std::vector<int64_t>, std::shared_ptr<Recipe>> recipes_;  // by Step::key()
};

void SynapseOps::run_all(std::span<const aa_op_call* const> calls, void* stream,
                         queue_runtime::Workspace& workspace) const {
  std::vector<Step> steps(1);
  for (const aa_op_call* call : calls) {
    if (steps.back().add(*call)) continue;
    steps.emplace_back().add(*call);
  }
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Recipe>> recipes;
  uint64_t bytes = 0;
  for (const Step& step : steps) {
    recipes.push_back(recipe_of(step));
    bytes = std::max(bytes, recipes.back()->workspace_bytes());
  }
  // One after the other they use the same memory.
  const uint64_t memory = bytes ? reinterpret_cast<uint64_t>(workspace.take(bytes)) : 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    recipes[i]->launch(stream, steps[i].addresses(), recipes[i]->workspace_bytes() ? memory : 0);
  }
}

// Call it with the lock held.
std::shared_ptr<Recipe> SynapseOps::recipe_of(const Step& step) const {
  std::vector<int64_t> key = step.key();
  const auto found = recipes_.find(key);
  if (found != recipes_.end()) return found->second;
  if (recipes_.size() >= most_recipes) {
    check(api_, api_.synDeviceSynchronize(device_), "synDeviceSynchronize");  // none is in use then
    recipes_.clear();
  }
  void* handle = files_.get(key, [&] {
    Graph graph(api_, type_);
    step.build(graph);
    return graph.compile();
  });
  auto recipe = std::make_shared<Recipe>(api_, handle, step.persistent_sizes());
  recipes_.emplace(std::move(key), recipe);
  return recipe;
}

}  // namespace

std::unique_ptr<queue_runtime::OpSet> make_ops(const Api& api, SynDevice device) {
  bool complete = true;
#define ANYACCEL_TEST(name, parameters) complete &= api.name != nullptr;
  ANYACCEL_HPU_GRAPH_FUNCTIONS(ANYACCEL_TEST)
#undef ANYACCEL_TEST
  SynDeviceInfo info{};
  if (!complete || api.synDeviceGetInfoV2(device, &info) != 0) return nullptr;
  return std::make_unique<SynapseOps>(api, device, info.type);
}

}  // namespace anyaccel::hpu
