// The cache of compiled ops: what makes an entry hold, who builds when many ask, and every way in which it can be broken.
#include "ops/build/build_cache.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "anyaccel/error.h"
#include "base/files/file_lock.h"
#include "ops/op_build_support.h"

namespace anyaccel::ops {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TemporaryFolder;
using test::Variable;

constexpr const char* answer_source = "#include \"answer.h\"\nextern \"C\" int answer() { return ANSWER; }\n";

// A source with a header of its own, and a cache of its own.
class BuildCacheTest : public ::testing::Test {
 protected:
  BuildCacheTest() {
    folder.write("answer.cpp", answer_source);
    folder.write("answer.h", "#define ANSWER 42\n");
    plan.op_name = "answer";
    plan.target = "baseline";
    plan.sources = {(folder.path() / "answer.cpp").string()};
    plan.cxx_args = {"-fPIC"};
  }

  // A compiler that leaves a line in the file "calls" and takes its time.
  std::string slow_compiler(const std::string& seconds) const {
    return folder
        .write("slow-c++",
               "#!/bin/sh\n[ \"$1\" = --version ] && exec c++ --version\necho call >>" +
                   (folder.path() / "calls").string() + "\nsleep " + seconds + "\nexec c++ \"$@\"\n",
               true)
        .string();
  }
  long compiler_calls() const {
    const std::string text = test::read_text(folder.path() / "calls");
    return std::count(text.begin(), text.end(), '\n');
  }
  std::vector<fs::path> entries(const std::string& suffix) const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(root() / "answer")) {
      if (entry.path().filename().string().ends_with(suffix)) found.push_back(entry.path());
    }
    return found;
  }
  fs::path root() const { return folder.path() / "cache"; }

  static int answer_of(const BuiltLibrary& library) {
    std::string error;
    void* handle = library.image.open(error);
    if (!handle) return -1;
    const auto function = reinterpret_cast<int (*)()>(dlsym(handle, "answer"));
    const int answer = function ? function() : -2;
    dlclose(handle);
    return answer;
  }
  std::string found() const {
    const auto library = cache.find(plan);
    return library ? library->file : std::string();
  }

  TemporaryFolder folder;
  BuildPlan plan;
  BuildCache cache{root()};
};

TEST_F(BuildCacheTest, BuildsOnceAndFindsAgain) {
  EXPECT_FALSE(cache.find(plan));
  const BuiltLibrary first = cache.find_or_build(plan);
  EXPECT_TRUE(first.built_now);
  EXPECT_FALSE(first.is_private);
  EXPECT_EQ(answer_of(first), 42);
  EXPECT_EQ(found(), first.file);
  const BuiltLibrary second = cache.find_or_build(plan);
  EXPECT_FALSE(second.built_now);
  EXPECT_EQ(second.file, first.file);
}

