// The files of kernels, and the choices of types under which tests compile them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace anyaccel {

inline const std::filesystem::path kernels_folder = std::filesystem::path(ANYACCEL_SOURCE_DIR) / "kernels";
inline const std::string cuda_dialect = (kernels_folder / "portable/dialects/cuda-c++").string();

inline std::string read_text(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

inline std::vector<std::string> files_of(const char* folder, const char* extension) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kernels_folder / folder)) {
    if (entry.path().extension() == extension) files.push_back(entry.path().filename().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Returns the choices under which a kernel file is tried, as options: of AA_X where the text names AA_X or AA_NAME_X, of AA_W
// where it names AA_W or AA_NAME_W, of both with AA_NAME_XW; or of the format of quantized weights, those whose code differs most.
// Where a file has both, each type of x is tried with one of w: no code depends on the two together.
// simulators/kernels/host_kernels.cmake reads the files in the same way.
inline std::vector<std::vector<std::string>> type_options(const std::string& text) {
  std::vector<std::vector<std::string>> choices;
  if (text.find("AA_NAME_BLOCK") != std::string::npos) {
    for (const char* format : {"q4_k", "q5_0", "q8_0", "q6_k", "tq1_0", "mxfp4"}) {
      choices.push_back({std::string("-DAA_BLOCK=") + format});
    }
    return choices;
  }
  // These are whole words, because AA_WIDE does not depend on an element type.
  static const std::regex names_x("(^|[^A-Z_])AA_(X|NAME_X|NAME_XW)([^A-Z_]|$)");
  static const std::regex names_w("(^|[^A-Z_])AA_(W|NAME_W|NAME_XW)([^A-Z_]|$)");
  const bool has_x = std::regex_search(text, names_x), has_w = std::regex_search(text, names_w);
  if (!has_x && !has_w) return {{}};
  constexpr const char* pairs[][2] = {{"f32", "bf16"}, {"bf16", "f16"}, {"f16", "f32"}};
  for (const auto& [x, w] : pairs) {
    std::vector<std::string>& options = choices.emplace_back();
    if (has_x) options.push_back(std::string("-DAA_X=") + x);
    if (has_w) options.push_back(std::string("-DAA_W=") + w);
  }
  return choices;
}

}  // namespace anyaccel
