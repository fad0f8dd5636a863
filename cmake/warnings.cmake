# Warnings of every target. They are errors, but under sanitizers, where g++ 12 sees overruns in std::string that are not there.
add_library(anyaccel_warnings INTERFACE)
target_compile_options(anyaccel_warnings INTERFACE -Wall -Wextra -Wpedantic
  # g++ 12 reports overlaps in std::string's own operator+ that cannot happen (GCC bug 105651).
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
if(NOT ANYACCEL_SANITIZE)
  target_compile_options(anyaccel_warnings INTERFACE -Werror)
endif()
