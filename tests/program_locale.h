// Locales in which numbers have decimal commas, or I is not the capital of i, for programs that choose one.
#pragma once

#include <clocale>
#include <cstdlib>
#include <locale>
#include <string>

#include "temporary_folder.h"

namespace anyaccel::test {

// Makes a locale of glibc's sources and sets it, for C and for C++'s streams, until the end of the test.
class ProgramLocale {
 public:
  // "de_DE"
  explicit ProgramLocale(const std::string& name) {
    const std::string full = name + ".UTF-8";
    const std::string command =
        "localedef -i " + name + " -f UTF-8 " + (folder_.path() / full).string() + " >/dev/null 2>&1";
    static_cast<void>(std::system(command.c_str()));
    setenv("LOCPATH", folder_.path().c_str(), 1);
    is_set_ = std::setlocale(LC_ALL, full.c_str()) != nullptr;
    if (is_set_) std::locale::global(std::locale(full.c_str()));
  }
  ~ProgramLocale() {
    std::locale::global(std::locale::classic());
    std::setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
  }
  ProgramLocale(const ProgramLocale&) = delete;
  ProgramLocale& operator=(const ProgramLocale&) = delete;
  // False where the sources of locales (Debian's package locales) are not installed.
  bool is_set() const { return is_set_; }

 private:
  TemporaryFolder folder_;
  bool is_set_ = false;
};

}  // namespace anyaccel::test
