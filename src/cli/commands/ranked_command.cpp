// Runs a command as a job of several ranks.
#include "cli/commands/ranked_command.h"

#include <algorithm>
#include <exception>
#include <new>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"

namespace anyaccel::cli {

namespace {

// Wraps numbers or bytes in host memory as a tensor for the duration of a call.
template <class T>
Tensor as_tensor(T* data, size_t count, DType dtype) {
  return Tensor::from_blob(data, {static_cast<int64_t>(count)}, dtype, nullptr);
}

// The ranks of a host are assigned its devices round-robin. On the CPU each uses the cores and memory that it is bound
// to.
std::shared_ptr<comm::ProcessGroup> join() {
  Accelerator* const accelerator = get_accelerator();
  const int place = comm::local_rank();
  if (place > 0 && !(accelerator->device_properties(0).caps & AA_CAP_IS_HOST)) {
    accelerator->set_device(place % accelerator->device_count());
    log_debug("rank with LOCAL_RANK " + std::to_string(place) + " uses " + accelerator->current_device_name());
  }
  return comm::init_process_group();
}

}  // namespace

RankedCommand::RankedCommand() : group_(join()) {}

RankedCommand::~RankedCommand() {
  group_.reset();
  comm::destroy_process_group();
}

void RankedCommand::end(int exit_code) {
  if (exit_code != 0) comm::abort_process_group("the command failed");
}

void RankedCommand::fail_silently() const {
  try {
    group_->barrier();  // rank 0 never reaches it; its end() ends the wait
  } catch (const CommunicationError&) {
    // Rank 0 has ended.
  }
  throw FailedElsewhere();
}

std::string RankedCommand::text_of(int rank, std::string text) const {
  auto length = static_cast<int64_t>(text.size());
  group_->broadcast(as_tensor(&length, 1, DType::I64), rank);
  text.resize(static_cast<size_t>(length));
  group_->broadcast(as_tensor(text.data(), text.size(), DType::U8), rank);
  return text;
}

void RankedCommand::together(const std::function<void()>& part) const {
  std::exception_ptr error;
  std::string message;
  try {
    part();
  } catch (const std::bad_alloc&) {
    error = std::current_exception();
    message = "the host's memory is used up";
  } catch (const std::exception& failure) {
    error = std::current_exception();
    message = failure.what();
  }
  if (ranks() > 1) {
    std::vector<uint8_t> failed(static_cast<size_t>(ranks()));
    uint8_t here = error ? 1 : 0;
    group_->all_gather(as_tensor(failed.data(), failed.size(), DType::U8), as_tensor(&here, 1, DType::U8));
    const auto first = std::find(failed.begin(), failed.end(), uint8_t{1}) - failed.begin();
    if (first == ranks()) return;
    message = text_of(static_cast<int>(first), message);
    if (!speaks()) fail_silently();
    if (first > 0) throw Error("rank " + std::to_string(first) + ": " + message);
  }
  if (error) std::rethrow_exception(error);
}

std::vector<std::string> RankedCommand::texts_of_rank_zero(const std::vector<std::string>& texts) const {
  if (ranks() == 1) return texts;
  auto count = static_cast<int64_t>(texts.size());
  group_->broadcast(as_tensor(&count, 1, DType::I64), 0);
  std::vector<std::string> shared;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) shared.push_back(text_of(0, speaks() ? texts[i] : ""));
  return shared;
}

}  // namespace anyaccel::cli
