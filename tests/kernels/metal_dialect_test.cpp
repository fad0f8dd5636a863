// Every portable kernel keeps the rules of Metal's shading language about address spaces, as far as clang can tell without Apple's
// compiler: it compiles in C++ for OpenCL against a stand-in for Metal's standard library (metal/metal_stdlib). Clang enforces
// there that pointers to device, threadgroup and the item's own memory do not mix and that kernels alone have threadgroup
// variables; that each pointer names its space, and that a kernel has at most 31 buffers, is read from clang's syntax tree.
//
// It does not show that Apple's compiler accepts everything else, nor that the kernels compute the right results in
// Metal. Skipped where clang is not installed.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/kernel_files.h"

namespace anyaccel {
namespace {

namespace fs = std::filesystem;

const std::string metal_dialect = (kernels_folder / "portable/dialects/metal").string();
const std::string stand_in = (fs::path(ANYACCEL_SOURCE_DIR) / "tests/kernels/metal").string();

struct Result {
  int status = -1;
  std::string text;  // what the compiler said, and the syntax tree
};

Result run(const std::string& command) {
  Result result;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return result;
  char part[4096];
  for (size_t n = 0; (n = std::fread(part, 1, sizeof(part), pipe)) > 0;) result.text.append(part, n);
  result.status = ::pclose(pipe);
  return result;
}

const bool has_clang = run("clang --version").status == 0;

std::string quoted(const std::string& text) { return "'" + text + "'"; }

Result compile(const std::string& file, const std::vector<std::string>& options) {
  std::string command =
      "clang -x cl -cl-std=clc++2021 --target=spir64 -fsyntax-only -Xclang -finclude-default-header -Xclang "
      "-fdeclare-opencl-builtins -Xclang -ast-dump -fno-color-diagnostics -Werror -Wall -Wno-unknown-pragmas "
      "-Wno-unknown-attributes -Wno-ignored-attributes -Wno-unused-function -Wno-unused-variable -I" +
      quoted(stand_in) + " -I" + quoted(metal_dialect) + " -I" + quoted((kernels_folder / "portable").string());
  for (const std::string& option : options) command += " " + quoted(option);
  return run(command + " " + quoted(file));
}

std::vector<std::string> tuning(int group, int lanes, int subgroup) {
  return {"-DAA_GROUP_SIZE=" + std::to_string(group),
          "-DAA_LANES=" + std::to_string(lanes),
          "-DAA_SUBGROUP=" + std::to_string(subgroup),
          "-DAA_ITEMS=" + std::to_string(group),
          "-DAA_LOCAL_BYTES=32768",
          "-DAA_HAS_F16=1",
          "-DAA_HAS_F64=0"};
}

// Pointers and references without an address space: clang gives them the generic one, which Metal has not. Copy constructors of
// the compiler's own making, whose parameters have no name, are not meant.
std::string without_a_space(const std::string& tree) {
  static const std::regex declared(R"((?:ParmVarDecl|VarDecl|FieldDecl) .*? (\w+) '([^']*__generic[^']*)')");
  static const std::regex cast(R"(C(?:Style|XXReinterpret|XXStatic)CastExpr .*'([^']*__generic[^']*\*)')");
  std::string found;
  std::istringstream lines(tree);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("__generic") == std::string::npos) continue;  // most lines: the expressions are slow
    std::smatch match;
    if (std::regex_search(line, match, declared) && match[1] != "used" && match[1] != "referenced" &&
        line.find(" implicit ") == std::string::npos) {
      found += match.str(1) + " is a " + match.str(2) + "\n";
    } else if (std::regex_search(line, match, cast)) {
      found += "a cast to " + match.str(1) + "\n";
    }
  }
  return found;
}

// Kernels and how many buffers they have: their parameters without the three ids.
std::vector<std::pair<std::string, int>> kernels_in(const std::string& tree) {
  static const std::regex function(R"(^[|`]-FunctionDecl .* (\w+) 'void \()");
  std::vector<std::pair<std::string, int>> kernels;
  std::string name;
  int parameters = 0;
  std::istringstream lines(tree);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (line.size() > 2 && (line[0] == '|' || line[0] == '`') && line[1] == '-') {
      name = std::regex_search(line, match, function) ? match.str(1) : std::string();
      parameters = 0;
    } else if (line.find("-ParmVarDecl ") == 2 || line.find("-ParmVarDecl ") == 3) {
      ++parameters;
    } else if (!name.empty() && line.find("-OpenCLKernelAttr ") <= 3) {
      kernels.emplace_back(name, parameters - 3);
    }
  }
  return kernels;
}

class MetalDialect : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!has_clang) GTEST_SKIP() << "no clang (Debian: apt-get install clang)";
  }
};

