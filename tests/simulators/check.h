// The check of programs that run in a child process: what is not so is printed, and the process exits with code 92.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
      std::_Exit(92);                                                      \
    }                                                                      \
  } while (0)
