// Implements ops.h: runs ops with CANN's operator libraries.
#include "accelerators/npu/ops.h"

#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include "accelerators/npu/op_rows.h"
#include "anyaccel/abi/optimizer_ops.h"

namespace anyaccel::npu {
namespace {

class AclnnOps final : public queue_runtime::OpSet {
 public:
  explicit AclnnOps(const Functions& functions) : f_(functions) {
    for (const std::span<const OpRow> rows : {product_ops(), position_ops(), attention_ops(), optimizer_ops()}) {
      for (const OpRow& row : rows) {
        if (row.is_there(f_)) rows_.emplace(static_cast<int>(row.op), &row);
      }
    }
  }

  int find(const char* name) const override {
    const std::optional<Op> op = std::string_view(name) == AA_ADAM_STEP_OP ? adam_step : find_op_by_name(name);
    return op && rows_.contains(static_cast<int>(*op)) ? static_cast<int>(*op) : -1;
  }
  bool supports(const aa_op_call& call) const override {
    const auto row = rows_.find(call.op);
    if (row == rows_.end()) return false;
    for (uint32_t i = 0; call.packed && i < call.tensor_count; ++i) {
      if (call.packed[i] && !takes_packed(row->second->op, i)) return false;
    }
    return row->second->supports(f_, call);
  }
  void run(const aa_op_call& call, Handle stream, queue_runtime::Workspace& workspace) const override {
    const auto row = rows_.find(call.op);
    if (row == rows_.end()) {
      throw abi::Failure(AA_INVALID_ARGUMENT, "npu has no op with the number " + std::to_string(call.op));
    }
    Work work(f_, stream, workspace);
    row->second->run(call, work);
    work.launch();
  }

  size_t packed_size(const aa_pack& what) const override {
    const aa_op_call& example = *what.example;
    if (find(op_name(Op::Linear)) != example.op || what.tensor != 2) return 0;
    return bytes_in_blocks(f_, example.tensors[1], example.tensors[2]);
  }
  std::unique_ptr<abi::Packed> pack(const aa_tensor& weight, const aa_allocation& into, Handle stream,
                                    queue_runtime::Workspace& workspace) const override {
    auto packed =
        std::make_unique<WeightInBlocks>(into.pointer, acl_type(weight.dtype), weight.shape[0], weight.shape[1]);
    Work work(f_, stream, workspace);
    work.to_blocks(Shaped(weight), *packed);
    work.launch();
    return packed;
  }
  void unpack(const abi::Packed& packed, const aa_tensor& out_weight, Handle stream,
              queue_runtime::Workspace& workspace) const override {
    Work work(f_, stream, workspace);
    work.from_blocks(static_cast<const WeightInBlocks&>(packed), Shaped(out_weight));
    work.launch();
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
