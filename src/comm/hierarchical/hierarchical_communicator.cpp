// Connects members on several hosts: shared memory inside a host, and one member of each (its leader, the lowest rank)
// between hosts.
//
// Operations whose data would cross the network once for every member of a host cross it once per host: reductions,
// broadcast and all_gather. Those that cross it once anyway (gather, scatter, all_to_all, send and recv) go directly
// between the members, through a communicator of all members.
//
// A reduction combines the members of a host in the order of their ranks, then the hosts in the order of their leaders,
// so it may round differently from a group of the same size on one host; all members get the same bits. Sums, products
// and averages of 16- and 8-bit floats stay in fp32 until the end, and are rounded once.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>

#include "anyaccel/error.h"
#include "base/copy_bytes.h"
#include "base/scalar_convert.h"
#include "comm/host_communicator.h"
#include "comm/messages/message_call.h"

namespace anyaccel::comm {
namespace {

// One step processes this many elements of a reduction in fp32, or bytes of an all_gather.
constexpr int64_t kStep = int64_t{1} << 20;

class Hierarchical final : public HostCommunicator {
 public:
  using Between = std::function<std::unique_ptr<HostCommunicator>(const Membership&)>;

  Hierarchical(const Membership& membership, const std::vector<int>& host_numbers, const Between& between)
      : rank_(membership.rank), size_(membership.size), names_(membership.names) {
    for (int i = static_cast<int>(names_.size()); i < size_; ++i) names_.push_back("rank " + std::to_string(i));
    if (static_cast<int>(host_numbers.size()) != size_) {
      throw InvalidArgument("a group of " + std::to_string(size_) + " members, and the hosts of " +
                            std::to_string(host_numbers.size()));
    }
    std::map<int, size_t> known;
    for (int member = 0; member < size_; ++member) {
      const auto [entry, fresh] = known.try_emplace(host_numbers[static_cast<size_t>(member)], hosts_.size());
      if (fresh) hosts_.emplace_back();
      if (member == rank_) {
        host_ = static_cast<int>(entry->second);
        place_ = static_cast<int>(hosts_[entry->second].size());
      }
      hosts_[entry->second].push_back(member);
    }
    const auto part = [&](const std::vector<int>& members, int rank, const std::string& prefix) {
      Membership result = membership;
      result.rank = rank;
      result.size = static_cast<int>(members.size());
      result.names.clear();
      for (const int member : members) result.names.push_back(names_[static_cast<size_t>(member)]);
      result.store = make_prefixed_store(membership.store, prefix);
      return result;
    };
    std::vector<int> leaders, all;
    for (const std::vector<int>& host : hosts_) leaders.push_back(host[0]);
    for (int member = 0; member < size_; ++member) all.push_back(member);
    if (own().size() > 1) {
      local_ = make_shared_memory_communicator(part(own(), place_, "host" + std::to_string(host_) + "/"));
    }
    if (hosts_.size() > 1 && place_ == 0) leaders_ = between(part(leaders, host_, "leaders/"));
    if (size_ > 1) all_ = between(part(all, rank_, "all/"));
    name_ = "shm+" + (all_ ? all_->name() : std::string("none"));
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  const std::string& name() const noexcept override { return name_; }

  void barrier() override {
    run({.kind = MessageCall::kBarrier}, [&] {
      if (local_) local_->barrier();
      if (leaders_) leaders_->barrier();
      if (local_) local_->barrier();
    });
  }

  void all_reduce(void* data, int64_t count, DType dtype, ReduceOp op) override {
    run(reduction(MessageCall::kAllReduce, count, dtype, op), [&] {
      in_steps(data, count, dtype, op, true, [&](void* values, int64_t n, DType type, ReduceOp how) {
        if (local_) local_->reduce(values, n, type, how, 0);
        if (leaders_) leaders_->all_reduce(values, n, type, how);
        if (local_) local_->broadcast(values, static_cast<size_t>(n) * dtype_size(type), 0);
      });
    });
  }

  void reduce(void* data, int64_t count, DType dtype, ReduceOp op, int root) override {
    const Whereabouts there = whereabouts(root);
    run(reduction(MessageCall::kReduce, count, dtype, op, root), [&] {
      in_steps(data, count, dtype, op, rank_ == root, [&](void* values, int64_t n, DType type, ReduceOp how) {
        const size_t bytes = static_cast<size_t>(n) * dtype_size(type);
        if (local_) local_->reduce(values, n, type, how, 0);
        if (leaders_) leaders_->reduce(values, n, type, how, there.host);
        if (there.host == host_ && there.place != 0) hand_over(values, bytes, there.place);
      });
    });
  }

  // The places of one host's members are adjacent, so that its leader gets them in one reduction.
  void reduce_scatter(void* recv, const void* send, int64_t count, DType dtype, ReduceOp op) override {
    run(reduction(MessageCall::kReduceScatter, count, dtype, op), [&] {
      const DType type = working_type(dtype, op);
      const ReduceOp how = op == ReduceOp::Avg ? ReduceOp::Sum : op;
      const size_t width = dtype_size(dtype), wide = dtype_size(type);
      const int64_t step = std::max<int64_t>(1, kStep / size_);
      for (int64_t begin = 0; begin == 0 || begin < count; begin += step) {
        const int64_t n = std::min(step, count - begin);
        const size_t bytes = static_cast<size_t>(n) * wide;
        std::byte* places = scratch(bytes * static_cast<size_t>(size_ + 1));
        std::byte* place = places;
        for (const std::vector<int>& host : hosts_) {
          for (const int member : host) {
            const auto* from =
                static_cast<const std::byte*>(send) + static_cast<size_t>(member * count + begin) * width;
            convert(place, type, from, dtype, n);
            place += bytes;
          }
        }
        std::byte* own_part = place;  // the last of the places, for this member's result
        const auto members = [&](size_t host) { return static_cast<int64_t>(hosts_[host].size()); };
        if (local_) local_->reduce(places, n * size_, type, how, 0);
        std::byte* at = places;
        for (size_t host = 0; host < hosts_.size(); ++host) {
          if (leaders_) leaders_->reduce(at, n * members(host), type, how, static_cast<int>(host));
          if (static_cast<int>(host) == host_) {
            if (local_)
              local_->scatter(own_part, at, bytes, 0);
            else
              own_part = at;
          }
          at += bytes * static_cast<size_t>(members(host));
        }
        if (op == ReduceOp::Avg) divide(own_part, n, type);
        convert(static_cast<std::byte*>(recv) + static_cast<size_t>(begin) * width, dtype, own_part, type, n);
      }
    });
  }

  void broadcast(void* data, Amount amount, int root) override {
    const Whereabouts there = whereabouts(root);
    run(movement(MessageCall::kBroadcast, amount, root), [&] {
      if (local_ && there.host == host_) local_->broadcast(data, amount, there.place);
      if (leaders_) leaders_->broadcast(data, amount, there.host);
      if (local_ && there.host != host_) local_->broadcast(data, amount, 0);
    });
  }

  void all_gather(void* recv, const void* send, Amount amount) override {
    const size_t bytes = amount.bytes;
    run(movement(MessageCall::kAllGather, amount), [&] {
      size_t most = 0;  // members of a host; smaller hosts leave room
      for (const std::vector<int>& host : hosts_) most = std::max(most, host.size());
      const size_t hosts = hosts_.size();
      const size_t step = std::max<size_t>(1, static_cast<size_t>(kStep) / (most * hosts));
      for (size_t begin = 0; begin == 0 || begin < bytes; begin += step) {
        const size_t n = std::min(step, bytes - begin);
        std::byte* places = scratch(most * hosts * n);
        std::byte* mine = places + static_cast<size_t>(host_) * most * n;
        const std::byte* piece = static_cast<const std::byte*>(send) + begin;
        if (local_)
          local_->gather(mine, piece, n, 0);
        else if (n > 0)
          copy_bytes(mine, piece, n);
        if (leaders_) leaders_->all_gather(places, mine, most * n);
        if (local_) local_->broadcast(places, most * hosts * n, 0);
        for (size_t host = 0; host < hosts && n > 0; ++host) {
          for (size_t place = 0; place < hosts_[host].size(); ++place) {
            std::byte* to = static_cast<std::byte*>(recv) + static_cast<size_t>(hosts_[host][place]) * bytes + begin;
            std::memmove(to, places + (host * most + place) * n, n);
          }
        }
      }
    });
  }

  void gather(void* recv, const void* send, Amount amount, int root) override {
    if (!all_) return copy(recv, send, amount.bytes);
    guard([&] { all_->gather(recv, send, amount, root); });
  }
  void scatter(void* recv, const void* send, Amount amount, int root) override {
    if (!all_) return copy(recv, send, amount.bytes);
    guard([&] { all_->scatter(recv, send, amount, root); });
  }
  void all_to_all(void* recv, const void* send, Amount amount) override {
    if (!all_) return copy(recv, send, amount.bytes);
    guard([&] { all_->all_to_all(recv, send, amount); });
  }
  void send(const void* data, Amount amount, int peer, int tag) override {
    const Whereabouts there = whereabouts(peer);
    guard([&] {
      if (there.host == host_ && local_)
        local_->send(data, amount, there.place, tag);
      else if (all_)
        all_->send(data, amount, peer, tag);
    });
  }
  void recv(void* data, Amount amount, int peer, int tag) override {
    const Whereabouts there = whereabouts(peer);
    guard([&] {
      if (there.host == host_ && local_)
        local_->recv(data, amount, there.place, tag);
      else if (all_)
        all_->recv(data, amount, peer, tag);
    });
  }

  void abort(const std::string& why) noexcept override {
    for (HostCommunicator* part : {local_.get(), leaders_.get(), all_.get()}) {
      if (part) part->abort(why);
    }
  }

 private:
  const std::vector<int>& own() const { return hosts_[static_cast<size_t>(host_)]; }

  struct Whereabouts {
    int host, place;
  };
  Whereabouts whereabouts(int member) const {
    for (size_t host = 0; host < hosts_.size(); ++host) {
      const auto found = std::find(hosts_[host].begin(), hosts_[host].end(), member);
      if (found != hosts_[host].end()) return {static_cast<int>(host), static_cast<int>(found - hosts_[host].begin())};
    }
    throw InvalidArgument("a group of " + std::to_string(size_) + " has no rank " + std::to_string(member));
  }

  MessageCall reduction(MessageCall::Kind kind, int64_t count, DType dtype, ReduceOp op, int root = -1) {
    return {.kind = kind,
            .dtype = static_cast<int32_t>(dtype),
            .op = static_cast<int32_t>(op),
            .root = root,
            .amount = static_cast<uint64_t>(count)};
  }
  MessageCall movement(MessageCall::Kind kind, const Amount& amount, int root = -1) {
    return {.kind = kind, .dtype = static_cast<int32_t>(amount.dtype), .root = root, .amount = amount.bytes};
  }

  // The parts get other arguments than the members gave: the leader of a host instead of a root on it, sums instead of
  // averages, fp32 instead of 16-bit floats. Calls that differ in these would look alike to them. So the members of a
  // host compare their calls themselves, and the leaders' messages carry theirs.
  void agree(MessageCall call) {
    call.sequence = ++sequence_;
    if (leaders_) leaders_->set_caller(call);
    if (!local_) return;
    calls_.resize(own().size());
    local_->all_gather(calls_.data(), &call, sizeof(call));
    for (size_t place = 0; place < calls_.size(); ++place) {
      if (calls_[place] == call) continue;
      throw CommunicationError("the members disagree: " + names_[static_cast<size_t>(own()[place])] + " calls " +
                                   calls_[place].text() + ", " + names_[static_cast<size_t>(rank_)] + " calls " +
                                   call.text(),
                               AA_FAILED_PRECONDITION);
    }
  }

  template <class Body>
  void run(const MessageCall& call, const Body& body) {
    guard([&] {
      agree(call);
      body();
    });
  }

  // A failure of one part ends all parts, since their other members wait for this one.
  template <class Body>
  void guard(const Body& body) {
    try {
      body();
    } catch (const CommunicationError& error) {
      abort(error.what());
      throw;
    }
  }

  static void copy(void* to, const void* from, size_t bytes) {
    if (bytes > 0 && to != from) std::memmove(to, from, bytes);
  }

  // Passes data from the leader to the member at `place`.
  void hand_over(void* data, size_t bytes, int place) {
    if (place_ == 0)
      local_->send(data, bytes, place, 0);
    else if (place_ == place)
      local_->recv(data, bytes, 0, 0);
  }

  std::byte* scratch(size_t bytes) {
    if (scratch_.size() < bytes) scratch_.resize(bytes);
    return scratch_.data();
  }

  // Sums and products computed in steps are rounded at the end only.
  static DType working_type(DType dtype, ReduceOp op) {
    const bool rounds = op == ReduceOp::Sum || op == ReduceOp::Product || op == ReduceOp::Avg;
    const bool narrow = dtype == DType::F16 || dtype == DType::BF16 || dtype == DType::F8E4M3 || dtype == DType::F8E5M2;
    return rounds && narrow ? DType::F32 : dtype;
  }

  // Runs `combine` on data in its working type; if `takes` is set the result is stored in `data`.
  template <class Combine>
  void in_steps(void* data, int64_t count, DType dtype, ReduceOp op, bool takes, const Combine& combine) {
    const DType type = working_type(dtype, op);
    const ReduceOp how = op == ReduceOp::Avg ? ReduceOp::Sum : op;
    if (type == dtype) {
      combine(data, count, type, how);
      if (op == ReduceOp::Avg && takes) divide(data, count, type);
      return;
    }
    for (int64_t begin = 0; begin == 0 || begin < count; begin += kStep) {
      const int64_t n = std::min(kStep, count - begin);
      std::byte* at = static_cast<std::byte*>(data) + static_cast<size_t>(begin) * dtype_size(dtype);
      std::byte* values = scratch(static_cast<size_t>(n) * dtype_size(type));
      convert(values, type, at, dtype, n);
      combine(values, n, type, how);
      if (!takes) continue;
      if (op == ReduceOp::Avg) divide(values, n, type);
      convert(at, dtype, values, type, n);
    }
  }

  // One of the two types must be F32, or both must be the same.
  static void convert(void* to, DType to_type, const void* from, DType from_type, int64_t count) {
    if (to_type == from_type) return copy(to, from, static_cast<size_t>(count) * dtype_size(to_type));
    if (to_type == DType::F32) {
      auto* out = static_cast<float*>(to);
      with_narrow(from_type, [&](auto sample, const auto& load, const auto&) {
        const auto* in = static_cast<const decltype(sample)*>(from);
        for (int64_t i = 0; i < count; ++i) out[i] = load(in[i]);
      });
    } else {
      const auto* in = static_cast<const float*>(from);
      with_narrow(to_type, [&](auto sample, const auto&, const auto& store) {
        auto* out = static_cast<decltype(sample)*>(to);
        for (int64_t i = 0; i < count; ++i) out[i] = store(in[i]);
      });
    }
  }

  // Calls body(a value of the stored type, a function that loads one, a function that stores one).
  template <class Body>
  static void with_narrow(DType dtype, const Body& body) {
    if (dtype == DType::BF16) return body(uint16_t{}, bf16_to_float, float_to_bf16);
    if (dtype == DType::F16) return body(uint16_t{}, fp16_to_float, float_to_fp16);
    const Fp8Format& format = dtype == DType::F8E4M3 ? kE4M3 : kE5M2;
    body(
        uint8_t{}, [&](uint8_t bits) { return fp8_to_float(bits, format); },
        [&](float value) { return float_to_fp8(value, format); });
  }

  void divide(void* data, int64_t count, DType dtype) const {
    const auto each = [&](auto* values) {
      for (int64_t i = 0; i < count; ++i) {
        values[i] = static_cast<std::remove_reference_t<decltype(values[i])>>(values[i] / size_);
      }
    };
    switch (dtype) {
      case DType::U8: return each(static_cast<uint8_t*>(data));
      case DType::I8: return each(static_cast<int8_t*>(data));
      case DType::I16: return each(static_cast<int16_t*>(data));
      case DType::I32: return each(static_cast<int32_t*>(data));
      case DType::I64: return each(static_cast<int64_t*>(data));
      case DType::F32: return each(static_cast<float*>(data));
      case DType::F64: return each(static_cast<double*>(data));
      default: throw InvalidArgument("there is no average of " + std::string(dtype_name(dtype)));
    }
  }

  const int rank_;
  const int size_;
  std::string name_;
  std::vector<std::string> names_;           // of the members
  std::vector<std::vector<int>> hosts_;      // members of each host, in the order of ranks; hosts by their first member
  int host_ = 0;                             // of this member
  int place_ = 0;                            // among its host's members
  std::unique_ptr<HostCommunicator> local_;  // of the host; null when this member is alone there
  std::unique_ptr<HostCommunicator> leaders_;  // of the leaders; null elsewhere, and with one host
  std::unique_ptr<HostCommunicator> all_;      // null in a group of one
  std::vector<std::byte> scratch_;
  std::vector<MessageCall> calls_;  // of the host's members, in agree()
  uint64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<HostCommunicator> make_hierarchical_communicator(
    const Membership& membership, const std::vector<int>& hosts,
    const std::function<std::unique_ptr<HostCommunicator>(const Membership&)>& between) {
  return std::make_unique<Hierarchical>(membership, hosts, between);
}

}  // namespace anyaccel::comm