TEST_F(BuildCacheTest, AChangeOfAnythingBuildsAnew) {
  const std::string first = cache.find_or_build(plan).file;
  // The same contents at another time are the same.
  fs::last_write_time(folder.path() / "answer.h", fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(found(), first);
  folder.write("answer.h", "#define ANSWER 43\n");
  EXPECT_FALSE(cache.find(plan));
  const BuiltLibrary changed = cache.find_or_build(plan);
  EXPECT_TRUE(changed.built_now);
  EXPECT_EQ(answer_of(changed), 43);

  BuildPlan flags = plan;
  flags.cxx_args.push_back("-DUNUSED");
  EXPECT_FALSE(cache.find(flags));
  BuildPlan target = plan;
  target.target = "avx2";
  EXPECT_FALSE(cache.find(target));
  BuildPlan linked = plan;
  linked.ldflags.push_back("-lm");
  EXPECT_FALSE(cache.find(linked));
  {
    const Variable compiler("CXX", slow_compiler("0"));
    EXPECT_FALSE(cache.find(plan)) << "another compiler";
  }
  EXPECT_TRUE(cache.find(plan));
  folder.write("answer.cpp", std::string(answer_source) + "// another source\n");
  EXPECT_FALSE(cache.find(plan));
}

// Archives and copies set the time of modification.
TEST_F(BuildCacheTest, AHeaderOfTheSameSizeAndTimeIsReadAgain) {
  EXPECT_EQ(answer_of(cache.find_or_build(plan)), 42);
  const auto time = fs::last_write_time(folder.path() / "answer.h");
  folder.write("answer.h", "#define ANSWER 43\n");
  fs::last_write_time(folder.path() / "answer.h", time);
  EXPECT_EQ(answer_of(cache.find_or_build(plan)), 43);
}

TEST_F(BuildCacheTest, AHeaderThatIsAddedWhereItIsFoundEarlierIsRead) {
  folder.write("answer.cpp", "#include <parts/answer.h>\n" + std::string(answer_source).substr(20));
  fs::create_directories(folder.path() / "late/parts");
  fs::create_directories(folder.path() / "early");
  folder.write("late/parts/answer.h", "#define ANSWER 1\n");
  plan.include_paths = {(folder.path() / "missing").string(), (folder.path() / "early").string(),
                        (folder.path() / "late").string()};
  const auto build = [&] {
    const BuiltLibrary library = cache.find_or_build(plan);
    EXPECT_FALSE(library.is_private);
    return std::pair(answer_of(library), library.built_now);
  };
  EXPECT_EQ(build(), std::pair(1, true));
  folder.write("early/unrelated.h", "");
  EXPECT_EQ(build(), std::pair(1, false));

  fs::create_directories(folder.path() / "early/parts");
  folder.write("early/parts/answer.h", "#define ANSWER 2\n");
  EXPECT_EQ(build(), std::pair(2, true)) << "in a folder that was empty";
  EXPECT_EQ(build(), std::pair(2, false));
  fs::create_directories(folder.path() / "missing/parts");
  folder.write("missing/parts/answer.h", "#define ANSWER 3\n");
  EXPECT_EQ(build(), std::pair(3, true)) << "in a folder that did not exist";
  EXPECT_EQ(build(), std::pair(3, false));
  {
    fs::create_directories(folder.path() / "variable/parts");
    const Variable path("CPATH", (folder.path() / "variable").string());
    plan.include_paths = {};
    plan.cxx_args.push_back("-isystem" + (folder.path() / "late").string());
    EXPECT_EQ(build(), std::pair(1, true));
    folder.write("variable/parts/answer.h", "#define ANSWER 4\n");
    EXPECT_EQ(build(), std::pair(4, true)) << "in a folder of a variable";
    EXPECT_EQ(build(), std::pair(4, false));
  }
  // A header of the system is found later than one of the program.
  EXPECT_EQ(build(), std::pair(1, true));
  folder.write("answer.cpp", "#include \"stdlib.h\"\n#ifndef ANSWER\n#define ANSWER 5\n#endif\n" +
                                 std::string(answer_source).substr(20));
  EXPECT_EQ(build(), std::pair(5, true));
  folder.write("stdlib.h", "#define ANSWER 6\n");
  EXPECT_EQ(build(), std::pair(6, true)) << "beside the source";
  EXPECT_EQ(build(), std::pair(6, false));
}

TEST_F(BuildCacheTest, AHeaderThatIsAddedWhileItIsCompiledIsRead) {
  fs::create_directories(folder.path() / "early");
  fs::create_directories(folder.path() / "late");
  fs::rename(folder.path() / "answer.h", folder.path() / "late/answer.h");
  plan.include_paths = {(folder.path() / "early").string(), (folder.path() / "late").string()};
  const Variable compiler("CXX",
                          folder
                              .write("adding-c++",
                                     "#!/bin/sh\n[ \"$1\" = --version ] && exec c++ --version\nc++ \"$@\" || exit\n"
                                     "echo '#define ANSWER 2' >" +
                                         (folder.path() / "early/answer.h").string() + "\n",
                                     true)
                              .string());
  EXPECT_TRUE(cache.find_or_build(plan).is_outdated);
  EXPECT_EQ(answer_of(cache.find_or_build(plan)), 2);
}

TEST_F(BuildCacheTest, ALibraryThatIsAddedWhereItIsFoundEarlierIsLinked) {
  fs::create_directories(folder.path() / "early");
  fs::create_directories(folder.path() / "late");
  const auto make_library = [&](const std::string& place, int value) {
    folder.write("part.cpp", "int part() { return " + std::to_string(value) + "; }\n");
    const std::string at = (folder.path() / place).string();
    const std::string command = "c++ -fPIC -c " + (folder.path() / "part.cpp").string() + " -o " + at +
                                "/part.o && ar rcs " + at + "/libpart.a " + at + "/part.o";
    ASSERT_EQ(std::system(command.c_str()), 0);
  };
  make_library("late", 1);
  folder.write("answer.cpp", "int part();\nextern \"C\" int answer() { return part(); }\n");
  plan.ldflags = {"-L" + (folder.path() / "early").string(), "-L" + (folder.path() / "late").string(), "-lpart"};
  EXPECT_EQ(answer_of(cache.find_or_build(plan)), 1);
  make_library("early", 2);
  EXPECT_EQ(answer_of(cache.find_or_build(plan)), 2);
  EXPECT_FALSE(cache.find_or_build(plan).built_now);
}

TEST_F(BuildCacheTest, WhatChangesWhileItIsCompiledIsNotKept) {
  const auto compile_then_write = [&](const std::string& file, const std::string& text) {
    return folder
        .write("late-c++",
               "#!/bin/sh\n[ \"$1\" = --version ] && exec c++ --version\nc++ \"$@\" || exit\nprintf '" + text + "' >" +
                   (folder.path() / file).string() + "\n",
               true)
        .string();
  };
  {
    const Variable compiler("CXX", compile_then_write("answer.h", "#define ANSWER 43\\n"));
    EXPECT_TRUE(cache.find_or_build(plan).is_private);
    EXPECT_FALSE(cache.find(plan)) << "the header";
    EXPECT_EQ(answer_of(cache.find_or_build(plan)), 43);
  }
  const Variable compiler("CXX", compile_then_write("answer.cpp", "extern \"C\" int answer() { return 9; }\\n"));
  EXPECT_EQ(answer_of(cache.find_or_build(plan)), 43);
  EXPECT_FALSE(cache.find(plan)) << "the source";
  EXPECT_EQ(answer_of(cache.find_or_build(plan)), 9);
}

TEST_F(BuildCacheTest, TheCompilersVariablesAreAPartOfTheKey) {
  fs::create_directories(folder.path() / "one");
  fs::create_directories(folder.path() / "two");
  folder.write("answer.cpp", "#include <number.h>\nextern \"C\" int answer() { return NUMBER; }\n");
  folder.write("one/number.h", "#define NUMBER 1\n");
  folder.write("two/number.h", "#define NUMBER 2\n");
  for (const int number : {1, 2, 1}) {
    const Variable path("CPATH", (folder.path() / (number == 1 ? "one" : "two")).string());
    EXPECT_EQ(answer_of(cache.find_or_build(plan)), number);
    EXPECT_TRUE(cache.find(plan));
  }
}

TEST_F(BuildCacheTest, RelativeFlagsMeanTheCurrentFolder) {
  folder.write("answer.cpp", "#include <number.h>\nextern \"C\" int answer() { return NUMBER; }\n");
  plan.cxx_args.push_back("-Iinclude");
  struct Back {
    const fs::path before = fs::current_path();
    ~Back() { fs::current_path(before); }
  } const back;
  for (const int number : {1, 2}) {
    const fs::path here = folder.path() / std::to_string(number);
    fs::create_directories(here / "include");
    std::ofstream(here / "include/number.h") << "#define NUMBER " << number << "\n";
    fs::current_path(here);
    EXPECT_EQ(answer_of(cache.find_or_build(plan)), number);
    EXPECT_TRUE(cache.find(plan));
  }
}

TEST_F(BuildCacheTest, AChangedArchiveIsLinkedAgain) {
  folder.write("answer.cpp", "extern \"C\" int number();\nextern \"C\" int answer() { return number(); }\n");
  const std::string place = folder.path().string();
  const auto make_archive = [&](int number) {
    folder.write("number.c", "int number(void) { return " + std::to_string(number) + "; }\n");
    fs::remove(folder.path() / "libnumber.a");
    ASSERT_EQ(std::system(("cd '" + place + "' && cc -fPIC -c number.c && ar rc libnumber.a number.o").c_str()), 0);
  };
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"-L" + place, "-lnumber"},
                                                {"-Wl,-L" + place + ",-lnumber"},
                                                {place + "/libnumber.a"}}) {
    plan.ldflags = flags;
    for (const int number : {1, 2}) {
      make_archive(number);
      EXPECT_EQ(answer_of(cache.find_or_build(plan)), number) << flags[0];
      EXPECT_TRUE(cache.find(plan));
    }
  }
}

