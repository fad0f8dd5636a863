// Creates a group, shares blocks and handles failures. Waiting is in group_wait.cpp.
#include "comm/shared_memory/shared_memory_group.h"

#include <fcntl.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>

#include "anyaccel/error.h"
#include "base/files/open_files.h"
#include "base/process/shareable_memory.h"

namespace anyaccel::comm::shm {
namespace {

Membership completed(Membership membership) {
  if (membership.size < 1 || membership.size > kMostRanks || membership.rank < 0 ||
      membership.rank >= membership.size) {
    throw InvalidArgument("shared memory between ranks: rank " + std::to_string(membership.rank) + " of " +
                          std::to_string(membership.size) + "; at most " + std::to_string(kMostRanks) +
                          " ranks can take part");
  }
  if (membership.size > 1 && !membership.store) throw InvalidArgument("shared memory between ranks needs a store");
  for (int r = static_cast<int>(membership.names.size()); r < membership.size; ++r) {
    membership.names.push_back("rank " + std::to_string(r));
  }
  return membership;
}

}  // namespace

SharedMemoryGroup::SharedMemoryGroup(Membership membership)
    : membership_(completed(std::move(membership))),
      rank_(membership_.rank),
      size_(membership_.size),
      layout_(membership_.size),
      members_(static_cast<size_t>(size_)),
      processes_(static_cast<size_t>(size_)) {
  activity_ = "making the group's shared memory";
  exchange_ = std::make_unique<Exchange>(membership_, [this] { check_job(); });
  if (size_ > 1) ShareableMemory::instance().start();
  Segment segment = create_segment("anyaccel-group", layout_.bytes(), false);
  auto* header = new (segment.mapping->data()) Header{};
  fill_header(*header);
  members_[static_cast<size_t>(rank_)] = Member(segment.mapping, layout_);
  mine_ = &members_[static_cast<size_t>(rank_)];
  for (int peer = 0; peer < size_; ++peer) new (&mine_->to(peer)) ToPeer{};
  header->state.store(State::Member, std::memory_order_release);
  if (size_ == 1) return;

  try {
    join(std::move(segment.fd));
  } catch (...) {
    header->state.store(State::Left, std::memory_order_release);  // informs members that have joined
    throw;
  }
}

void SharedMemoryGroup::join(FileDescriptor segment) {
  const Header& header = mine_->header();
  Parcel own;
  own.bytes.assign(reinterpret_cast<const char*>(&header), offsetof(Header, state));
  own.fds.push_back(std::move(segment));
  if (header.tensors != 0) {
    FileDescriptor tensors(fcntl(ShareableMemory::instance().file(), F_DUPFD_CLOEXEC, 0));
    if (!tensors) throw CommunicationError("cannot share the memory of tensors: " + system_error_text(errno));
    own.fds.push_back(std::move(tensors));
  }
  if (FileDescriptor pidfd = open_own_pidfd()) own.fds.push_back(std::move(pidfd));
  tensors_.assign(static_cast<size_t>(size_), nullptr);
  tensors_[static_cast<size_t>(rank_)] = ShareableMemory::instance().data();
  exchange_->all_gather(std::move(own), until_time_is_up([this] { check_job(); }), [this](int peer, Parcel parcel) {
    check_member(peer, parcel);
    members_[static_cast<size_t>(peer)] =
        Member(map_segment(parcel.fds[0].get(), layout_.bytes(), name_of(peer)), layout_);
    const Header& theirs = at(peer).header();
    if (theirs.state.load(std::memory_order_acquire) == State::Absent ||
        std::memcmp(&theirs, parcel.bytes.data(), parcel.bytes.size()) != 0) {
      throw CommunicationError("the shared memory of " + name_of(peer) + " is not what it announced");
    }
    const size_t before_pidfd = theirs.tensors != 0 ? 2 : 1;
    if (theirs.tensors != 0) map_tensors(peer, theirs, parcel.fds[1]);
    FileDescriptor pidfd = parcel.fds.size() > before_pidfd ? std::move(parcel.fds[before_pidfd]) : FileDescriptor();
    processes_[static_cast<size_t>(peer)] = PeerProcess(theirs.process, std::move(pidfd));
  });
  if (std::ranges::count(tensors_, nullptr) > 0) tensors_.clear();
  compare_cores();
  clear_activity();
  open({}, nullptr, 0);  // a barrier: everyone has mapped everything
  await_open();
}

SharedMemoryGroup::~SharedMemoryGroup() {
  if (!mine_) return;
  State expected = State::Member;
  mine_->header().state.compare_exchange_strong(expected, State::Left, std::memory_order_acq_rel);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_ && at(peer).data()) wake(peer);
  }
}

Exchange::Check SharedMemoryGroup::until_time_is_up(Exchange::Check check) {
  return [this, check = std::move(check), deadline = std::chrono::steady_clock::now() + membership_.timeout] {
    check();
    if (std::chrono::steady_clock::now() < deadline) return;
    fail(activity() + ": not all members came within " + std::to_string(membership_.timeout.count()) + " ms",
         AA_DEADLINE_EXCEEDED);
  };
}

