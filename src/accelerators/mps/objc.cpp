// Implements objc.h: converts strings and errors, and builds blocks.
#include "accelerators/mps/objc.h"

#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::mps {

Api api;
Selectors sel;

std::string text_of(Id string) {
  const char* text = string ? send<const char*>(string, sel.UTF8String) : nullptr;
  return text ? text : "";
}

Id string_of(const std::string& text) {
  static const Id string_class = api.objc_getClass("NSString");
  const Id string = send<Id>(string_class, sel.stringWithUTF8String, text.c_str());
  if (!string)
    throw abi::Failure(AA_RESOURCE_EXHAUSTED, "the Objective-C runtime gave no string (stringWithUTF8String:)");
  return string;
}

std::string error_text(Id error) {
  if (!error) return "Metal gave no reason";
  std::string text = text_of(send<Id>(error, sel.localizedDescription));
  if (text.empty()) text = "an error without a description";
  return text + " (code " + std::to_string(send<int64_t>(error, sel.code)) + ")";
}

const HandlerBlock::Descriptor HandlerBlock::descriptor_ = {0, sizeof(HandlerBlock::Literal)};

HandlerBlock::HandlerBlock(Function function, void* context)
    : literal_{api._NSConcreteStackBlock,
               0,  // on the stack, and nothing captured that needs copying or releasing
               0,
               [](Literal* self, Id argument) { self->function(self->context, argument); },
               &descriptor_,
               function,
               context} {}

}  // namespace anyaccel::mps
