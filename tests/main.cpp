// The main function of the test programs. A program holds the tests of a folder; started by the name of one of its files, which
// is a link to it (matmul_test for matmul_test.cpp), it runs the tests of that file alone. It prints each skipped test with its
// reason, which tools/list_skipped collects from the log of ctest, and exits with 77 when nothing but skipped tests was run, so
// that ctest does not count that as passed. What tests compile is kept with the build, so that only the first one compiles it; of
// users who may not write there, where the product keeps it.
#include <fnmatch.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>

namespace {

constexpr int exit_code_skipped = 77;  // SKIP_RETURN_CODE in CMakeLists.txt

class SkipReport : public testing::EmptyTestEventListener {
 public:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.skipped()) reason_ = result.message();
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    if (test.result()->Skipped()) {
      for (char& c : reason_) {
        if (c == '\n') c = ' ';
      }
      std::printf("skipped: %s.%s: %s\n", test.test_suite_name(), test.name(), reason_.c_str());
    }
    reason_.clear();
  }

 private:
  std::string reason_;
};

// Returns true if one of the patterns, which are separated by colons, matches.
bool any_matches(const std::string& patterns, const std::string& name) {
  std::istringstream list(patterns);
  for (std::string pattern; std::getline(list, pattern, ':');) {
    if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  }
  return false;
}

// Narrows googletest's filter to the tests of the file called `stem`.cpp. Returns whether this program holds one.
bool select_file(const testing::UnitTest& tests, const std::string& stem) {
  const std::string filter = testing::GTEST_FLAG(filter);
  const size_t dash = filter.find('-');
  const std::string positive = dash == 0 ? "*" : filter.substr(0, dash);
  const std::string negative = dash == std::string::npos ? "" : filter.substr(dash + 1);
  bool found = false;
  std::string selected;
  for (int i = 0; i < tests.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *tests.GetTestSuite(i);
    for (int k = 0; k < suite.total_test_count(); ++k) {
      const testing::TestInfo& test = *suite.GetTestInfo(k);
      if (std::filesystem::path(test.file()).stem() != stem) continue;
      found = true;
      const std::string name = std::string(suite.name()) + "." + test.name();
      if (any_matches(positive, name) && !any_matches(negative, name)) selected += name + ":";
    }
  }
  if (found) testing::GTEST_FLAG(filter) = selected.empty() ? "-*" : selected;
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  const std::string name = std::filesystem::path(argv[0]).filename();
  if (!select_file(tests, name) && name.ends_with("_test")) {
    std::fprintf(stderr, "%s holds no tests of a file called %s.cpp; build again so that stale links go\n", argv[0],
                 name.c_str());
    return 1;
  }
  if (access(ANYACCEL_BINARY_DIR, W_OK) == 0) {
    setenv("ANYACCEL_CACHE_DIR", ANYACCEL_BINARY_DIR "/test_cache", /*overwrite=*/0);
  }
  tests.listeners().Append(new SkipReport);  // owned by googletest
  const int result = RUN_ALL_TESTS();
  if (tests.test_to_run_count() == 0 && !testing::GTEST_FLAG(list_tests)) {
    std::fprintf(stderr, "no test of %s was selected by --gtest_filter\n", name.c_str());
    return 1;
  }
  const bool only_skipped = tests.skipped_test_count() > 0 && tests.skipped_test_count() == tests.test_to_run_count();
  return result == 0 && only_skipped ? exit_code_skipped : result;
}
