// Simulates NVIDIA's run-time compiler (libnvrtc.so.13), with the result codes, options and logs of version 13.0. Its
// "cubin" names the architecture and the kernels, which the simulated driver runs as they were compiled for the host:
//
//   SIMCUBIN
//   arch sm_90
//   kernel NAME        one line each
#include <algorithm>
#include <cstring>
#include <sstream>

#include "simulators/cuda_libraries/nvrtc_source.h"
#include "simulators/libraries/library.h"

namespace sim_library {

enum nvrtcResult : int {
  NVRTC_SUCCESS = 0,
  NVRTC_ERROR_INVALID_INPUT = 3,
  NVRTC_ERROR_INVALID_PROGRAM = 4,
  NVRTC_ERROR_INVALID_OPTION = 5,
  NVRTC_ERROR_COMPILATION = 6,
  NVRTC_ERROR_INTERNAL_ERROR = 11,
};
using nvrtcProgram = void*;

namespace {

constexpr int kArchitectures[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};

struct Program {
  CompileRequest request;
  std::mutex mutex;  // guards what follows
  std::string log, ptx, cubin;
};
Handles<Program>& programs() {
  static auto* programs = new Handles<Program>("nvrtc program");
  return *programs;
}

struct Options {
  std::string problem;  // what NVRTC logs; empty: none
  std::string arch = "sm_75";
  std::vector<std::string> preprocessor;
};

bool architecture(const std::string& value, int* number, std::string* suffix) {
  const std::size_t digits = value.find_first_of("0123456789");
  if (digits == std::string::npos) return false;
  const std::string kind = value.substr(0, digits);
  const std::size_t end = std::min(value.find_first_not_of("0123456789", digits), value.size());
  *suffix = value.substr(end);
  *number = std::atoi(value.c_str() + digits);
  const bool known =
      std::find(std::begin(kArchitectures), std::end(kArchitectures), *number) != std::end(kArchitectures);
  const bool suffix_known = suffix->empty() || (*suffix == "a" && *number >= 90) || (*suffix == "f" && *number >= 100);
  return (kind == "sm_" || kind == "compute_") && known && suffix_known;
}

// Options of the NVRTC documentation that change nothing here. With a value, or alone.
constexpr const char* kValued[] = {"--std",          "-std",          "--ptxas-options", "-Xptxas",
                                   "--maxrregcount", "-maxrregcount", "--fmad",          "-fmad",
                                   "--ftz",          "-ftz",          "--prec-sqrt",     "-prec-sqrt",
                                   "--prec-div",     "-prec-div",     "--diag-suppress", "-diag-suppress",
                                   "--dopt",         "-dopt",         "--split-compile"};
constexpr const char* kAlone[] = {"--use_fast_math",
                                  "-use_fast_math",
                                  "--device-debug",
                                  "-G",
                                  "--generate-line-info",
                                  "-lineinfo",
                                  "--restrict",
                                  "-restrict",
                                  "--disable-warnings",
                                  "-w",
                                  "--extra-device-vectorization",
                                  "-extra-device-vectorization",
                                  "--device-as-default-execution-space",
                                  "-default-device",
                                  "--relocatable-device-code=false",
                                  "-rdc=false",
                                  "--minimal",
                                  "-minimal"};

Options parse(int count, const char* const* texts) {
  Options options;
  for (int i = 0; i < count; ++i) {
    const std::string text = texts[i];
    const std::size_t equals = text.find('=');
    const std::string key = text.substr(0, equals);
    // The value after '=', else the next option.
    const auto value = [&]() -> std::string {
      if (equals != std::string::npos) return text.substr(equals + 1);
      return i + 1 < count ? texts[++i] : "";
    };
    const auto is_one_of = [](const auto& list, const std::string& word) {
      return std::find(std::begin(list), std::end(list), word) != std::end(list);
    };
    if (key == "--gpu-architecture" || key == "-arch") {
      options.arch = value();
      int number = 0;
      std::string suffix;
      if (!architecture(options.arch, &number, &suffix)) {
        options.problem = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n";
      }
    } else if (key == "--define-macro" || text == "-D") {
      options.preprocessor.push_back("-D" + value());
    } else if (key == "--undefine-macro" || text == "-U") {
      options.preprocessor.push_back("-U" + value());
    } else if (key == "--include-path" || text == "-I") {
      options.preprocessor.push_back("-I" + value());
    } else if (key == "--pre-include" || key == "-include") {
      options.preprocessor.emplace_back("-include");
      options.preprocessor.push_back(value());
    } else if (text.rfind("-D", 0) == 0 || text.rfind("-U", 0) == 0 || text.rfind("-I", 0) == 0) {
      options.preprocessor.push_back(text);
    } else if (is_one_of(kValued, key)) {
      if (value().empty()) options.problem = "nvrtc: error: missing value for option " + key + "\n";
    } else if (!is_one_of(kAlone, text)) {
      options.problem = "nvrtc: error: unrecognized option " + text + " found\n";
    }
    if (!options.problem.empty()) break;
  }
  return options;
}

// Results are copied by two calls: the size with the terminating zero, then the bytes.
nvrtcResult size_of(nvrtcProgram handle, std::size_t* size, std::string Program::*member, bool text,
                    const char* function) {
  const auto program = programs().get(handle, function);
  if (program == nullptr) return NVRTC_ERROR_INVALID_PROGRAM;
  if (size == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  const std::lock_guard lock(program->mutex);
  *size = ((*program).*member).size() + (text ? 1 : 0);
  return NVRTC_SUCCESS;
}
nvrtcResult copy_of(nvrtcProgram handle, char* out, std::string Program::*member, bool text, const char* function) {
  const auto program = programs().get(handle, function);
  if (program == nullptr) return NVRTC_ERROR_INVALID_PROGRAM;
  if (out == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  const std::lock_guard lock(program->mutex);
  const std::string& from = (*program).*member;
  std::memcpy(out, from.c_str(), from.size() + (text ? 1 : 0));
  return NVRTC_SUCCESS;
}

}  // namespace

nvrtcResult nvrtcVersion(int* major, int* minor) {
  if (major == nullptr || minor == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  *major = 13;
  *minor = 0;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  if (count == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  *count = static_cast<int>(std::size(kArchitectures));
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetSupportedArchs(int* architectures) {
  if (architectures == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  std::copy(std::begin(kArchitectures), std::end(kArchitectures), architectures);
  return NVRTC_SUCCESS;
}

const char* nvrtcGetErrorString(nvrtcResult result) {
  static constexpr const char* names[] = {"NVRTC_SUCCESS",
                                          "NVRTC_ERROR_OUT_OF_MEMORY",
                                          "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
                                          "NVRTC_ERROR_INVALID_INPUT",
                                          "NVRTC_ERROR_INVALID_PROGRAM",
                                          "NVRTC_ERROR_INVALID_OPTION",
                                          "NVRTC_ERROR_COMPILATION",
                                          "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
                                          "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
                                          "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
                                          "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
                                          "NVRTC_ERROR_INTERNAL_ERROR"};
  const auto index = static_cast<std::size_t>(result);
  return index < std::size(names) ? names[index] : "NVRTC_ERROR unknown";
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram* handle, const char* source, const char* name, int header_count,
                               const char* const* headers, const char* const* include_names) {
  if (handle == nullptr || source == nullptr || header_count < 0 ||
      (header_count > 0 && (headers == nullptr || include_names == nullptr))) {
    violation("bad-argument", "nvrtcCreateProgram: a pointer is null");
    return NVRTC_ERROR_INVALID_INPUT;
  }
  auto program = std::make_shared<Program>();
  program->request.name = name != nullptr ? name : "default_program";
  program->request.source = source;
  for (int i = 0; i < header_count; ++i) program->request.headers[include_names[i]] = headers[i];
  *handle = programs().add(std::move(program));
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram* handle) {
  if (handle == nullptr || programs().get(*handle, __func__) == nullptr) return NVRTC_ERROR_INVALID_PROGRAM;
  programs().remove(*handle);
  *handle = nullptr;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram handle, int count, const char* const* texts) {
  const auto program = programs().get(handle, __func__);
  if (program == nullptr) return NVRTC_ERROR_INVALID_PROGRAM;
  if (count < 0 || (count > 0 && texts == nullptr)) return NVRTC_ERROR_INVALID_INPUT;
  const std::lock_guard lock(program->mutex);
  program->ptx.clear();
  program->cubin.clear();
  Options options = parse(count, texts);
  program->log = options.problem;
  if (!options.problem.empty()) return NVRTC_ERROR_INVALID_OPTION;
  CompileRequest request = program->request;
  architecture(options.arch, &request.arch, &request.suffix);
  request.preprocessor = std::move(options.preprocessor);
  const CompileResult result = compile_source(request);
  program->log = result.log;
  if (!result.succeeded) return NVRTC_ERROR_COMPILATION;
  const std::string number = std::to_string(request.arch) + request.suffix;
  program->ptx = "//\n// Simulated NVRTC\n//\n\n.version 9.0\n.target sm_" + number + "\n.address_size 64\n";
  std::string cubin = "SIMCUBIN\narch sm_" + number + "\n";
  for (const std::string& kernel : result.kernels) {
    program->ptx += "\n.visible .entry " + kernel + "()\n{\n\tret;\n}\n";
    cubin += "kernel " + kernel + "\n";
  }
  if (options.arch.rfind("sm_", 0) == 0) program->cubin = cubin;  // compute_90 gives PTX only
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, std::size_t* size) {
  return size_of(program, size, &Program::ptx, true, __func__);
}
nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* out) {
  return copy_of(program, out, &Program::ptx, true, __func__);
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t* size) {
  return size_of(program, size, &Program::cubin, false, __func__);
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* out) {
  return copy_of(program, out, &Program::cubin, false, __func__);
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, std::size_t* size) {
  return size_of(program, size, &Program::log, true, __func__);
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* out) {
  return copy_of(program, out, &Program::log, true, __func__);
}

}  // namespace sim_library

SIM_EXPORT(nvrtcVersion, sim_library::NVRTC_ERROR_INTERNAL_ERROR)
SIM_EXPORT(nvrtcGetNumSupportedArchs, sim_library::NVRTC_ERROR_INTERNAL_ERROR)
SIM_EXPORT(nvrtcGetSupportedArchs, sim_library::NVRTC_ERROR_INTERNAL_ERROR)
SIM_EXPORT(nvrtcGetErrorString, nullptr)
SIM_EXPORT(nvrtcCreateProgram, sim_library::NVRTC_ERROR_INTERNAL_ERROR)
SIM_EXPORT(nvrtcDestroyProgram, sim_library::NVRTC_ERROR_INTERNAL_ERROR)
SIM_EXPORT(nvrtcCompileProgram, sim_library::NVRTC_ERROR_INTERNAL_ERROR)
SIM_EXPORT(nvrtcGetPTXSize, sim_library::NVRTC_ERROR_INTERNAL_ERROR)
SIM_EXPORT(nvrtcGetPTX, sim_library::NVRTC_ERROR_INTERNAL_ERROR)
SIM_EXPORT(nvrtcGetCUBINSize, sim_library::NVRTC_ERROR_INTERNAL_ERROR)
SIM_EXPORT(nvrtcGetCUBIN, sim_library::NVRTC_ERROR_INTERNAL_ERROR)
SIM_EXPORT(nvrtcGetProgramLogSize, sim_library::NVRTC_ERROR_INTERNAL_ERROR)
SIM_EXPORT(nvrtcGetProgramLog, sim_library::NVRTC_ERROR_INTERNAL_ERROR)
