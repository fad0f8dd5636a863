// Implements the op builders that an accelerator's driver provides (abi/op_builders.h).
#include <filesystem>

#include "anyaccel/device_op.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/files/trusted_path.h"
#include "ops/builders.h"
#include "runtime/builtins.h"

namespace anyaccel::ops {
namespace {

// Checks that nobody else can change the sources, which become code of this process.
void check_trusted(const DriverOpBuilder& entry) {
  for (const std::string& source : entry.sources) {
    const TrustedPath found = open_trusted_file(source, Trust::program);
    if (found.state == TrustedPath::State::refused) {
      throw UnavailableError(entry.name + " of " + entry.driver + " is not compiled, because " + found.reason +
                             ", so that another user could put code there. Cure: " + found.cure);
    }
  }
}

class DriverHostOpBuilder final : public HostOpBuilder {
 public:
  // `known` is anyaccel's own builder of that name, or null.
  DriverHostOpBuilder(const DriverOpBuilder& entry, std::unique_ptr<OpBuilder> known, const Accelerator& accelerator)
      : HostOpBuilder(entry.name), entry_(entry), known_(std::move(known)), accelerator_(accelerator) {
    build_for(accelerator);
  }
  std::vector<std::string> sources() const override { return entry_.sources; }
  std::vector<std::string> include_paths() const override { return entry_.include_dirs; }
  std::vector<std::string> cxx_args() const override {
    std::vector<std::string> flags = HostOpBuilder::cxx_args();
    flags.insert(flags.end(), entry_.compile_flags.begin(), entry_.compile_flags.end());
    return flags;
  }
  std::vector<std::string> extra_ldflags() const override { return entry_.link_flags; }
  std::string folder() const override { return entry_.folder; }
  BuildPlan builder() const override {
    check_trusted(entry_);
    BuildPlan plan = HostOpBuilder::builder();
    // The prefix keeps it apart from anyaccel's library of the same name, in the cache and among the prebuilt ones.
    plan.op_name = entry_.driver + "." + plan.op_name;
    return plan;
  }
  std::shared_ptr<OpLibrary> make_library(std::shared_ptr<HostOpLibrary> code) override {
    return known_ ? static_cast<HostOpBuilder&>(*known_).make_library(std::move(code)) : code;
  }

 protected:
  std::string ready_library() const override { return entry_.library; }
  const void* wrapper_context() const override { return &accelerator_; }

 private:
  const DriverOpBuilder entry_;
  const std::unique_ptr<OpBuilder> known_;
  const Accelerator& accelerator_;
};

class DriverDeviceOpBuilder final : public DeviceOpBuilder {
 public:
  DriverDeviceOpBuilder(const DriverOpBuilder& entry, Accelerator& accelerator)
      : DeviceOpBuilder(entry.name, accelerator), entry_(entry) {}
  std::vector<DeviceSource> device_sources() const override { return {{entry_.language, entry_.sources.at(0)}}; }
  std::vector<std::string> include_paths() const override { return entry_.include_dirs; }
  std::vector<std::string> compile_options() const override { return entry_.compile_flags; }
  std::string folder() const override { return entry_.folder; }
  std::shared_ptr<OpLibrary> load() override {
    check_trusted(entry_);
    return DeviceOpBuilder::load();
  }

 private:
  const DriverOpBuilder entry_;
};

}  // namespace

std::unique_ptr<OpBuilder> make_driver_op_builder(const DriverOpBuilder& entry, DriverAccelerator& accelerator) {
  std::unique_ptr<OpBuilder> known;
  const BuiltinOpBuilder* builtin = find_builtin_op_builder(entry.name);
  if (builtin && builtin->make) {
    known = builtin->make(accelerator);
    if (!dynamic_cast<HostOpBuilder*>(known.get()) || !entry.language.empty()) {
      log_warning(entry.driver + ": the op builder " + entry.name + " of the plugin is not used: " +
                  (entry.language.empty()
                       ? "that library is part of anyaccel; a driver takes its ops over by the extension \"ops\""
                       : "anyaccel's library of that name runs on the host"));
      return nullptr;
    }
  }
  if (!entry.language.empty()) return std::make_unique<DriverDeviceOpBuilder>(entry, accelerator);
  return std::make_unique<DriverHostOpBuilder>(entry, std::move(known), accelerator);
}

}  // namespace anyaccel::ops