TEST_F(BuildCacheTest, OnlyTheSystemsCompilerStandsForItsHeaders) {
  const fs::path include = folder.path() / "include/c++";
  fs::create_directories(include);
  folder.write("answer.cpp", "#include <number.h>\nextern \"C\" int answer() { return NUMBER; }\n");
  plan.include_paths = {include.string()};
  for (const int number : {1, 2}) {
    std::ofstream(include / "number.h") << "#define NUMBER " << number << "\n";
    EXPECT_EQ(answer_of(cache.find_or_build(plan)), number);
  }
}

TEST_F(BuildCacheTest, NamesOfOneCompilerAreToldApart) {
  fs::create_directories(folder.path() / "with blank");
  const fs::path program = folder.write("wrapper", "#!/bin/sh\nexec c++ -DANSWER_OF=${0##*-} \"$@\"\n", true);
  folder.write("answer.cpp", "extern \"C\" int answer() { return ANSWER_OF; }\n");
  for (const char* number : {"1", "2"}) {
    const fs::path name = folder.path() / "with blank" / (std::string("c++-") + number);
    fs::create_symlink(program, name);
    const Variable compiler("CXX", name.string());
    EXPECT_EQ(std::to_string(answer_of(cache.find_or_build(plan))), number);
  }
}

TEST_F(BuildCacheTest, ACompilerThatIsReplacedIsNoticed) {
  folder.write("answer.cpp", "extern \"C\" int answer() { return ANSWER_OF; }\n");
  const Variable compiler("CXX", (folder.path() / "compiler").string());
  const auto time = fs::file_time_type::clock::now() - std::chrono::hours(24);
  for (const char* number : {"1", "2"}) {
    const fs::path program =
        folder.write("compiler", std::string("#!/bin/sh\nexec c++ -DANSWER_OF=") + number + " \"$@\"\n", true);
    fs::last_write_time(program, time);
    EXPECT_EQ(std::to_string(answer_of(cache.find_or_build(plan))), number);
    EXPECT_FALSE(cache.find_or_build(plan).built_now);
  }
}