TEST_P(MetalDialect, EveryPointerHasItsAddressSpace) {
  const std::string file = (kernels_folder / "portable" / GetParam()).string();
  const struct {
    std::vector<std::string> options;
    bool all_types;
  } tunings[] = {
      {tuning(256, 32, 32), true}, {tuning(32, 8, 8), false}, {tuning(64, 16, 0), false}, {tuning(1, 1, 0), false}};
  std::set<std::string> names;
  for (const auto& [options, all_types] : tunings) {
    for (const std::vector<std::string>& types : type_options(read_text(file))) {
      std::vector<std::string> all = options;
      all.insert(all.end(), types.begin(), types.end());
      const Result result = compile(file, all);
      const std::string what =
          GetParam() + " with " + all[0] + " " + all[2] + (types.empty() ? "" : " " + types.back());
      ASSERT_EQ(result.status, 0) << what << "\n" << result.text.substr(0, result.text.find("TranslationUnitDecl"));
      EXPECT_EQ(without_a_space(result.text), "") << what;
      for (const auto& [name, buffers] : kernels_in(result.text)) {
        EXPECT_LE(buffers, 31) << name << " of " << what;
        EXPECT_GT(buffers, 0) << name;
        names.insert(name);
      }
      if (!all_types) break;
    }
  }
  EXPECT_FALSE(names.empty()) << GetParam() << " has no kernel";
}

INSTANTIATE_TEST_SUITE_P(PortableKernels, MetalDialect, ::testing::ValuesIn(files_of("portable", ".cl")),
                         [](const auto& info) { return fs::path(info.param).stem().string(); });

// The mistakes that the test must find.
class MetalMistakes : public MetalDialect {};

TEST_P(MetalMistakes, AreFound) {
  const std::string folder = ::testing::TempDir() + "metal_mistake_XXXXXX";
  std::string name = folder;
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const std::string file = name + "/mistake.cl";
  std::ofstream(file) << "#include \"dialect.h\"\n" << GetParam();
  const Result result = compile(file, tuning(256, 32, 32));
  EXPECT_TRUE(result.status != 0 || !without_a_space(result.text).empty()) << GetParam();
  std::error_code ignored;
  fs::remove_all(name, ignored);
}

INSTANTIATE_TEST_SUITE_P(
    All, MetalMistakes,
    ::testing::Values(
        "AA_FN void set(float* p) { *p = 0.0f; }",
        "AA_FN float get(AA_PRIVATE const float* p) { return *p; }\n"
        "AA_KERNEL(k, 1)(AA_IN(float) x, AA_OUT(float) y) { y[0] = get(x); }",
        "AA_KERNEL(k, 1)(AA_OUT(float) y) { AA_LOCAL_ARRAY(float, a, 4); AA_OUT(float) p = a; y[0] = p[0]; }",
        "AA_FN float sum(float v) { AA_LOCAL_ARRAY(float, a, 4); a[0] = v; return a[0]; }",
        "AA_KERNEL(k, 1)(AA_IN(float) x) { x[0] = 1.0f; }",
        "AA_KERNEL(k, 1)(AA_OUT(float) y, AA_VALUE(float) v) { v = 1.0f; y[0] = v; }",
        "AA_KERNEL(k, 1)(AA_OUT(void) y) { ((float*)y)[0] = 1.0f; }",
        "AA_KERNEL(k, 1)(AA_OUT(float) y) { const int device = 1; y[device] = 1.0f; }",
        "AA_KERNEL(k, 1)(AA_OUT(float) y) { y[0] = erf(1.0f); y[0] = aa_no_such_function(1.0f); }"));

TEST(MetalErf, AgreesWithTheHostsToTwoUnits) {
  // The polynomials of the dialect, compiled for the host.
  if (!has_clang) GTEST_SKIP() << "no clang (Debian: apt-get install clang)";
  const std::string text = read_text(fs::path(metal_dialect) / "language.h");
  const size_t begin = text.find("AA_FN float aa_erf(float x) {");
  const size_t end = text.find("\n}\n", begin);
  ASSERT_NE(begin, std::string::npos);
  std::string name = ::testing::TempDir() + "metal_erf_XXXXXX";
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  std::ofstream(name + "/erf.cpp") << R"(#include <cmath>
#include <cstdio>
#define AA_FN static
#define aa_fabs(x) std::fabs(x)
#define aa_exp(x) std::exp(x)
#define aa_fma(a, b, c) std::fma(a, b, c)
)" << text.substr(begin, end + 3 - begin)
                                   << R"(
int main() {
  double worst = 0;
  for (float x = 1e-30f; x < 10.0f; x *= 1.0001f) {
    const double exact = std::erf((double)x);
    worst = std::fmax(worst, std::fabs((aa_erf(x) - exact) / exact));
    worst = std::fmax(worst, std::fabs((aa_erf(-x) + exact) / exact));
  }
  std::printf("%g %d %d %d\n", worst, aa_erf(INFINITY) == 1.0f, aa_erf(-INFINITY) == -1.0f, std::isnan(aa_erf(NAN)));
}
)";
  const Result built =
      run("clang++ -O1 -ffp-contract=off -o " + quoted(name + "/erf") + " " + quoted(name + "/erf.cpp"));
  ASSERT_EQ(built.status, 0) << built.text;
  const Result result = run(quoted(name + "/erf"));
  double worst = 1;
  int flags[3] = {};
  ASSERT_EQ(std::sscanf(result.text.c_str(), "%lf %d %d %d", &worst, &flags[0], &flags[1], &flags[2]), 4)
      << result.text;
  EXPECT_LT(worst, 2.4e-7);  // 2 units in the last place
  EXPECT_TRUE(flags[0] && flags[1] && flags[2]) << result.text;
  std::error_code ignored;
  fs::remove_all(name, ignored);
}

}  // namespace
}  // namespace anyaccel
