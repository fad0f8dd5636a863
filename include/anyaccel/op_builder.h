// Op builders: ask for a library of ops by name and load it on the accelerator that is active.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace anyaccel {

class Accelerator;

// A loaded library of ops. Programs cast it to its typed face: ops::Inference for "InferenceBuilder".
class OpLibrary {
 public:
  virtual ~OpLibrary() = default;
};

class OpBuilder {
 public:
  virtual ~OpBuilder() = default;
  // "InferenceBuilder".
  virtual const std::string& name() const noexcept = 0;
  // Whether load() can succeed here; when not and `reason` is given, it receives why.
  virtual bool is_compatible(std::string* reason = nullptr) const = 0;
  // Throws NotImplementedError that names the op, the accelerator, and where the op exists; BuildError.
  virtual std::shared_ptr<OpLibrary> load() = 0;

  // load(), as the typed face. Throws InvalidArgument when the library is of another kind.
  template <class Face>
  std::shared_ptr<Face> load_as() {
    auto face = std::dynamic_pointer_cast<Face>(load());
    if (!face) throw_wrong_face();
    return face;
  }

 private:
  [[noreturn]] void throw_wrong_face() const;
};

// Every builder name that anyaccel knows ("CPUAdamBuilder", ...), whether or not an accelerator has it yet.
std::vector<std::string> known_op_builders();

}  // namespace anyaccel
