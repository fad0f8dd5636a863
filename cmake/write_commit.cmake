# Writes OUT, a header that names the commit being built, if it differs from that of the last build:
#   cmake -DSOURCE=FOLDER -DOUT=FILE -P write_commit.cmake
# "-changed" is added where tracked files differ from the commit; without git or a repository it is "unknown".
set(commit unknown)
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE found RESULT_VARIABLE result
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(result EQUAL 0)
    set(commit ${found})
    execute_process(COMMAND ${GIT} -C ${SOURCE} diff --quiet HEAD RESULT_VARIABLE changed ERROR_QUIET)
    if(NOT changed EQUAL 0)
      string(APPEND commit -changed)
    endif()
  endif()
endif()
set(text "#pragma once\n#define ANYACCEL_COMMIT \"${commit}\"\n")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT text STREQUAL "${before}")
  file(WRITE ${OUT} "${text}")
endif()
