# Kernels compiled for the host: object libraries whose kernels are in sim::kernel_table().

# The formats of quantized weights, for which files are compiled that name AA_NAME_BLOCK (kernels/portable/blocks.h).
set(block_formats q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs tq1_0 tq2_0 mxfp4)

# Sanitizers do not instrument the kernels (below), so their builds take them from the release build, which compiles the same: a sixth
# of their time.

# One source a kernel file and choice of its element types: of AA_X where a line of the file matches uses_x, of AA_W where one
# matches uses_w; or a choice of a format of quantized weights.
function(add_host_kernels target uses_x uses_w)
  set(sources)
  foreach(kernel_file ${ARGN})
    get_filename_component(name ${kernel_file} NAME_WE)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernel_file})
    file(STRINGS ${kernel_file} lines_x REGEX ${uses_x} LIMIT_COUNT 1)
    file(STRINGS ${kernel_file} lines_w REGEX ${uses_w} LIMIT_COUNT 1)
    set(x_types none)
    set(w_types none)
    if(lines_x)
      set(x_types f32 bf16 f16)
    endif()
    if(lines_w)
      set(w_types f32 bf16 f16)
    endif()
    file(STRINGS ${kernel_file} lines_block REGEX "AA_NAME_BLOCK" LIMIT_COUNT 1)
    if(lines_block)
      foreach(block ${block_formats})
        set(source ${CMAKE_CURRENT_BINARY_DIR}/kernels/${target}/${name}_${block}.cpp)
        file(CONFIGURE OUTPUT ${source} @ONLY CONTENT
          "// Generated: one format of a kernel file.\n#define AA_BLOCK ${block}\n#include \"${kernel_file}\"\n")
        list(APPEND sources ${source})
      endforeach()
      continue()
    endif()
    foreach(x ${x_types})
      foreach(w ${w_types})
        set(source ${CMAKE_CURRENT_BINARY_DIR}/kernels/${target}/${name}_${x}_${w}.cpp)
        set(text "// Generated: one choice of element types of a kernel file.\n")
        if(NOT x STREQUAL none)
          string(APPEND text "#define AA_X ${x}\n")
        endif()
        if(NOT w STREQUAL none)
          string(APPEND text "#define AA_W ${w}\n")
        endif()
        string(APPEND text "#include \"${kernel_file}\"\n")
        file(CONFIGURE OUTPUT ${source} CONTENT "${text}" @ONLY)
        list(APPEND sources ${source})
      endforeach()
    endforeach()
  endforeach()
  if(ANYACCEL_RELEASE_BUILD)
    set(objects)
    foreach(source ${sources})
      get_filename_component(file ${source} NAME)
      list(APPEND objects ${ANYACCEL_RELEASE_BUILD}/simulators/CMakeFiles/${target}.dir/kernels/${target}/${file}.o)
    endforeach()
    add_library(${target} OBJECT IMPORTED GLOBAL)
    set_target_properties(${target} PROPERTIES IMPORTED_OBJECTS "${objects}")
    set(kernels_taken ${kernels_taken} ${objects} PARENT_SCOPE)
    return()
  endif()
  add_library(${target} OBJECT ${sources})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE AA_HOST_KERNELS="simulators/kernels/host_dialect.h" AA_HAS_F16=1 AA_HAS_F64=1)
  # With -O1 they compile in three quarters of the time that -O2 takes, and the tests take no longer.
  # Compilers of device kernels do not mind parameters that one setting leaves unused. The engine checks what kernels touch;
  # sanitizers would only double the time that they take to compile.
  target_compile_options(${target} PRIVATE -O1 -Wall -Wno-unused-variable -Wno-unused-function -Wno-unknown-pragmas)
  if(ANYACCEL_SANITIZE)
    target_compile_options(${target} PRIVATE -fno-sanitize=all -g0)
  endif()
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  # Reading the standard library's headers takes longer than compiling most kernels. Those of tests share the others' headers.
  string(REPLACE "_test_" "_" precompiled ${target})
  if(precompiled STREQUAL target)
    target_precompile_headers(${target} PRIVATE <cmath> ${PROJECT_SOURCE_DIR}/simulators/engine/kernel.h
      ${PROJECT_SOURCE_DIR}/simulators/engine/warp.h)
  else()
    target_precompile_headers(${target} REUSE_FROM ${precompiled})
  endif()
endfunction()

# The names of a kernel file that depend on an element type, as whole words: AA_WIDE does not. The tests of NVRTC and hipRTC
# (tests/kernels) read the files in the same way.
set(names_x "(^|[^A-Z_])AA_(X|NAME_X|NAME_XW)([^A-Z_]|$)")
set(names_w "(^|[^A-Z_])AA_(W|NAME_W|NAME_XW)([^A-Z_]|$)")

# The portable kernels, with the settings that the simulated devices ask for (engine/fiber.h).
file(GLOB portable_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/portable/*.cl)
add_host_kernels(simulator_kernels ${names_x} ${names_w} ${portable_kernels})
file(GLOB test_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/simulators/kernels/*.cl)
add_host_kernels(simulator_test_kernels ${names_x} ${names_w} ${test_kernels})

# The tuned kernels of CUDA.
file(GLOB tuned_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu)
add_host_kernels(simulator_tuned_kernels ${names_x} ${names_w} ${tuned_kernels})
file(GLOB tuned_test_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/kernels/cuda/*.cu)
add_host_kernels(simulator_tuned_test_kernels ${names_x} ${names_w} ${tuned_test_kernels})

if(ANYACCEL_RELEASE_BUILD)
  anyaccel_of_release(kernels_of_release "${kernels_taken}"
    simulator_kernels simulator_test_kernels simulator_tuned_kernels simulator_tuned_test_kernels)
  return()
endif()
foreach(target simulator_kernels simulator_test_kernels)
  target_compile_definitions(${target} PRIVATE AA_GROUP_SIZE=32 AA_LANES=8 AA_SUBGROUP=8 AA_ITEMS=32 AA_LOCAL_BYTES=16384)
endforeach()
foreach(target simulator_tuned_kernels simulator_tuned_test_kernels)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/kernels/portable ${PROJECT_SOURCE_DIR}/kernels/cuda)
  target_compile_definitions(${target} PRIVATE AA_HOST_WARP="simulators/kernels/host_warp.h"
    AA_HOST_WARPGROUP="simulators/kernels/host_warpgroup.h" AA_GROUP_SIZE=1 AA_LANES=1
    AA_SUBGROUP=0 AA_ITEMS=1 AA_LOCAL_BYTES=0)
endforeach()