// Containers may share a host name and a cache folder, and number their processes alike.
TEST_F(BuildCacheTest, AProcessOfAnotherContainerIsNotGone) {
  const std::string here = process_identity();
  EXPECT_FALSE(is_gone(here));
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) _exit(77);
    const pid_t first = fork();
    if (first == 0) {
      if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          mount("proc", "/proc", "proc", 0, nullptr) != 0) {
        _exit(77);
      }
      _exit(is_gone(here) ? 1 : 0);
    }
    int status = 0;
    waitpid(first, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "a namespace needs root";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Machines with different processors may share a cache folder.
TEST_F(BuildCacheTest, NativeCodeIsThatOfOneProcessor) {
  const fs::path other = folder.write("cpuinfo", "processor\t: 0\nvendor_id\t: Another\nflags\t\t: fpu\n\n");
  BuildPlan native = plan;
  native.cxx_args.push_back("-march=native");
  cache.find_or_build(plan);
  cache.find_or_build(native);
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount(other.c_str(), "/proc/cpuinfo", nullptr, MS_BIND, nullptr) != 0) {
      _exit(77);
    }
    _exit((cache.find(native) ? 1 : 0) | (cache.find(plan) ? 0 : 2));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "mounting needs root";
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(cache.find(native));
}

TEST_F(BuildCacheTest, EightProcessesBuildOnce) {
  const Variable compiler("CXX", slow_compiler("0.3"));
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        _exit(answer_of(cache.find_or_build(plan)) == 42 ? 0 : 1);
      } catch (...) {
        _exit(2);
      }
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(compiler_calls(), 1);
}

TEST_F(BuildCacheTest, AKilledBuildLeavesNothingBroken) {
  pid_t child = 0;
  {
    const Variable compiler("CXX", slow_compiler("30"));
    child = fork();
    if (child == 0) {
      setpgid(0, 0);
      cache.find_or_build(plan);
      _exit(0);
    }
    for (int i = 0; i < 500 && compiler_calls() == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_EQ(compiler_calls(), 1);
  }
  kill(-child, SIGKILL);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const auto leftovers = [&] {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(root() / "answer")) count += entry.is_directory();
    return count;
  };
  EXPECT_EQ(leftovers(), 1u);
  EXPECT_FALSE(cache.find(plan));
  EXPECT_EQ(answer_of(cache.find_or_build(plan)), 42);
  EXPECT_EQ(leftovers(), 0u) << "the killed build's folder is still there";
}

