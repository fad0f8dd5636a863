# Makes a program run on machines where none of its libraries are installed: it looks for them first beside the program,
# where tools/package puts them.
function(anyaccel_portable_program target)
  set_target_properties(${target} PROPERTIES BUILD_RPATH "$ORIGIN/../lib/anyaccel" INSTALL_RPATH "$ORIGIN/../lib/anyaccel")
endfunction()
