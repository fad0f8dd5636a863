// The op builder of a library that is compiled into this one.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "anyaccel/op_builder.h"

namespace anyaccel::ops {

// A library that is part of this one; `Wrapper` is constructed with the accelerator.
template <class Wrapper>
class IncludedOpBuilder final : public OpBuilder {
 public:
  IncludedOpBuilder(std::string name, Accelerator& accelerator) : name_(std::move(name)), accelerator_(accelerator) {}
  const std::string& name() const noexcept override { return name_; }
  bool is_compatible(std::string* = nullptr) const override { return true; }
  std::shared_ptr<OpLibrary> load() override { return std::make_shared<Wrapper>(accelerator_); }

 private:
  std::string name_;
  Accelerator& accelerator_;
};

}  // namespace anyaccel::ops
