// Shows the progress of long work on one line of a terminal.
#include "cli/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "cli/commands/command_support.h"
#include "cli/text_layout.h"

namespace anyaccel::cli {

Progress::Progress(std::string what, ProgressUnit unit, bool shown)
    : what_(std::move(what)), unit_(unit), shown_(shown && stderr_is_terminal()) {}

Progress::~Progress() {
  if (printed_) std::fputs("\r\033[K", stderr);
}

void Progress::operator()(uint64_t done, uint64_t total) {
  const Clock::time_point now = Clock::now();
  if (!shown_ || now < next_) return;
  next_ = now + std::chrono::milliseconds(100);
  printed_ = true;
  const size_t width = terminal_width(STDERR_FILENO);
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  // The last column stays empty: some terminals wrap as soon as it is written.
  std::fprintf(stderr, "\r%s\033[K",
               progress_line(what_, unit_, done, total, seconds, width > 0 ? width - 1 : 79).c_str());
}

}  // namespace anyaccel::cli
