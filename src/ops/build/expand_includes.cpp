// Inserts the text of included files into a kernel's source, see anyaccel/device_op.h.
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "anyaccel/device_op.h"
#include "anyaccel/error.h"

namespace anyaccel {
namespace {

namespace fs = std::filesystem;

// Returns the name in a line like   #include "name"   ; empty for any other line.
std::string included_name(const std::string& line) {
  size_t i = line.find_first_not_of(" \t");
  if (i == std::string::npos || line[i] != '#') return {};
  i = line.find_first_not_of(" \t", i + 1);
  if (i == std::string::npos || line.compare(i, 7, "include") != 0) return {};
  i = line.find_first_not_of(" \t", i + 7);
  if (i == std::string::npos || line[i] != '"') return {};
  const size_t end = line.find('"', i + 1);
  return end == std::string::npos ? std::string() : line.substr(i + 1, end - i - 1);
}

class Expander {
 public:
  explicit Expander(const std::vector<std::string>& folders) : folders_(folders) {}

  void add(const fs::path& file) {
    std::ifstream stream(file);
    if (!stream) throw UnavailableError("the kernel source " + file.string() + " cannot be read");
    done_.insert(fs::weakly_canonical(file));
    add_line_directive(1, file);
    std::string line;
    for (int number = 1; std::getline(stream, line); ++number) {
      const std::string name = included_name(line);
      const fs::path included = name.empty() ? fs::path() : find(file.parent_path(), name);
      if (included.empty()) {
        // "#pragma once" has no meaning in the single remaining text, and compilers warn about it there.
        text_ += (line.starts_with("#pragma once") ? "" : line) + "\n";
        continue;
      }
      if (!done_.contains(fs::weakly_canonical(included))) add(included);
      add_line_directive(number + 1, file);
    }
  }

  const std::string& text() const { return text_; }

 private:
  void add_line_directive(int number, const fs::path& file) {
    text_ += "#line " + std::to_string(number) + " \"" + file.filename().string() + "\"\n";
  }
  fs::path find(const fs::path& beside, const std::string& name) const {
    std::error_code error;
    if (fs::is_regular_file(beside / name, error)) return beside / name;
    for (const std::string& folder : folders_) {
      if (fs::is_regular_file(fs::path(folder) / name, error)) return fs::path(folder) / name;
    }
    return {};  // the compiler may know it
  }

  const std::vector<std::string>& folders_;
  std::set<fs::path> done_;
  std::string text_;
};

}  // namespace

std::string expand_includes(const std::string& file, const std::vector<std::string>& folders) {
  Expander expander(folders);
  expander.add(file);
  return expander.text();
}

}  // namespace anyaccel