TEST_F(BuildCacheTest, ALockWhoseOwnerIsGoneHoldsNobodyUp) {
  cache.find_or_build(plan);  // makes the lock file
  const auto locks = entries(".lock");
  ASSERT_EQ(locks.size(), 1u);
  folder.write("answer.h", "#define ANSWER 44\n");
  // The owner dies; the lock lives on in its child, which inherited the open file.
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    const int descriptor = open(locks[0].c_str(), O_RDWR);
    flock(descriptor, LOCK_EX);
    const std::string identity = process_identity() + "\n";
    if (ftruncate(descriptor, 0) != 0) _exit(1);
    if (write(descriptor, identity.data(), identity.size()) < 0) _exit(1);
    const pid_t heir = fork();
    if (heir == 0) {
      sleep(3600);  // longer than any test may take: who waits for it hangs
      _exit(0);
    }
    if (write(ready[1], &heir, sizeof(heir)) < 0) _exit(1);
    _exit(0);
  }
  pid_t heir = 0;
  ASSERT_EQ(read(ready[0], &heir, sizeof(heir)), static_cast<ssize_t>(sizeof(heir)));
  waitpid(owner, nullptr, 0);
  EXPECT_EQ(answer_of(cache.find_or_build(plan)), 44);
  kill(heir, SIGKILL);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(BuildCacheTest, AnOwnerThatDoesNotMoveIsWaitedForOnlySoLong) {
  cache.find_or_build(plan);
  folder.write("answer.h", "#define ANSWER 45\n");
  const FileLock other(entries(".lock").at(0), std::chrono::seconds(1), "test");
  ASSERT_TRUE(other.held());
  cache.patience = std::chrono::milliseconds(100);
  EXPECT_EQ(answer_of(cache.find_or_build(plan)), 45);
}

TEST_F(BuildCacheTest, DamagedEntriesAreBuiltAnew) {
  const std::string library = cache.find_or_build(plan).file;
  const fs::path description = entries(".entry").at(0);
  const std::string text = test::read_text(description);

  fs::resize_file(library, fs::file_size(library) / 2);
  EXPECT_FALSE(cache.find(plan)) << "half a library";
  EXPECT_EQ(answer_of(cache.find_or_build(plan)), 42);
  fs::remove(library);
  EXPECT_FALSE(cache.find(plan)) << "no library";
  EXPECT_EQ(answer_of(cache.find_or_build(plan)), 42);
  for (const std::string& damage : {std::string(), std::string("{"), text.substr(0, text.size() / 2),
                                    text.substr(0, text.size() - 5), "anyaccel op 99" + text.substr(13),
                                    std::string("\0\0\0", 3), std::string("anyaccel op 2\nlibrary ../../x.so\nend\n"),
                                    std::string("anyaccel op 2\ninput many 5 0 /x\nend\n")}) {
    std::ofstream(description, std::ios::binary) << damage;
    EXPECT_FALSE(cache.find(plan)) << damage;
    EXPECT_EQ(answer_of(cache.find_or_build(plan)), 42) << damage;
  }
}

TEST_F(BuildCacheTest, AnotherUsersLibraryIsNotLoaded) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const std::string library = cache.find_or_build(plan).file;
  ASSERT_EQ(chown(library.c_str(), 12345, 12345), 0);
  EXPECT_FALSE(cache.find(plan));
  EXPECT_EQ(answer_of(cache.find_or_build(plan)), 42);
}

TEST_F(BuildCacheTest, ACompileErrorIsShownInTheCompilersWords) {
  folder.write("answer.cpp", "extern \"C\" int answer() { return undeclared_thing; }\n");
  const std::string message = message_of<BuildError>([&] { cache.find_or_build(plan); });
  EXPECT_NE(message.find("op \"answer\""), std::string::npos) << message;
  EXPECT_NE(message.find("answer.cpp:1"), std::string::npos) << message;
  EXPECT_NE(message.find("undeclared_thing"), std::string::npos) << message;
  EXPECT_NE(message.find("c++"), std::string::npos) << "the command is missing: " << message;
  EXPECT_FALSE(cache.find(plan));
}

