// Detects children made by fork(), in which no vendor's runtime works.
#pragma once

namespace anyaccel::queue_runtime {

// The process that started a runtime. Made once for each runtime, when it is started.
class StartedProcess {
 public:
  StartedProcess();
  // True in a child, made by fork() after the construction. Costs a load and a compare.
  bool is_forked_child() const noexcept;

 private:
  const unsigned generation_;
};

}  // namespace anyaccel::queue_runtime
