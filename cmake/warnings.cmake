# Sets the warnings of every target. They are errors, except under sanitizers, where g++ 12 reports overruns in
# std::string that do not exist.
add_library(anyaccel_warnings INTERFACE)
target_compile_options(anyaccel_warnings INTERFACE -Wall -Wextra -Wpedantic
  # g++ 12 reports overlaps in std::string's own operator+ that cannot happen (GCC bug 105651).
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  # g++ 13 and later warn of every reference that a function returns if its object or an argument is a temporary, even where the
  # reference is to something else.
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,13>>:-Wno-dangling-reference>)
if(NOT ANYACCEL_SANITIZE)
  target_compile_options(anyaccel_warnings INTERFACE -Werror)
endif()