TEST_F(BuildCacheTest, OfALongOutputTheLinesFromTheFirstErrorOnAreShown) {
  const Variable compiler("CXX",
                          folder
                              .write("chatty-c++",
                                     "#!/bin/sh\nseq -f 'error.h:%g: [-Werror]' 500\necho answer.cpp:7: error: no such "
                                     "thing\nseq -f 'note %g' 500\nexit 1\n",
                                     true)
                              .string());
  const std::string message = message_of<BuildError>([&] { cache.find_or_build(plan); });
  EXPECT_NE(message.find("said:\nerror.h:496: [-Werror]\n"), std::string::npos) << message;
  EXPECT_NE(message.find("answer.cpp:7: error: no such thing\nnote 1\n"), std::string::npos) << message;
  EXPECT_NE(message.find("note 54\n(60 of 1001 lines, from line 496 on; with ANYACCEL_LOG=debug all of them"),
            std::string::npos)
      << message;
  // An error in the last lines, and one line of a megabyte.
  const Variable late("CXX", folder
                                 .write("late-c++",
                                        "#!/bin/sh\nseq -f 'warning %g' 500\necho \"error: $(head -c 1000000 "
                                        "/dev/zero | tr '\\0' x)\"\nexit 1\n",
                                        true)
                                 .string());
  const std::string last = message_of<BuildError>([&] { cache.find_or_build(plan); });
  EXPECT_NE(last.find("said:\nwarning 442\n"), std::string::npos) << last.substr(0, 1000);
  EXPECT_NE(last.find("xx ...\n(60 of 501 lines, from line 442 on"), std::string::npos) << last.size();
  EXPECT_LT(last.size(), 5000u);
}

TEST_F(BuildCacheTest, SourcesOfCAreCompiledAsC) {
  const std::string c = folder
                            .write("answer.c",
                                   "#include <stdlib.h>\n__attribute__((visibility(\"default\"))) int answer(void) {\n"
                                   "  int *class = malloc(sizeof *class);\n  free(class);\n  return 43;\n}\n")
                            .string();
  for (const char* compiler : {"c++", "clang++"}) {
    if (!OpBuilder::command_exists(compiler)) continue;
    SCOPED_TRACE(compiler);
    const Variable cxx("CXX", compiler);
    plan.sources = {c};
    EXPECT_EQ(answer_of(cache.find_or_build(plan)), 43);
    // Beside C++ that calls it.
    folder.write("answer.cpp",
                 "extern \"C\" int answer(void);\nextern \"C\" __attribute__((visibility(\"default\"))) int next() {"
                 " return answer() + 1; }\n");
    plan.sources = {(folder.path() / "answer.cpp").string(), c};
    EXPECT_EQ(answer_of(cache.find_or_build(plan)), 43);
  }
}

TEST_F(BuildCacheTest, ACompilerThatDiesIsReported) {
  const Variable compiler("CXX", folder.write("dying-c++", "#!/bin/sh\nkill -9 $$\n", true).string());
  const std::string message = message_of<BuildError>([&] { cache.find_or_build(plan); });
  EXPECT_NE(message.find("signal 9"), std::string::npos) << message;
}

TEST_F(BuildCacheTest, WithoutACompilerWhatIsBuiltStillLoads) {
  const std::string library = cache.find_or_build(plan).file;
  const Variable compiler("CXX", "/no/such/compiler");
  EXPECT_EQ(found(), library);
  fs::remove(folder.path() / "answer.h");  // a machine without the headers
  EXPECT_EQ(found(), library);
  BuildPlan other = plan;
  other.op_name = "other";
  const std::string message = message_of<UnavailableError>([&] { cache.find_or_build(other); });
  EXPECT_NE(message.find("/no/such/compiler"), std::string::npos) << message;
}

TEST_F(BuildCacheTest, AMissingSourceIsNamed) {
  plan.sources = {(folder.path() / "gone.cpp").string()};
  const std::string message = message_of<UnavailableError>([&] { cache.find_or_build(plan); });
  EXPECT_NE(message.find("gone.cpp"), std::string::npos) << message;
}

