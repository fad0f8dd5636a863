# make install, and what a program or a plugin outside this tree finds with find_package(anyaccel).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS anyaccel_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS anyaccel EXPORT anyaccel_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/anyaccel DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/conformance DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/anyaccel FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/kernels DESTINATION ${CMAKE_INSTALL_DATADIR}/anyaccel)
install(DIRECTORY DESTINATION lib/anyaccel/plugins)
install(FILES ${PROJECT_SOURCE_DIR}/completions/anyaccel DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${PROJECT_SOURCE_DIR}/completions/_anyaccel DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
if(TARGET anyaccel_gloo)
  install(TARGETS anyaccel_gloo LIBRARY DESTINATION lib/anyaccel)
endif()
install(EXPORT anyaccel_targets NAMESPACE anyaccel:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/anyaccel)
configure_package_config_file(cmake/anyaccel-config.cmake.in ${PROJECT_BINARY_DIR}/anyaccel-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/anyaccel)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/anyaccel-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/anyaccel-config.cmake ${PROJECT_BINARY_DIR}/anyaccel-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/anyaccel)
