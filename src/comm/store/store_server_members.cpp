// Implements StoreServer's tracking of ranks: joined, missing, silent, ended.
#include <algorithm>
#include <utility>

#include "anyaccel/log.h"
#include "comm/store/store_report.h"
#include "comm/store/store_server.h"

namespace anyaccel::comm {

namespace {

std::string list(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace

std::string StoreServer::member_name(int rank) const {
  const auto i = static_cast<size_t>(rank);
  std::string host = members_[i].info.host_name;
  if (members_[i].presence == Presence::Absent) host = i < options_.hosts.size() ? options_.hosts[i] : "";
  return "rank " + std::to_string(rank) + (host.empty() ? "" : " on " + host);
}

// "1, 3", or with their hosts "1, 2 on node1; 5 on node3".
std::string StoreServer::missing_ranks() const {
  std::string text;
  std::string host;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].presence != Presence::Absent) continue;
    const std::string own = i < options_.hosts.size() ? options_.hosts[i] : "";
    if (!text.empty()) text += own == host ? ", " : " on " + host + "; ";
    text += std::to_string(i);
    host = own;
  }
  return text + (host.empty() ? "" : " on " + host);
}

void StoreServer::ended(int64_t rank, const std::string& how) {
  if (complete_ || rank < 0 || rank >= options_.size) return;
  const auto number = static_cast<int>(rank);
  if (members_[static_cast<size_t>(rank)].presence != Presence::Absent) return;
  fail(ended_early(member_name(number), how, options_.size) + "; missing: " + missing_ranks());
}

void StoreServer::join(Connection& connection, uint32_t number, wire::JoinInfo info) {
  const std::string who =
      "process " + std::to_string(info.pid) + " on " + info.host_name + " (rank " + std::to_string(info.rank) + ")";
  if (connection.rank >= 0) throw wire::Malformed("a second join");
  if (complete_) {
    // The job is complete and continues: only the new connection is an error.
    send(connection,
         wire::Writer(wire::Kind::Failed)
             .text(who + " came to a job whose " + std::to_string(options_.size) +
                   " ranks are all there already: another job uses this MASTER_ADDR and MASTER_PORT, or the "
                   "process was started twice")
             .frame());
    return;
  }
  if (!failure_.empty()) {
    send(connection, wire::Writer(wire::Kind::Failed).text(failure_).frame());
    return;
  }
  const auto refuse = [&](const std::string& why) {
    fail(why);
    send(connection, wire::Writer(wire::Kind::Failed).text(failure_).frame());
  };
  if (info.size != options_.size) {
    refuse(who + " was told that there are " + std::to_string(info.size) + " ranks, rank 0 that there are " +
           std::to_string(options_.size) + " (WORLD_SIZE)");
    return;
  }
  if (info.rank < 0 || info.rank >= options_.size) {
    refuse(who + ": there is no such rank among " + std::to_string(options_.size));
    return;
  }
  Member& member = members_[static_cast<size_t>(info.rank)];
  if (member.presence != Presence::Absent) {
    refuse("two processes say that they are rank " + std::to_string(info.rank) + ": process " +
           std::to_string(member.info.pid) + " on " + member.info.host_name + " and process " +
           std::to_string(info.pid) + " on " + info.host_name);
    return;
  }
  connection.rank = info.rank;
  connection.join_number = number;
  member.presence = Presence::Here;
  member.info = std::move(info);
  if (++come_ == options_.size) answer_members();
}

void StoreServer::answer_members() {
  complete_ = true;
  for (Connection& connection : connections_) {
    if (connection.rank < 0) continue;
    wire::Writer answer(wire::Kind::Members, connection.join_number);
    answer.u32(static_cast<uint32_t>(members_.size()));
    for (const Member& member : members_) answer.info(member.info);
    send(connection, answer.frame());
  }
}

