// Joins the members of a group to a communicator of their devices.
#include "comm/device/device_join.h"

#include "anyaccel/abi/table_calls.hpp"
#include "anyaccel/error.h"
#include "runtime/driver/host_services.h"

namespace anyaccel::comm {
namespace {

// Every answer begins with one of these.
constexpr char yes = '+';
constexpr char no = '-';

// Collects the members' answers to one question; rank 0 derives the decision from them. Used once.
class Vote {
 public:
  Vote(const Membership& membership, std::string question) : membership_(membership), question_(std::move(question)) {}

  // Called by every member with its answer, a text that begins with yes or no. Returns the decision.
  template <class Judge>
  std::string take(const std::string& answer, Judge&& judge) {
    if (membership_.size == 1) return judge({answer});
    Store& store = *membership_.store;
    if (membership_.rank != 0) {
      store.set(key(membership_.rank), answer);
      return get(question_ + "/verdict", 0);
    }
    std::vector<std::string> answers{answer};
    for (int rank = 1; rank < membership_.size; ++rank) answers.push_back(get(key(rank), rank));
    const std::string verdict = judge(answers);
    store.set(question_ + "/verdict", verdict);
    return verdict;
  }

 private:
  std::string key(int rank) const { return question_ + "/" + std::to_string(rank); }

  std::string get(const std::string& key, int from) const {
    try {
      return membership_.store->get(key, membership_.timeout);
    } catch (const CommunicationError& error) {
      throw CommunicationError(
          "the devices of a group are joined, and " + member_name(from) + " does not take part: " + error.what(),
          error.code());
    }
  }

  std::string member_name(int rank) const {
    const auto place = static_cast<size_t>(rank);
    return place < membership_.names.size() ? membership_.names[place] : "rank " + std::to_string(rank);
  }

  const Membership& membership_;
  const std::string question_;
};

std::string named(const Membership& membership, size_t rank, const std::string& text) {
  return (rank < membership.names.size() ? membership.names[rank] : "rank " + std::to_string(rank)) + ": " + text;
}

// Returns the first "no" with its member's name; empty if there is none.
std::string first_refusal(const Membership& membership, const std::vector<std::string>& answers) {
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    if (answers[rank].empty() || answers[rank][0] != yes) {
      return named(membership, rank, answers[rank].empty() ? "no answer" : answers[rank].substr(1));
    }
  }
  return "";
}

// Returns "+nccl 2.28.9", or "-" and the reason why there is no library.
std::string own_library(const CollectivesAccess& access, DeviceJoin& join) {
  if (!access.table) return no + std::string("the accelerator has no collectives of its own");
  const char* name = nullptr;
  const char* version = nullptr;
  const StatusRef status(access.table->library(access.instance, &name, &version));
  if (!status.ok()) return no + std::string(status.message());
  join.library = name;
  join.version = version;
  return yes + join.library + " " + join.version;
}

// Decides about the libraries: returns "+" and an id, or "-" and the problem.
std::string make_id(const CollectivesAccess& access, const Membership& membership,
                    const std::vector<std::string>& answers) {
  if (const std::string refusal = first_refusal(membership, answers); !refusal.empty()) return no + refusal;
  for (size_t rank = 1; rank < answers.size(); ++rank) {
    if (answers[rank] == answers[0]) continue;
    return no + named(membership, 0, answers[0].substr(1)) + "; " + named(membership, rank, answers[rank].substr(1)) +
           ": all members need the same library";
  }
  size_t size = 0;
  if (const StatusRef status(access.table->id_size(access.instance, &size)); !status.ok()) {
    return no + std::string(status.message());
  }
  if (size == 0 || size > AA_COLLECTIVES_MAX_ID) return no + ("an id of " + std::to_string(size) + " bytes");
  std::string verdict(1 + size, yes);
  const StatusRef status(access.table->id_create(access.instance, verdict.data() + 1));
  return status.ok() ? verdict : no + std::string(status.message());
}

}  // namespace

DeviceJoin join_devices(const CollectivesAccess& access, const Membership& membership) {
  DeviceJoin join;
  // A group may join more than once, with different keys each time.
  std::string prefix = "devices/";
  if (membership.size > 1) {
    prefix += std::to_string(membership.store->add("devices/joins/" + std::to_string(membership.rank), 1)) + "/";
  }

  Vote libraries(membership, prefix + "library");
  const std::string id = libraries.take(own_library(access, join), [&](const std::vector<std::string>& answers) {
    return make_id(access, membership, answers);
  });
  if (id.empty() || id[0] != yes) {
    join.why = id.substr(id.empty() ? 0 : 1);
    return join;
  }

  aa_comm* comm = nullptr;
  const StatusRef made(
      access.table->comm_create(access.device, id.data() + 1, membership.rank, membership.size, &comm));
  const std::string answer = made.ok() ? std::string(1, yes) : no + std::string(made.message());
  std::string verdict;
  try {
    Vote joined(membership, prefix + "joined");
    verdict = joined.take(answer, [&](const std::vector<std::string>& answers) {
      const std::string refusal = first_refusal(membership, answers);
      return refusal.empty() ? std::string(1, yes) : no + refusal;
    });
  } catch (...) {
    verdict = no;
    if (comm) release_status(access.table->comm_abort(comm));
    if (comm) release_status(access.table->comm_destroy(comm));
    throw;
  }
  if (!verdict.empty() && verdict[0] == yes) {
    join.comm = comm;
    return join;
  }
  join.why = verdict.substr(verdict.empty() ? 0 : 1);
  if (comm) release_status(access.table->comm_abort(comm));
  if (comm) release_status(access.table->comm_destroy(comm));
  return join;
}

}  // namespace anyaccel::comm
