// Environment variables of this library, checked before work begins: one that is mistyped should not be found out when its
// value is first needed, or never.
#pragma once

#include <initializer_list>

namespace anyaccel {

// Runs the check of every variable that is set (environment_variables() of builtins.h): throws InvalidArgument that quotes the
// value and says what is possible. Warns of variables that are ANYACCEL_ and one mistake away from a known name.
void check_environment();

// For that table. InvalidArgument when the variable, which is set, is none of these words.
void check_choice(const char* name, std::initializer_list<const char*> words);
// Warns when it is no positive number ("8"; "8,2" counts) and is therefore ignored, with what happens instead.
void check_count(const char* name, const char* what_happens);

}  // namespace anyaccel