void StoreServer::look_at_clocks() {
  const Clock::time_point now = Clock::now();
  const Clock::duration away = now - std::exchange(looked_, now);
  const bool stopped = was_stopped(away, options_.times);
  for (Connection& connection : connections_) {
    // While this process was stopped, as a suspended job is, it could not hear anything.
    if (stopped) connection.since = std::min(connection.since + away, now);
    if (connection.socket && connection.stage != Stage::Open && now - connection.since > options_.times.handshake) {
      if (connection.stage == Stage::Greeted) complain(connection, "connected and said nothing");
      drop(connection);
    }
  }
  if (!complete_ && failure_.empty() && now >= join_deadline_) {
    fail(std::to_string(come_) + " of " + std::to_string(options_.size) + " ranks came within " +
         seconds_text(options_.join_timeout) + "; missing: " + missing_ranks() +
         ". Where ranks need longer before they join: ANYACCEL_JOIN_TIMEOUT (seconds), or --join_timeout of anyaccel "
         "launch");
  }
  if (now < next_beat_) return;
  next_beat_ = now + options_.times.beat;
  std::vector<int> silent;
  bool overdue = false;
  for (Connection& connection : connections_) {
    if (!connection.socket || connection.stage != Stage::Open) continue;
    send(connection, wire::Writer(wire::Kind::Beat).frame());
    if (connection.rank < 0 || members_[static_cast<size_t>(connection.rank)].presence != Presence::Here) continue;
    const auto quiet = now - connection.since;
    overdue = overdue || quiet >= options_.times.silence;
    // Ranks that fell silent at the same time as the overdue one are named with it.
    if (quiet >= options_.times.silence - options_.times.beat * 3 / 2) silent.push_back(connection.rank);
  }
  if (overdue) lose(silent, "not been heard of for " + seconds_text(options_.times.silence));
}

// how: "ended", or "not been heard of for 5 s".
void StoreServer::lose(const std::vector<int>& ranks, const std::string& how) {
  for (const int rank : ranks) members_[static_cast<size_t>(rank)].presence = Presence::Lost;
  const bool ended = how == "ended";
  std::string text;
  std::vector<std::string> named;  // hosts that are lost as a whole
  for (const int rank : ranks) {
    const wire::JoinInfo& info = members_[static_cast<size_t>(rank)].info;
    if (std::find(named.begin(), named.end(), info.host_id) != named.end()) continue;
    std::vector<int> of_host;
    bool whole = true;
    for (size_t i = 0; i < members_.size(); ++i) {
      const Member& other = members_[i];
      if (other.presence == Presence::Absent || other.info.host_id != info.host_id) continue;
      of_host.push_back(static_cast<int>(i));
      whole = whole && std::find(ranks.begin(), ranks.end(), static_cast<int>(i)) != ranks.end();
    }
    text += text.empty() ? "" : "; ";
    if (whole && of_host.size() > 1) {
      named.push_back(info.host_id);
      text += "all ranks of " + info.host_name + " (" + list(of_host) + ") have " + how;
    } else {
      text += member_name(rank) + (ended ? " " : " has ") + how;
    }
  }
  if (!ended) text += ": the host, its network or the process hangs";
  fail(text);
  note_presence();
}

void StoreServer::fail(const std::string& message) {
  if (!failure_.empty()) return;
  failure_ = message;
  // Rank 0 is told last. Its process runs this thread and may exit as soon as it knows; ranks that were not told yet would
  // report that exit as the cause.
  for (const bool to_rank_0 : {false, true}) {
    for (Connection& connection : connections_) {
      if (connection.rank < 0 || (connection.rank == 0) != to_rank_0) continue;
      send(connection, wire::Writer(wire::Kind::Failed).text(message).frame());
      flush(connection);
    }
  }
}

void StoreServer::note_presence() {
  const bool someone = std::any_of(members_.begin(), members_.end(),
                                   [](const Member& member) { return member.presence == Presence::Here; });
  if (someone) return;
  const std::lock_guard lock(mutex_);
  all_left_ = true;
  changed_.notify_all();
}

}  // namespace anyaccel::comm
