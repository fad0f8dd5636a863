// Which files and folders no other user can change, the messages about the others, and that the cache does not use
// those. Attacks by a second user are in tests/ops/cache_attack_test.cpp and tests/abi/plugin_files_test.cpp.
#include "base/files/trusted_path.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/files/cache_dir.h"
#include "base/files/image_cache.h"
#include "ops/op_build_support.h"

namespace anyaccel {
namespace {

namespace fs = std::filesystem;
using State = TrustedPath::State;
using test::TemporaryFolder;
using test::Variable;

class TrustedPaths : public ::testing::Test {
 protected:
  TrustedPaths() { umask(022); }
  fs::path folder(const std::string& name, mode_t mode) const {
    const fs::path path = place.path() / name;
    fs::create_directories(path);
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  TemporaryFolder place;
};

TEST_F(TrustedPaths, OnesOwnAreTrusted) {
  const fs::path file = place.write("file", "text");
  chmod(file.c_str(), 0644);
  TrustedPath opened = open_trusted_file(file, Trust::user);
  ASSERT_TRUE(opened.ok()) << opened.reason;
  EXPECT_EQ(opened.path, fs::canonical(file));
  std::string reason;
  EXPECT_EQ(read_descriptor(opened.descriptor.get(), 4, reason), "text");
  opened = open_trusted_file(file, Trust::user);
  EXPECT_FALSE(read_descriptor(opened.descriptor.get(), 3, reason));
  EXPECT_EQ(reason, "it is larger than 3 bytes");
  EXPECT_TRUE(open_trusted_folder(place.path(), Trust::user).ok());
  EXPECT_TRUE(open_trusted_folder("/", Trust::user).ok());
  EXPECT_TRUE(open_trusted_file("/proc/self/exe", Trust::program).ok()) << "a link with a dot-free way";
}

TEST_F(TrustedPaths, LinksDotsAndRelativeNames) {
  folder("a/b", 0755);
  place.write("a/file", "text");
  chmod((place.path() / "a/file").c_str(), 0644);
  fs::create_symlink("a/b/../file", place.path() / "short");
  fs::create_symlink(place.path() / "short", place.path() / "long");
  fs::create_symlink("loop", place.path() / "loop");
  fs::create_symlink("nowhere", place.path() / "dangling");
  const fs::path file = fs::canonical(place.path() / "a/file");
  for (const char* name : {"a/file", "short", "long", "a/./b/../../short", "a//file"}) {
    const TrustedPath opened = open_trusted_file(place.path() / name, Trust::user);
    EXPECT_TRUE(opened.ok()) << name << ": " << opened.reason;
    EXPECT_EQ(opened.path, file) << name;
  }
  const fs::path before = fs::current_path();
  fs::current_path(place.path());
  EXPECT_EQ(open_trusted_file("short", Trust::user).path, file);
  EXPECT_EQ(open_trusted_folder("", Trust::user).path, fs::canonical(place.path()));
  fs::current_path(before);
  EXPECT_EQ(open_trusted_file(place.path() / "loop", Trust::user).state, State::failed);
  EXPECT_EQ(open_trusted_file(place.path() / "dangling", Trust::user).state, State::missing);
  EXPECT_EQ(open_trusted_file(place.path() / "a/none/file", Trust::user).state, State::missing);
  EXPECT_EQ(open_trusted_file(place.path() / "a/file/x", Trust::user).state, State::failed);
  EXPECT_EQ(open_trusted_file(place.path() / "a", Trust::user).state, State::failed);
  EXPECT_EQ(open_trusted_folder(place.path() / "short", Trust::user).state, State::failed);
}

TEST_F(TrustedPaths, WhatOthersCanWriteIsNot) {
  folder("a", 0755);
  folder("a/b", 0755);
  const fs::path file = place.write("a/b/file", "text");
  chmod(file.c_str(), 0644);
  EXPECT_TRUE(open_trusted_file(file, Trust::user).ok());
  struct {
    const char* name;
    mode_t bad, good;
    bool folders;  // refused as a folder too
  } const cases[] = {{"a/b/file", 0664, 0644, false}, {"a/b/file", 0646, 0644, false}, {"a/b", 0775, 0755, true},
                     {"a/b", 0757, 0755, true},       {"a", 0770, 0755, true},         {"a", 0777, 0755, true}};
  for (const auto& c : cases) {
    const fs::path culprit = place.path() / c.name;
    chmod(culprit.c_str(), c.bad);
    const TrustedPath opened = open_trusted_file(file, Trust::program);
    EXPECT_EQ(opened.state, State::refused) << c.name;
    EXPECT_FALSE(opened.descriptor);
    EXPECT_EQ(opened.culprit, fs::canonical(culprit));
    EXPECT_EQ(opened.cure, "chmod go-w " + fs::canonical(culprit).string());
    EXPECT_EQ(open_trusted_folder(place.path() / "a/b", Trust::user).ok(), !c.folders);
    chmod(culprit.c_str(), c.good);
    EXPECT_TRUE(open_trusted_file(file, Trust::user).ok());
  }
  // In a folder with the sticky bit others can make names, but not take away this user's.
  chmod((place.path() / "a").c_str(), 01777);
  EXPECT_TRUE(open_trusted_file(file, Trust::user).ok());
  const fs::path direct = place.write("a/direct", "text");
  chmod(direct.c_str(), 0644);
  EXPECT_TRUE(open_trusted_file(direct, Trust::user).ok());
  fs::create_hard_link(direct, place.path() / "a/second");
  EXPECT_EQ(open_trusted_file(direct, Trust::user).state, State::refused)
      << "others can make links to this user's files";
}

TEST_F(TrustedPaths, FoldersAreMadeForTheirUserAlone) {
  for (const mode_t mask : {0000, 0002, 0077}) {
    const mode_t before = umask(mask);
    const TrustedPath made = make_trusted_folder(place.path() / std::to_string(mask) / "b/c");
    umask(before);
    ASSERT_TRUE(made.ok()) << made.reason;
    struct stat info {};
    for (fs::path path = made.path; path != fs::canonical(place.path()); path = path.parent_path()) {
      ASSERT_EQ(stat(path.c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 0777, 0755u & ~mask) << path;
    }
  }
  const TrustedPath impossible = make_trusted_folder("/proc/anyaccel/x");
  EXPECT_EQ(impossible.state, State::failed);
  EXPECT_EQ(impossible.reason.rfind("/proc/anyaccel cannot be made: ", 0), 0u) << impossible.reason;
}

// Images of device code and measured choices are not read from a folder that others could have filled.
TEST_F(TrustedPaths, TheCacheKeepsAwayFromOpenFolders) {
  const fs::path cache = folder("cache", 0700);
  const Variable setting("ANYACCEL_CACHE_DIR", cache.string());
  const mode_t before = umask(0);
  EXPECT_EQ(write_cache_file(cache / "choices.txt", "measured"), "");
  const fs::path image = image_file("op", "hash");
  const auto use_kernels = [&](std::string& used, bool& made) {
    made = false;
    use_image(
        image, "the kernels of a test",
        [&](DeviceImage found, bool) {
          used = found.bytes;
          return std::string();
        },
        [&] {
          made = true;
          return DeviceImage{"format", "code"};
        });
  };
  std::string used;
  bool made = false;
  use_kernels(used, made);
  umask(before);
  EXPECT_TRUE(made);
  use_kernels(used, made);
  EXPECT_FALSE(made) << "not kept";
  EXPECT_EQ(read_cache_file(cache / "choices.txt", 100), "measured");
  struct stat info {};
  for (const fs::path& file : {cache / "choices.txt", image}) {
    ASSERT_EQ(stat(file.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0644u) << file;
  }

  ::testing::internal::CaptureStderr();
  chmod(cache.c_str(), 0777);
  EXPECT_FALSE(read_cache_file(cache / "choices.txt", 100));
  EXPECT_EQ(write_cache_file(cache / "choices.txt", "planted"), "") << "it has been said already";
  EXPECT_FALSE(read_image(image));
  use_kernels(used, made);
  EXPECT_TRUE(made);
  EXPECT_EQ(used, "code");
  const std::string said = ::testing::internal::GetCapturedStderr();
  const std::string warning = "nothing is loaded from or kept in the cache folder " + cache.string();
  EXPECT_NE(said.find(warning), std::string::npos) << said;
  EXPECT_EQ(said.find(warning, said.find(warning) + 1), std::string::npos) << "said twice";
  EXPECT_NE(said.find("Cure: chmod go-w " + cache.string()), std::string::npos) << said;
  chmod(cache.c_str(), 0700);
  EXPECT_EQ(read_cache_file(cache / "choices.txt", 100), "measured") << "it was written";

  // A single file that others could write is made anew.
  chmod(image.c_str(), 0666);
  EXPECT_FALSE(read_image(image));
  use_kernels(used, made);
  EXPECT_TRUE(made);
  EXPECT_TRUE(read_image(image));
}

}  // namespace
}  // namespace anyaccel
