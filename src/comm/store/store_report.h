// Lets the launcher of a job report to the waiting ranks that a rank has ended, and so will not join.
#pragma once

#include <chrono>
#include <string>

namespace anyaccel::comm {

// The address of the job's store.
struct StorePlace {
  std::string address;  // MASTER_ADDR
  int port = 0;
  std::string token;
};

// Tells the store that the process of `rank` has ended; how: "with exit code 0". The store fails the ranks that wait
// for it, unless it had joined. Blocks for at most `timeout`; CommunicationError if there is no store, or it belongs to
// another job.
void report_ended_rank(const StorePlace& place, int rank, const std::string& how, std::chrono::milliseconds timeout);

// "rank 2 on node1 ended with exit code 0 before it joined the process group of 4 ranks"
std::string ended_early(const std::string& name, const std::string& how, int ranks);

}  // namespace anyaccel::comm
