# Finds the libraries that anyaccel is built with. They are linked statically where the distribution has the archive (Debian and Ubuntu
# have all of them), so that the binary starts in milliseconds and needs few packages installed.
find_package(Threads REQUIRED)
find_path(HWY_INCLUDE_DIR hwy/highway.h REQUIRED)
find_library(HWLOC_LIBRARY NAMES libhwloc.a libhwloc.so REQUIRED)
find_library(UDEV_LIBRARY NAMES udev REQUIRED)
# Debian's archive is not position-independent: a shared library that contains anyaccel links the shared hwloc.
find_library(HWLOC_SHARED_LIBRARY NAMES libhwloc.so REQUIRED)
set(HWLOC_LIBRARIES
  "$<IF:$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>,${HWLOC_LIBRARY},${HWLOC_SHARED_LIBRARY}>" ${UDEV_LIBRARY} m)
# libsodium provides SHA-256 and HMAC. Like hwloc's, Debian's archive is not position-independent.
find_library(SODIUM_ARCHIVE NAMES libsodium.a libsodium.so REQUIRED)
find_library(SODIUM_SHARED_LIBRARY NAMES libsodium.so REQUIRED)
set(SODIUM_LIBRARY
  "$<IF:$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>,${SODIUM_ARCHIVE},${SODIUM_SHARED_LIBRARY}>")
find_library(PCRE2_LIBRARY NAMES libpcre2-8.a libpcre2-8.so REQUIRED)
find_library(UTF8PROC_LIBRARY NAMES libutf8proc.a libutf8proc.so REQUIRED)
find_library(URING_LIBRARY NAMES liburing.a liburing.so REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
