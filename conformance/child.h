// Runs a part of a case in a child process, so that a hang or a crash there fails the case and does not end the suite.
#pragma once

#include <functional>

#include "conformance/context.h"

namespace anyaccel::conformance {

// Forks, runs `body` in the child, and waits for it. Fails if the child fails an expectation, is killed by a signal, or
// takes more than a minute; unsupported and unavailable are passed on.
void in_child(const std::string& what, const std::function<void()>& body);

}  // namespace anyaccel::conformance
