// Implements progress.h: prints the progress line.
#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

Progress::Progress(int64_t first, int64_t steps, int64_t tokens_a_step, bool shown)
    : first_(first),
      steps_(steps),
      tokens_(tokens_a_step),
      shown_(shown),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      last_(start_) {}

Progress::~Progress() {
  if (open_) std::fputc('\n', stderr);
}

void Progress::step(int64_t step, double loss, double rate) {
  if (!shown_) return;
  const auto now = Clock::now();
  const bool last = step == steps_;
  // Prints ten lines for a whole training where lines cannot be overwritten.
  const bool due =
      terminal_ ? now - last_ > std::chrono::milliseconds(100) : step % std::max<int64_t>(steps_ / 10, 1) == 0;
  if (!due && !last) return;
  last_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count(), done = static_cast<double>(step - first_);
  const auto left = static_cast<int64_t>(seconds / done * static_cast<double>(steps_ - step) + 0.5);
  std::fprintf(stderr, "%sstep %lld/%lld  loss %.4f  rate %.2e  %.0f tokens/s  %lld:%02lld left%s",
               terminal_ ? "\r" : "", static_cast<long long>(step), static_cast<long long>(steps_), loss, rate,
               static_cast<double>(tokens_) * done / seconds, static_cast<long long>(left / 60),
               static_cast<long long>(left % 60), terminal_ ? "\x1b[K" : "\n");
  open_ = terminal_;
}