TEST_F(BuildCacheTest, ACacheThatCannotBeWrittenMeansBuildingForOneProcess) {
  const BuildCache none{fs::path()};
  const BuildCache nowhere{fs::path("/proc/anyaccel")};
  for (const BuildCache* unwritable : {&none, &nowhere}) {
    const BuiltLibrary library = unwritable->find_or_build(plan);
    EXPECT_TRUE(library.built_now);
    EXPECT_TRUE(library.is_private);
    EXPECT_EQ(answer_of(library), 42);
    EXPECT_FALSE(fs::exists(library.file)) << "something was left behind";
  }
  if (geteuid() == 0) return;  // root may write everywhere
  fs::create_directories(root());
  fs::permissions(root(), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_TRUE(cache.find_or_build(plan).is_private);
  fs::permissions(root(), fs::perms::owner_all);
}

TEST_F(BuildCacheTest, AnotherFailureThanTheFoldersIsNotHidden) {
  const Variable place("TMPDIR", "/proc");
  const BuildCache none{fs::path()};
  const std::string message = message_of<BuildError>([&] { none.find_or_build(plan); });
  EXPECT_NE(message.find("/proc"), std::string::npos) << message;
  EXPECT_NE(message.find("ANYACCEL_CACHE_DIR"), std::string::npos) << message;
}

TEST_F(BuildCacheTest, AFullDiskMeansBuildingForOneProcess) {
  fs::create_directories(root());
  if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("none", root().c_str(), "tmpfs", 0, "size=16k") != 0) {
    GTEST_SKIP() << "a small file system can be mounted by root only";
  }
  const BuiltLibrary library = cache.find_or_build(plan);
  EXPECT_TRUE(library.is_private);
  EXPECT_EQ(answer_of(library), 42);
  // A read-only file system.
  ASSERT_EQ(mount("none", root().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  const BuiltLibrary again = cache.find_or_build(plan);
  EXPECT_TRUE(again.is_private);
  umount(root().c_str());
}

TEST_F(BuildCacheTest, LoadsWithoutProc) {
  cache.find_or_build(plan);
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", "/proc", "tmpfs", 0, "") != 0) {
      _exit(77);
    }
    const auto library = cache.find(plan);
    _exit(library ? answer_of(*library) : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "mounting needs root";
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

// dlopen() takes a name that it knows for the library of that time, and descriptors are numbered alike.
TEST_F(BuildCacheTest, LibrariesThatStayLoadedAreToldApart) {
  std::vector<void*> handles;
  for (int i = 0; i < 6; ++i) {
    folder.write("answer.h", "#define ANSWER " + std::to_string(100 + i) + "\n");
    std::string error;
    void* handle = cache.find_or_build(plan).image.open(error);
    ASSERT_NE(handle, nullptr) << error;
    EXPECT_EQ(reinterpret_cast<int (*)()>(dlsym(handle, "answer"))(), 100 + i);
    handles.push_back(handle);
  }
  for (void* handle : handles) dlclose(handle);
}

TEST_F(BuildCacheTest, NamesWithBlanksAndDollars) {
  const fs::path odd = folder.path() / "odd $name here";
  fs::create_directories(odd);
  std::ofstream(odd / "answer.cpp") << answer_source;
  std::ofstream(odd / "answer.h") << "#define ANSWER 7\n";
  plan.sources = {(odd / "answer.cpp").string()};
  EXPECT_EQ(answer_of(cache.find_or_build(plan)), 7);
  EXPECT_TRUE(cache.find(plan));
  std::ofstream(odd / "answer.h") << "#define ANSWER 8\n";
  EXPECT_FALSE(cache.find(plan)) << "the header was not understood in the compiler's list";
}

TEST_F(BuildCacheTest, SeveralSourcesBuildInParallel) {
  folder.write("more.cpp", "extern \"C\" int more() { return 1; }\n");
  plan.sources.push_back((folder.path() / "more.cpp").string());
  EXPECT_EQ(answer_of(cache.find_or_build(plan)), 42);
  EXPECT_TRUE(cache.find(plan));
  folder.write("more.cpp", "extern \"C\" int more() { return wrong; }\n");
  EXPECT_NE(message_of<BuildError>([&] { cache.find_or_build(plan); }).find("more.cpp"), std::string::npos);
  const Variable jobs("MAX_JOBS", "many");
  EXPECT_NE(message_of<InvalidArgument>([&] { cache.find_or_build(plan); }).find("many"), std::string::npos);
}

}  // namespace
}  // namespace anyaccel::ops
