// Opens files and folders that no other user can change.
#include "base/files/trusted_path.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace anyaccel {
namespace {

namespace fs = std::filesystem;
using State = TrustedPath::State;

constexpr int most_links = 40;  // the kernel's limit
constexpr mode_t written_by_others = S_IWGRP | S_IWOTH;

// Returns the owners of the running program and of the folders in its path.
const std::vector<uid_t>& program_owners() {
  static const std::vector<uid_t> owners = [] {
    std::vector<uid_t> found;
    struct stat info {};
    if (stat("/proc/self/exe", &info) == 0) found.push_back(info.st_uid);
    std::error_code error;
    fs::path folder = fs::read_symlink("/proc/self/exe", error);
    while (!error && folder.has_relative_path()) {
      folder = folder.parent_path();
      if (stat(folder.c_str(), &info) == 0) found.push_back(info.st_uid);
    }
    return found;
  }();
  return owners;
}

bool is_trusted(uid_t owner, Trust trust) {
  if (owner == 0 || owner == geteuid()) return true;
  return trust == Trust::program && std::ranges::count(program_owners(), owner) > 0;
}

std::string octal(mode_t mode) {
  char text[16];
  std::snprintf(text, sizeof(text), "%o", static_cast<unsigned>(mode & 07777));
  return text;
}

// One walk along a path. Each step leaves `found_` at one more part of it.
class Walk {
 public:
  Walk(Trust trust, bool make) : trust_(trust), make_(make) {}

  TrustedPath open(const fs::path& path, bool folder_wanted) {
    fs::path absolute = path;
    if (path.is_relative()) {
      std::error_code error;
      const fs::path here = fs::current_path(error);
      if (error) return fail(State::failed, path, error.message());
      absolute = here / path;
    }
    queue(absolute);
    enter(FileDescriptor(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)), "/");
    if (check_folder()) {
      while (!parts_.empty() && step(folder_wanted)) {
      }
    }
    if (!result_.reason.empty()) return std::move(result_);
    if (folder_wanted && !result_.descriptor) result_.descriptor = std::move(folder_);
    if (!result_.descriptor) return fail(State::failed, folder_path_, "is a folder, not a file");
    if (folder_wanted) result_.path = folder_path_;
    result_.state = State::ok;
    return std::move(result_);
  }

 private:
  // Adds the parts of a path, to be walked before the remaining ones.
  void queue(const fs::path& path) {
    std::vector<std::string> parts;
    for (const fs::path& part : path.relative_path()) {
      if (!part.empty() && part != ".") parts.push_back(part.string());
    }
    parts_.insert(parts_.end(), parts.rbegin(), parts.rend());
  }

  void enter(FileDescriptor folder, fs::path path) {
    folder_ = std::move(folder);
    folder_path_ = std::move(path);
  }

  TrustedPath&& fail(State state, const fs::path& culprit, const std::string& what, const std::string& cure = {}) {
    result_.state = state;
    result_.descriptor = FileDescriptor();
    result_.path = culprit;
    result_.culprit = culprit;
    result_.reason = culprit.string() + " " + what;
    result_.cure = cure;
    return std::move(result_);
  }
  bool failed(State state, const fs::path& culprit, const std::string& what, const std::string& cure = {}) {
    fail(state, culprit, what, cure);
    return false;
  }

  bool check_owner(const struct stat& info, const fs::path& path, const char* what) {
    if (is_trusted(info.st_uid, trust_)) return true;
    return failed(State::refused, path, std::string(what) + "belongs to user " + std::to_string(info.st_uid),
                  "use a place that belongs to user " + std::to_string(geteuid()) + ", who runs this, or to root");
  }

  bool check_mode(const struct stat& info, const fs::path& path) {
    if (!(info.st_mode & written_by_others)) return true;
    const char* who = info.st_mode & S_IWOTH ? "everybody" : "its group";
    return failed(State::refused, path, "can be written by " + std::string(who) + " (mode " + octal(info.st_mode) + ")",
                  "chmod go-w " + path.string());
  }

  // The folder that was entered last.
  bool check_folder() {
    struct stat info {};
    if (!folder_ || fstat(folder_.get(), &info) != 0)
      return failed(State::failed, folder_path_, std::string("cannot be opened: ") + std::strerror(errno));
    shared_ = info.st_mode & written_by_others;
    return check_owner(info, folder_path_, "") && ((info.st_mode & S_ISVTX) || check_mode(info, folder_path_));
  }

