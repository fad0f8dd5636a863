// Finds the known name that is closest to a mistyped one, for suggestions in error messages.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace anyaccel {

// Returns the entry of `known` that is closest to `word`, or one that begins with `word`; empty if none is close.
// Leading dashes, the difference between '-' and '_', and case are ignored. Of equally close ones it returns the first.
std::string nearest_name(std::string_view word, std::span<const std::string> known);

// Returns "; did you mean 'NAME'?" for the closest one, or an empty text: for the end of a message.
std::string did_you_mean(std::string_view word, std::span<const std::string> known);

}  // namespace anyaccel
