// Writes a number as a person would.
#pragma once

#include <locale>
#include <sstream>
#include <string>

namespace anyaccel {

// Returns up to six digits, with an exponent where needed, in any locale. (std::to_string() gives "0.000000" for 1e-8.)
inline std::string number_text(double value) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << value;
  return text.str();
}

}  // namespace anyaccel
