// Implements ops.h: runs ops with CANN's operator libraries.
#include "accelerators/npu/ops.h"

#include <map>
#include <memory>

#include "accelerators/npu/op_rows.h"

namespace anyaccel::npu {
namespace {

class AclnnOps final : public queue_runtime::OpSet {
 public:
  explicit AclnnOps(const Functions& functions) : f_(functions) {
    for (const std::span<const OpRow> rows : {product_ops(), position_ops(), attention_ops()}) {
      for (const OpRow& row : rows) {
        if (row.is_there(f_)) rows_.emplace(static_cast<int>(row.op), &row);
      }
    }
  }

  int find(const char* name) const override {
    const std::optional<Op> op = find_op_by_name(name);
    return op && rows_.contains(static_cast<int>(*op)) ? static_cast<int>(*op) : -1;
  }
  bool supports(const aa_op_call& call) const override {
    const auto row = rows_.find(call.op);
    return row != rows_.end() && row->second->supports(f_, call);
  }
  void run(const aa_op_call& call, Handle stream, queue_runtime::Workspace& workspace) const override {
    const auto row = rows_.find(call.op);
    if (row == rows_.end()) {
      throw abi::Failure(AA_INVALID_ARGUMENT, "npu has no op with the number " + std::to_string(call.op));
    }
    Work work(f_, stream, workspace);
    row->second->run(call, work);
  }

 private:
  const Functions& f_;
  std::map<int, const OpRow*> rows_;  // by Op
};

}  // namespace

const queue_runtime::OpSet* op_set(const std::string& processor, std::string& problem) {
  struct Opened {
    explicit Opened(const std::string& processor) {
      if (const Functions* f = functions(processor, problem)) ops = std::make_unique<AclnnOps>(*f);
    }
    std::string problem;
    std::unique_ptr<AclnnOps> ops;
  };
  static const auto& opened = *new Opened(processor);
  problem = opened.problem;
  return opened.ops.get();
}

}  // namespace anyaccel::npu
