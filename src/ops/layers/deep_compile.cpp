// Implements the builder of DeepCompile, which exists but can never be loaded.
#include "anyaccel/error.h"
#include "ops/builders.h"

namespace anyaccel::ops {
namespace {

class DeepCompileBuilder final : public OpBuilder {
 public:
  const std::string& name() const noexcept override {
    static const std::string name = "DeepCompileBuilder";
    return name;
  }
  bool is_compatible(std::string* reason) const override {
    if (reason) *reason = kReason;
    return false;
  }
  std::shared_ptr<OpLibrary> load() override { throw NotImplementedError(kReason); }

 private:
  static constexpr const char* kReason =
      "DeepCompileBuilder has nothing to work on here: its ops are put into the graphs that PyTorch's compiler makes "
      "of a model, "
      "and this library runs ops as they are called and has no such graphs, on any accelerator";
};

}  // namespace

std::unique_ptr<OpBuilder> make_deep_compile_builder(Accelerator&) { return std::make_unique<DeepCompileBuilder>(); }

}  // namespace anyaccel::ops
