// What a person who mistyped a name most likely meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace anyaccel {

// The entry of `known` that is nearest to `word`, or one that `word` begins; empty when none is near. Dashes before a word
// and the difference between '-' and '_' do not count, nor do capital letters. Of equally near ones it is the first.
std::string nearest_name(std::string_view word, std::span<const std::string> known);

// "; did you mean 'NAME'?" of the nearest one, or nothing: for the end of a message.
std::string did_you_mean(std::string_view word, std::span<const std::string> known);

}  // namespace anyaccel
