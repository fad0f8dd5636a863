# make install, and what a program or a plugin outside this tree finds with find_package(anyaccel).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS anyaccel_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS anyaccel EXPORT anyaccel_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/anyaccel DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/conformance DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/anyaccel FILES_MATCHING PATTERN "*.h")
install(DIRECTORY DESTINATION ${CMAKE_INSTALL_LIBDIR}/anyaccel/plugins)
install(EXPORT anyaccel_targets NAMESPACE anyaccel:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/anyaccel)
file(WRITE ${PROJECT_BINARY_DIR}/anyaccel-config.cmake [[
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/anyaccel_targets.cmake)
]])
write_basic_package_version_file(${PROJECT_BINARY_DIR}/anyaccel-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/anyaccel-config.cmake ${PROJECT_BINARY_DIR}/anyaccel-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/anyaccel)
