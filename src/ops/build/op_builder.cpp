// Implements the parts that all op builders share: names, folder, recipe, and queries about the machine. See
// anyaccel/op_builder.h.
#include "anyaccel/op_builder.h"

#include <dlfcn.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "base/files/files.h"
#include "base/files/install_paths.h"
#include "base/process/shell.h"
#include "base/process/subprocess.h"
#include "base/process/toolchain.h"
#include "base/text/text.h"
#include "ops/build/source_languages.h"
#include "ops/builders.h"
#include "ops/host/host_accelerator.h"
#include "runtime/builtins.h"
#include "runtime/driver/driver_op_builders.h"
#include "runtime/driver/host_services.h"

namespace anyaccel {

namespace fs = std::filesystem;

void throw_if_failed(aa_status* status, const char* what) {
  if (status) throw_status(status, what, "op");
}

void* HostOpLibrary::find(const char* function) const noexcept { return dlsym(handle_, function); }

void* HostOpLibrary::require(const char* name) const {
  if (void* address = find(name)) return address;
  throw InvalidArgument("the op library " + file_ + " has no function \"" + name +
                        "\"; mark it AA_OP in the op's source (anyaccel/op_source.h)");
}

// Returns "my_scale" for "MyScaleBuilder": a word begins at a capital after a small letter, and at the last of several
// capitals when a small letter follows it.
std::string OpBuilder::op_name() const {
  if (const BuiltinOpBuilder* known = find_builtin_op_builder(name())) return known->op_name;
  std::string camel = name();
  if (camel.ends_with("Builder")) camel.resize(camel.size() - 7);
  const auto is_upper = [&](size_t i) {
    return i < camel.size() && std::isupper(static_cast<unsigned char>(camel[i]));
  };
  const auto is_lower = [&](size_t i) {
    return i < camel.size() &&
           (std::islower(static_cast<unsigned char>(camel[i])) || std::isdigit(static_cast<unsigned char>(camel[i])));
  };
  std::string snake;
  for (size_t i = 0; i < camel.size(); ++i) {
    if (i > 0 && is_upper(i) && (is_lower(i - 1) || (is_upper(i - 1) && is_lower(i + 1)))) snake += '_';
    snake += ascii_lower(camel[i]);
  }
  return snake;
}

std::string OpBuilder::build_var() const {
  if (const BuiltinOpBuilder* known = find_builtin_op_builder(name())) return known->build_var;
  std::string variable = "DS_BUILD_";
  for (const char c : op_name()) variable += ascii_upper(c);
  return variable;
}

std::string OpBuilder::folder() const {
  // The vtable of the object's own class lies in the file that defines the class.
  const void* table = *reinterpret_cast<const void* const*>(this);
  Dl_info info{};
  std::error_code error;
  if (dladdr(table, &info) && info.dli_fname) {
    const fs::path file = fs::canonical(info.dli_fname, error);
    // The main program is reported by the name with which it was called.
    if (!error && file.extension().string().starts_with(".so")) return file.parent_path().string();
    if (!error && file.filename().string().find(".so.") != std::string::npos) return file.parent_path().string();
  }
  const fs::path program = own_program();
  return program.empty() ? fs::current_path().string() : program.parent_path().string();
}

BuildPlan OpBuilder::builder() const {
  const fs::path base = folder();
  const auto absolute = [&](const std::string& path) { return (base / path).lexically_normal().string(); };
  const auto add_variable = [](std::vector<std::string>& list, const char* variable) {
    const char* value = std::getenv(variable);
    if (!value) return;
    for (std::string& argument : split_words(value, variable)) list.push_back(std::move(argument));
  };
  BuildPlan plan;
  plan.op_name = op_name();
  for (const std::string& source : sources()) {
    plan.sources.push_back(absolute(source));
    std::error_code error;
    if (!fs::is_regular_file(plan.sources.back(), error)) {
      const std::string missing = base == ops::bundled_sources_dir() ? missing_package() : std::string();
      if (!missing.empty()) throw UnavailableError(name() + ": " + missing);
      throw UnavailableError(name() + ": its source \"" + source + "\" was looked for at " + plan.sources.back() +
                             " and is not there; paths are relative to the folder of the library or program that "
                             "defines the builder");
    }
  }
  if (plan.sources.empty()) return plan;
  plan.target = ops::host_target();
  const BuildExtension toolchain = accelerator_ ? accelerator_->build_extension() : host_build_extension();
  if (toolchain.compiler != host_build_extension().compiler) plan.compiler = toolchain.compiler;
  for (const std::string& path : include_paths()) plan.include_paths.push_back(absolute(path));
  for (const std::string& path : toolchain.include_dirs) plan.include_paths.push_back(path);
  const auto keep = [](std::vector<std::string>& list, std::vector<std::string> items) {
    for (std::string& item : items) {
      if (!item.empty()) list.push_back(std::move(item));
    }
  };
  // The builder's flags come later, so they take precedence. Linking is a separate step, which adds -shared.
  for (const std::string& flag : toolchain.flags) {
    if (flag != "-shared") keep(plan.cxx_args, {flag});
  }
  keep(plan.cxx_args, cxx_args());
  keep(plan.cxx_args, target_flags(plan.target));
  keep(plan.cxx_args, {"-fPIC", "-fvisibility=hidden"});
  // A process with sanitizers loads ops with sanitizers.
  keep(plan.cxx_args, split_words(ANYACCEL_OP_FLAGS, "ANYACCEL_OP_FLAGS"));
  add_variable(plan.cxx_args, "CFLAGS");
  add_variable(plan.cxx_args, "CXXFLAGS");
  keep(plan.nvcc_args, nvcc_args());
  for (const std::string& source : plan.sources) {
    if (const ops::SourceLanguage* language = ops::language_of(source)) {
      keep(plan.nvcc_args, language->flags());
      break;
    }
  }
  keep(plan.ldflags, toolchain.link_flags);
  keep(plan.ldflags, extra_ldflags());
  add_variable(plan.ldflags, "LDFLAGS");
  return plan;
}

bool OpBuilder::command_exists(std::string_view names) {
  size_t begin = 0;
  while (begin <= names.size()) {
    const size_t end = std::min(names.find('|', begin), names.size());
    if (!find_program(std::string(names.substr(begin, end - begin))).empty()) return true;
    begin = end + 1;
  }
  return false;
}

bool OpBuilder::has_function(const std::string& function, const std::vector<std::string>& libraries,
                             const std::vector<std::string>& library_dirs) {
  for (const char c : function) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') {
      throw InvalidArgument("has_function: \"" + function + "\" is not the name of a C function");
    }
  }
  try {
    const TemporaryFolder folder("probe");
    const std::string source = folder.file("probe.cpp");
    std::ofstream(source) << "extern \"C\" char " << function << "();\nint main() { return " << function << "(); }\n";
    std::vector<std::string> command = cxx_command();
    const auto add_variable = [&](const char* variable) {
      const char* value = std::getenv(variable);
      if (!value) return;
      for (std::string& argument : split_words(value, variable)) command.push_back(std::move(argument));
    };
    add_variable("CFLAGS");
    command.insert(command.end(), {source, "-o", folder.file("probe")});
    for (const std::string& dir : library_dirs) command.push_back("-L" + dir);
    add_variable("LDFLAGS");
    for (const std::string& library : libraries) command.push_back("-l" + library);
    return run_program(command).ok();
  } catch (const UnavailableError&) {
    return false;
  }
}

std::string ops::bundled_sources_dir() { return install_kernels_dir() + "/host"; }

}  // namespace anyaccel