  // Walks one part of the path; returns false when the walk has ended, with the file found or with a reason.
  bool step(bool folder_wanted) {
    const std::string part = std::move(parts_.back());
    parts_.pop_back();
    if (part == "..") {
      enter(FileDescriptor(openat(folder_.get(), "..", O_PATH | O_DIRECTORY | O_CLOEXEC)), folder_path_.parent_path());
      return check_folder();
    }
    const fs::path path = folder_path_ / part;
    FileDescriptor found(openat(folder_.get(), part.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!found && errno == ENOENT && make_) {
      if (mkdirat(folder_.get(), part.c_str(), 0755) != 0 && errno != EEXIST)
        return failed(State::failed, path, std::string("cannot be made: ") + std::strerror(errno));
      found = FileDescriptor(openat(folder_.get(), part.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    }
    if (!found) {
      if (errno == ENOENT) return failed(State::missing, path, "does not exist");
      return failed(State::failed, path, std::string("cannot be opened: ") + std::strerror(errno));
    }
    struct stat info {};
    if (fstat(found.get(), &info) != 0)
      return failed(State::failed, path, std::string("cannot be looked at: ") + std::strerror(errno));
    if (S_ISLNK(info.st_mode)) return follow(found, info, path);
    if (S_ISDIR(info.st_mode)) {
      enter(std::move(found), path);
      return check_folder();
    }
    if (folder_wanted || !parts_.empty()) return failed(State::failed, path, "is not a folder");
    return take_file(part, info, path);
  }

  bool follow(const FileDescriptor& link, const struct stat& info, const fs::path& path) {
    if (!check_owner(info, path, "is a symbolic link that ")) return false;
    if (++links_ > most_links) return failed(State::failed, path, "leads through too many symbolic links");
    char target[PATH_MAX];
    const ssize_t length = readlinkat(link.get(), "", target, sizeof(target));
    if (length <= 0 || length == static_cast<ssize_t>(sizeof(target)))
      return failed(State::failed, path, std::string("cannot be read: ") + std::strerror(errno));
    const fs::path aim(std::string(target, static_cast<size_t>(length)));
    queue(aim);
    if (!aim.is_absolute()) return true;
    enter(FileDescriptor(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)), "/");
    return check_folder();
  }

  // Opens the last part, a file; ends the walk.
  bool take_file(const std::string& part, const struct stat& seen, const fs::path& path) {
    if (S_ISFIFO(seen.st_mode)) return failed(State::failed, path, "is a named pipe, not a file");
    if (S_ISSOCK(seen.st_mode)) return failed(State::failed, path, "is a socket, not a file");
    if (!S_ISREG(seen.st_mode)) return failed(State::failed, path, "is a device, not a file");
    FileDescriptor file(openat(folder_.get(), part.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat info {};
    if (!file || fstat(file.get(), &info) != 0)
      return failed(State::failed, path, std::string("cannot be opened: ") + std::strerror(errno));
    if (info.st_dev != seen.st_dev || info.st_ino != seen.st_ino)
      return failed(State::refused, path, "was replaced while it was opened", "try again");
    if (!check_owner(info, path, "") || !check_mode(info, path)) return false;
    // A user who can create names in a folder can create a link to one of this user's files elsewhere.
    if (shared_ && info.st_nlink > 1)
      return failed(State::refused, path, "has another name, and lies where others can make names",
                    "copy it to a folder of your own");
    result_.descriptor = std::move(file);
    result_.path = path;
    return false;
  }

  Trust trust_;
  bool make_;
  std::vector<std::string> parts_;  // remaining parts, the next one last
  FileDescriptor folder_;           // current position of the walk
  fs::path folder_path_;
  bool shared_ = false;  // others can create entries there
  int links_ = 0;
  TrustedPath result_;
};

}  // namespace

TrustedPath open_trusted_file(const fs::path& file, Trust trust) { return Walk(trust, false).open(file, false); }

TrustedPath open_trusted_folder(const fs::path& folder, Trust trust) { return Walk(trust, false).open(folder, true); }

TrustedPath make_trusted_folder(const fs::path& folder) { return Walk(Trust::user, true).open(folder, true); }

std::optional<std::string> read_descriptor(int descriptor, size_t most_bytes, std::string& reason) {
  std::string text;
  struct stat info {};
  if (fstat(descriptor, &info) == 0 && info.st_size > 0)
    text.reserve(std::min(static_cast<size_t>(info.st_size), most_bytes) + 1);
  constexpr size_t block_bytes = 1 << 16;
  const auto block = std::make_unique_for_overwrite<char[]>(block_bytes);
  for (;;) {
    const ssize_t got = read(descriptor, block.get(), block_bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      reason = std::strerror(errno);
      return {};
    }
    if (got == 0) return text;
    text.append(block.get(), static_cast<size_t>(got));
    if (text.size() > most_bytes) {
      reason = "it is larger than " + std::to_string(most_bytes) + " bytes";
      return {};
    }
  }
}

}  // namespace anyaccel
