// See op_builder_registry.h.
#include "runtime/op_builder_registry.h"

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "runtime/builtins.h"

namespace anyaccel {
namespace {

const BuiltinOpBuilder* find(std::string_view name) {
  for (const BuiltinOpBuilder& builder : builtin_op_builders()) {
    if (name == builder.name) return &builder;
  }
  return nullptr;
}

// Stands for an op that is known by name and has no implementation.
class MissingOpBuilder final : public OpBuilder {
 public:
  MissingOpBuilder(std::string name, std::string accelerator)
      : name_(std::move(name)),
        reason_(name_ + " is not implemented on accelerator \"" + accelerator +
                "\", and this build has it on no other accelerator either") {}
  const std::string& name() const noexcept override { return name_; }
  bool is_compatible(std::string* reason) const override {
    if (reason) *reason = reason_;
    return false;
  }
  std::shared_ptr<OpLibrary> load() override { throw NotImplementedError(reason_); }

 private:
  std::string name_;
  std::string reason_;
};

}  // namespace

void OpBuilder::throw_wrong_face() const {
  throw InvalidArgument(name() + ": the loaded op library is not of the type that was asked for");
}

std::vector<std::string> known_op_builders() {
  std::vector<std::string> names;
  for (const BuiltinOpBuilder& builder : builtin_op_builders()) names.emplace_back(builder.name);
  return names;
}

bool is_known_op_builder(std::string_view builder_name) { return find(builder_name) != nullptr; }

std::unique_ptr<OpBuilder> make_op_builder(std::string_view builder_name, Accelerator& accelerator) {
  const BuiltinOpBuilder* builder = find(builder_name);
  if (!builder) return nullptr;
  if (!builder->make) return std::make_unique<MissingOpBuilder>(builder->name, accelerator.name());
  return builder->make(accelerator);
}

}  // namespace anyaccel
