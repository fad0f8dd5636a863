# Defines the files that `cmake --install` copies, and the Debian packages (tools/debian_packages), each of which is
# built from one component:
#   runtime  libanyaccel      the files that the library reads at run time
#   dev      libanyaccel-dev  the archive, the headers, and what find_package(anyaccel) and pkg-config read
#   tools    anyaccel-tools   the command, anyaccel-checks, completions, the pages and the bundled model
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME dev)

# Headers that ops include which are compiled at run time belong to the runtime component.
set(RUN_TIME_HEADERS "op_source\\.h$|abi/op_library\\.h$|abi/base\\.h$")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/anyaccel DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT runtime
  FILES_MATCHING REGEX ${RUN_TIME_HEADERS})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/kernels DESTINATION ${CMAKE_INSTALL_DATADIR}/anyaccel COMPONENT runtime)
install(DIRECTORY DESTINATION lib/anyaccel/plugins COMPONENT runtime)
if(TARGET anyaccel_gloo)
  install(TARGETS anyaccel_gloo LIBRARY DESTINATION lib/anyaccel COMPONENT runtime)
endif()

install(TARGETS anyaccel EXPORT anyaccel_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/anyaccel DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  REGEX ${RUN_TIME_HEADERS} EXCLUDE)
# The suite's other headers include files that are not installed.
install(FILES ${PROJECT_SOURCE_DIR}/conformance/suite.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/anyaccel/conformance)
# These archives are optional: a build of the command alone does not have them.
foreach(library nn conformance)
  set(target anyaccel_${library})
  if(library STREQUAL conformance)
    string(APPEND target _suite)
  endif()
  install(TARGETS ${target} EXPORT anyaccel_${library}_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} OPTIONAL)
  install(EXPORT anyaccel_${library}_targets NAMESPACE anyaccel:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/anyaccel)
endforeach()
install(EXPORT anyaccel_targets NAMESPACE anyaccel:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/anyaccel)
configure_package_config_file(cmake/anyaccel-config.cmake.in ${PROJECT_BINARY_DIR}/anyaccel-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/anyaccel)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/anyaccel-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/anyaccel-config.cmake ${PROJECT_BINARY_DIR}/anyaccel-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/anyaccel)
set(ANYACCEL_PC_LIBRARIES "-pthread -ldl -lm")
foreach(library ${HWLOC_SHARED_LIBRARY} ${SODIUM_SHARED_LIBRARY} ${PCRE2_LIBRARY} ${UTF8PROC_LIBRARY}
    ${URING_LIBRARY})
  get_filename_component(name ${library} NAME_WE)
  string(REGEX REPLACE "^lib" "-l" name ${name})
  string(PREPEND ANYACCEL_PC_LIBRARIES "${name} ")
endforeach()
foreach(module anyaccel anyaccel-plugin)
  configure_file(cmake/${module}.pc.in ${PROJECT_BINARY_DIR}/${module}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${module}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libanyaccel-dev)

install(TARGETS anyaccel_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
install(TARGETS anyaccel_checks RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools OPTIONAL)
install(FILES ${PROJECT_SOURCE_DIR}/completions/anyaccel DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  COMPONENT tools)
install(FILES ${PROJECT_SOURCE_DIR}/completions/_anyaccel DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions
  COMPONENT tools)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/stories DESTINATION ${CMAKE_INSTALL_DATADIR}/anyaccel/models COMPONENT tools
  PATTERN "*.py" EXCLUDE)
# The pages, which the command's help and its messages name.
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/anyaccel-tools
  COMPONENT tools)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/anyaccel-tools COMPONENT tools
  FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.png")
foreach(package runtime:libanyaccel dev:libanyaccel-dev tools:anyaccel-tools)
  string(REGEX MATCH "(.*):(.*)" package ${package})
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${CMAKE_MATCH_2} RENAME copyright
    COMPONENT ${CMAKE_MATCH_1})
endforeach()

# Describes the packages. dpkg-shlibdeps finds the shared libraries that a package needs; the libraries that a program
# links in addition to the archive are named here, since no file of the package refers to them.
set(CPACK_PACKAGE_NAME anyaccel)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL runtime dev tools)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "The anyaccel developers")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libanyaccel)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "g++")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "libdnnl3.6 | libdnnl3 | libdnnl2")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "accelerator abstraction for C++ (files used at run time)
Sources of ops and kernels that are compiled where a program runs, and the
transport between hosts. Programs link the library itself statically.")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libanyaccel-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libanyaccel (= ${PROJECT_VERSION}), libhwloc-dev, libudev-dev, libpcre2-dev, \
libutf8proc-dev, liburing-dev, libsodium-dev")
set(CPACK_COMPONENT_DEV_DESCRIPTION "accelerator abstraction for C++ (archive and headers)
The static library, its headers, the interface for plugins, and the files for
CMake and pkg-config.")
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME anyaccel-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "libanyaccel (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS "pdsh, openssh-client")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "command of anyaccel, and a small language model
Runs language models, starts programs on many devices and hosts, and checks
accelerators. Includes completions for bash and zsh and a bundled model.")
include(CPack)
