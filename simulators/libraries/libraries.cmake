# Stand-ins for the libraries beside a vendor's driver, with the real files' names, in one folder with it: `driver` is the file
# of the simulated driver, which a program has loaded.
function(add_vendor_library target folder file driver)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  # Of the engine only the settings: the engine itself is the one in the driver.
  add_library(${target} SHARED ${CMAKE_CURRENT_SOURCE_DIR}/libraries/library.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/engine/settings.cpp ${ARGN})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE SIM_DRIVER="${driver}")
  target_link_libraries(${target} PRIVATE anyaccel_warnings Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(${target} PRIVATE -Wl,-soname,${file})
  anyaccel_optimize(${target} 1)
  anyaccel_unity(${target})
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${file} SUFFIX "" CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/simulators/${folder})
endfunction()

set(collective_sources libraries/communicator.cpp libraries/collective.cpp libraries/rendezvous.cpp libraries/product.cpp)
