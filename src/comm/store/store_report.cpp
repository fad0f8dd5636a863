// Reports to a job's store that a rank has ended.
#include "comm/store/store_report.h"

#include <poll.h>
#include <sys/socket.h>

#include <chrono>

#include "anyaccel/error.h"
#include "comm/store/store_connect.h"
#include "comm/store/wire.h"

namespace anyaccel::comm {

void report_ended_rank(const StorePlace& place, int rank, const std::string& how, std::chrono::milliseconds timeout) {
  const FileDescriptor socket = connect_to_store(place.address, place.port, place.token, timeout);
  const std::string frame = wire::Writer(wire::Kind::Ended, 1).i64(rank).text(how).frame();
  // A new connection has room for it.
  if (::send(socket.get(), frame.data(), frame.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(frame.size())) {
    throw CommunicationError("the job's store cannot be told that a rank has ended");
  }
  // Waits until it has arrived: closing a connection with unread data may discard the data that was sent.
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::string in;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd entry{socket.get(), POLLIN, 0};
    char bytes[4096];
    const ssize_t count = left.count() > 0 && ::poll(&entry, 1, static_cast<int>(left.count())) > 0
                              ? ::recv(socket.get(), bytes, sizeof(bytes), 0)
                              : 0;
    if (count <= 0) throw CommunicationError("the job's store does not answer that it knows that a rank has ended");
    in.append(bytes, static_cast<size_t>(count));
    for (wire::Frame answer = wire::first_frame(in); answer.size != 0; answer = wire::first_frame(in)) {
      if (answer.kind == wire::Kind::Done) return;
      in.erase(0, answer.size);
    }
  }
}

std::string ended_early(const std::string& name, const std::string& how, int ranks) {
  return name + " ended " + how + " before it joined the process group of " + std::to_string(ranks) + " ranks";
}

}  // namespace anyaccel::comm
