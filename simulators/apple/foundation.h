// The classes of Foundation that a program of Metal meets.
#pragma once

#include <string>
#include <vector>

#include "simulators/apple/objc.h"

namespace sim::apple {

struct String : Instance {
  explicit String(std::string characters = {}) : Instance("NSString"), text(std::move(characters)) {}
  void dealloc() override;  // pointers of UTF8String end here
  std::string text;
};
struct Error : Instance {
  Error() : Instance("NSError") {}
  std::string domain, description;
  Integer code = 0;
};
struct Array : Instance {
  Array() : Instance("NSArray") {}
  void dealloc() override { elements.clear(); }
  std::vector<Ref<Instance>> elements;
};
struct Number : Instance {
  Number() : Instance("NSNumber") {}
  long long integer = 0;
  double real = 0;
};
struct Dictionary : Instance {
  explicit Dictionary(const char* name = "NSDictionary") : Instance(name) {}
  void dealloc() override { entries.clear(); }
  std::vector<std::pair<Ref<Instance>, Ref<Instance>>> entries;
};

Id string_autoreleased(const std::string& text);
std::shared_ptr<Error> make_error(const std::string& domain, Integer code, const std::string& description);
// For methods that return an error through a pointer.
void set_error(Id* place, const std::string& domain, Integer code, const std::string& description);
// The text of a string that a program passes; false with a violation for anything else.
bool text_of(Id string, const char* what, std::string* text);

}  // namespace sim::apple
