// Preprocesses a source and finds its kernels.
#include "simulators/cuda_libraries/nvrtc_source.h"

#include "simulators/libraries/source_text.h"

namespace sim_library {
namespace {

std::vector<std::string> kernels_of(const std::vector<Token>& tokens) {
  std::vector<std::string> kernels;
  bool extern_c = false;
  int depth = 0;         // of braces
  int extern_depth = 0;  // of the extern "C" { } we are in
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string& text = tokens[i].text;
    if (text == "{") {
      ++depth;
      if (i >= 2 && tokens[i - 1].text == "\"C\"" && tokens[i - 2].text == "extern") extern_depth = depth;
    } else if (text == "}") {
      if (depth == extern_depth) extern_depth = 0;
      --depth;
    }
    if (text == ";" || text == "}" || text == "{") extern_c = false;
    if (text == "extern" && i + 1 < tokens.size() && tokens[i + 1].text == "\"C\"") extern_c = true;
    if (text != "__global__" || (!extern_c && extern_depth == 0)) continue;
    // The name stands before the first parenthesis that no attribute opens.
    for (std::size_t k = i + 1; k + 1 < tokens.size(); ++k) {
      if (tokens[k].text == ";" || tokens[k].text == "{") break;
      if (tokens[k + 1].text != "(" || !is_word(tokens[k].text[0])) continue;
      if (tokens[k].text.rfind("__", 0) == 0) {  // __launch_bounds__(256)
        int nested = 0;
        for (++k; k < tokens.size(); ++k) {
          nested += tokens[k].text == "(" ? 1 : tokens[k].text == ")" ? -1 : 0;
          if (nested == 0) break;
        }
        continue;
      }
      kernels.push_back(tokens[k].text);
      break;
    }
  }
  return kernels;
}

std::string summary(const std::string& name, bool fatal) {
  return std::string(fatal ? "1 catastrophic error" : "1 error") + " detected in the compilation of \"" + name +
         "\".\n" + (fatal ? "Compilation terminated.\n" : "");
}

}  // namespace

CompileResult compile_source(const CompileRequest& request) {
  CompileResult result;
  PreprocessRequest wanted{request.name, request.source, request.headers, {}};
  // As NVRTC: no header of the system or of the toolkit unless an option names its folder.
  wanted.options = {"-D__CUDACC_RTC__", "-D__CUDACC__", "-D__CUDACC_VER_MAJOR__=13", "-D__CUDACC_VER_MINOR__=0",
                    "-D__CUDA_ARCH__=" + std::to_string(request.arch) + "0"};
  if (request.suffix == "a") {
    wanted.options.push_back("-D__CUDA_ARCH_FEAT_SM" + std::to_string(request.arch) + "_ALL");
  }
  wanted.options.insert(wanted.options.end(), request.preprocessor.begin(), request.preprocessor.end());
  const Preprocessed read = preprocess(wanted);
  if (!read.started) {
    result.log = "simulated nvrtc: " + read.text;
    return result;
  }
  if (!read.succeeded) {
    result.log = read.text + "\n" + summary(request.name, true);
    return result;
  }
  const std::vector<Token> tokens = tokens_of(read.text);
  int line = 0;
  // The kernels are compiled by the real NVRTC in tests/kernels.
  if (const std::string problem = syntax_error(tokens, &line); !problem.empty()) {
    result.log =
        request.name + "(" + std::to_string(line) + "): error: " + problem + "\n\n" + summary(request.name, false);
    return result;
  }
  result.kernels = kernels_of(tokens);
  result.succeeded = true;
  return result;
}

}  // namespace sim_library
