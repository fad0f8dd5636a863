// Starts threads, and says what to do where the system refuses them.
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "anyaccel/error.h"

namespace anyaccel {

// What to do where the system refused a thread or a process with this error, beginning with a semicolon; empty if that is not known.
std::string cure_of_refusal(int error);
// What to say of a thread that it refused.
std::string refused_thread(int error);

// Throws UnavailableError if no thread can be started; its message begins with `what`, which needs one.
template <class Body>
std::thread start_thread(const std::string& what, Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    throw UnavailableError(what + ": " + refused_thread(error.code().value()), AA_RESOURCE_EXHAUSTED,
                           error.code().value());
  }
}

// Adds up to `count` threads that run copies of `body`: fewer, if the system refuses more.
template <class Thread, class Body>
void start_helpers(std::vector<Thread>& threads, size_t count, const Body& body) {
  try {
    while (count-- > 0) threads.emplace_back(body);
  } catch (const std::system_error&) {
    // The caller does the work of those that are missing.
  }
}

}  // namespace anyaccel
