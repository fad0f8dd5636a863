// Temporary folders go with their contents; a file is replaced as a whole or not at all.
#include "base/files/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "anyaccel/error.h"

namespace anyaccel {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// TMPDIR for its lifetime.
class TemporaryPlace {
 public:
  explicit TemporaryPlace(const std::string& place) {
    if (const char* value = std::getenv("TMPDIR")) before_ = value;
    setenv("TMPDIR", place.c_str(), 1);
  }
  ~TemporaryPlace() { before_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before_.c_str(), 1); }

 private:
  std::string before_;
};

TEST(TemporaryFolder, GoesWithWhatIsInIt) {
  fs::path path;
  {
    const TemporaryFolder folder("test");
    path = folder.path();
    EXPECT_EQ(path.filename().string().find("anyaccel-test-"), 0u) << path;
    fs::create_directories(path / "a" / "b");
    std::ofstream(folder.file("a/b/c")) << "text";
    EXPECT_TRUE(fs::exists(path / "a" / "b" / "c"));
    EXPECT_NE(TemporaryFolder("test").path(), path);
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(TemporaryFolder, LiesInTmpdirAndSaysWhenItCannot) {
  const TemporaryFolder place("place");
  const TemporaryPlace here(place.path().string());
  EXPECT_EQ(TemporaryFolder("test").path().parent_path(), place.path());
  {
    const TemporaryPlace missing(place.file("missing"));
    EXPECT_EQ(TemporaryFolder("test").path().parent_path(), "/tmp");
  }
  const TemporaryPlace closed("/proc");  // nobody may make a folder there, root neither
  try {
    const TemporaryFolder folder("test");
    FAIL() << folder.path();
  } catch (const UnavailableError& error) {
    EXPECT_STREQ(
        error.what(),
        "no folder can be made in /proc: No such file or directory; set TMPDIR to a folder that can be written");
  }
}

TEST(ReplaceFile, MakesFoldersAndTakesOthersPlace) {
  const TemporaryFolder folder("test");
  const fs::path file = folder.path() / "a" / "b" / "file";
  EXPECT_EQ(replace_file(file, "first"), "");
  EXPECT_EQ(replace_file(file, std::string("sec\0nd", 6)), "");
  EXPECT_EQ(text_of(file), std::string("sec\0nd", 6));
  EXPECT_EQ(replace_file(file, ""), "");
  EXPECT_EQ(text_of(file), "");
  const mode_t mask = umask(0);
  umask(mask);
  struct stat facts {};
  ASSERT_EQ(stat(file.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0666 & ~mask);
}

TEST(ReplaceFile, LeavesAllAsItWasWhenItFails) {
  const TemporaryFolder folder("test");
  const fs::path file = folder.path() / "file";
  ASSERT_EQ(replace_file(file, "kept"), "");
  EXPECT_EQ(replace_file(file / "below", "text"), "Not a directory");
  const fs::path directory = folder.path() / "directory";
  fs::create_directories(directory / "inner");
  EXPECT_EQ(replace_file(directory, "text"), "Is a directory");
  EXPECT_EQ(text_of(file), "kept");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 2) << "something is left";
}

TEST(ReplaceFile, ReadersNeverSeeAPart) {
  const TemporaryFolder folder("test");
  const fs::path file = folder.path() / "file";
  const std::vector<std::string> texts{std::string(100000, 'a'), std::string(100000, 'b')};
  ASSERT_EQ(replace_file(file, texts[0]), "");
  std::vector<std::thread> writers;
  for (const std::string& text : texts) {
    writers.emplace_back([&] {
      for (int i = 0; i < 100; ++i) EXPECT_EQ(replace_file(file, text), "");
    });
  }
  for (int i = 0; i < 100; ++i) {
    const std::string seen = text_of(file);
    EXPECT_TRUE(seen == texts[0] || seen == texts[1]) << seen.size() << " bytes";
  }
  for (std::thread& writer : writers) writer.join();
}

}  // namespace
}  // namespace anyaccel