void SharedMemoryGroup::fill_header(Header& header) const {
  header.magic = kMagic;
  header.version = kLayoutVersion;
  header.rank = rank_;
  header.size = size_;
  header.bytes = layout_.bytes();
  exchange_->secret().copy(header.secret, sizeof(header.secret));
  header.process = own_identity();
  header.tensors = size_ > 1 ? ShareableMemory::instance().bytes() : 0;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) {
    static_assert(sizeof(cores) >= sizeof(header.cores));
    std::memcpy(header.cores, &cores, sizeof(header.cores));
  }
}

void SharedMemoryGroup::map_tensors(int member, const Header& header, const FileDescriptor& file) {
  char*& data = tensors_[static_cast<size_t>(member)];
  if (header.process == own_identity()) {  // ranks that are threads of this process
    data = ShareableMemory::instance().data();
    return;
  }
  tensor_mappings_.push_back(map_segment(file.get(), header.tensors, name_of(member)));
  data = tensor_mappings_.back()->data();
}

void SharedMemoryGroup::check_member(int member, const Parcel& parcel) const {
  Header theirs{};
  if (parcel.bytes.size() == offsetof(Header, state)) {
    std::memcpy(static_cast<void*>(&theirs), parcel.bytes.data(), parcel.bytes.size());
  }
  if (theirs.magic != kMagic || theirs.version != kLayoutVersion || theirs.bytes != layout_.bytes() ||
      theirs.rank != member || theirs.size != size_ || parcel.fds.size() < (theirs.tensors != 0 ? 2U : 1U) ||
      exchange_->secret().compare(0, sizeof(theirs.secret), theirs.secret, sizeof(theirs.secret)) != 0) {
    throw CommunicationError("the shared memory of " + name_of(member) + " has layout " +
                             std::to_string(theirs.version) + " and " + std::to_string(theirs.bytes) +
                             " bytes; expected layout " + std::to_string(kLayoutVersion) + " and " +
                             std::to_string(layout_.bytes()) + " bytes. Do all ranks run the same version?");
  }
}

void SharedMemoryGroup::compare_cores() {
  int distinct = 0;
  int counted = 0;
  for (size_t word = 0; word < std::size(Header{}.cores); ++word) {
    uint64_t bits = 0;
    for (const Member& member : members_) {
      bits |= member.header().cores[word];
      counted += std::popcount(member.header().cores[word]);
    }
    distinct += std::popcount(bits);
  }
  yields_ = distinct > 0 && size_ > distinct;
  own_cores_ = distinct > 0 && counted == distinct;
}

SharedMemoryGroup::Blocks SharedMemoryGroup::share(size_t bytes) {
  open({.kind = Kind::Share, .count = bytes}, nullptr, 0);
  await_open();
  Blocks blocks;
  Parcel own;
  own.bytes = std::to_string(bytes);
  std::shared_ptr<Mapping> mapping;
  try {
    Segment segment = create_segment("anyaccel-block", bytes, true);
    mapping = std::move(segment.mapping);
    own.fds.push_back(std::move(segment.fd));
  } catch (const OutOfMemoryError&) {
    // A parcel without a descriptor tells the others, and no member gets a block.
  }
  const Condition pending{nullptr, [](const void*) { return false; }};
  const auto check = until_time_is_up([&] { check_members(pending, kEveryone, 0); });
  bool complete = mapping != nullptr;
  blocks.members.resize(static_cast<size_t>(size_));
  blocks.members[static_cast<size_t>(rank_)] = std::move(mapping);
  try {
    exchange_->all_gather(std::move(own), check, [&](int member, const Parcel& parcel) {
      complete = complete && !parcel.fds.empty();
      if (complete) {
        blocks.members[static_cast<size_t>(member)] = map_segment(parcel.fds[0].get(), bytes, name_of(member));
      }
    });
  } catch (const Error& error) {
    fail(error.what());
  }
  if (!complete) blocks.members.clear();
  await(publish());
  return blocks;
}

bool SharedMemoryGroup::record_failure(const std::string& why, aa_code code) noexcept {
  const std::lock_guard lock(failure_mutex_);
  if (failed_.load(std::memory_order_relaxed)) return false;
  try {
    failure_ = why;
  } catch (...) {  // no memory for the text
  }
  failure_code_ = code;
  failed_.store(true, std::memory_order_release);
  if (mine_) {
    Header& header = mine_->header();
    std::snprintf(header.reason, sizeof(header.reason), "%s", why.c_str());
    header.state.store(State::Failed, std::memory_order_release);
    for (int peer = 0; peer < size_; ++peer) {
      if (at(peer).data()) wake(peer);
    }
  }
  return true;
}

void SharedMemoryGroup::fail(const std::string& why, aa_code code) {
  record_failure(why, code);
  throw_failure();
}

void SharedMemoryGroup::abort(const std::string& why) noexcept { record_failure(why, AA_CANCELLED); }

void SharedMemoryGroup::throw_failure() {
  const std::lock_guard lock(failure_mutex_);
  throw CommunicationError(failure_, failure_code_);
}

void SharedMemoryGroup::fail_disagreement(int peer, uint64_t word) {
  const std::string own = name_of(rank_) + " calls " + operation_.text();
  const std::string theirs = name_of(peer) + " calls " + Operation::unpacked(word).text();
  fail("the ranks of a group call different operations: " + (rank_ < peer ? own + ", " + theirs : theirs + ", " + own),
       AA_INVALID_ARGUMENT);
}

}  // namespace anyaccel::comm::shm
