// The exceptions of anyaccel. All are derived from anyaccel::Error, so that a program can catch them all. A message
// says what was asked, what was found, and what to do.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "anyaccel/abi/base.h"

namespace anyaccel {

// The base class; thrown itself only for errors that fit no class below (a vendor's unknown error, a bug).
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, aa_code code = AA_INTERNAL, int64_t native_code = 0)
      : std::runtime_error(message), code_(code), native_code_(native_code) {}

  aa_code code() const noexcept { return code_; }
  // The vendor's own error number; 0 when there is none.
  int64_t native_code() const noexcept { return native_code_; }

 private:
  aa_code code_;
  int64_t native_code_;
};

// A requested accelerator, library, plugin or service does not exist or cannot be used on this machine.
class UnavailableError : public Error {
 public:
  explicit UnavailableError(const std::string& message, aa_code code = AA_UNAVAILABLE, int64_t native_code = 0)
      : Error(message, code, native_code) {}
};

// Memory of a device, or a limit of the operating system on memory, is used up.
class OutOfMemoryError : public Error {
 public:
  explicit OutOfMemoryError(const std::string& message, int64_t native_code = 0)
      : Error(message, AA_RESOURCE_EXHAUSTED, native_code) {}
};

// The caller passed something wrong: a shape, a dtype, an index, an option, a name. Nothing was changed.
class InvalidArgument : public Error {
 public:
  explicit InvalidArgument(const std::string& message, aa_code code = AA_INVALID_ARGUMENT) : Error(message, code) {}
};

// The accelerator does not have the feature or the op, and no fallback was allowed.
class NotImplementedError : public Error {
 public:
  explicit NotImplementedError(const std::string& message) : Error(message, AA_UNIMPLEMENTED) {}
};

// An op could not be compiled or its library could not be loaded; the message holds the compiler's output.
class BuildError : public Error {
 public:
  explicit BuildError(const std::string& message) : Error(message, AA_FAILED_PRECONDITION) {}
};

// A process group failed: a peer died, a time limit passed, the rendezvous was refused.
class CommunicationError : public Error {
 public:
  explicit CommunicationError(const std::string& message, aa_code code = AA_UNAVAILABLE) : Error(message, code) {}
};

// A model directory (configuration, weights, tokenizer) is missing, damaged or of a kind that is not supported.
class CheckpointError : public Error {
 public:
  explicit CheckpointError(const std::string& message) : Error(message, AA_DATA_LOSS) {}
};

// A model computed invalid numbers: its logits hold a NaN or an infinity, and no token can be chosen. The causes are
// damaged weights, or a number format whose range is too small for the model.
class NumericalError : public Error {
 public:
  explicit NumericalError(const std::string& message) : Error(message, AA_DATA_LOSS) {}
};

}  // namespace anyaccel
