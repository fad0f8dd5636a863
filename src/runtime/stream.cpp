// ScopeGuard: see anyaccel/stream.h.
#include "anyaccel/stream.h"

#include <exception>

namespace anyaccel {

ScopeGuard::ScopeGuard(std::function<void(bool unwinding)> exit)
    : exit_(std::move(exit)), exceptions_(std::uncaught_exceptions()) {}

ScopeGuard::ScopeGuard(ScopeGuard&& other) noexcept
    : exit_(std::exchange(other.exit_, nullptr)), exceptions_(other.exceptions_) {}

ScopeGuard::~ScopeGuard() noexcept(false) {
  if (!exit_) return;
  const bool unwinding = std::uncaught_exceptions() > exceptions_;
  if (!unwinding) {
    exit_(false);
    return;
  }
  try {
    exit_(true);
  } catch (...) {  // a second exception would end the program; the first one is the cause
  }
}

}  // namespace anyaccel
