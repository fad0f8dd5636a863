// Remembers files and folders that are being written under temporary names, so that a signal that ends the process can
// remove them first.
#pragma once

#include <signal.h>

#include <filesystem>
#include <optional>

namespace anyaccel {

struct UnfinishedEntry;

// Keeps the signals that remove unfinished files from coming between the creation of a file and its UnfinishedFile: both
// happen while an object exists. The signals wait until the thread's outermost object is destroyed (a signal that another
// thread handles waits a second at most). A thread that begins one after such a signal has come never returns, because the
// process is ending.
class FileCreation {
 public:
  FileCreation();
  ~FileCreation();
  FileCreation(const FileCreation&) = delete;
  FileCreation& operator=(const FileCreation&) = delete;

 private:
  sigset_t before_;
};

// While an object exists, remove_unfinished_files() removes what is at its path.
class UnfinishedFile {
 public:
  enum class Kind { File, EmptyFolder, FolderWithFiles };
  explicit UnfinishedFile(const std::filesystem::path& path, Kind kind = Kind::File);
  ~UnfinishedFile();
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

 private:
  UnfinishedEntry* entry_;
};

// Returns a new name, in the folder of `path`, for what gets that name once it is complete. It begins with as much of the
// name as fits into the 255 bytes that a file's name may have.
std::filesystem::path unfinished_path(const std::filesystem::path& path);

// Returns where a symbolic link ends, so that what it names is replaced and not the link. Any other path is
// returned unchanged, and so is a link to nothing.
std::filesystem::path path_to_replace(const std::filesystem::path& path);

// Creates a file for writing that does not exist yet, with permissions of `mode` less the umask, and makes it `unfinished`.
// Returns its descriptor, which the caller closes; -1 if it cannot be created, with the reason in errno. Blocks.
int create_unfinished_file(const std::filesystem::path& path, unsigned mode, std::optional<UnfinishedFile>& unfinished);

// Removes the files and folders of all UnfinishedFile objects that this process (not its parent) created. Makes system
// calls only, so that signal handlers may call it; the process must end after that.
void remove_unfinished_files() noexcept;

// Ends the process as the signal's default action does, once the handler that calls this returns. Removes the unfinished
// files first. Makes system calls only.
void end_by_signal(int signal) noexcept;

// From now on SIGHUP, SIGINT, SIGQUIT and SIGTERM remove the unfinished files before they end the process. Signals that
// the process ignores (nohup) or handles stay as they are. Programs call this; the library does not.
void remove_unfinished_files_on_signals();

}  // namespace anyaccel
