// A piece of a case in a child process, so that a hang or a crash there is a failure of the case and not the end of the
// suite.
#pragma once

#include <functional>

#include "conformance/context.h"

namespace anyaccel::conformance {

// Forks, runs `body` in the child, and waits for it. Fails when the child fails an expectation, dies of a signal, or is
// not done in a minute; unsupported and unavailable are passed on.
void in_child(const std::string& what, const std::function<void()>& body);

}  // namespace anyaccel::conformance
