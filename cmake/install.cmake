# The files that `cmake --install` copies, in components that a distribution can package separately:
#   runtime  the files that the library reads at run time
#   dev      the archive, the headers, and the files for find_package(anyaccel) and pkg-config
#   tools    the command, its completions and the bundled model
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
install(DIRECTORY ${PROJECT_SOURCE_DIR}/conformance DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/anyaccel FILES_MATCHING PATTERN "*.h")
install(EXPORT anyaccel_targets NAMESPACE anyaccel:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/anyaccel)
configure_package_config_file(cmake/anyaccel-config.cmake.in ${PROJECT_BINARY_DIR}/anyaccel-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/anyaccel)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/anyaccel-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/anyaccel-config.cmake ${PROJECT_BINARY_DIR}/anyaccel-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/anyaccel)
set(ANYACCEL_PC_LIBRARIES "-pthread -ldl -lm")
foreach(library ${HWY_LIBRARY} ${HWLOC_SHARED_LIBRARY} ${SODIUM_SHARED_LIBRARY} ${PCRE2_LIBRARY} ${UTF8PROC_LIBRARY}
    ${URING_LIBRARY})
  get_filename_component(name ${library} NAME_WE)
  string(REGEX REPLACE "^lib" "-l" name ${name})
  string(PREPEND ANYACCEL_PC_LIBRARIES "${name} ")
endforeach()
configure_file(cmake/anyaccel.pc.in ${PROJECT_BINARY_DIR}/anyaccel.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/anyaccel.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(TARGETS anyaccel_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
install(FILES ${PROJECT_SOURCE_DIR}/completions/anyaccel DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  COMPONENT tools)
install(FILES ${PROJECT_SOURCE_DIR}/completions/_anyaccel DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions
  COMPONENT tools)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/stories DESTINATION ${CMAKE_INSTALL_DATADIR}/anyaccel/models COMPONENT tools
  PATTERN "*.py" EXCLUDE)
