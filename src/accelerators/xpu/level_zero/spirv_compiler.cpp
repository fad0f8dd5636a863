// Implements spirv_compiler.h: OpenCL C to SPIR-V by programs of the system.
#include "accelerators/xpu/level_zero/spirv_compiler.h"

#include <cstdlib>
#include <cstring>

#include "accelerators/compiler_program/build_folder.h"
#include "base/process/shell.h"
#include "base/process/subprocess.h"

namespace anyaccel::xpu::level_zero {
namespace {

constexpr int first_version = 14;  // Debian 12's
constexpr int last_version = 19;

// OpenCL C 3.0 because sub-groups need it. Without the generic address space a pointer of no named space is private, as in
// 1.2; with it, kernels would be full of casts that cost time on devices, and pipes and device queues need it. Optimizing is
// left to the device's compiler: LLVM's passes make instructions that SPIR-V lacks ("freeze"), which are not translated.
const std::vector<std::string>& compiler_options() {
  static const std::vector<std::string> options{
      "-target",
      "spir64-unknown-unknown",
      "-x",
      "cl",
      "-cl-std=CL3.0",
      "-Xclang",
      "-cl-ext=-__opencl_c_generic_address_space,-__opencl_c_pipes,-__opencl_c_device_enqueue",
      "-Xclang",
      "-finclude-default-header",
      "-Dcl_intel_required_subgroup_size=1",  // clang takes the attribute but does not say so
      "-O2",
      "-Xclang",
      "-disable-llvm-passes",
      "-emit-llvm",
  };
  return options;
}

}  // namespace

// clang-14 with llvm-spirv-14, ..., then clang with the translator of its version.
SpirvTools find_spirv_tools() {
  for (int version = first_version; version <= last_version; ++version) {
    const std::string suffix = "-" + std::to_string(version);
    SpirvTools tools{find_program("clang" + suffix), find_program("llvm-spirv" + suffix), version};
    if (!tools.clang.empty() && !tools.translator.empty()) return tools;
  }
  const SpirvTools none{{}, {}, first_version};
  SpirvTools tools{find_program("clang"), {}, 0};
  if (tools.clang.empty()) return none;
  const ProcessResult said = run_program({tools.clang, "-dumpversion"});
  tools.version = said.ok() ? std::atoi(said.output.c_str()) : 0;
  if (tools.version < first_version || tools.version > last_version) return none;
  tools.translator = find_program("llvm-spirv-" + std::to_string(tools.version));
  if (tools.translator.empty()) tools.translator = find_program("llvm-spirv");
  return tools.translator.empty() ? none : tools;
}

bool is_spirv(const void* image) {
  uint32_t word = 0;
  std::memcpy(&word, image, sizeof(word));
  return word == 0x07230203;
}

std::string spirv_fingerprint() {
  std::string text = "spirv clang+llvm-spirv " + std::to_string(find_spirv_tools().version);
  for (const std::string& option : compiler_options()) text += " " + option;
  return text;
}

abi::CompileOutput compile_to_spirv(const std::string& name, std::string_view source,
                                    const std::vector<std::string>& options) {
  const SpirvTools tools = find_spirv_tools();
  if (tools.clang.empty()) {
    throw abi::Failure(
        AA_UNAVAILABLE,
        "kernels cannot be compiled to SPIR-V: PATH has no clang and llvm-spirv of one version (looked for "
        "clang-14 and llvm-spirv-14 up to 19, then clang); install both, such as the packages clang-14 and "
        "llvm-spirv-14 "
        "of Debian 12, or clang-19 and llvm-spirv-19 of Debian 13");
  }
  const BuildFolder folder;
  const std::string source_file = folder.write_source("kernel.cl", name, source);
  const std::string bitcode = folder.file("kernel.bc");
  const std::string spirv = folder.file("kernel.spv");

  abi::CompileOutput output;
  output.format = spirv_format;
  std::vector<std::string> command{tools.clang};
  command.insert(command.end(), compiler_options().begin(), compiler_options().end());
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), {"-c", source_file, "-o", bitcode});
  const ProcessResult compiled = run_program(command);
  output.log = compiled.output;
  if (!compiled.ok()) {
    if (output.log.empty()) output.log = tools.clang + " ended with code " + std::to_string(compiled.exit_code);
    return output;
  }
  const ProcessResult translated = run_program({tools.translator, bitcode, "-o", spirv});
  output.log += translated.output;
  if (!translated.ok()) {
    output.log += "\n" + tools.translator + " ended with code " + std::to_string(translated.exit_code);
    return output;
  }
  output.image = read_output(spirv);
  output.succeeded = output.image.size() >= sizeof(uint32_t) && is_spirv(output.image.data());
  if (!output.succeeded) output.log += "\n" + tools.translator + " wrote no SPIR-V to " + spirv;
  return output;
}

}  // namespace anyaccel::xpu::level_zero
