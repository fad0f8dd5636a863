// Implements op_builder_registry.h: finds op builders by name.
#include "runtime/ops/op_builder_registry.h"

#include <functional>
#include <map>
#include <mutex>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "runtime/builtins.h"

namespace anyaccel {

const BuiltinOpBuilder* find_builtin_op_builder(std::string_view name) {
  for (const BuiltinOpBuilder& builder : builtin_op_builders()) {
    if (name == builder.name) return &builder;
  }
  return nullptr;
}

namespace {

// The builder of an op whose name is known and that has no implementation.
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

// Builders of programs and extensions.
struct RegisteredBuilders {
  std::mutex mutex;
  std::map<std::string, std::function<std::unique_ptr<OpBuilder>(Accelerator&)>, std::less<>> make;
};
RegisteredBuilders& registered() {
  static auto& builders = *new RegisteredBuilders;
  return builders;
}

}  // namespace

void register_op_builder(const std::string& builder_name,
                         std::function<std::unique_ptr<OpBuilder>(Accelerator&)> make) {
  RegisteredBuilders& builders = registered();
  std::lock_guard lock(builders.mutex);
  if (find_builtin_op_builder(builder_name) || !builders.make.try_emplace(builder_name, std::move(make)).second) {
    throw InvalidArgument("an op builder of the name \"" + builder_name + "\" exists already; choose another name",
                          AA_ALREADY_EXISTS);
  }
}

void OpBuilder::throw_wrong_wrapper() const {
  throw InvalidArgument(name() + ": the loaded op library is not of the type that was asked for");
}

std::vector<std::string> known_op_builders() {
  std::vector<std::string> names;
  for (const BuiltinOpBuilder& builder : builtin_op_builders()) names.emplace_back(builder.name);
  std::lock_guard lock(registered().mutex);
  for (const auto& [name, make] : registered().make) names.push_back(name);
  return names;
}

std::vector<std::string> Accelerator::op_builder_names() const { return known_op_builders(); }

bool is_known_op_builder(std::string_view builder_name) {
  if (find_builtin_op_builder(builder_name)) return true;
  std::lock_guard lock(registered().mutex);
  return registered().make.contains(builder_name);
}

std::unique_ptr<OpBuilder> make_op_builder(std::string_view builder_name, Accelerator& accelerator) {
  const BuiltinOpBuilder* builder = find_builtin_op_builder(builder_name);
  if (!builder) {
    std::function<std::unique_ptr<OpBuilder>(Accelerator&)> make;
    {
      std::lock_guard lock(registered().mutex);
      const auto own = registered().make.find(builder_name);
      if (own != registered().make.end()) make = own->second;
    }
    std::unique_ptr<OpBuilder> made = make ? make(accelerator) : nullptr;
    if (made) made->build_for(accelerator);
    return made;
  }
  if (!builder->make) return std::make_unique<MissingOpBuilder>(builder->name, accelerator.name());
  return builder->make(accelerator);
}

}  // namespace anyaccel
