// Checks the environment variables of this library before work begins, so that a mistyped one is not discovered only
// when its value is first needed, or never.
#pragma once

#include <initializer_list>

namespace anyaccel {

// Runs the check of every variable that is set (environment_variables() of builtins.h): throws InvalidArgument that
// quotes the value and lists the allowed ones. Warns of variables that begin with ANYACCEL_ and are one typing mistake
// away from a known name.
void check_environment();

// A check for that table: InvalidArgument if the value of the variable, which is set, is not one of these words.
void check_choice(const char* name, std::initializer_list<const char*> words);
// Warns if the value is not a positive number ("8"; "8,2" counts too) and is therefore ignored; the warning says what
// happens instead.
void check_count(const char* name, const char* what_happens);

}  // namespace anyaccel
