// The main function of the test programs. It prints each skipped test with its reason, which tools/list_skipped collects from
// the log of ctest, and exits with 77 when nothing but skipped tests was run, so that ctest does not count that as passed.
#include <gtest/gtest.h>

#include <cstdio>
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

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  tests.listeners().Append(new SkipReport);  // owned by googletest
  const int result = RUN_ALL_TESTS();
  const bool only_skipped = tests.skipped_test_count() > 0 && tests.skipped_test_count() == tests.test_to_run_count();
  return result == 0 && only_skipped ? exit_code_skipped : result;
}
