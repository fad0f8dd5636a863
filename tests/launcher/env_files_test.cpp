// .deepspeed_env of the home and of the current folder: read if no other user could have changed it, and the messages
// in either case.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "anyaccel/log.h"
#include "launcher/plan/environment.h"
#include "ops/op_build_support.h"
#include "two_users.h"

namespace anyaccel::launcher {
namespace {

namespace fs = std::filesystem;
using test::as_user;
using test::attacker;
using test::Variable;
using test::victim;

class EnvFiles : public ::testing::Test {
 protected:
  EnvFiles() {
    for (const fs::path& folder : {home, here}) fs::create_directory(folder);
    chmod(place.path().c_str(), 0755);
    chmod(home.c_str(), 0755);
    chmod(here.c_str(), 0755);
    fs::current_path(here);
    set_log_level(LogLevel::info);
  }
  ~EnvFiles() override {
    fs::current_path(before);
    set_log_level(LogLevel::warning);
  }
  void write(const fs::path& folder, const std::string& text) const {
    std::ofstream(folder / ".deepspeed_env") << text;
    chmod((folder / ".deepspeed_env").c_str(), 0644);
  }
  // Returns the variables that are set; `said` receives the warnings written meanwhile.
  Variables read() {
    ::testing::internal::CaptureStderr();
    Variables variables = read_env_files();
    said = ::testing::internal::GetCapturedStderr();
    return variables;
  }
  bool says(const std::string& text) const { return said.find(text) != std::string::npos; }

  const fs::path before = fs::current_path();
  const test::TemporaryFolder place;
  const fs::path home = place.path() / "home", here = place.path() / "here";
  const Variable home_variable{"HOME", home.string()};
  const Variable name_variable{"DS_ENV_FILE", std::nullopt};
  std::string said;
};

TEST_F(EnvFiles, PathAndNamesAreSaidAndValuesAreNot) {
  EXPECT_TRUE(read().empty());
  EXPECT_EQ(said, "");
  write(home, "FIRST=hidden1\nSECOND=hidden2\n");
  write(here, "SECOND=hidden3\n");
  EXPECT_EQ(read(), (Variables{{"FIRST", "hidden1"}, {"SECOND", "hidden3"}}));
  EXPECT_TRUE(
      says((home / ".deepspeed_env").string() + " sets FIRST, SECOND for the ranks (--no_env_file leaves it out)"))
      << said;
  EXPECT_TRUE(says((here / ".deepspeed_env").string() + " sets SECOND for the ranks")) << said;
  EXPECT_FALSE(says("hidden")) << said;
  // The same file twice is reported once.
  fs::current_path(home);
  read();
  EXPECT_EQ(said.find("sets"), said.rfind("sets")) << said;
}

TEST_F(EnvFiles, WhatOthersCanWriteIsNotRead) {
  write(here, "LD_PRELOAD=/evil.so\n");
  for (const mode_t mode : {0664, 0646}) {
    chmod(".deepspeed_env", mode);
    EXPECT_TRUE(read().empty());
    EXPECT_TRUE(
        says("./.deepspeed_env is not read, because " + (here / ".deepspeed_env").string() + " can be written by"))
        << said;
    EXPECT_TRUE(says("Cure: chmod go-w " + (here / ".deepspeed_env").string())) << said;
  }
  chmod(".deepspeed_env", 0644);
  for (const fs::path& folder : {here, place.path()}) {
    chmod(folder.c_str(), 0777);
    EXPECT_TRUE(read().empty());
    EXPECT_TRUE(says("./.deepspeed_env is not read, because " + folder.string() + " can be written by everybody"))
        << said;
    EXPECT_FALSE(says("/home/")) << "there is no such file: " << said;
    chmod(folder.c_str(), 0755);
  }
  EXPECT_EQ(read().size(), 1u);
  // A name that was given explicitly is no exception.
  const Variable asked("DS_ENV_FILE", (here / ".deepspeed_env").string());
  EXPECT_EQ(read().size(), 1u);
  chmod(here.c_str(), 0777);
  EXPECT_TRUE(read().empty());
  EXPECT_TRUE(says("is not read, because ")) << said;
}

TEST_F(EnvFiles, AnotherUsersIsNotRead) {
  if (geteuid() != 0) GTEST_SKIP() << "acting as two users needs root";
  chmod(here.c_str(), 01777);  // as /tmp
  ASSERT_EQ(as_user(attacker, 022,
                    [&] {
                      write(here, "LD_PRELOAD=/evil.so\n");
                      return 0;
                    }),
            0);
  for (const uid_t user : {uid_t{0}, victim}) {
    EXPECT_EQ(as_user(user, 022,
                      [&] {
                        if (!read().empty()) return 1;
                        return says("/.deepspeed_env belongs to user " + std::to_string(attacker)) ? 0 : 2;
                      }),
              0);
  }
  fs::remove(here / ".deepspeed_env");
  ASSERT_EQ(as_user(attacker, 022, [&] { return symlink("/etc/environment", (here / ".deepspeed_env").c_str()); }), 0);
  EXPECT_TRUE(read().empty());
  EXPECT_TRUE(says("is a symbolic link that belongs to user")) << said;
}

TEST_F(EnvFiles, WhatIsNoFileIsNotWaitedFor) {
  ASSERT_EQ(mkfifo((here / ".deepspeed_env").c_str(), 0600), 0);
  fs::create_directory(home / ".deepspeed_env");
  chmod((home / ".deepspeed_env").c_str(), 0755);
  EXPECT_TRUE(read().empty());
  EXPECT_TRUE(
      says("./.deepspeed_env is not read: " + (here / ".deepspeed_env").string() + " is a named pipe, not a file"))
      << said;
  EXPECT_TRUE(says("is a folder, not a file")) << said;
}

}  // namespace
}  // namespace anyaccel::launcher
