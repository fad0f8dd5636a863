// Merges the output of several processes line by line, with a prefix before each line.
#include "launcher/processes/output_lines.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>

#include "anyaccel/file_output.h"

namespace anyaccel::launcher {
namespace {

constexpr size_t longest_output_line = size_t{1} << 20;
constexpr size_t queue_limit = size_t{4} << 20;  // bytes; beyond it the processes have to wait
constexpr size_t pipe_piece = 4096;              // size that poll() guarantees to accept without blocking

bool ready(int descriptor, short events) {
  pollfd entry = {descriptor, events, 0};
  return poll(&entry, 1, 0) == 1 && entry.revents != 0;
}

}  // namespace

OutputLines::~OutputLines() {
  for (Source& source : sources_) {
    if (source.pipe >= 0) close(source.pipe);
  }
}

void OutputLines::add(int pipe, int target, std::string prefix) {
  fcntl(pipe, F_SETFL, fcntl(pipe, F_GETFL) | O_NONBLOCK);
  sources_.push_back({pipe, target, std::move(prefix), {}});
}

void OutputLines::wait_for(std::vector<pollfd>& descriptors) const {
  for (const Source& source : sources_) {
    if (source.pipe >= 0 && queues_[source.target].size() < queue_limit) {
      descriptors.push_back({source.pipe, POLLIN, 0});
    }
  }
  for (const int target : {1, 2}) {
    if (!queues_[target].empty()) descriptors.push_back({target, POLLOUT, 0});
  }
}

void OutputLines::take(Source& source, std::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view part = text.substr(0, end);
    source.line += part;
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (end != std::string_view::npos || source.line.size() >= longest_output_line) {
      queues_[source.target] += source.prefix + source.line + '\n';
      source.line.clear();
    }
  }
}

void OutputLines::close_source(Source& source) {
  close(source.pipe);
  source.pipe = -1;
  if (!source.line.empty()) take(source, "\n");
}

bool OutputLines::read_some(Source& source) {
  constexpr size_t buffer_bytes = 65536;  // what a pipe holds
  const auto buffer = std::make_unique_for_overwrite<char[]>(buffer_bytes);
  const ssize_t got = read(source.pipe, buffer.get(), buffer_bytes);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    close_source(source);
  } else {
    take(source, {buffer.get(), static_cast<size_t>(got)});
  }
  return true;
}

bool OutputLines::write_some(int target) {
  std::string& queue = queues_[target];
  size_t done = 0;
  while (done < queue.size() && ready(target, POLLOUT)) {
    const ssize_t wrote = write(target, queue.data() + done, std::min(pipe_piece, queue.size() - done));
    if (wrote >= 0) {
      done += static_cast<size_t>(wrote);
    } else if (target == STDERR_FILENO && errno != EINTR && errno != EAGAIN && errno != EPIPE) {
      // A full disk: programs go on without messages, and there is nowhere to say it.
      done = queue.size();
    } else if (errno != EINTR && errno != EAGAIN) {
      if (errno != EPIPE) problem_ = write_problem(errno);
      // The reader of our output has closed it: the processes must notice that as they would without us in between.
      for (Source& source : sources_) {
        if (source.target == target && source.pipe >= 0) {
          source.line.clear();
          close_source(source);
        }
      }
      queue.clear();
      return true;
    } else if (errno == EAGAIN) {
      break;
    }
  }
  queue.erase(0, done);
  return done > 0;
}

bool OutputLines::step() {
  bool moved = false;
  for (Source& source : sources_) {
    if (source.pipe >= 0 && queues_[source.target].size() < queue_limit) moved = read_some(source) || moved;
  }
  for (const int target : {1, 2}) {
    if (!queues_[target].empty()) moved = write_some(target) || moved;
  }
  return moved;
}

void OutputLines::finish(int limit_ms) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  while (std::chrono::steady_clock::now() < limit) {
    if (step()) continue;
    for (Source& source : sources_) {  // all data was read; a process that still holds the other end is not ours
      if (source.pipe >= 0 && queues_[source.target].size() < queue_limit) close_source(source);
    }
    std::vector<pollfd> descriptors;
    wait_for(descriptors);
    if (descriptors.empty()) return;
    poll(descriptors.data(), descriptors.size(), 100);
  }
}

}  // namespace anyaccel::launcher
