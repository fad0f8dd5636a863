// xpu over OpenCL whose kernels go through SPIR-V: compiled by the Level Zero runtime's compiler, translated back to LLVM's
// bitcode, which PoCL's CPU device takes in place of a binary. So the SPIR-V of every portable kernel can be run on a machine
// without a device that takes it.
#pragma once

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "accelerators/xpu/level_zero/spirv_compiler.h"
#include "anyaccel/abi/compiler.h"
#include "anyaccel/driver_accelerator.h"
#include "base/process/subprocess.h"
#include "runtime/driver/host_services.h"

namespace anyaccel::testing {

// LLVM's bitcode of a SPIR-V module; throws std::runtime_error with the translator's words.
inline std::string bitcode_of_spirv(const std::vector<unsigned char>& spirv) {
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "anyaccel-spirv-XXXXXX").string();
  if (!mkdtemp(folder.data())) throw std::runtime_error("no temporary folder");
  const fs::path from = fs::path(folder) / "k.spv", to = fs::path(folder) / "k.bc";
  std::ofstream(from, std::ios::binary)
      .write(reinterpret_cast<const char*>(spirv.data()), static_cast<std::streamsize>(spirv.size()));
  const std::string translator = xpu::level_zero::find_spirv_tools().translator;
  const ProcessResult translated = run_program({translator, "-r", from.string(), "-o", to.string()});
  std::ifstream stream(to, std::ios::binary);
  std::string bitcode{std::istreambuf_iterator<char>(stream), {}};
  fs::remove_all(folder);
  if (!translated.ok()) throw std::runtime_error(translator + " -r: " + translated.output);
  return bitcode;
}

// The OpenCL runtime's image with another program in it: lines about the kernels, then "binary <size>", then the program. Of
// PoCL's images, which hold the source, those lines are "options <options>" and "source <size>".
inline std::string image_with_program(const std::string& image, const std::string& program) {
  const size_t line = std::min(image.find("\nbinary "), image.find("\noptions "));
  if (line == std::string::npos) throw std::runtime_error("the image has neither a binary nor a source");
  return image.substr(0, line) + "\nbinary " + std::to_string(program.size()) + "\n" + program;
}

// `opencl` is xpu's accelerator over OpenCL; what is returned uses its driver with another compiler.
inline std::unique_ptr<DriverAccelerator> spirv_on_opencl(const DriverAccelerator& opencl) {
  // One is made at a time.
  static const abi::DriverCalls* next_driver = nullptr;
  static const abi::Calls<aa_compiler_table>* next = nullptr;
  static abi::DriverCalls driver{};
  static aa_compiler_table compiler{};
  struct Output {
    std::string image, format, log;
  };
  next_driver = &opencl.driver();
  driver = *next_driver;
  driver.aa_driver::query_extension = [](void*, aa_instance* instance, const char* name, uint32_t version,
                                         const void** out) -> aa_status* {
    aa_status* status = next_driver->query_extension(instance, name, version, out);
    if (status || std::strcmp(name, AA_COMPILER_EXTENSION) != 0) return status;
    next = static_cast<const abi::Calls<aa_compiler_table>*>(*out);
    compiler = *next;
    compiler.fingerprint = [](void*, aa_device* device, char* text, size_t size) -> aa_status* {
      aa_status* failed = next->fingerprint(device, text, size);
      const size_t length = failed ? size : std::strlen(text);
      if (length + 8 < size) std::strcpy(text + length, " spirv");
      return failed;
    };
    compiler.compile = [](void*, aa_device* device, const aa_compile* what, aa_compile_result* result) -> aa_status* {
      try {
        aa_compile_result plain{};
        plain.struct_size = sizeof(plain);
        if (aa_status* failed = next->compile(device, what, &plain)) {
          return failed;
        }
        auto output = std::make_unique<Output>();
        output->log = plain.log;
        bool succeeded = plain.succeeded != 0;
        if (succeeded) {
          output->format = plain.format;
          const abi::CompileOutput spirv = xpu::level_zero::compile_to_spirv(
              what->name, std::string(what->source, what->source_size),
              std::vector<std::string>(what->options, what->options + what->option_count));
          succeeded = spirv.succeeded;
          output->log = spirv.log;
          if (succeeded) {
            output->image = image_with_program(std::string(static_cast<const char*>(plain.image), plain.image_size),
                                               bitcode_of_spirv(spirv.image));
          }
        }
        release_status(next->release(&plain));
        result->succeeded = succeeded;
        result->image = output->image.data();
        result->image_size = output->image.size();
        result->format = output->format.c_str();
        result->log = output->log.c_str();
        result->owner = output.release();
        return nullptr;
      } catch (...) {
        return status_from_current_exception();
      }
    };
    compiler.release = [](void*, aa_compile_result* result) -> aa_status* {
      delete static_cast<Output*>(result->owner);
      result->owner = nullptr;
      return nullptr;
    };
    *out = &compiler;
    return nullptr;
  };
  return std::make_unique<DriverAccelerator>(&driver, "SPIR-V on OpenCL");
}

}  // namespace anyaccel::testing
