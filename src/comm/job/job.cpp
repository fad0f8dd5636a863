// Creates and joins a job.
#include "comm/job/job.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "anyaccel/error.h"
#include "base/files/open_files.h"

namespace anyaccel::comm {

Job::Job(const JobOptions& options) : options_(options) {
  const JobPlace& place = options_.place;
  wire::JoinInfo self;
  self.rank = place.rank;
  self.size = place.size;
  self.local_rank = place.local_rank;
  self.local_size = place.local_size;
  self.pid = ::getpid();
  self.device_library = options_.device_library;
  self.backend = options_.backend;
  self.host_id = options_.host_id;
  self.host_name = options_.host_name;
  if (place.size == 1) {
    store_ = make_local_store();
    take_members({self});
    return;
  }
  if (place.rank == 0) {
    // One connection from every rank, and this process's own sockets and events.
    const std::string room = make_room_for_files(static_cast<size_t>(place.size) + 8);
    if (!room.empty()) {
      throw CommunicationError("rank 0 cannot serve the job's store to " + std::to_string(place.size) +
                               " ranks: " + room);
    }
    StoreServer::Options server;
    server.address = place.master_addr;
    server.port = place.master_port;
    server.token = place.token;
    server.size = place.size;
    server.join_timeout = place.join_timeout;
    server.hosts = place.hosts;
    if (server.hosts.empty() && place.local_size == place.size) {
      server.hosts.assign(static_cast<size_t>(place.size), options_.host_name);
    }
    server.times = options_.times;
    server_ = std::make_unique<StoreServer>(std::move(server));
  }
  StoreClient::Options client;
  client.address = place.master_addr;
  client.port = place.master_port;
  client.token = place.token;
  client.timeout = place.join_timeout;
  client.times = options_.times;
  client_ = std::make_shared<StoreClient>(client, watch_);
  store_ = client_;
  take_members(client_->join(self, place.join_timeout));
}

Job::~Job() {
  client_.reset();
  store_.reset();
}

void Job::take_members(const std::vector<wire::JoinInfo>& members) {
  std::map<std::string, std::vector<int>> by_host;
  std::map<std::string, int> numbers;
  for (const wire::JoinInfo& member : members) {
    names_.push_back("rank " + std::to_string(member.rank) + " on " + member.host_name);
    hosts_.push_back(numbers.try_emplace(member.host_id, static_cast<int>(numbers.size())).first->second);
    by_host[member.host_id].push_back(member.rank);
    device_library_ = device_library_ || member.device_library;
  }
  // Every rank checks all ranks, so that all report the same error.
  for (const wire::JoinInfo& member : members) {
    if (member.backend == members[0].backend) continue;
    const auto asks = [&](const wire::JoinInfo& rank) {
      return names_[static_cast<size_t>(rank.rank)] + " asks for " +
             (rank.backend.empty() ? std::string("no backend") : "the backend \"" + rank.backend + "\"");
    };
    throw InvalidArgument(asks(members[0]) + ", " + asks(member) + ": all ranks must ask for the same");
  }
  for (const wire::JoinInfo& member : members) {
    const std::vector<int>& ranks = by_host[member.host_id];
    const std::string& name = names_[static_cast<size_t>(member.rank)];
    if (member.local_size >= 0 && member.local_size != static_cast<int>(ranks.size())) {
      throw InvalidArgument(name + " has LOCAL_SIZE=" + std::to_string(member.local_size) + ", but " +
                            std::to_string(ranks.size()) + " of the job's ranks are on " + member.host_name +
                            ": ranks share a host when they see the same host name and network. Correct or unset "
                            "LOCAL_SIZE");
    }
    for (const int other : ranks) {
      const wire::JoinInfo& second = members[static_cast<size_t>(other)];
      if (member.local_rank >= 0 && other != member.rank && second.local_rank == member.local_rank) {
        throw InvalidArgument(name + " and rank " + std::to_string(other) +
                              " both have LOCAL_RANK=" + std::to_string(member.local_rank) +
                              ": ranks of one host need different ones. Correct or unset LOCAL_RANK");
      }
    }
  }
}

void Job::report_failure(const std::string& message) noexcept {
  if (client_ && !watch_->failed()) client_->report_failure(message);
}

void Job::leave() noexcept {
  if (!client_) return;
  client_->goodbye();
  if (server_ && !watch_->failed()) server_->wait_until_all_left(options_.place.timeout);
}

}  // namespace anyaccel::comm
