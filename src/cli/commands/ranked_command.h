// Runs a command as a job of several ranks: every rank has the same command line, and rank 0 prints. Without a launcher
// it is a job of one.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "anyaccel/comm/process_group.h"

namespace anyaccel::cli {

// Ends the command on this rank with exit code 1 and no message: another rank says what failed.
class FailedElsewhere : public std::exception {
 public:
  const char* what() const noexcept override { return "the job failed on another rank"; }
};

// The object exists until the command's error has been printed: then end() informs the other ranks.
class RankedCommand {
 public:
  // Joins the job that the environment describes; see comm::init_process_group(). Blocks until all ranks have joined.
  RankedCommand();
  // Leaves the job normally, which waits for the others to leave too.
  ~RankedCommand();
  RankedCommand(const RankedCommand&) = delete;
  RankedCommand& operator=(const RankedCommand&) = delete;

  const std::shared_ptr<comm::ProcessGroup>& group() const noexcept { return group_; }
  int ranks() const noexcept { return group_->size(); }
  // Returns whether this is rank 0, which reads standard input and is the only one that prints.
  bool speaks() const noexcept { return group_->rank() == 0; }

  // Runs a part of the work that may fail on some ranks only, and waits for all ranks to complete it. If it failed on
  // any rank, all ranks throw: rank 0 its own exception or an Error that names the rank, the others FailedElsewhere.
  void together(const std::function<void()>& part) const;

  // On ranks other than 0: waits until rank 0 has printed the error and ended (a launcher ends the job with the first
  // rank), then throws FailedElsewhere.
  [[noreturn]] void fail_silently() const;

  // Call when the command ends with this exit code: after a failure, leaves at once, and the others' waits fail.
  static void end(int exit_code);

  // Returns rank 0's texts on every rank.
  std::vector<std::string> texts_of_rank_zero(const std::vector<std::string>& texts) const;

 private:
  std::string text_of(int rank, std::string text) const;

  std::shared_ptr<comm::ProcessGroup> group_;
};

}  // namespace anyaccel::cli
