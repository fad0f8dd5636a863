// Reads prompts and other texts from files.
#include "cli/prompt_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "anyaccel/error.h"
#include "anyaccel/llm/prompt_text.h"
#include "cli/commands/command_support.h"

namespace anyaccel::cli {

namespace {

constexpr size_t most_bytes = size_t{256} << 20;  // many times the longest context of any model

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ > STDERR_FILENO) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const noexcept { return number_; }

 private:
  int number_;
};

// A file, and the argument of the command line that names it.
struct TextFile {
  const std::string& path;
  const std::string& argument;
};

[[noreturn]] void refuse(const TextFile& file, const std::string& why) {
  throw Error(file.argument + ": cannot read '" + file.path + "': " + why);
}

std::string invalid_utf8(const std::string& text) {
  const size_t place = llm::valid_utf8_prefix(text);
  if (place == text.size()) return "";
  constexpr const char* digits = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(text[place]);
  const bool utf16 = text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff");
  return std::string("it is not UTF-8: the byte 0x") + digits[byte >> 4] + digits[byte & 15] + " at offset " +
         std::to_string(place) + (utf16 ? " begins UTF-16" : "") + "; convert it, for example with iconv -t UTF-8";
}

// Opens the file without blocking.
int open_text(const TextFile& file) {
  if (file.path == "-") return STDIN_FILENO;
  const int number = open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (number < 0) refuse(file, std::strerror(errno));
  return number;
}

}  // namespace

std::string read_text_file(const std::string& path, const std::string& argument) {
  const TextFile file{path, argument};
  const Descriptor descriptor(open_text(file));
  const int number = descriptor.number();
  struct stat about {};
  if (fstat(number, &about) != 0) refuse(file, std::strerror(errno));
  if (S_ISDIR(about.st_mode)) refuse(file, "it is a folder; give a file that holds one text");
  // A non-blocking read from a pipe without a writer returns nothing; with a writer, it would have to be retried.
  bool awaited = false;
  std::string text;
  constexpr size_t buffer_bytes = 1 << 16;
  const auto buffer = std::make_unique_for_overwrite<char[]>(buffer_bytes);
  for (;;) {
    const ssize_t got = read(number, buffer.get(), buffer_bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN && !awaited) {
      awaited = true;
      if (fcntl(number, F_SETFL, 0) < 0) refuse(file, std::strerror(errno));
      continue;
    }
    if (got < 0) refuse(file, std::strerror(errno));
    if (got == 0) break;
    text.append(buffer.get(), static_cast<size_t>(got));
    if (text.size() > most_bytes) refuse(file, "it holds more than 256 MiB, which no model's context takes");
  }
  if (text.empty() && S_ISFIFO(about.st_mode) && path != "-" && !awaited) {
    refuse(file, "it is a pipe that holds nothing and that no process writes to; start the writer first");
  }
  if (text.empty()) refuse(file, "it is empty; expected a text");
  if (const std::string wrong = invalid_utf8(text); !wrong.empty()) refuse(file, wrong);
  return text;
}

void check_prompt_text(const std::string& text, const std::string& option) {
  if (const std::string wrong = invalid_utf8(text); !wrong.empty()) throw UsageError(option + ": " + wrong);
}

}  // namespace anyaccel::cli
