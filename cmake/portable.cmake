# Programs that run on machines where nothing of theirs is installed: libraries are looked for beside the program first, where
# tools/package puts them.
function(anyaccel_portable_program target)
  set_target_properties(${target} PROPERTIES BUILD_RPATH "$ORIGIN/../lib/anyaccel" INSTALL_RPATH "$ORIGIN/../lib/anyaccel")
endfunction()
